"""llm_d: a weighted sum of scores (llm-d's inference scheduler, its precise prefix scorer).

The most of 3 x found / prompt + 2 x (1 - KV usage) + 2 x (longest queue - queue) / (longest queue -
shortest); a queue is what waits, and not what runs. Only instances that the call may go to count.
"""

from __future__ import annotations

from teola.policies.routing.base import EngineView, RoutingPolicy
from teola.policies.routing.destinations import Destination, destinations, least
from teola.policies.work import Work


class LLMD(RoutingPolicy):
    """Prefix, memory and queue, each from 0 to 1."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        view = self.view
        queues = [to.seen.waiting for to in destinations(view, work, now)] or [0]
        longest, apart = max(queues), max(queues) - min(queues)

        def cost(to: Destination) -> float:
            queue = (longest - to.seen.waiting) / apart if apart else 1.0
            return -(3 * to.found / work.tokens + 2 * (1 - usage(view, to)) + 2 * queue)

        return least(view, work, now, cost)


def usage(view: EngineView, to: Destination) -> float:
    """Share of an instance's KV memory that calls occupy (0: its size is not known)."""
    limits = view.limits[to.instance]
    if limits.kv_blocks is None:
        return 0.0
    return min(1.0, to.seen.context / (limits.kv_blocks * limits.block_tokens))
