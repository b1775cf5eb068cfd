"""marginal_cost: where a call makes everybody's time longest by the least.

What a call costs on an instance, in seconds of its profile:

    wait     prompt tokens that are pending there
    stall    its own prefill, less what is found of it, times those whom it holds up: the call, and
             `STALLED` of each that runs or waits there, but no more than `MOST` in all
    decode   the tokens of its answer, each of which attends to the context of the calls there
    evict    its own prefill once more for as full as the cache is, times `EVICTED`: what it stores
             drives out as much that others would have found

How long answers are is the mean of those that came last. The bound on stalls and the decoding both
matter: without either it falls behind where prompts are long. Without evictions it spreads popular
prefixes until caches are full of copies. The weights were found by experiments.routing, on seeds
that it does not report.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from teola.policies.reason import Because, Reason
from teola.policies.routing.base import (
    ANY,
    Capacity,
    Finished,
    Happening,
    InstanceView,
    RoutingPolicy,
)
from teola.policies.routing.destinations import (
    Destination,
    bound,
    compared,
    destinations,
    times_of,
    wait_s,
)
from teola.policies.work import Work
from teola.profile import EngineProfile

STALLED: Final = 0.5
MOST: Final = 20.0
EVICTED: Final = 2.0
ANSWER: Final = 256.0
"""Tokens of an answer before any has come."""
LAST: Final = 1000
"""Answers whose mean counts, about."""


class Prices(NamedTuple):
    """Of one instance. Seconds: of a pending token, a token and a pair of the call's prompt, and a
    token of context for each that is decoded. blocks: of its cache (0: nobody knows)."""

    pending_s: float
    token_s: float
    pair_s: float
    context_s: float
    block_tokens: int
    blocks: int

    @classmethod
    def of(cls, profile: EngineProfile, limits: Capacity) -> Prices:
        """By its profile."""
        step = times_of(profile)
        return cls(
            wait_s(profile, 1),
            step.base_s / profile.max_batch + step.per_token_s,
            step.per_pair_s,
            step.per_context_s,
            limits.block_tokens,
            limits.kv_blocks or 0,
        )


class MarginalCost(RoutingPolicy):
    """Prefix, queue, decoding and memory in one currency. O(blocks of the prompt + instances)."""

    wants_keys = True
    observes = (Finished,)

    def __init__(self) -> None:
        self.answer, self._answers = ANSWER, 0
        self._profile: EngineProfile | None = None
        self._prices: list[Prices] = []

    def _priced(self) -> list[Prices]:
        """Of each instance. Where times are learned, profiles are others whenever that changes."""
        profiles, limits = self.view.profiles, self.view.limits
        if profiles and profiles[0] is not self._profile:
            self._profile = profiles[0]
            pairs = zip(profiles, limits, strict=True)
            self._prices = [Prices.of(profile, one) for profile, one in pairs]
        return self._prices

    def place(self, work: Work, now: float) -> int:
        view, total, avoid = self.view, work.total, work.avoid
        at = bound(view, work, now)
        if at >= 0:
            return at
        expected = view.expected(work.keys, now)
        best, least = ANY, float("inf")
        for i, prices in enumerate(self._priced()):
            seen = view.instance(i, now)
            if not seen.usable or i == avoid:
                continue
            missing = total
            if i in expected:
                block_tokens = prices.block_tokens
                missing -= min(expected[i], max(0, total - 1) // block_tokens) * block_tokens
            cost = self._cost(prices, i, seen, missing, total)
            if cost < least:
                best, least = i, cost
        return best

    def why(self, work: Work, at: int, now: float) -> Reason:
        there = destinations(self.view, work, now)
        costs = {to.instance: self.cost(work, to) for to in there}
        return compared(Because.COST, at, "s", costs)

    def cost(self, work: Work, to: Destination) -> float:
        """Seconds that `work` costs everybody there."""
        return self._cost(self._priced()[to.instance], to.instance, to.seen, to.missing, work.total)

    def _cost(self, prices: Prices, i: int, seen: InstanceView, missing: int, total: int) -> float:
        pending_s, token_s, pair_s, context_s, _, blocks = prices
        prefill_s = missing * (token_s + pair_s * (2 * total - missing + 1) / 2)
        weight = min(MOST, 1 + STALLED * (seen.running + seen.waiting))
        if blocks:
            weight += EVICTED * min(1.0, self.view.kept(i) / blocks)
        return (
            pending_s * (seen.prefilling + seen.queued)
            + weight * prefill_s
            + self.answer * context_s * (seen.context + seen.awaited)
        )

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, Finished) and event.generated:
            self._answers += 1
            self.answer += (event.generated - self.answer) / min(self._answers, LAST)
