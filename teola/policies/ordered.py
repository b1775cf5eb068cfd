"""What policies have in common that send works in the order of a key.

A key is worked out once, when a work is queued, and stays while it waits. So `LaneHeaps` do.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from teola.policies.lane_heaps import LaneHeaps
from teola.policies.work import Slice, Slots, Taker, Work

PolicyKey = tuple[float, ...]
KeyEntry = tuple[PolicyKey, float, int, int, Work]
"""The key, arrival, seq and tries come before the work itself, which cannot be compared."""
FEW: Final = 32
"""Works that are too large for the room, or not for this instance, beyond which it looks no
further."""


class Ordered:
    """The least key first; ties by arrival and `seq`. skips: those that fit go before one that is
    too large for the room; else it is waited for."""

    skips = False

    def __init__(self) -> None:
        self.waiting = LaneHeaps[KeyEntry]()

    def key(self, work: Work, now: float) -> PolicyKey:
        """What works are ordered by."""
        raise NotImplementedError

    def add(self, work: Work, now: float) -> None:
        entry = (self.key(work, now), work.arrival, work.seq, work.tries, work)
        self.waiting.add(work, entry)

    def remove(self, work: Work, now: float) -> None:
        self.waiting.remove()

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
        lanes = [(first[0], heaps) for _, heaps, first in self.waiting.open(slots)]
        if len(lanes) > 1:
            lanes.sort(key=lambda lane: lane[0])
        return [heaps for _, heaps in lanes]

    def _fill(self, heaps: list[list[KeyEntry]], taker: Taker) -> None:
        aside: list[tuple[list[KeyEntry], KeyEntry]] = []
        left_out = 0
        while taker.room and left_out <= FEW:
            heap = self.waiting.first(heaps)
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
