"""Which instances a scheduling round asks, so that a round does not grow with instances.

A batching policy is asked instance by instance. The first few with room are, in the order of the
routing policy, and those that something queued is bound to. Who declined is not asked again before
something changed that could matter there: the instance itself, what is bound to it, for the first
few what is bound to none, or the time that the policy named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from teola.policies.routing.base import Loads, RoutingPolicy
from teola.policies.work import Work
from teola.schedule.faults import Faults
from teola.schedule.preference import Preference

FIRST: Final = 8
"""Instances that are asked about what is bound to none; what suits no one of them waits."""

NOTHING: Final = (0, 0, 0)


class Declined(NamedTuple):
    """version: of the works that are bound to none. wake: when the policy wants to be asked."""

    version: int
    wake: float


class Asking:
    """What is queued where, and who declined. faults: takes what the routing policy raises."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._bound: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        self._context: dict[int, int] = {}
        self._ask: set[int] = set()
        """Instances that something queued is bound to, and that are asked once they have room."""
        self._free = 0
        self._more_rows = 0
        """Rows of windows that are bound to no instance, but for one of each window."""
        self._version = 0
        self._declined: dict[int, Declined] = {}
        self._wakes: list[tuple[float, int]] = []
        self.stale: set[int] = set()
        """Instances to which more or less is bound, for the view."""
        self.preference: Preference | None = None
        """None where no instance is preferred to another."""

    def queued(self, work: Work) -> None:
        """`work` came into the queue."""
        i = work.affinity
        if i < 0:
            self._free += 1
            if work.row_tokens:
                self._more_rows += work.total - 1
            self._version += 1
            if self.preference is not None:
                self.preference.queued(work)
        else:
            self._bound[i] = self._bound.get(i, 0) + 1
            self._tokens[i] = self._tokens.get(i, 0) + work.missing
            self._context[i] = self._context.get(i, 0) + work.tokens
            self.stale.add(i)
            self._declined.pop(i, None)
            self._ask.add(i)

    def left(self, work: Work) -> None:
        """`work` left the queue."""
        i = work.affinity
        if i < 0:
            self._free -= 1
            if work.row_tokens:
                self._more_rows -= work.total - 1
            self._version += 1
        else:
            self.stale.add(i)
            self._declined.pop(i, None)
            self._ask.add(i)
            self._bound[i] -= 1
            self._tokens[i] -= work.missing
            self._context[i] -= work.tokens
            if not self._bound[i]:
                del self._bound[i], self._tokens[i], self._context[i]
                self._ask.discard(i)

    @property
    def free_calls(self) -> int:
        """How many calls are bound to none. Rows of a window are one each."""
        return self._free + self._more_rows

    @property
    def bound(self) -> int:
        """How many works are bound to an instance."""
        return sum(self._bound.values())

    def bound_to(self, i: int) -> int:
        """How many works are bound to instance `i`."""
        return self._bound.get(i, 0)

    def for_instance(self, i: int) -> tuple[int, int, int]:
        """How many works are bound to instance `i`, what of their prompts is to be computed, and
        all tokens of those."""
        if i not in self._bound:
            return NOTHING
        return self._bound[i], self._tokens[i], self._context[i]

    def validate(self, works: Iterable[Work]) -> None:
        """Raises AssertionError if other works are queued than these. O(n): for tests."""
        works = list(works)
        counts = Counter(work.affinity for work in works)
        free = sum(count for i, count in counts.items() if i < 0)
        bound = {i: count for i, count in counts.items() if i >= 0}
        assert self._free == free, f"{self._free} works are bound to none, and not {free}"
        calls = sum(work.entries(work.total) for work in works if work.affinity < 0)
        free_calls = self.free_calls
        assert free_calls == calls, f"{free_calls} calls are bound to none, and not {calls}"
        assert self._bound == bound, f"bound by instance: {self._bound}, and not {bound}"
        assert self._ask <= bound.keys(), f"{self._ask - bound.keys()} are asked for nothing"
        for counted, field in ((self._tokens, "missing"), (self._context, "tokens")):
            tokens = Counter[int]()
            for work in works:
                tokens[work.affinity] += getattr(work, field) if work.affinity >= 0 else 0
            expected = {i: count for i, count in tokens.items() if i >= 0}
            assert counted == expected, f"{field} tokens by instance: {counted}, and not {expected}"

    def part(self, i: int, idle: int) -> int:
        """Works for instance `i` if `idle` instances share evenly what is bound to none."""
        return max(1, -(-self._free // idle) + self._bound.get(i, 0))

    def changed(self, instances: Iterable[int]) -> None:
        """More or less is in flight on these instances, or they may take more or less."""
        for i in instances:
            self._declined.pop(i, None)
            if i in self._bound:
                self._ask.add(i)

    def forget(self) -> None:
        """Ask everybody again."""
        self._declined.clear()
        self._ask = set(self._bound)

    def declined(self, i: int, wake: float | None) -> None:
        """Instance `i` was asked in vain."""
        self._ask.discard(i)
        at = inf if wake is None else wake
        before = self._declined.get(i)
        self._declined[i] = Declined(self._version, at)
        if at < inf and (before is None or before.wake != at):
            heappush(self._wakes, (at, i))

    def wake(self, now: float) -> float | None:
        """The next time at which one that declined is to be asked."""
        wakes, declined = self._wakes, self._declined
        while wakes:
            at, i = wakes[0]
            if i in declined and declined[i].wake == at:
                if at > now:
                    return at
                del declined[i]
                if i in self._bound:
                    self._ask.add(i)
            heappop(wakes)
        return None

    def candidates(
        self,
        routing: RoutingPolicy,
        loads: Loads,
        now: float,
        worth: Callable[[int, int, float], bool] | None = None,
    ) -> Iterator[int]:
        """The instances to ask, of those with room. worth: whether one of so many calls that are
        bound to none is to go there at all."""
        if self._wakes:
            self.wake(now)
        yielded = []
        if self._free:
            try:
                order = routing.order(loads, now)
                if self.preference is not None:
                    order = self.preference.order(order)
                for i in islice(order, FIRST):
                    if i not in loads:
                        self._faults.of_routing(f"order gave {i}, which cannot take work now")
                        return
                    if worth is not None and not worth(i, self.free_calls, now):
                        continue
                    before = self._declined.get(i)
                    if before is None or before.version != self._version:
                        yielded.append(i)
                        yield i
            except Exception as error:  # noqa: BLE001 - anybody's code; the queue fails its work
                self._faults.of_routing(error)
        for i in sorted(self._ask):
            if i not in loads:
                self._ask.discard(i)  # until it changes
            elif i not in yielded:
                yield i
