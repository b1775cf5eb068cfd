"""paced: order, bound and place in one, and that neither half can be had alone.

Long because the policy is one object, whose halves are tested on the same queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil, inf
from random import Random
from time import perf_counter

import pytest

from teola.errors import InputError
from teola.policies import batching
from teola.policies.pairing import pair
from teola.policies.routing.paced import Paced, calls_at_once
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    Dispatch,
    InstanceChanged,
    InstanceDown,
    InstanceUp,
    Retuned,
    Tuned,
)
from teola.testing import check_policy
from tests.planted import catches, edited
from tests.policies.unequal import call, end, first, queue, sent, submit, window

A100, A6000 = (0.245e-3, 0.022), (0.75e-3, 0.037)


def paced(speeds: list[tuple[float, float]], **more: object) -> EngineQueue:
    return queue(speeds, batching="paced", routing="paced", **more)  # type: ignore[arg-type]


def policy_of(made: EngineQueue) -> Paced:
    policy: object = made.line.policy
    assert policy is made.placing.routing  # one object at both places
    assert isinstance(policy, Paced)
    return policy


def profile(speed: tuple[float, float]) -> EngineProfile:
    return EngineProfile(step=StepTime(speed[1], per_token_s=speed[0]), max_batch=2048)


def test_the_bound_is_the_formula() -> None:
    """With prompts of 3,000 tokens and answers of 100, tau seven steps of the fastest."""
    tau_s = 7 * 0.022
    for (token, step), bound in ((A100, 20), (A6000, 6)):
        prompt = 3000 * token + 2 * step
        share = 1 - step / tau_s
        formula = share * (prompt + 100 * step / (1 - share)) / prompt
        found = calls_at_once(profile((token, step)), 3000, 100, tau_s)
        assert found == max(2, round(formula))
        assert abs(found - bound) <= 4


def test_servers_take_calls_by_their_objectives_and_what_has_none_last() -> None:
    """In ms; an objective that is over comes first."""
    policy = Paced()
    ends = (-5.0, 0.0, 1.5, 1.501, 3600.0, 1e9, inf)
    told = [policy.priority(call("q", 10, finish_by=at), 0.0) for at in ends]
    assert told == sorted(told, reverse=True)
    assert len({*told}) == len(ends)
    assert told[:4] == [5000, 0, -1500, -1501]


@pytest.mark.parametrize(("prompt", "answer"), [(0, 0), (1, 0), (1, 1), (2, 0), (50, 3)])
def test_before_a_call_has_come_nothing_is_bounded_and_then_by_lengths_from_1_on(
    prompt: int, answer: int
) -> None:
    made = paced([A100, A6000])
    policy = policy_of(made)
    assert policy.bounds == [inf, inf], "lengths are not known, though times are"
    submit(made, call("q", prompt, answer))
    policy.tune(5.0)
    lengths = max(1, prompt), max(1, answer)
    expected = [calls_at_once(profile(one), *lengths, 5 * A100[1]) for one in (A100, A6000)]
    assert policy.bounds == expected


def test_no_instance_is_closed_for_good() -> None:
    slow = profile((0.01, 1.0))
    assert calls_at_once(slow, 100, 1, 0.01) == 2


@catches(
    "last-promise",
    "the last promise goes first",
    edited(Paced.key, "return finish_by,", "return -finish_by,"),
)
def test_promises_go_in_order_and_of_one_query_the_longest_rest() -> None:
    made = paced([A100])
    for k, (run, finish_by, rest_s) in enumerate(
        (("later", 90.0, 1.0), ("short", 50.0, 2.0), ("long", 50.0, 8.0))
    ):
        submit(made, call(run, 3000, 100, seq=k, finish_by=finish_by, rest_s=rest_s))
    order = []
    for _ in range(3):
        ((run, _),) = sent(made)
        order.append(run)
        first(made, run)
    assert order == ["long", "short", "later"]


@catches(
    "newest-rest",
    "of queries without an objective the one with the longest rest goes first",
    edited(Paced.key, "work.admitted if finish_by == inf else 0.0", "0.0"),
)
def test_without_objectives_the_oldest_query_goes_first() -> None:
    made = paced([A100])
    for k, (run, admitted, rest_s) in enumerate((("new", 9.0, 60.0), ("old", 1.0, 2.0))):
        submit(made, call(run, 3000, 100, seq=k, admitted=admitted, rest_s=rest_s))
    assert sent(made) == [("old", 0)]


@catches(
    "window-at-once",
    "a window of rows goes to an instance as one call",
    edited(Paced._slices, "if work.row_tokens:", "if False:"),
)
@catches(
    "rows-in-the-way",
    "calls wait behind rows that leave them a place",
    edited(Paced._head, "after or self._for(", "self._for("),
)
def test_rows_are_bounded_like_calls_and_leave_them_places() -> None:
    made = paced([A100, A6000], budget=10**6)
    submit(made, call("before", 1000, 100))
    assert sent(made) == [("before", 0)]
    submit(made, window("rows", 2000, 1000, seq=1))
    bounds, rows = policy_of(made).bounds, rows_sent(made)
    assert rows == {0: bounds[0] - 1 - ceil(bounds[0] / 8), 1: bounds[1] - ceil(bounds[1] / 8)}
    submit(made, call("call", 1000, 100, seq=2))
    assert [run for run, _ in sent(made)] == ["call"]


@pytest.mark.parametrize("beside", [False, True])
def test_rows_that_somebody_waits_for_leave_no_places(beside: bool) -> None:
    """Nor do they beside others that would."""
    made = paced([A100, A6000], budget=10**6)
    submit(made, call("before", 1000, 100))
    assert sent(made) == [("before", 0)]
    rows = window("rows", 2000, 1000, seq=1)
    submit(made, replace(rows, spec=replace(rows.spec, yields=False)))
    if beside:
        submit(made, window("later", 2000, 1000, seq=2))
        assert made.instances.room(1, 0.0).kept > 0  # type: ignore[union-attr]
    bounds = policy_of(made).bounds
    assert rows_sent(made) == {0: bounds[0] - 1, 1: bounds[1]}


def rows_sent(made: EngineQueue) -> Counter[int]:
    """How many rows go to each instance until no more do."""
    rows = Counter[int]()
    for command in chain(*(made.dispatch(0.0) for _ in range(4))):
        if isinstance(command, Dispatch):
            rows[command.instance] += sum(hi - lo for _, lo, hi in command.slices)
    return rows


@catches(
    "no-memory",
    "a call waits for the memory of one instance beside another that has some",
    edited(Paced._free_of, "work.missing <= seen.free", "True"),
)
def test_a_call_goes_where_there_is_memory_for_it() -> None:
    made = paced([A100, A6000])
    submit(made, call("a", 100, 100))
    assert sent(made) == [("a", 0)]
    first(made, "a")
    made.instances.told(0, 500)
    submit(made, call("b", 1000, 100, seq=1))
    assert sent(made) == [("b", 1)]


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize(("free", "goes"), [(999, False), (1000, True), (1001, True)])
def test_a_call_goes_where_it_just_fits_into_the_memory(
    instances: int, free: int, goes: bool
) -> None:
    made = paced([A100, A6000][:instances])
    for k in range(instances):
        submit(made, call(f"a{k}", 100, 100, affinity=k, seq=k))
    assert len(sent(made)) == instances
    for k in range(instances):
        first(made, f"a{k}")
        made.changed(InstanceChanged("e", k, free if k == instances - 1 else 0), 0.0)
    submit(made, call("b", 1000, 100, seq=9))
    assert sent(made) == ([("b", instances - 1)] if goes else [])


def test_means_are_over_calls_and_not_tries_and_of_answers_over_those_that_came() -> None:
    """What was expected of answers counts no more once the first has come."""
    made = paced([A100, A6000])
    policy = policy_of(made)
    for k, (tokens, answer) in enumerate(((1000, 100), (3000, 300))):
        submit(made, call(f"q{k}", tokens, answer, seq=k))
    sent(made)
    sent(made)
    submit(made, call("again", 9000, 900, seq=2, tries=1))
    assert (policy._prompt, policy._answer) == (2000.0, 200.0)
    for run, generated, mean in (("q0", 40, 40.0), ("q1", 80, 60.0)):
        first(made, run)
        end(made, run, generated=generated)
        assert policy._answer == mean


def test_one_that_is_to_avoid_an_instance_leaves_it_to_the_next() -> None:
    made = paced([(0.0, 0.0), (0.0, 0.0)])
    made.down(InstanceDown("e", 1), 0.0)
    submit(made, call("failed", 10, 10, avoid=0))
    submit(made, call("next", 10, 10, seq=1))
    policy = policy_of(made)
    slots = made.instances.room(0, 0.0)
    assert slots is not None
    assert [one.work.run for one in policy.choose(slots, 0.0)] == ["next"]


@catches(
    "unbounded",
    "an instance is sent all that comes",
    edited(Paced._score_of, "seen.running >= self.bounds[kind]", "False"),
)
def test_what_is_too_much_waits_until_a_call_has_ended() -> None:
    made = paced([A6000, A6000])
    policy = policy_of(made)
    for k in range(40):
        submit(made, call(f"q{k}", 3000, 100, seq=k, finish_by=100.0 + k))
    flying: list[str] = []
    while found := sent(made):
        for run, _ in found:
            first(made, run)
            flying.append(run)
    bound = policy.bounds[0]
    assert len(flying) == 2 * bound < 40
    end(made, flying.pop(0), generated=100)
    assert len(sent(made)) == 1


def test_a_call_larger_than_a_step_goes_while_less_than_a_step_is_pending() -> None:
    made = paced([A100])
    for k, total in enumerate((1000, 11_000, 10)):
        submit(made, call(f"q{k}", total, 400, seq=k, finish_by=float(k)))
    assert sent(made) == [("q0", 0), ("q1", 0)]
    first(made, "q0")
    assert sent(made) == []
    first(made, "q1")
    assert sent(made) == [("q2", 0)]


def test_a_call_goes_where_it_ends_first() -> None:
    made = paced([A6000, A100])
    submit(made, call("a", 3000, 100))
    assert sent(made) == [("a", 1)]
    submit(made, call("b", 3000, 100, seq=1))
    assert sent(made) == [("b", 0)]


def test_an_instance_that_is_asked_takes_no_call_that_is_to_go_to_another() -> None:
    """It is asked for what is bound to it, which came later."""
    made = paced([A6000, A100])
    submit(made, call("free", 3000, 100))
    submit(made, call("bound", 300, 10, affinity=0, seq=1))
    policy = policy_of(made)
    assert [*policy.order(made.instances.open(0.0), 0.0)] == [1]
    for i, run in enumerate(("bound", "free")):
        slots = made.instances.room(i, 0.0)
        assert slots is not None
        assert [one.work.run for one in policy.choose(slots, 0.0)] == [run]


def test_how_long_it_writes_is_what_is_known_of_the_call_and_not_of_all() -> None:
    """The first instance reads faster, the other one writes faster."""
    made = paced([(0.1e-3, 0.05), (1e-3, 0.01)])
    at = []
    for k, answer in enumerate((2, 1000, 2, 1000)):
        submit(made, call(f"q{k}", 1000, answer, seq=k))
        at += [i for _, i in sent(made)]
        first(made, f"q{k}")
        end(made, f"q{k}", generated=answer)
    assert at == [0, 1, 0, 1]


def test_without_times_nothing_is_bounded() -> None:
    made = paced([(0.0, 0.0), (0.0, 0.0)])
    for k in range(30):
        submit(made, call(f"q{k}", 10, 10, seq=k))
    assert len(sent(made)) == 30


def test_a_lost_instance_is_sent_nothing_and_comes_back() -> None:
    made = paced([A100, A6000])
    made.down(InstanceDown("e", 0), 0.0)
    submit(made, call("a", 3000, 100))
    assert sent(made) == [("a", 1)]
    made.up(InstanceUp("e", 0), 1.0)
    submit(made, call("b", 3000, 100, seq=1), 1.0)
    assert sent(made, 1.0) == [("b", 0)]


def test_either_half_alone_is_refused_with_the_name_of_the_other() -> None:
    with pytest.raises(InputError, match="routing is 'least_loaded': set routing to 'paced', too"):
        pair("paced", {}, "least_loaded", {})
    with pytest.raises(InputError, match="batching is 'fifo': set batching to 'paced', too"):
        pair("fifo", {}, "paced", {})
    with pytest.raises(InputError, match="give them once"):
        pair("paced", {"tau": 5}, "paced", {"tau": 7})
    with pytest.raises(InputError, match="routing policy 'paced' chooses an instance by itself"):
        pair("paced", {}, "paced", {"prefer": "cheaper"})
    for at_order, at_place, tau in (
        ({"tau": 5}, {}, 5.0),
        ({}, {"tau": 5}, 5.0),
        ({"tau": 5}, {"tau": 5}, 5.0),
        ({}, {}, Paced().tau),
    ):
        order, place = pair("paced", at_order, "paced", at_place)
        assert isinstance(order, Paced)
        both: tuple[object, object] = order, place
        assert both[0] is both[1]
        assert order.tau == tau
    with pytest.raises(InputError, match="take inner='urgency' with the routing"):
        batching.make("fair", inner="paced")
    for tau in (1, float("inf"), float("nan"), "7", True):
        with pytest.raises(InputError, match="tau must be a number above 1"):
            batching.make("paced", tau=tau)


def test_tau_can_change_while_it_serves() -> None:
    made = paced([A100, A6000])
    submit(made, call("a", 3000, 100))
    policy = policy_of(made)
    before = list(policy.bounds)
    (told,) = made.tuned(Tuned("e", "routing", {"tau": 15.0}), 0.0)
    assert told == Retuned("e", "routing", {"tau": 15.0})
    assert all(now > then for now, then in zip(policy.bounds, before, strict=True))


def test_it_keeps_what_a_policy_promises() -> None:
    check_policy(Paced, cases=6)


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "most_us"), [(4, 40.0), (1000, 100.0)])
def test_order_is_quick(instances: int, most_us: float) -> None:
    made = paced([(A100, A6000)[k % 2] for k in range(instances)])
    policy = policy_of(made)
    for k in range(50):
        submit(made, call(f"q{k}", 3000, 100, seq=k))
    loads = made.instances.open(0.0)
    took = []
    for _ in range(20):
        began = perf_counter()
        for _ in range(100):
            policy.order(loads, 0.0)
        took.append((perf_counter() - began) / 100)
    assert min(took) * 1e6 <= most_us


# --- call by call -------------------------------------------------------------------------------

PROMPT, ANSWER, TAU = 500, 100, 2.0
"""All prompts are of one length and all answers too, so that bounds and times stay as they are."""
SPEEDS = [(0.25e-3, 0.02), (0.3e-3, 0.022), (0.25e-3, 0.02)]
"""Of instances: seconds a token of a prompt, and seconds a step."""
BUDGET = 2000


@dataclass
class Rounds:
    """Calls that wait, and those in flight, by run. at: instance of those in flight. begun: runs
    that have given a token."""

    speeds: list[tuple[float, float]]
    waiting: dict[str, Work] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def key(self, work: Work) -> tuple[float, ...]:
        """By the objective; of those without one the oldest query; then the longest rest."""
        by = work.asker.finish_by
        age = work.admitted if by == inf else 0.0
        return by, age, -work.spec.estimate.rest_s, work.arrival, work.seq

    def running(self, i: int) -> int:
        return sum(there == i for there in self.at.values())

    def pending(self, i: int) -> int:
        """Prompt tokens of those that have given no token."""
        return PROMPT * sum(there == i and run not in self.begun for run, there in self.at.items())

    def bound(self, i: int) -> float:
        token, step = self.speeds[i]
        profile = EngineProfile(step=StepTime(step, per_token_s=token), max_batch=BUDGET)
        return calls_at_once(profile, PROMPT, ANSWER, self.tau_s)

    @property
    def tau_s(self) -> float:
        return TAU * min(step for _, step in self.speeds)

    def open(self, i: int) -> bool:
        few = self.running(i) < self.bound(i) and self.pending(i) < BUDGET
        return few or not self.running(i)

    def ends_s(self, i: int) -> float:
        """When a call would end that goes to instance `i` now."""
        token, step = self.speeds[i]
        each = token + step / PROMPT  # a prompt takes a step of its own
        filled = min(1.0, self.running(i) / self.bound(i))
        return (self.pending(i) + PROMPT) * each + ANSWER * (step + (self.tau_s - step) * filled)

    def best(self) -> int:
        """The open instance where a call ends first, the first of them; -1: none is open."""
        there = [i for i in range(len(self.speeds)) if self.open(i)]
        return min(there, key=lambda i: (round(self.ends_s(i), 9), i), default=-1)

    def sends(self, run: str, i: int) -> None:
        """A call was sent to instance `i`: whether it was its turn, and that the place for it."""
        assert self.open(i), f"{run} went to {i}, which takes none"
        work = self.waiting.pop(run)
        before = [one for one in self.waiting.values() if self.key(one) < self.key(work)]
        assert not [one.run for one in before if one.affinity == i], f"{run} passed one of {i}"
        free = [one.run for one in before if one.affinity < 0]
        if work.affinity < 0:
            assert not free, f"{run} passed {free}"
            assert i == self.best(), f"{run} went to {i}"
        else:
            assert work.affinity == i
            assert not free or self.best() != i, f"{run} passed {free}"
        self.at[run] = i

    def is_over(self) -> None:
        """A round has ended: nothing waits that could go."""
        for one in self.waiting.values():
            assert not self.open(one.affinity) if one.affinity >= 0 else self.best() < 0, one.run


def lives(seed: int, instances: int, steps: int = 60) -> Iterator[Rounds]:
    """Calls come, some bound to an instance, and some by a time; each round is compared."""
    draw, rounds, now = Random(seed), Rounds(SPEEDS[:instances]), 0.0
    made = queue(
        rounds.speeds, batching="paced", routing="paced", options={"tau": TAU}, budget=BUDGET
    )
    for k in range(steps):
        now += draw.choice([0.0, 0.5])
        for n in range(draw.choice([0, 1, 2, 5, 9] if k % 20 < 12 else [0])):
            work = call(
                f"{k}.{n}",
                PROMPT,
                ANSWER,
                at=now - draw.choice([0.0, 1.0]),
                seq=10 * k + n,
                finish_by=draw.choice([inf, inf, 5.0, now + 9.0]),
                rest_s=draw.choice([1.0, 2.0, 8.0]),
                admitted=draw.choice([0.0, now / 2]),
                affinity=draw.choice([-1, -1, -1, *range(instances)]),
            )
            rounds.waiting[work.run] = work
            submit(made, work, now)
        for run, i in sent(made, now):
            rounds.sends(run, i)
        rounds.is_over()
        yield rounds
        flying = [*rounds.at]
        for run in draw.sample(flying, min(len(flying), draw.choice([0, 1, 3, 9]))):
            if run not in rounds.begun:
                rounds.begun.add(run)
                first(made, run, now)
            elif draw.random() < 0.7:
                rounds.begun.discard(run)
                del rounds.at[run]
                end(made, run, now, ANSWER)
        if rounds.waiting and draw.random() < 0.2:
            gone = draw.choice([*rounds.waiting])
            del rounds.waiting[gone]
            made.withdraw(gone, 0, now)


@catches(
    "later-of-two",
    "what is bound to an instance goes before what waits for any, whoever's turn it is",
    edited(Paced._head, "best is None or heap[0] < best[0]", "best is None"),
)
@catches(
    "bound-is-passed",
    "an instance takes one call more than its bound",
    edited(
        Paced._score_of, "seen.running >= self.bounds[kind]", "seen.running > self.bounds[kind]"
    ),
)
@catches(
    "pending-is-free",
    "what is pending on an instance delays nobody",
    edited(Paced._ends_s, "seen.prefilling + work.missing", "work.missing"),
)
@catches(
    "seen-once",
    "an instance is weighed as it was when it was looked at first",
    edited(Paced._stand, "self._score[i] = score", "pass"),
)
def test_each_call_goes_when_and_where_the_rules_say() -> None:
    waited = 0
    for seed in range(2):
        for instances in (1, 3):
            for rounds in lives(seed, instances):
                waited += len(rounds.waiting)
    assert waited > 1000, "there was something to choose"


def test_a_call_that_failed_where_it_would_end_first_goes_to_another() -> None:
    for failed, at in ((-1, 0), (0, 1), (1, 0)):
        made = paced([(0.001, 0.01), (0.002, 0.02)])
        submit(made, call("q", 100, 50, avoid=failed))
        assert sent(made) == [("q", at)]
