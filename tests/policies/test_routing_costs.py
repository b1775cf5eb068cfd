"""Each routing policy against its published formula, worked out by brute force for every call.

The record of `tests/schedule/recounted.py` says what each instance has; nothing is read from the
policies' view of it. All policies are asked about the same call after everything that happens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, isclose, sqrt

import pytest

from teola.policies.routing import ROUTING, make
from teola.policies.routing.base import ANY, Dispatched, Finished, Loads, found_tokens
from teola.policies.routing.dynamo_two_tier import DynamoTwoTier
from teola.policies.routing.llm_d import LLMD
from teola.policies.routing.marginal_cost import MarginalCost, Standings
from teola.policies.routing.mooncake import Mooncake
from teola.policies.routing.prefix_affinity import PrefixAffinity
from teola.policies.routing.production_stack import ProductionStack
from teola.policies.routing.ray_serve import RayServe
from teola.policies.work import Work
from teola.profile import StepTime
from tests.planted import catches, edited
from tests.schedule.recounted import BLOCK, LIMITS, PROFILES, Life

Cost = tuple[float, ...]
Costs = dict[int, Cost]


class Formulas:
    """What a call costs on each instance that it may go to; the least is the best."""

    def __init__(self, life: Life, work: Work) -> None:
        self.life, self.total, self.keys = life, work.total, work.keys
        self.up = [i for i, server in enumerate(life.servers) if server.up]
        self.there = [i for i in self.up if i != work.avoid]
        self.found = {i: life.found(i, work.keys, work.total) for i in self.there}
        self.missing = {i: work.total - self.found[i] for i in self.there}
        self.running = {i: len(life.flying(i)) for i in self.up}
        self.waiting = {i: len(life.bound(i)) for i in self.up}
        self.calls = {i: self.running[i] + self.waiting[i] for i in self.up}
        self.pending = {i: life.pending(i) for i in self.up}

    def costs(self, cost: Callable[[int], float]) -> Costs:
        return {i: (cost(i),) for i in self.there}

    def prefill_s(self, i: int, missing: int) -> float:
        """Each missing token by itself: its own time, and that of the tokens that it attends to."""
        step = PROFILES[i].step
        each = step.base_s / PROFILES[i].max_batch + step.per_token_s
        before = self.total - missing
        return sum(each + step.per_pair_s * (before + k) for k in range(1, missing + 1))

    def wait_s(self, i: int, tokens: int | None = None) -> float:
        """Pending tokens, or so many: each has 8,000 before it, as nobody knows better."""
        step = PROFILES[i].step
        each = step.base_s / PROFILES[i].max_batch + step.per_token_s + 8000 * step.per_pair_s
        return (self.pending[i] if tokens is None else tokens) * each

    def fewest(self) -> Costs:
        return self.costs(lambda i: self.calls[i])

    def apart(self, more: float, times: float) -> bool:
        """Whether the most calls are over so many more, and over so many times the fewest."""
        calls = [self.calls[i] for i in self.there]
        return max(calls) - min(calls) > more and max(calls) > times * min(calls)

    # --- each policy ------------------------------------------------------------------------

    def join_shortest(self) -> Costs:
        return self.costs(lambda i: 4 * self.waiting[i] + self.running[i])

    def lmetric(self) -> Costs:
        return self.costs(lambda i: (self.pending[i] + self.missing[i]) * (self.calls[i] + 1))

    def dynamo(self) -> Costs:
        blocks = {i: (self.pending[i] + self.total - self.found[i]) / BLOCK for i in self.there}
        active = {i: (self.life.context(i) + self.total) / BLOCK for i in self.there}
        return self.costs(lambda i: blocks[i] + active[i])

    def dynamo_two_tier(self) -> Costs:
        most = max(self.found.values())
        if not self.apart(32, 1.1) and most > self.total / 2:
            return {i: (self.calls[i],) for i in self.there if self.found[i] == most}
        return self.fewest()

    def sglang(self) -> Costs:
        if not self.apart(64, 1.5) and max(self.found.values()) > 0.3 * self.total:
            return self.costs(lambda i: -self.found[i])
        return self.fewest()

    def aibrix(self) -> Costs:
        if self.apart(16, 0):
            return self.fewest()
        calls = [self.calls[i] for i in self.there]
        mean = sum(calls) / len(calls)
        deviation = sqrt(sum((each - mean) ** 2 for each in calls) / len(calls))
        return {
            i: (-self.found[i], self.calls[i])
            for i in self.there
            if self.calls[i] <= mean + 2 * deviation
        }

    def llm_d(self) -> Costs:
        queues = [self.waiting[i] for i in self.there]

        def score(i: int) -> float:
            blocks = LIMITS[i].kv_blocks
            usage = 0.0 if blocks is None else min(1, self.life.context(i) / (blocks * BLOCK))
            queue = 1.0
            if max(queues) > min(queues):
                queue = (max(queues) - self.waiting[i]) / (max(queues) - min(queues))
            return 3 * self.found[i] / self.total + 2 * (1 - usage) + 2 * queue

        return self.costs(lambda i: -score(i))

    def production_stack(self) -> Costs:
        mean = sum(self.calls[i] for i in self.there) / len(self.there)
        return self.costs(
            lambda i: -(self.found[i] / self.total - (self.calls[i] - mean) / max(1, mean))
        )

    def ray_serve(self) -> Costs:
        """Below a tenth of the prompt nothing counts but how much an instance keeps."""
        kept = {i: len(self.life.servers[i].kept) for i in self.there}
        if max(self.found.values()) < 0.1 * self.total:
            return self.costs(lambda i: kept[i])
        return {i: (-self.found[i], kept[i]) for i in self.there}

    def mooncake(self) -> Costs:
        return self.costs(lambda i: self.wait_s(i) + self.prefill_s(i, self.missing[i]))

    def prefix_affinity(self) -> Costs:
        """By what is kept, and not by what is only on its way; nowhere, if nothing is kept."""
        kept = {i: self.life.kept(i, self.keys) for i in self.up}
        if not any(kept.values()):
            return {}

        def first_s(i: int) -> float:
            blocks = kept[i]
            while blocks and blocks * BLOCK >= self.total:
                blocks -= 1
            return self.wait_s(i, self.pending[i] + self.total - blocks * BLOCK)

        return self.costs(first_s)

    def marginal_cost(self) -> Costs:
        answers = [tokens for tokens in self.life.answers if tokens]
        answer = sum(answers) / len(answers) if answers else 256

        def cost(i: int) -> float:
            own = self.prefill_s(i, self.missing[i])
            stalls = own * min(20, 1 + self.calls[i] / 2)
            beside = sum(one.total for one in self.life.calls if one.at == i)
            decode = answer * PROFILES[i].step.per_context_s * beside
            places = LIMITS[i].max_sequences
            turns = 1 + max(0, self.calls[i] + 1 - places) / places
            decode += answer * PROFILES[i].step.base_s * turns
            blocks = LIMITS[i].kv_blocks
            full = 0.0 if blocks is None else min(1, len(self.life.servers[i].kept) / blocks)
            return self.wait_s(i) + stalls + decode + 2 * own * full

        return self.costs(cost)


def _typical_s(step: StepTime) -> float:
    """A prompt of 512 tokens, and 128 steps with 576 tokens before them."""
    prompt = step.base_s + 512 * step.per_token_s + 512 * 513 / 2 * step.per_pair_s
    return prompt + 128 * (step.base_s + 576 * step.per_context_s)


SLOWNESS = [_typical_s(one.step) / min(_typical_s(p.step) for p in PROFILES) for one in PROFILES]
FORMULAS = [name for name in ROUTING if hasattr(Formulas, name)]


def best(costs: Costs) -> list[int]:
    """The instance of the least cost, the first of those; with those that rounding may prefer."""
    least = min(costs.values(), default=(inf,))
    first = [i for i, cost in costs.items() if cost == least][:1]
    near = [i for i, cost in costs.items() if cost != least and _close(cost, least)]
    return [*first, *near] or [ANY]


def _close(cost: Cost, least: Cost) -> bool:
    return all(map(partial(isclose, rel_tol=1e-9, abs_tol=1e-12), cost, least))


def compare(seed: int, names: list[str], steps: int = 150) -> None:
    """A queue's life, in which each of these policies is asked about a call after each step."""
    life = Life(seed, make("lmetric"))
    policies = {name: make(name) for name in names}
    for policy in policies.values():
        policy.attach(life.queue.placing.routing.view)
    turns, answered = make("round_robin"), 0
    for happened in life.steps(steps):
        for tokens in life.answers[answered:]:
            ended = Finished(0, life.probe(), False, None, tokens)
            for policy in policies.values():
                if Finished in policy.observes:
                    policy.observe(ended, life.now)
        answered = len(life.answers)
        work = life.probe()
        formulas = Formulas(life, work)
        for name, policy in policies.items():
            costs: Costs = getattr(formulas, name)() if formulas.there else {}
            at = policy.place(work, life.now)
            assert at in best(costs), f"{name} after {happened} at {life.now}: {costs}"
            for home in (0, 1):
                if work.avoid != home and life.servers[home].up:
                    work.home = home
                    assert policy.place(work, life.now) == home, f"{name}: home is where it goes"
                    work.home = -1
            if isinstance(policy, MarginalCost):
                told = policy.offers(work, life.now)
                cost = {i: each for i, each in enumerate(told.costs) if each < inf}
                assert cost == pytest.approx({i: each for i, (each,) in costs.items()}), happened
                assert [told.missing[i] for i in cost] == [formulas.missing[i] for i in costs]
        if life.last >= 0:
            turns.observe(Dispatched(life.last, []), life.now)
        room = [i for i in range(len(LIMITS)) if life.room(i)]
        loads = life.queue.instances.open(life.now)
        load = {i: life.context(i) / LIMITS[i].max_batch for i in room}
        least_loaded = make("least_loaded").order(loads, life.now)
        usual = life.queue.instances.usual_items
        done = {i: (load[i] + usual / LIMITS[i].max_batch) * SLOWNESS[i] for i in room}
        assert [*least_loaded] == sorted(room, key=lambda i: (round(done[i], 12), i)), happened
        after = [i for i in room if i > life.last]
        assert [*turns.order(loads, life.now)] == [*after, *(i for i in room if i not in after)]


