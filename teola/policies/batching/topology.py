"""topology: topology-aware batching (paper, Algorithm 2).

Queued primitives are grouped by query into buckets, ordered by the earliest arrival in each; of a
bucket the deepest primitives go first, because most waits for them. Buckets and their order are
kept in heaps whose dead entries are dropped when met, so a choice costs O(log n).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from teola.policies.work import Slice, Slots, Taker, Work

Entry = tuple[float, float, int, Work]


class Topology:
    """The paper's policy, to the letter."""

    def __init__(self) -> None:
        self._arrivals: list[Entry] = []
        self._buckets: dict[str, list[Entry]] = {}

    def add(self, work: Work, now: float) -> None:
        heappush(self._arrivals, (work.arrival, 0.0, work.seq, work))
        bucket = self._buckets.setdefault(work.run, [])
        heappush(bucket, (-work.depth, work.arrival, work.seq, work))

    def remove(self, work: Work, now: float) -> None:
        self._drop(work.run)

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        taker = Taker(slots)
        seen: list[Entry] = []
        visited: set[str] = set()
        more = True
        while more and self._arrivals:
            entry = heappop(self._arrivals)
            work = entry[-1]
            if not work.queued:
                continue
            seen.append(entry)
            if work.run not in visited:
                visited.add(work.run)
                more = self._take(self._buckets[work.run], taker)
        for entry in seen:
            heappush(self._arrivals, entry)
        for run in visited:
            self._drop(run)
        return taker.slices

    def wake_at(self, now: float) -> float | None:
        return None

    def _take(self, bucket: list[Entry], taker: Taker) -> bool:
        """Fill `taker` from a bucket, deepest first; whether there is room for the next bucket."""
        passed: list[Entry] = []
        more = True
        while more and bucket:
            entry = heappop(bucket)
            work = entry[-1]
            if work.queued:
                passed.append(entry)
                if taker.fits(work):
                    more = taker.take(work)
        for entry in passed:
            heappush(bucket, entry)
        return more

    def _drop(self, run: str) -> None:
        bucket = self._buckets.get(run)
        while bucket and not bucket[0][-1].queued:
            heappop(bucket)
        if bucket is not None and not bucket:
            del self._buckets[run]
        if len(self._arrivals) > 64 + 4 * sum(map(len, self._buckets.values())):
            self._arrivals = [entry for entry in self._arrivals if entry[-1].queued]
            heapify(self._arrivals)
