"""fifo: throughput oriented (the paper's TO): fill batches in order of arrival."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from itertools import chain
from math import inf

from teola.errors import InputError
from teola.plain_number import is_number
from teola.policies.work import Slice, Slots, Taker, Work


class Fifo:
    """Dynamic batching. max_wait_s: how long a batch that is not full waits for more."""

    def __init__(self, max_wait_s: float = 0.0) -> None:
        if not is_number(max_wait_s) or not 0 <= max_wait_s < inf:
            raise InputError(
                "batching policy 'fifo': max_wait_s must be a number of seconds from 0 on, "
                f"got {max_wait_s!r}"
            )
        self.max_wait_s = max_wait_s
        self._queue: deque[Work] = deque()
        self._again: list[tuple[float, int, int, Work]] = []
        """What failed or was refused goes before all others, the first to arrive first."""
        self._live = 0

    @property
    def eager(self) -> bool:
        """Whether it never waits for a batch to fill."""
        return not self.max_wait_s

    def add(self, work: Work, now: float) -> None:
        self._live += 1
        if work.tries:
            insort(self._again, (work.arrival, work.seq, work.tries, work))
        else:
            self._queue.append(work)

    def remove(self, work: Work, now: float) -> None:
        self._live -= 1
        self._prune()
        if len(self._queue) + len(self._again) > 64 + 2 * self._live:
            self._queue = deque(work for work in self._queue if work.queued)
            self._again = [entry for entry in self._again if entry[-1].queued]

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        self._prune()
        taker = Taker(slots)
        for work in self._in_order():
            if work.queued and taker.fits(work) and not taker.take(work):
                break
        if self._waits(taker, now):
            return []
        return taker.slices

    def priority(self, work: Work, now: float) -> int:
        """The earlier it was queued, the more."""
        return -work.seq

    def wake_at(self, now: float) -> float | None:
        self._prune()
        if not self.max_wait_s:
            return None
        times = (work.arrival + self.max_wait_s for work in self._in_order() if work.queued)
        return next((at for at in times if at > now), None)

    def _waits(self, taker: Taker, now: float) -> bool:
        if not self.max_wait_s or not taker.slices or taker.weight <= 0 or taker.entries <= 0:
            return False
        return now < min(s.work.arrival for s in taker.slices) + self.max_wait_s

    def _in_order(self) -> Iterator[Work]:
        return chain((entry[-1] for entry in self._again), self._queue)

    def _prune(self) -> None:
        queue, again = self._queue, self._again
        while queue and not queue[0].queued:
            queue.popleft()
        while again and not again[0][-1].queued:
            del again[0]
