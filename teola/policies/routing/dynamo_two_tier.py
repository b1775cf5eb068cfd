"""dynamo_two_tier: Dynamo's router that first looks whether loads are balanced.

Where the most calls on an instance are over 32 more and over 1.1 x the fewest, the least loaded
one; else, if more than half of the prompt is found somewhere, the least loaded of those that find
the most; else the least loaded one.
"""

from __future__ import annotations

from teola.policies.routing.base import ANY, RoutingPolicy
from teola.policies.routing.destinations import bound, destinations
from teola.policies.work import Work


class DynamoTwoTier(RoutingPolicy):
    """Balance first, then content."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        candidates = [] if at >= 0 else destinations(self.view, work, now)
        if not candidates:
            return at if at >= 0 else ANY
        calls = [to.calls for to in candidates]
        even = max(calls) - min(calls) <= 32 or max(calls) <= 1.1 * min(calls)
        most = max(to.found for to in candidates)
        if even and most > 0.5 * work.tokens:
            candidates = [to for to in candidates if to.found == most]
        return min(candidates, key=lambda to: to.calls).instance
