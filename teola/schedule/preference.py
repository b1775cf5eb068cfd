"""Which instances of an engine take what is bound to none: the cheaper first. Sans I/O.

    cheaper ones refuse, or are not there           the dearer one takes it
    all places of the cheaper ones are taken        it waits there, if it is expected to begin
                                                    within `most_s`; else the dearer one takes it
    their budget of the minute is used up           the same, by when the budget is there again
    it has waited for `most_s`, whatever was expected   the dearer one takes it

How long it would wait goes by what calls took on the cheaper instances lately, and by how many of
them are taken there at once. As long as no call has come back there, nothing is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

from teola.policies.work import Work
from teola.schedule.instances import Instances

LAST: Final = 8
"""Calls whose mean time counts, about."""


class Preference:
    """ranks: of each instance; a lower one comes first. most_s: see the module."""

    def __init__(self, ranks: Sequence[int], most_s: float, instances: Instances) -> None:
        self.most_s, self._ranks, self._instances = most_s, ranks, instances
        self._cheaper = [[k for k, rank in enumerate(ranks) if rank < own] for own in ranks]
        self._peers = [{k for k, rank in enumerate(ranks) if rank == own} for own in ranks]
        self._call_s = [0.0] * len(ranks)
        self._waiting: list[tuple[float, int, Work]] = []
        """What is bound to none and queued, the oldest first, besides what is so no more."""
        self._numbers = count()

    # --- what happens -----------------------------------------------------------------------

    def queued(self, work: Work) -> None:
        """A work that is bound to none came into the queue."""
        heappush(self._waiting, (work.arrival, next(self._numbers), work))

    def came_back(self, i: int, seconds: float) -> None:
        """A call came back from instance `i`, so long after it was sent."""
        known = self._call_s[i]
        self._call_s[i] = known + (seconds - known) / LAST if known else seconds

    # --- what follows -----------------------------------------------------------------------

    def dearer(self, i: int) -> bool:
        """Whether another instance is cheaper than instance `i`."""
        return bool(self._cheaper[i])

    def order(self, instances: Iterable[int]) -> list[int]:
        """The cheaper first, else as they were."""
        return sorted(instances, key=self._ranks.__getitem__)

    def worth(self, i: int, waiting: int, now: float, *, speeds: bool) -> bool:
        """Whether one of so many calls that are bound to none is to go to instance `i`, which has
        room. speeds: between instances of one price, speed decides."""
        if not self.takes(i, waiting, now):
            return False
        return not speeds or self._instances.worth(i, waiting, now, self._peers[i])

    def takes(self, i: int, waiting: int, now: float) -> bool:
        """Whether no cheaper instance is to take it."""
        there = [k for k in self._cheaper[i] if self._there(k, now)]
        if not there:
            return True
        oldest = self._oldest()
        waited = oldest is not None and now >= oldest.arrival + self.most_s
        return waited or self._wait_s(there, waiting, now) > self.most_s

    def instead(self, avoid: int, now: float) -> int:
        """Where what instance `avoid` failed at goes: of the others that can be had the cheapest,
        and of those the least loaded; -1: there is none."""
        able = [i for i, one in enumerate(self._instances) if i != avoid and one.usable(now)]
        return min(able, key=lambda i: (self._ranks[i], self._instances[i].entries), default=-1)

    def wake_at(self, now: float) -> float | None:
        """When the oldest has waited for long enough; None: it has."""
        oldest = self._oldest()
        at = None if oldest is None else oldest.arrival + self.most_s
        return at if at is not None and at > now else None

    # --- what is known ----------------------------------------------------------------------

    def _oldest(self) -> Work | None:
        waiting = self._waiting
        while waiting:
            work = waiting[0][2]
            if work.queued and work.affinity < 0:
                return work
            heappop(waiting)
        return None

    def _there(self, i: int, now: float) -> bool:
        """Whether instance `i` can be had, now or when its budget is there again."""
        here = self._instances[i]
        well = here.up and (here.health is None or not here.health.ejected(now))
        return well and (here.quota is None or now >= here.quota.closed_until)

    def _wait_s(self, there: Sequence[int], waiting: int, now: float) -> float:
        """Seconds until the last of so many is expected to begin on one of these instances."""
        instances = self._instances
        usable = [i for i in there if instances[i].usable(now)]
        if not usable:
            quotas = (instances[i].quota for i in there)
            return min(quota.opens_at(now) for quota in quotas if quota is not None) - now
        rate = 0.0
        for i in usable:
            if not self._call_s[i]:
                return 0.0
            rate += self._places(i) / self._call_s[i]
        return waiting / rate

    def _places(self, i: int) -> float:
        """Calls that instance `i` takes at once."""
        here = self._instances[i]
        most = here.limits.max_sequences
        if here.quota is None:
            return most
        return 1 if here.quota.probing else max(1, min(most, int(min(most, here.quota.window))))
