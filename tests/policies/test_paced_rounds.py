"""paced against its rules: after each call that is sent, a slow record says whether it was right.

All prompts are of one length and all answers too, so that bounds and times stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from teola.policies.routing.paced import Paced, calls_at_once
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime
from tests.planted import catches, edited
from tests.policies.unequal import call, end, first, queue, sent, submit

PROMPT, ANSWER, TAU = 500, 100, 2.0
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
