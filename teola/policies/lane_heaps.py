"""Works that wait, in a heap for each lane and instance.

An entry is a tuple whose last element is the work, and by whose elements before it works are
ordered; they tell any two entries apart, since works cannot be compared. What has gone is dropped
when it is met, and all of it once it is most of what is there. So adding and taking cost O(log n).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

from teola.graph import Op
from teola.policies.work import Slots, Work

ANYWHERE: Final = -1
"""The affinity of a work that is bound to no instance."""
HeapEntry = TypeVar("HeapEntry", bound=tuple[Any, ...])


class LaneHeaps(Generic[HeapEntry]):
    """See above. live: works that wait; by_lane: the heaps by lane and affinity."""

    __slots__ = ("_gone", "by_lane", "live")

    def __init__(self) -> None:
        self.by_lane: dict[Op | None, dict[int, list[HeapEntry]]] = {}
        self.live = self._gone = 0

    def add(self, work: Work, entry: HeapEntry) -> None:
        heaps = self.by_lane.get(work.spec.lane)
        if heaps is None:
            heaps = self.by_lane[work.spec.lane] = {}
        heap = heaps.get(work.affinity)
        if heap is None:
            heap = heaps[work.affinity] = []
        heappush(heap, entry)
        self.live += 1

    def remove(self) -> None:
        """A work waits no longer: its `queued` is false."""
        self.live -= 1
        self._gone += 1
        if self._gone > 64 + self.live:
            self.sweep()

    def open(
        self, slots: Slots
    ) -> Iterator[tuple[Op | None, list[list[HeapEntry]], list[HeapEntry]]]:
        """Each lane that may run there and has works: its heaps of what is bound there or nowhere,
        and which of them has the first work."""
        for lane, by_instance in self.by_lane.items():
            if slots.lane is None or lane is slots.lane:
                somewhere = by_instance.get(ANYWHERE), by_instance.get(slots.instance)
                heaps = [heap for heap in somewhere if heap]
                first = self.first(heaps)
                if first is not None:
                    yield lane, heaps, first

    def first(self, heaps: list[list[HeapEntry]]) -> list[HeapEntry] | None:
        """Which of these heaps has the first work."""
        best = None
        for heap in heaps:
            while heap and not heap[0][-1].queued:
                heappop(heap)
                self._gone -= 1
            if heap and (best is None or heap[0] < best[0]):
                best = heap
        return best

    def sweep(self) -> None:
        """Forget all that has gone."""
        kept: dict[Op | None, dict[int, list[HeapEntry]]] = {}
        for lane, by_instance in self.by_lane.items():
            for instance, heap in by_instance.items():
                live = [entry for entry in heap if entry[-1].queued]
                if live:
                    heapify(live)
                    kept.setdefault(lane, {})[instance] = live
        self.by_lane, self._gone = kept, 0
