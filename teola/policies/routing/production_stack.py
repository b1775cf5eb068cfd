"""production_stack: the router of vLLM's production stack that weighs prefix and load.

The most of found / prompt - (calls - mean) / max(1, mean), over the instances that the call may go
to.
"""

from __future__ import annotations

from statistics import fmean

from teola.policies.routing.base import RoutingPolicy
from teola.policies.routing.destinations import Destination, destinations, least
from teola.policies.work import Work


class ProductionStack(RoutingPolicy):
    """Content and load: a whole prompt in the cache counts as much as the mean number of calls."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        view = self.view
        mean = fmean([to.calls for to in destinations(view, work, now)] or [0])

        def cost(to: Destination) -> float:
            return (to.calls - mean) / max(1.0, mean) - to.found / work.tokens

        return least(view, work, now, cost)
