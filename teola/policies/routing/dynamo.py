"""dynamo: blocks to compute + active blocks (NVIDIA Dynamo's KV router, temperature 0).

The least of max((pending + prompt) / block - overlap, 0) + active KV blocks + prompt / block.
"""

from __future__ import annotations

from teola.policies.routing.base import RoutingPolicy
from teola.policies.routing.destinations import Destination, least
from teola.policies.work import Work


class Dynamo(RoutingPolicy):
    """Prefill and decode load, both counted in blocks."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        def cost(to: Destination) -> float:
            block = self.view.limits[to.instance].block_tokens
            prefill = (to.seen.pending + work.tokens - to.found) / block
            return max(prefill, 0.0) + (to.seen.context + work.tokens) / block

        return least(self.view, work, now, cost)