@pytest.mark.parametrize("seed", range(3))
def test_every_policy_takes_the_least_by_its_formula(seed: int) -> None:
    assert len(FORMULAS) == 12
    compare(seed, FORMULAS)


@catches(
    "first-instance-again",
    "what failed on instance 0 goes back there",
    edited(MarginalCost.offers, "work.avoid >= 0", "work.avoid > 0"),
)
@catches(
    "awaited-forgotten",
    "what waits there is not decoded beside a call",
    edited(Standings.renew, "context + awaited", "context"),
)
@catches(
    "eviction-unbounded",
    "a cache can be more than full",
    edited(Standings.renew, "min(1.0, kept / prices.blocks)", "kept * 40 / prices.blocks"),
)
@catches(
    "dead-servers-wait",
    "servers that are gone count as the shortest queue",
    edited(
        LLMD.place,
        "to.seen.waiting for to in destinations(view, work, now)",
        "seen.waiting for seen in view.instances(now)",
    ),
)
@catches(
    "dead-servers-are-idle",
    "servers that are gone lower the mean",
    edited(
        ProductionStack.place,
        "to.calls for to in destinations(view, work, now)",
        "seen.calls for seen in view.instances(now)",
    ),
)
@catches(
    "affinity-goes-back",
    "what failed goes back to where its prefix is",
    edited(PrefixAffinity.place, " or i == work.avoid", ""),
)
@catches(
    "prefix-of-all-matters",
    "most of a prompt is as little as half of it",
    edited(DynamoTwoTier.place, "most > 0.5", "most >= 0.5"),
)
@catches(
    "content-too-soon",
    "content counts from 0.3 on",
    edited("teola.policies.routing.sglang:_by_content", "> 0.3", ">= 0.3"),
)
@catches(
    "tenth-is-too-little",
    "a tenth of the prompt does not count",
    edited(RayServe.place, ">= 0.1", "> 0.1"),
)
@catches(
    "same-turn-again",
    "the instance that was used last comes first again",
    edited(Loads.after, "instance + 1", "instance"),
)
@catches(
    "loads-once",
    "an instance is listed with the load that it had first",
    edited(Loads.put, "del self._by_rank[", "return; del self._by_rank["),
)
@catches(
    "pending-halved",
    "tokens that are pending count once for two",
    edited(Mooncake.place, "to.seen.pending", "to.seen.prefilling"),
)
@catches(
    "last-token-found",
    "a whole prompt can be found",
    edited(found_tokens, "work.tokens - 1", "work.tokens"),
)
def test_one_long_life_tells_each_formula_from_its_neighbours() -> None:
    compare(1, FORMULAS, 250)
