"""sglang: the cache-aware policy of SGLang's router.

Where the most calls on an instance are over 64 more and over 1.5 x the fewest, the least loaded
one; else, if more than 0.3 of the prompt is found somewhere, where the most is; else the least
loaded one.
"""

from __future__ import annotations

from teola.policies.routing.base import ANY, RoutingPolicy
from teola.policies.routing.destinations import bound, destinations
from teola.policies.work import Work


class SGLang(RoutingPolicy):
    """Content first, unless loads are far apart."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        some = [] if at >= 0 else destinations(self.view, work, now)
        if not some:
            return at if at >= 0 else ANY
        calls = [to.calls for to in some]
        even = max(calls) - min(calls) <= 64 or max(calls) <= 1.5 * min(calls)
        best = max(some, key=lambda to: to.found)
        if even and best.found > 0.3 * work.total:
            return best.instance
        return min(some, key=lambda to: to.calls).instance
