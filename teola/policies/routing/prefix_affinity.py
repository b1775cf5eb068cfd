"""prefix_affinity: a call goes where the least work stands between it and its first token.

That is what the instance computes before it (sent and not prefilled, or bound to it and not sent),
and what of the call's own prompt it does not keep: in tokens, times what one takes there by its
profile, since instances need not be equal. Where no instance keeps anything of the prompt, nothing
is bound: the call goes to the least loaded one that has room.
"""

from __future__ import annotations

from teola.policies.reason import Because, Reason
from teola.policies.routing.base import ANY, RoutingPolicy, found_tokens
from teola.policies.routing.destinations import Destination, compared, destinations, wait_s
from teola.policies.work import Work


class PrefixAffinity(RoutingPolicy):
    """Early binding by content. It costs O(blocks of the prompt + instances) a call."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        if work.home >= 0:
            return work.home
        hits = self.view.hits(work.keys, now)
        if not hits:
            return ANY
        token_s = self._token_s() or [1.0] * len(self.view)
        best, least = ANY, float("inf")
        for i, seen in enumerate(self.view.instances(now)):
            if not seen.usable or i == work.avoid:
                continue
            hit_tokens = found_tokens(work, hits.get(i, 0), self.view.limits[i].block_tokens)
            before = seen.pending + work.tokens - hit_tokens
            if before * token_s[i] < least:
                best, least = i, before * token_s[i]
        return best

    def _token_s(self) -> list[float]:
        """Seconds of a prompt token on each instance; empty where one is not known."""
        profiles = [*self.view.profiles]
        times = [profile.step.per_token_s for profile in profiles]
        if any(profile is not profiles[0] for profile in profiles):
            # what was learned may be without this term, or have it on some of them only
            times = [wait_s(profile, 1) if profile.timed else 0.0 for profile in profiles]
        return times if all(times) else []

    def why(self, work: Work, at: int, now: float) -> Reason:
        hits, token_s = self.view.hits(work.keys, now), self._token_s()

        def before(to: Destination) -> float:
            i = to.instance
            hit_tokens = found_tokens(work, hits.get(i, 0), self.view.limits[i].block_tokens)
            tokens = to.seen.pending + work.tokens - hit_tokens
            return tokens * token_s[i] if token_s else tokens

        figures = {to.instance: before(to) for to in destinations(self.view, work, now)}
        return compared(Because.FIRST, at, "s" if token_s else "tokens", figures)
