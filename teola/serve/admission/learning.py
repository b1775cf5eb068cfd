"""What admission knows of queries and engines: means over queries that have ended."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from teola.runtime.observe.demand import Demand

LEARNING: Final = 0.05
"""Weight of a query in a mean, once twenty have been seen."""
ENOUGH: Final = 3
"""Queries after which a mean is believed."""
SMALLEST: Final = 4096
"""Characters of the smallest size; each further one reaches four times as far."""
SIDE_BY_SIDE: Final = 16
MORE: Final = 1.5
"""What is believed of an instance that begins with everybody at once, before it was seen to slow
down: so many at once, or so many times as many as it had."""
CROWDED: Final = 0.1
"""Weight of a query in what is learned of a crowd, which changes quickly."""
SLOWED: Final = 4 / 3
"""Times as long as alone: an engine with so many inside does as much as it can."""


class QueryClass(NamedTuple):
    """An application and about how much comes with its queries: see `size_class`."""

    app: str
    size: int


def size_class(characters: int) -> int:
    """0 below 4,096 characters, 1 below 16,384, and so on."""
    return ((characters // SMALLEST).bit_length() + 1) // 2


@dataclass(slots=True)
class Mean:
    """A mean that forgets slowly. seen: how many it is of."""

    value: float = 0.0
    seen: int = 0

    def add(self, value: float, weight: float = LEARNING) -> None:
        self.seen += 1
        self.value += max(weight, 1 / self.seen) * (value - self.value)


@dataclass(slots=True)
class Means:
    """Means over the demands of several queries."""

    own_s: Mean = field(default_factory=Mean)
    work: dict[str, Mean] = field(default_factory=dict)

    def add(self, demand: Demand) -> None:
        self.own_s.add(demand.own_s)
        for engine in self.work.keys() | demand.work.keys():
            mean = self.work.get(engine)
            if mean is None:
                mean = self.work[engine] = Mean()
            mean.add(demand.work.get(engine, 0.0))

    @property
    def values(self) -> dict[str, float]:
        return {engine: mean.value for engine, mean in self.work.items()}


class Learned:
    """What is known of one kind. planned: what a profile says (zeros where it knows nothing).

    What a query takes for itself is learned from those that nothing held up, apart by how many ran
    at once (in powers of two); the least of these means counts. Where many run, engines become
    slower that do them side by side, and what a crowd does to each must not be taken for what each
    needs.
    """

    def __init__(self, planned: Demand) -> None:
        self._planned = self._demand = planned
        self._lately = Means(work={engine: Mean(s) for engine, s in planned.work.items()})
        self._calm: dict[int, Means] = {}
        self.alone: Mapping[str, float] = {}
        """Seconds of each engine that a query takes which has it to itself."""
        self.known = any(planned.work.values())
        self.running = 0
        self.since = 0.0

    def demand(self, now: float) -> Demand:
        """What to expect. As long as none has ended: what the first one took so far, evenly."""
        if self.known:
            return self._demand
        age = now - self.since if self.running else 0.0
        work = self._planned.work
        return Demand(age, dict.fromkeys(work, age / max(1, len(work))))

    def add(self, demand: Demand, at_once: int | None, crowds: Container[str]) -> None:
        """One has ended. at_once: how many ran beside it, if nothing held it up. crowds: engines
        that become slower with each, so that only what it takes alone tells what it brings."""
        self._lately.add(demand)
        if at_once is not None:
            calm = self._calm.get(at_once.bit_length())
            if calm is None:
                calm = self._calm[at_once.bit_length()] = Means()
            calm.add(demand)
        own_s = self._planned.own_s
        if self._calm:
            sure = [means for means in self._calm.values() if means.own_s.seen >= ENOUGH]
            calmest = min(sure or self._calm.values(), key=lambda means: means.own_s.value)
            own_s, self.alone = calmest.own_s.value, calmest.values
        lately, alone = self._lately.values, self.alone
        work = {name: alone.get(name, s) if name in crowds else s for name, s in lately.items()}
        self._demand = Demand(own_s, work)
        self.known = True


@dataclass(slots=True)
class Crowd:
    """How an engine becomes slower that begins with everybody at once.

    inside: how many it had. stretch: how many times as long as alone they took. What it did a
    second, in seconds of who is alone, is `inside / stretch`.
    """

    inside: Mean = field(default_factory=Mean)
    stretch: Mean = field(default_factory=Mean)

    def saw(self, inside: int, took_s: float, alone_s: float) -> None:
        """A query has ended while so many were inside."""
        if alone_s > 0:
            self.inside.add(inside, CROWDED)
            self.stretch.add(took_s / alone_s, CROWDED)

    def lanes(self, instances: float, fits: float = inf) -> float:
        """How many it does side by side as quickly as one. fits: for how many it has memory, if
        they share nothing."""
        inside, stretch = self.inside.value, self.stretch.value
        if stretch <= SLOWED:
            return max(instances, inside, min(fits, max(SIDE_BY_SIDE * instances, MORE * inside)))
        return max(instances, inside / stretch)
