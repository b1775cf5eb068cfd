"""ray_serve: Ray Serve's prefix-aware router.

If at least 0.1 of the prompt is found somewhere, where the most is; else the instance that keeps
the least.
"""

from __future__ import annotations

from teola.policies.routing.base import RoutingPolicy
from teola.policies.routing.destinations import Destination, least
from teola.policies.work import Work


class RayServe(RoutingPolicy):
    """Content alone; load counts nowhere."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        def cost(to: Destination) -> tuple[float, float]:
            counts = to.found >= 0.1 * work.tokens
            return (-to.found if counts else 0), to.seen.kept

        return least(self.view, work, now, cost)
