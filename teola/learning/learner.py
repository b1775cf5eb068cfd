"""The learner of one process: what its engines' times are, and what calls turn out to be.

It is told by the core's queues what happens, has neither clock nor chance, and publishes lessons:
an epoch begins when a figure has moved by a tenth, and at most once a second. What was published is
never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final, overload

from teola.graph.ops import Op
from teola.learning.at_work import AtWork
from teola.learning.batches import BatchTimes
from teola.learning.calls import CallTimes
from teola.learning.habits import MOVED, Habits
from teola.learning.lessons import NO_LESSONS, EngineTimes, Lessons
from teola.learning.observer import Observer
from teola.profile import EngineProfile, StepTime, unlike

EPOCH_S: Final = 1.0
"""Shortest time from an epoch to the next."""
AGAIN: Final = 32
"""So many measurements are more to go by than any number at an earlier time."""


class Learner:
    """Knows nothing at first, but what it is told to `recall`. crowd: counts the instances that are
    at work; None: none slows another down."""

    def __init__(self, crowd: AtWork | None = None) -> None:
        self.lessons = NO_LESSONS
        self._crowd = crowd
        self.habits = Habits()
        self._engines: dict[str, Observer] = {}
        self._recalled: dict[str, EngineTimes] = {}
        self._next = float("-inf")

    def observer(self, engine: str, budget: int | None, names: Sequence[str] = ()) -> Observer:
        """The observer that is to be told what happens at an engine. budget: prompt tokens of one
        step of an LLM (None: it is none). names: of its instances, by what they are."""
        habits = self.habits
        observer: Observer = (
            BatchTimes(habits, self._crowd, names)
            if budget is None
            else CallTimes(habits, budget, self._crowd, names)
        )
        if (recalled := self._recalled.get(engine)) is not None:
            observer.recall(recalled)
        self._engines[engine] = observer
        return observer

    def recall(self, lessons: Lessons) -> None:
        """Take over the lessons of an earlier time. They hold until there is more to go by."""
        before = self.lessons
        self.lessons = Lessons(
            max(before.epoch, lessons.epoch) + 1,
            {**before.engines, **lessons.engines},
            {**before.habits, **lessons.habits},
        )
        self.habits.recall(lessons.habits)
        self._recalled |= lessons.engines
        for name, times in lessons.engines.items():
            if name in self._engines:
                self._engines[name].recall(times)

    def publish(self, now: float) -> bool:
        """Begin an epoch if it is time and something has moved; whether one began. Times of single
        instances begin none: no plan depends on them, and they hold at once."""
        if now < self._next:
            return False
        self._next = now + EPOCH_S
        engines = dict(self.lessons.engines)
        moved = apart = False
        for name, times in self._known():
            before = engines.get(name)
            if _moved(before, times):
                engines[name] = times
                moved = True
            elif before is not None and _moved_apart(before, times):
                engines[name] = replace(before, instances=times.instances)
                apart = True
        habits = self.habits.publish()
        if not moved and habits is None:
            if apart:
                self.lessons = replace(self.lessons, engines=engines)
            return False
        current_habits = self.lessons.habits if habits is None else habits
        self.lessons = Lessons(self.lessons.epoch + 1, engines, current_habits)
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
            instances = learning.instances()
            if before:
                instances = {**before.instances, **instances}
            if times is None or (before and times.seen < min(before.seen, AGAIN)):
                if before and instances != before.instances:
                    yield name, replace(before, instances=instances)
                continue
            if instances:
                times = replace(times, instances=instances)
            if before:
                costs = {**before.costs, **times.costs}
                varied = (before.varied - times.costs.keys()) | times.varied
                times = replace(times, costs=costs, varied=varied)
            yield name, times


class LearnedProfiles(Sequence[EngineProfile]):
    """The profile of each instance of an engine, as it is known now. profile: what is known without
    lessons. names: of the instances. Those that are alike have the very same times."""

    def __init__(
        self,
        learner: Learner,
        engine: str,
        profile: EngineProfile,
        count: int,
        names: Sequence[str] = (),
    ) -> None:
        self._learner, self._engine, self._profile = learner, engine, profile
        self._names = names
        self._times: EngineTimes | None = None
        self._whole = profile
        self._now = [profile.of(i) for i in range(count)]
        self._version = 0

    @property
    def version(self) -> int:
        """A number that changes whenever a profile does."""
        self._renew()
        return self._version

    def __len__(self) -> int:
        return len(self._now)

    def __iter__(self) -> Iterator[EngineProfile]:
        self._renew()
        return iter(self._now)

    @overload
    def __getitem__(self, i: int) -> EngineProfile: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[EngineProfile]: ...

    def __getitem__(self, i: int | slice) -> EngineProfile | Sequence[EngineProfile]:
        self._renew()
        return self._now[i]

    def _renew(self) -> None:
        times = self._learner.lessons.engines.get(self._engine)
        if times is None or times is self._times:
            return
        before, self._times = self._times, times
        self._version += 1
        if before is None or replace(before, instances={}) != replace(times, instances={}):
            self._whole = times.over(self._profile)
        self._now = [self._whole.of(k) for k in range(len(self._now))]
        slownesses = [times.instances.get(name) for name in self._names]
        if not any(slownesses):
            return
        # An engine's times are rough at first, and then all instances seem to be slow alike: one
        # of which nothing is known yet is as slow as those of which something is.
        usual = median(own.factor for own in slownesses if own is not None)
        factors = [usual if own is None else own.factor for own in slownesses]
        if unlike(factors):
            pool, mean = self._profile.pool, replace(self._whole, pool=())
            declared = {i for i, instance in enumerate(pool) if instance.timed}
            self._now = [
                profile if slownesses[i] is None and i in declared else mean.slowed(factor, profile)
                for i, (profile, factor) in enumerate(zip(self._now, factors, strict=True))
            ]


def _moved(before: EngineTimes | None, now: EngineTimes) -> bool:
    """Whether a figure that is read from them has moved by a tenth."""
    if before is None or before.varied != now.varied:
        return True
    were, are = figures(before), figures(now)
    return were.keys() != are.keys() or any(
        abs(value - were[name]) > MOVED * max(value, were[name]) for name, value in are.items()
    )


def _moved_apart(before: EngineTimes, now: EngineTimes) -> bool:
    """Whether a figure of a single instance has."""
    were, are = before.instances, now.instances
    if were.keys() != are.keys():
        return True
    pairs = ((were[name].factor, are[name].factor) for name in are)
    return any(abs(a - b) > MOVED * max(a, b) for a, b in pairs)


def figures(times: EngineTimes) -> Mapping[str, float]:
    """The figures by which times are compared, in seconds: a small and a large batch of each op, a
    step of one and of 16 sequences, a short and a long prompt."""
    if times.step is not None:
        return _of_steps(times.step)
    seconds = {}
    for op, cost in times.costs.items():
        size = cost.item_tokens
        for items in (1, 16):
            seconds[f"{op.value}, {items}"] = cost.seconds(items, items * size)
    return seconds


def _of_steps(step: StepTime) -> Mapping[str, float]:
    return {
        "a step of 1": step.seconds(1, 256),
        "a step of 16": step.seconds(16, 16 * 256),
        f"{Op.PREFILLING.value} of 64": step.prefill(64),
        f"{Op.PREFILLING.value} of 1,024": step.prefill(1024),
    }
