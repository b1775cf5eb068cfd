"""What a routing policy is: in which order an engine's instances are offered the next batch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from sys import maxsize
from typing import NamedTuple, Protocol


class Load(NamedTuple):
    """An instance that can take work now. load: weight in flight, relative to its size."""

    instance: int
    load: float


class Loads:
    """The instances that can take work now, the least loaded first (ties: by number).

    It is kept in order while they change, so that a policy need not look at all of them: take what
    you need from the front of it, or of `after`.
    """

    __slots__ = ("_by_load", "_by_number", "_load")

    def __init__(self, loads: Iterable[Load] = ()) -> None:
        self._load: dict[int, float] = {}
        self._by_load: list[tuple[float, int]] = []
        self._by_number: list[int] = []
        for instance, load in loads:
            self.put(instance, load)

    def __len__(self) -> int:
        return len(self._load)

    def __contains__(self, instance: int) -> bool:
        return instance in self._load

    def __iter__(self) -> Iterator[Load]:
        return (Load(instance, load) for load, instance in self._by_load)

    @property
    def idle(self) -> int:
        """How many have nothing in flight."""
        return bisect_left(self._by_load, (0.0, maxsize))

    @property
    def numbers(self) -> tuple[int, ...]:
        """By number."""
        return tuple(self._by_number)

    def after(self, instance: int) -> Iterator[Load]:
        """By number, beginning behind `instance` and going round."""
        numbers = self._by_number
        first = bisect_left(numbers, instance + 1)
        for k in range(len(numbers)):
            number = numbers[(first + k) % len(numbers)]
            yield Load(number, self._load[number])

    def put(self, instance: int, load: float) -> None:
        """It can take work, and is so loaded."""
        before = self._load.get(instance)
        if before == load:
            return
        if before is None:
            insort(self._by_number, instance)
        else:
            del self._by_load[bisect_left(self._by_load, (before, instance))]
        self._load[instance] = load
        insort(self._by_load, (load, instance))

    def drop(self, instance: int) -> None:
        """It can take nothing."""
        load = self._load.pop(instance, None)
        if load is not None:
            del self._by_load[bisect_left(self._by_load, (load, instance))]
            del self._by_number[bisect_left(self._by_number, instance)]


class RoutingPolicy(Protocol):
    """No I/O, no clock, no randomness; ties are broken by instance."""

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        """Instances, the one to prefer first. Only the first few are asked for, so make it lazy."""
        ...

    def dispatched(self, instance: int, now: float) -> None:
        """A batch went to `instance`."""
        ...
