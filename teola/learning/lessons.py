"""Lessons: everything that was learned up to a moment, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, Final, NamedTuple

from teola.errors import InputError
from teola.graph.ops import Op
from teola.habit import MOST_TURNS, Habit
from teola.profile import Cost, EngineProfile, Profile, StepTime

FORMAT_VERSION: Final = 1


class Slowness(NamedTuple):
    """How slow one instance is. factor: its times as a multiple of its engine's on average. seen:
    calls (batches) that ended there."""

    factor: float
    seen: int


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Times of one engine, as they were observed.

    costs: of the ops of a batch engine. step: of an LLM. seen: measurements behind them.
    varied: ops whose batches were of different sizes, so that one knows what of their time does not
    depend on the size. crowding: how much longer it takes for each other instance that works at the
    same time (EngineProfile). instances: of those that are known by themselves, by what they are
    and not by number, how slow they are.
    """

    costs: Mapping[Op, Cost] = field(default_factory=dict)
    step: StepTime | None = None
    seen: int = 0
    varied: frozenset[Op] = frozenset()
    crowding: float = 0.0
    instances: Mapping[str, Slowness] = field(default_factory=dict)

    def over(self, profile: EngineProfile) -> EngineProfile:
        """`profile` with these times instead of its own, also of instances in its pool that have
        none of their own: what was observed is their mean."""
        source = f"learned from {self.seen} {'calls' if self.step else 'batches'}"
        pool = tuple(
            instance if instance.timed else self.over(instance) for instance in profile.pool
        )
        if self.step is not None:
            crowding = self.crowding
            return replace(profile, step=self.step, pool=pool, crowding=crowding, source=source)
        limit = profile.max_efficient
        if limit is not None and self.varied.issuperset(self.costs):
            limit = None
        costs = {**profile.costs, **self.costs}
        return replace(
            profile,
            costs=costs,
            max_efficient=limit,
            pool=pool,
            crowding=self.crowding,
            source=source,
        )


@dataclass(frozen=True)
class Lessons:
    """What was learned. epoch: how often a figure had moved by a tenth until then. habits: by
    application and component."""

    epoch: int = 0
    engines: Mapping[str, EngineTimes] = field(default_factory=dict)
    habits: Mapping[tuple[str, str], Habit] = field(default_factory=dict)

    def over(self, profile: Profile) -> Profile:
        """`profile` with what was learned of its engines, and of all applications."""
        engines = {
            name: self.engines[name].over(entry) if name in self.engines else entry
            for name, entry in profile.engines.items()
        }
        return replace(profile, engines=engines, habits=self.habits, epoch=self.epoch)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `Lessons.from_json` reads them back."""
        return {
            "version": FORMAT_VERSION,
            "epoch": self.epoch,
            "engines": {name: _written(times) for name, times in self.engines.items()},
            "habits": [[*key, habit.to_json()] for key, habit in self.habits.items()],
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "lessons") -> Lessons:
        """Raises InputError for another version or malformed data."""
        if not isinstance(data, Mapping) or data.get("version") != FORMAT_VERSION:
            raise InputError(f"{where}: expected version {FORMAT_VERSION} of what was learned")
        try:
            engines = {name: _read(times) for name, times in data["engines"].items()}
            habits = {(app, name): _habit(habit) for app, name, habit in data["habits"]}
            return cls(int(data["epoch"]), engines, habits)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: malformed ({error})") from None


NO_LESSONS: Final = Lessons()


def _written(times: EngineTimes) -> dict[str, Any]:
    return {
        "costs": {op.value: asdict(cost) for op, cost in times.costs.items()},
        "step": asdict(times.step) if times.step else None,
        "seen": times.seen,
        "varied": sorted(op.value for op in times.varied),
        "crowding": times.crowding,
        "instances": {name: slowness._asdict() for name, slowness in times.instances.items()},
    }


def _read(data: Mapping[str, Any]) -> EngineTimes:
    return EngineTimes(
        costs={Op(op): Cost(**_sound(cost)) for op, cost in data["costs"].items()},
        step=StepTime(**_sound(data["step"])) if data["step"] else None,
        seen=int(data["seen"]),
        varied=frozenset(map(Op, data["varied"])),
        crowding=_sound({"crowding": data.get("crowding", 0.0)})["crowding"],
        instances={
            name: Slowness(**_sound(slowness))
            for name, slowness in data.get("instances", {}).items()
        },
    )


def _habit(data: Mapping[str, Any]) -> Habit:
    turns = tuple(map(int, data.get("turns", ())))
    if len(turns) > MOST_TURNS + 2 or any(count < 0 for count in turns):
        raise ValueError(f"turns cannot be {turns}")
    figures = {name: value for name, value in data.items() if name != "turns"}
    return Habit(**_sound(figures), turns=turns)


def _sound(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures, checked to be finite and not negative. Raises ValueError."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            _sound(value)
        elif value is None and name == "seconds":
            continue
        elif not (isinstance(value, (int, float)) and 0 <= value < inf):
            raise ValueError(f"{name} cannot be {value!r}")
    return figures
