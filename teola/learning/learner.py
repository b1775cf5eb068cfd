"""The learner of one process: what its engines' times are, and what calls turn out to be.

It is told by the core's queues what happens, has neither clock nor chance, and publishes lessons:
an epoch begins when a figure has moved by a tenth, and at most once a second. What was published is
never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, overload

from teola.graph.ops import Op
from teola.learning.at_work import AtWork
from teola.learning.batches import BatchTimes
from teola.learning.calls import CallTimes
from teola.learning.habits import MOVED, Habits
from teola.learning.lessons import NO_LESSONS, EngineTimes, Lessons
from teola.learning.observer import Observer
from teola.profile import EngineProfile, StepTime

EPOCH_S: Final = 1.0
"""Shortest time from an epoch to the next."""
AGAIN: Final = 32
"""So many measurements are more to go by than any number at an earlier time."""


class Learner:
    """Knows nothing at first, but what it is told to `recall`. crowd: who counts the instances that
    are at work; None: none slows another down."""

    def __init__(self, crowd: AtWork | None = None) -> None:
        self.lessons = NO_LESSONS
        self._crowd = crowd
        self.habits = Habits()
        self._engines: dict[str, Observer] = {}
        self._recalled: dict[str, EngineTimes] = {}
        self._next = float("-inf")

    def observer(self, engine: str, budget: int | None) -> Observer:
        """Who is to be told what happens at an engine. budget: prompt tokens of one step of an LLM
        (None: it is none)."""
        habits = self.habits
        found: Observer = (
            BatchTimes(habits, self._crowd)
            if budget is None
            else CallTimes(habits, budget, self._crowd)
        )
        self._engines[engine] = found
        return found

    def recall(self, known: Lessons) -> None:
        """Know this, too, from an earlier time, until there is more to go by."""
        before = self.lessons
        self.lessons = Lessons(
            max(before.epoch, known.epoch) + 1,
            {**before.engines, **known.engines},
            {**before.habits, **known.habits},
        )
        self.habits.recall(known.habits)
        self._recalled |= known.engines

    def publish(self, now: float) -> bool:
        """Begin an epoch if it is time and something has moved; whether one began."""
        if now < self._next:
            return False
        self._next = now + EPOCH_S
        engines = dict(self.lessons.engines)
        moved = False
        for name, times in self._known():
            if _moved(engines.get(name), times):
                engines[name] = times
                moved = True
        habits = self.habits.publish()
        if not moved and habits is None:
            return False
        told = self.lessons.habits if habits is None else habits
        self.lessons = Lessons(self.lessons.epoch + 1, engines, told)
        return True

    def snapshot(self) -> Lessons:
        """All that is known by now, to be kept."""
        engines = {**self.lessons.engines, **dict(self._known())}
        return Lessons(self.lessons.epoch, engines, self.habits.now())

    def _known(self) -> Iterator[tuple[str, EngineTimes]]:
        """Engines of which enough was seen, and their times: those of ops that have not been seen
        since are as they were."""
        for name, learning in self._engines.items():
            times, before = learning.times(), self._recalled.get(name)
            if times is None or (before and times.seen < min(before.seen, AGAIN)):
                continue
            if before:
                costs = {**before.costs, **times.costs}
                varied = (before.varied - times.costs.keys()) | times.varied
                times = replace(times, costs=costs, varied=varied)
            yield name, times


class LearnedProfiles(Sequence[EngineProfile]):
    """Of each instance of an engine, as it is known now. profile: what is known without lessons."""

    def __init__(self, learner: Learner, engine: str, profile: EngineProfile, count: int) -> None:
        self._learner, self._engine, self._profile = learner, engine, profile
        self._times: EngineTimes | None = None
        self._now = [profile.of(i) for i in range(count)]

    def __len__(self) -> int:
        return len(self._now)

    @overload
    def __getitem__(self, i: int) -> EngineProfile: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[EngineProfile]: ...

    def __getitem__(self, i: int | slice) -> EngineProfile | Sequence[EngineProfile]:
        times = self._learner.lessons.engines.get(self._engine)
        if times is not None and times is not self._times:
            profile, self._times = times.over(self._profile), times
            self._now = [profile.of(k) for k in range(len(self._now))]
        return self._now[i]


def _moved(before: EngineTimes | None, now: EngineTimes) -> bool:
    """Whether a figure that is read from them has moved by a tenth."""
    if before is None or before.varied != now.varied:
        return True
    were, are = figures(before), figures(now)
    return were.keys() != are.keys() or any(
        abs(value - were[name]) > MOVED * max(value, were[name]) for name, value in are.items()
    )


def figures(times: EngineTimes) -> Mapping[str, float]:
    """What one reads from them, in seconds: a small and a large batch of each op, a step of one and
    of 16 sequences, a short and a long prompt."""
    if times.step is not None:
        return _of_steps(times.step)
    found = {}
    for op, cost in times.costs.items():
        size = cost.item_tokens
        for items in (1, 16):
            found[f"{op.value}, {items}"] = cost.seconds(items, items * size)
    return found


def _of_steps(step: StepTime) -> Mapping[str, float]:
    return {
        "a step of 1": step.seconds(1, 256),
        "a step of 16": step.seconds(16, 16 * 256),
        f"{Op.PREFILLING.value} of 64": step.prefill(64),
        f"{Op.PREFILLING.value} of 1,024": step.prefill(1024),
    }
