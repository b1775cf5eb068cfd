"""sglang: the cache-aware policy of SGLang's router.

Where the most calls on an instance are over 64 more and over 1.5 x the fewest, the least loaded
one; else, if more than 0.3 of the prompt is found somewhere, where the most is; else the least
loaded one.
"""

from __future__ import annotations

from collections.abc import Sequence

from teola.policies.reason import Because, Reason
from teola.policies.routing.base import ANY, RoutingPolicy
from teola.policies.routing.destinations import Destination, bound, compared, destinations
from teola.policies.work import Work


class SGLang(RoutingPolicy):
    """Content first, unless loads are far apart."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        candidates = [] if at >= 0 else destinations(self.view, work, now)
        if not candidates:
            return at if at >= 0 else ANY
        if _by_content(work, candidates):
            return max(candidates, key=lambda to: to.found).instance
        return min(candidates, key=lambda to: to.calls).instance

    def why(self, work: Work, at: int, now: float) -> Reason:
        candidates = destinations(self.view, work, now)
        if not _by_content(work, candidates):
            return compared(Because.LOAD, at, "calls", {to.instance: to.calls for to in candidates})
        hit_tokens = {to.instance: to.found for to in candidates}
        others = [i for i in hit_tokens if i != at]
        other = max(others, key=lambda i: (hit_tokens[i], -i), default=ANY)
        return Reason(Because.FOUND, "tokens", hit_tokens[at], hit_tokens.get(other), other)


def _by_content(work: Work, candidates: Sequence[Destination]) -> bool:
    calls = [to.calls for to in candidates]
    even = max(calls) - min(calls) <= 64 or max(calls) <= 1.5 * min(calls)
    return even and max(to.found for to in candidates) > 0.3 * work.tokens
