"""aibrix: AIBrix's prefix-cache routing.

Where the most calls on an instance are over 16 more than the fewest, the one with the fewest; else
the one that finds the most, of those whose calls are at most the mean + 2 standard deviations.
"""

from __future__ import annotations

from statistics import fmean, pstdev

from teola.policies.routing.base import ANY, RoutingPolicy
from teola.policies.routing.destinations import bound, destinations
from teola.policies.work import Work


class AIBrix(RoutingPolicy):
    """Content among those that are not overloaded."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        candidates = [] if at >= 0 else destinations(self.view, work, now)
        if not candidates:
            return at if at >= 0 else ANY
        calls = [to.calls for to in candidates]
        if max(calls) - min(calls) > 16:
            return min(candidates, key=lambda to: to.calls).instance
        most = fmean(calls) + 2 * pstdev(calls)
        allowed = [to for to in candidates if to.calls <= most]
        return min(allowed, key=lambda to: (-to.found, to.calls)).instance
