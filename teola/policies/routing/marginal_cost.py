"""marginal_cost: where a call makes everybody's time longest by the least.

What a call costs on an instance, in seconds of its profile:

    wait     prompt tokens that are pending there
    stall    its own prefill, less what is found of it, times those whom it holds up: the call, and
             `STALLED` of each that runs or waits there, but no more than `MOST` in all
    decode   the tokens of its answer, each of which attends to the context of the calls there, and
             takes a step; and those that it waits for where all places are taken. The latter
             two count only where steps are not equally long everywhere
    evict    its own prefill once more for as full as the cache is, times `EVICTED`: what it stores
             drives out as much that others would have found

How long answers are is the mean of those that came last. The bound on stalls and the decoding both
matter: without either it falls behind where prompts are long. Without evictions it spreads popular
prefixes until caches are full of copies. The weights were found by experiments.routing, on seeds
that it does not report.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import inf
from operator import add, is_not, mul
from typing import Final, NamedTuple

from teola.policies.reason import Because, Reason
from teola.policies.routing.base import (
    ANY,
    Capacity,
    Finished,
    Happening,
    InstanceView,
    RoutingPolicy,
    found_tokens,
)
from teola.policies.routing.call_seconds import MeanAnswer
from teola.policies.routing.destinations import bound, compared, times_of, wait_s
from teola.policies.work import Work
from teola.profile import EngineProfile

STALLED: Final = 0.5
MOST: Final = 20.0
EVICTED: Final = 2.0


class Prices(NamedTuple):
    """Prices of one instance, in seconds: of a pending token; of a token and of a pair of tokens of
    the call's prompt; of a token of context for each token that is decoded; of a decoding step.
    blocks: blocks of its cache (0: not known)."""

    pending_s: float
    token_s: float
    pair_s: float
    context_s: float
    step_s: float
    blocks: int

    @classmethod
    def of(cls, profile: EngineProfile, limits: Capacity) -> Prices:
        """Prices by an instance's profile."""
        step = times_of(profile)
        return cls(
            wait_s(profile, 1),
            step.base_s / profile.max_batch + step.per_token_s,
            step.per_pair_s,
            step.per_context_s,
            step.base_s + step.per_sequence_s,
            limits.kv_blocks or 0,
        )

    def prefill_s(self, missing: int, total: int) -> float:
        """Seconds that the last `missing` tokens of a prompt of `total` take."""
        return missing * (self.token_s + self.pair_s * (2 * total - missing + 1) / 2)


class Standings:
    """What any call would meet on each instance, kept until it changes. wait_s: before its prefill
    (inf: it may not go there). weight: how often its prefill counts. context: tokens that its
    answer has beside it."""

    def __init__(self, prices: Sequence[Prices]) -> None:
        self._prices = prices
        self._seen: list[InstanceView | None] = [None] * len(prices)
        self.wait_s, self.weight = [inf] * len(prices), [0.0] * len(prices)
        self.context = [0] * len(prices)

    def renew(self, instances: Sequence[InstanceView]) -> None:
        """Take over the present state of the instances."""
        seen_before = self._seen
        for i in compress(range(len(seen_before)), map(is_not, instances, seen_before)):
            seen_before[i] = seen = instances[i]
            usable, running, prefilling, context, queued, _, waiting, awaited, kept = seen
            prices = self._prices[i]
            weight = min(MOST, 1 + STALLED * (running + waiting))
            if prices.blocks:
                weight += EVICTED * min(1.0, kept / prices.blocks)
            self.wait_s[i] = prices.pending_s * (prefilling + queued) if usable else inf
            self.weight[i], self.context[i] = weight, context + awaited


class Offers(NamedTuple):
    """What a call would meet on each instance. costs: seconds that it takes everybody (inf: it may
    not go there). missing: tokens of its prompt that it is to compute."""

    costs: list[float]
    missing: list[int]
    seen: Sequence[InstanceView]

    @property
    def best(self) -> int:
        """The instance of the least cost, ANY if the call may go nowhere."""
        least = min(self.costs, default=inf)
        return ANY if least == inf else self.costs.index(least)


class MarginalCost(RoutingPolicy):
    """Prefix, queue, decoding and memory in one currency. O(blocks of the prompt + instances)."""

    wants_keys = True
    observes = (Finished,)

    def __init__(self) -> None:
        self._answers = MeanAnswer()
        self._profiles: list[EngineProfile] = []
        self._prices: list[Prices] = []
        self._kinds: list[Prices] = []
        """The different prices, each once."""
        self._kind: list[int] = []
        """By instance, the index of its own prices in `_kinds`."""
        self._steps_s: list[float] = []
        """Seconds of a decoding step of each instance; empty if all are alike."""
        self._standings = Standings(())

    @property
    def answer(self) -> float:
        """Tokens of a mean answer."""
        return self._answers.tokens

    def _priced(self) -> list[Prices]:
        """The prices of each instance. Profiles are replaced when learned times change, and prices
        then follow."""
        profiles, limits, priced = self.view.profiles, self.view.limits, self._profiles
        if len(priced) != len(profiles) or any(map(is_not, profiles, priced)):
            self._profiles = [*profiles]
            pairs = zip(profiles, limits, strict=True)
            self._prices = [Prices.of(profile, limit) for profile, limit in pairs]
            self._kinds = [*dict.fromkeys(self._prices)]
            self._kind = [self._kinds.index(prices) for prices in self._prices]
            steps_s = [prices.step_s for prices in self._prices]
            self._steps_s = steps_s if len(set(steps_s)) > 1 else []
            self._standings = Standings(self._prices)
        return self._prices

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        return at if at >= 0 else self.offers(work, now).best

    def why(self, work: Work, at: int, now: float) -> Reason:
        costs = self.offers(work, now).costs
        finite_costs = {i: cost for i, cost in enumerate(costs) if cost < inf}
        return compared(Because.COST, at, "s", finite_costs)

    def offers(self, work: Work, now: float) -> Offers:
        """The offers of all instances for a call that is bound nowhere."""
        view, prices, standings, kinds = self.view, self._priced(), self._standings, self._kinds
        instances, total = view.instances(now), work.tokens
        standings.renew(instances)
        whole_s = [kind.prefill_s(total, total) for kind in kinds]
        decode_s = [self.answer * kind.context_s for kind in kinds]
        prefill_s = [*map(whole_s.__getitem__, self._kind)]
        missing = [total] * len(instances)
        for i, blocks in view.expected(work.keys, now).items():
            missing[i] -= found_tokens(work, blocks, view.limits[i].block_tokens)
            prefill_s[i] = prices[i].prefill_s(missing[i], total)
        first_s = map(add, standings.wait_s, map(mul, standings.weight, prefill_s))
        answer_s = map(mul, map(decode_s.__getitem__, self._kind), standings.context)
        costs = [*map(add, first_s, answer_s)]
        if self._steps_s:
            costs = [*map(add, costs, self._decode_s(instances))]
        if work.avoid >= 0:
            costs[work.avoid] = inf
        return Offers(costs, missing, instances)

    def _decode_s(self, instances: Sequence[InstanceView]) -> list[float]:
        """Seconds of a mean answer on each instance, with the rounds that it waits where all places
        are taken."""
        decode_s = []
        for seen, step_s, limits in zip(instances, self._steps_s, self.view.limits, strict=True):
            places = limits.max_sequences
            rounds = 1 + max(0, seen.running + seen.waiting + 1 - places) / places
            decode_s.append(self.answer * step_s * rounds)
        return decode_s

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, Finished) and event.generated:
            self._answers.came(event.generated)
