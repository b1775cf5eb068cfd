"""lmetric: tokens to compute x calls (OSDI 2026, arXiv 2603.15202; Dynamo and llm-d have it).

The least of (pending tokens + those that the call itself is to have computed) x (calls + 1).
"""

from __future__ import annotations

from teola.policies.routing.base import RoutingPolicy
from teola.policies.routing.destinations import least
from teola.policies.work import Work


class LMetric(RoutingPolicy):
    """No parameters: a product needs no weights."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        return least(
            self.view, work, now, lambda to: (to.seen.pending + to.missing) * (to.calls + 1)
        )
