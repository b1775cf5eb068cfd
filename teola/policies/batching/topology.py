"""topology: topology-aware batching (paper, Algorithm 2).

Queued primitives are grouped by query into buckets, ordered by the earliest arrival in each. Of
each bucket in turn the deepest primitives are taken, because most waits for them; only if there is
room left over do the less deep ones follow (figure 7: {A, H} and not {A, B}). Buckets and their
order are heaps whose dead entries are dropped when met, so a choice costs O(log n).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from teola.policies.work import Slice, Slots, Taker, Work

DEEP: Final = 64
"""Depths from here on count as one."""
DepthEntry = tuple[float, float, int, int, Work]
"""Tries come before the work itself, which cannot be compared: a retried one has an older twin."""


class Topology:
    """The paper's policy, to the letter."""

    eager = True

    def __init__(self) -> None:
        self._arrivals: list[DepthEntry] = []
        self._buckets: dict[str, list[DepthEntry]] = {}
        self._live = 0

    def add(self, work: Work, now: float) -> None:
        self._live += 1
        heappush(self._arrivals, (work.arrival, 0.0, work.seq, work.tries, work))
        bucket = self._buckets.setdefault(work.run, [])
        heappush(bucket, (-work.spec.depth, work.arrival, work.seq, work.tries, work))

    def remove(self, work: Work, now: float) -> None:
        self._live -= 1
        bucket = self._buckets.get(work.run)
        while bucket and not bucket[0][-1].queued:
            heappop(bucket)
        if not bucket:
            self._buckets.pop(work.run, None)
        if len(self._arrivals) > 64 + 2 * self._live:
            self._arrivals = [entry for entry in self._arrivals if entry[-1].queued]
            heapify(self._arrivals)

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        taker = Taker(slots)
        if self._live == 1:
            return self._only(taker)
        seen: list[DepthEntry] = []
        aside: dict[str, list[DepthEntry]] = {}
        has_room = True
        while has_room and self._arrivals:
            entry = heappop(self._arrivals)
            work = entry[-1]
            if not work.queued:
                continue
            seen.append(entry)
            if work.run not in aside:
                has_room = self._take(
                    self._buckets[work.run], aside.setdefault(work.run, []), taker
                )
        runs = list(aside)
        while has_room and runs:
            runs = [run for run in runs if self._buckets[run]]
            for run in runs:
                if not self._take(self._buckets[run], aside[run], taker):
                    has_room = False
                    break
        for entry in seen:
            heappush(self._arrivals, entry)
        for run, entries in aside.items():
            for entry in entries:
                heappush(self._buckets[run], entry)
        return taker.slices

    def priority(self, work: Work, now: float) -> int:
        """Queries by age in ms, the deeper primitives of one query first."""
        return -round(1000 * work.began) * DEEP + min(work.spec.depth, DEEP - 1)

    def wake_at(self, now: float) -> float | None:
        return None

    def _only(self, taker: Taker) -> list[Slice]:
        """The common case: one primitive is queued, and there is nothing to order."""
        arrivals = self._arrivals
        while not arrivals[0][-1].queued:
            heappop(arrivals)
        if taker.fits(arrivals[0][-1]):
            taker.take(arrivals[0][-1])
        return taker.slices

    def _take(self, bucket: list[DepthEntry], aside: list[DepthEntry], taker: Taker) -> bool:
        """Take the deepest primitives of a bucket that fit; whether there is room for more.

        What was looked at goes to `aside`, so that the next round finds the next depth.
        """
        depth: float | None = None
        while bucket and (depth is None or bucket[0][0] == depth):
            entry = heappop(bucket)
            work = entry[-1]
            if work.queued:
                aside.append(entry)
                if taker.fits(work):
                    depth = entry[0]
                    if not taker.take(work):
                        return False
        return True
