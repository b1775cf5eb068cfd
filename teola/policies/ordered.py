"""What policies have in common that send works in the order of a key.

A key is worked out once, when a work is queued, and stays while it waits. So a heap for each lane
and instance is enough: adding and choosing cost O(log n).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from teola.graph import Op
from teola.policies.work import Slice, Slots, Taker, Work

PolicyKey = tuple[float, ...]
KeyEntry = tuple[PolicyKey, float, int, int, Work]
"""The key, arrival, seq and tries come before the work itself, which cannot be compared."""
ANYWHERE: Final = -1
FEW: Final = 32
"""Works that are too large for the room, or not for this instance, beyond which it looks no
further."""


class Ordered:
    """The least key first; ties by arrival and `seq`. skips: those that fit go before one that is
    too large for the room; else it is waited for."""

    skips = False

    def __init__(self) -> None:
        self._lanes: dict[Op | None, dict[int, list[KeyEntry]]] = {}
        self._live = self._entries = 0

    def key(self, work: Work, now: float) -> PolicyKey:
        """What works are ordered by."""
        raise NotImplementedError

    def add(self, work: Work, now: float) -> None:
        entry = (self.key(work, now), work.arrival, work.seq, work.tries, work)
        heaps = self._lanes.setdefault(work.spec.lane, {})
        heappush(heaps.setdefault(work.affinity, []), entry)
        self._live += 1
        self._entries += 1

    def remove(self, work: Work, now: float) -> None:
        self._live -= 1
        if self._entries > 64 + 2 * self._live:
            self._sweep()

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        for heaps in self._open(slots):
            taker = Taker(slots)
            self._fill(heaps, taker)
            if taker.slices:
                return taker.slices
        return []

    def wake_at(self, now: float) -> float | None:
        return None

    def _open(self, slots: Slots) -> list[list[list[KeyEntry]]]:
        """For each lane that may run there, the most urgent first: what is bound there or
        nowhere."""
        found = []
        for lane, by_instance in self._lanes.items():
            if slots.lane is None or lane is slots.lane:
                somewhere = by_instance.get(ANYWHERE), by_instance.get(slots.instance)
                heaps = [heap for heap in somewhere if heap]
                first = self._first(heaps)
                if first is not None:
                    found.append((first[0], heaps))
        if len(found) > 1:
            found.sort(key=lambda one: one[0])
        return [heaps for _, heaps in found]

    def _first(self, heaps: list[list[KeyEntry]]) -> list[KeyEntry] | None:
        """Where the most urgent work is."""
        best = None
        for heap in heaps:
            while heap and not heap[0][-1].queued:
                heappop(heap)
                self._entries -= 1
            if heap and (best is None or heap[0] < best[0]):
                best = heap
        return best

    def _fill(self, heaps: list[list[KeyEntry]], taker: Taker) -> None:
        aside: list[tuple[list[KeyEntry], KeyEntry]] = []
        left_out = 0
        while taker.room and left_out <= FEW:
            heap = self._first(heaps)
            if heap is None:
                break
            entry = heappop(heap)
            aside.append((heap, entry))
            work = entry[-1]
            if not taker.fits(work):
                left_out += 1
            elif not taker.take(work):
                if not self.skips:
                    break
                left_out += taker.room
        for heap, entry in aside:
            heappush(heap, entry)

    def _sweep(self) -> None:
        """Forget all that has gone."""
        kept: dict[Op | None, dict[int, list[KeyEntry]]] = {}
        for lane, by_instance in self._lanes.items():
            for instance, heap in by_instance.items():
                live = [entry for entry in heap if entry[-1].queued]
                if live:
                    heapify(live)
                    kept.setdefault(lane, {})[instance] = live
        self._lanes, self._entries = kept, self._live
