"""Whatever happens to a queue, when all of it is over its observer holds nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.errors import EngineError
from teola.graph import Op
from teola.learning.batches import BatchTimes
from teola.learning.calls import CallTimes
from teola.learning.habits import Habits
from teola.learning.observer import Observer
from teola.policies import batching, routing
from teola.policies.work import Work
from teola.schedule.engine_queue import EngineQueue, Limits
from teola.schedule.events import (
    AbortRequest,
    BatchCompleted,
    CallEnded,
    Cause,
    Dispatch,
    FirstToken,
    InstanceDown,
    InstanceUp,
)
from tests.planted import catches, edited
from tests.recording import work

INSTANCES = 2
AGAIN = Cause(EngineError("busy", retryable=True), retryable=True)
NEVER = Cause(EngineError("wrong"))


class Chance:
    """A queue to which everything happens that may, drawn by seed."""

    def __init__(self, observer: Observer, *, calls: bool, seed: int) -> None:
        limits = Limits(64 if calls else 4, 4, 2, calls)
        policies = batching.make("fifo"), routing.make("least_loaded")
        self.queue = EngineQueue("e", [limits] * INSTANCES, *policies)
        self.queue.observer = observer
        self.calls, self.drawn = calls, Random(seed)
        self.sent: list[Dispatch] = []
        self.ended: set[tuple[int, int]] = set()
        self.aborted: set[tuple[str, int]] = set()
        self.down: set[int] = set()
        self.now, self.works = 0.0, 0

    def step(self, what: str) -> None:
        """One of the things that happen, if it can."""
        self.now += self.drawn.random()
        getattr(self, what)()
        for out in self.queue.dispatch(self.now):
            if isinstance(out, Dispatch):
                self.sent.append(out)

    def submit(self) -> None:
        self.works += 1
        more: dict[str, Any] = {"retries": self.drawn.randint(0, 2), "run": f"r{self.works}"}
        more["total"] = self.drawn.randint(1, 9)
        if self.calls:
            members = self.drawn.choice([(), (1,)])
            more |= {"op": Op.PREFILLING, "lane": None, "cuttable": False, "members": members}
            more |= {"planned_tokens": 5, "planned_output": 4 * len(members)}
        self.queue.submit(work(0, **more), self.now)

    def withdraw(self) -> None:
        if self.queue.works:
            run, i = self.drawn.choice(list(self.queue.works))
            outputs = self.queue.withdraw(run, i, self.now)
            self.aborted |= {(o.run, o.primitive) for o in outputs if isinstance(o, AbortRequest)}

    def lose(self) -> None:
        i = self.drawn.randrange(INSTANCES)
        if i not in self.down:
            self.down.add(i)
            self.queue.down(InstanceDown("e", i, True), self.now)

    def heal(self) -> None:
        if self.down:
            self.queue.up(InstanceUp("e", self.down.pop()), self.now)

    def first(self) -> None:
        """A first token, perhaps of a call that is over or gone."""
        if self.calls and self.sent:
            one = self.drawn.choice(self.sent)
            of = self.drawn.choice(one.slices).work
            told = FirstToken("e", one.instance, of.run, of.primitive)
            self.queue.first_token(told, self.now)

    def end(self) -> None:
        """A batch or call is over, perhaps a second time or from an instance that is gone."""
        if self.sent:
            self._end(self.drawn.choice(self.sent))

    def _end(self, one: Dispatch) -> None:
        if not self.calls:
            outcomes = [self._outcome(s.work) or {"out": s.hi - s.lo} for s in one.slices]
            self.queue.completed(BatchCompleted("e", one.batch, outcomes), self.now)
            return
        of = self.drawn.choice(one.slices).work
        outcome = self._outcome(of) or {"sequence": 1}
        told = [self.drawn.choice([None, 0, 3]), self.drawn.choice([None, 0, 7])]
        event = CallEnded("e", one.batch, of.run, of.primitive, outcome, *told)
        self.queue.call_ended(event, self.now)

    def _outcome(self, of: Work) -> Cause | None:
        if (of.run, of.primitive) in self.aborted:
            return NEVER
        return self.drawn.choice([None, None, None, AGAIN, NEVER])

    def finish(self) -> None:
        """Until nothing is left."""
        for _ in range(INSTANCES):
            self.step("heal")
        for _ in range(2000):
            if not self.queue.works:
                return
            self.step("withdraw")
            for one in list(self.sent):
                self._end(one)
        pytest.fail("it never ends")


STEPS = ("submit", "submit", "first", "first", "end", "end", "withdraw", "lose", "heal")


def run(observer: Observer, steps: list[str], *, calls: bool, seed: int) -> None:
    chance = Chance(observer, calls=calls, seed=seed)
    for what in steps:
        chance.step(what)
    chance.finish()


happening = st.lists(st.sampled_from(STEPS), min_size=10, max_size=80)


@catches(
    "held-lost-calls",
    "what a lost instance ran is kept",
    edited(CallTimes.lost, "call.instance != i", "True"),
)
@catches(
    "held-calls-count",
    "a call that is over still counts",
    edited(CallTimes.ended, "instance.calls -= 1", "pass"),
)
@catches(
    "held-decoding",
    "a call that is over still decodes",
    edited(CallTimes.ended, "instance.decoding -= 1", "pass"),
)
@catches(
    "held-ages",
    "the age of a call that is over still counts",
    edited(CallTimes.ended, "instance.ages -= now - call.first", "pass"),
)
@settings(max_examples=40)
@pytest.mark.slow
@given(happening, st.integers(0, 10**6))
def test_of_calls(steps: list[str], seed: int) -> None:
    observer = CallTimes(Habits(), budget=16)
    run(observer, steps, calls=True, seed=seed)
    assert observer._calls == {}
    for instance in observer._instances.values():
        assert (instance.calls, instance.decoding) == (0, 0)
        assert instance.context == pytest.approx(0, abs=1e-6)
        assert instance.ages == pytest.approx(0, abs=1e-6)
    assert len(observer._instances) <= INSTANCES


@catches(
    "held-lost-batches",
    "batches of a lost instance are kept",
    edited(BatchTimes.lost, "if sent.instance == i", "if False"),
)
@catches(
    "held-batches",
    "batches that are over are kept",
    edited(BatchTimes.completed, "self._sent.pop(", "self._sent.get("),
)
@settings(max_examples=40)
@pytest.mark.slow
@given(happening, st.integers(0, 10**6))
def test_of_batches(steps: list[str], seed: int) -> None:
    observer = BatchTimes(Habits())
    run(observer, steps, calls=False, seed=seed)
    assert observer._sent == {}
