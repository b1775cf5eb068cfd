"""earliest_deadline_first: whoever has the earliest deadline, by what the simulator knows.

What meets its deadline under it, with no regard to anything else, is what could have been met.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from teola.policies.work import Slice, Slots, Taker, Work

Entry = tuple[float, int, int, Work]


class EarliestDeadlineFirst:
    """deadlines: of queries, by the ids that they are submitted with."""

    def __init__(self, deadlines: Mapping[str, float]) -> None:
        self._deadlines, self._heap = deadlines, list[Entry]()

    def add(self, work: Work, now: float) -> None:
        deadline = self._deadlines[work.run.partition("/")[0]]
        heappush(self._heap, (deadline, work.seq, work.tries, work))

    def remove(self, work: Work, now: float) -> None:
        """Dead entries are dropped when they are met."""

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        taker, aside = Taker(slots), list[Entry]()
        while self._heap and taker.room:
            entry = heappop(self._heap)
            if entry[-1].queued:
                aside.append(entry)
                if taker.fits(entry[-1]) and not taker.take(entry[-1]):
                    break
        for entry in aside:
            heappush(self._heap, entry)
        return taker.slices

    def wake_at(self, now: float) -> float | None:
        return None
