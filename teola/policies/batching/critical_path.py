"""critical_path: short and old queries first, their longest remaining path first, batches that pay.

Four rules, all in seconds of the profile (teola.policies.work.Estimate).

*Between queries*: by `admitted + LENGTH * total_s`, where `total_s` is when the query would be done
if all its primitives ran one after another, with those that it grows or is expected to grow: a map
of 200 calls counts as 200, and so does each of them. Of queries of one age the shortest goes first,
which is what lowers the mean; an old one overtakes a short one. A query is overtaken only by those
that come less than its own length after it, or fit a batch in which it has no place; so none
starves, however many come.

*Within a query*: the primitive with the longest remaining path (`rest_s`) first.

*Now or later*: a prefill stops the calls that run on its instance, for `base_s` whatever its
length. To go now therefore costs `base_s` x running calls; to wait until they have ended, or until
others come that would share it, costs one second a second for each call that waits although the
instance has room, and nothing for one whose path has slack (before `admitted + latest_s`): a prefix
computed ahead, for instance. Behind a batch whose tokens are used up, all that is queued waits. A
batch goes when waiting has cost `patience` times what going does, or when nothing runs. With 1 this
is the break-even rule of ski rental: without knowing what will come, at most twice the cost of the
best choice. What calls have waited before, for the instance to have room, counts as well, as far
as they are company to one another already: `base_s` for each call beside the first. So nothing else
need be known of the load: calls that come one by one wait for others, and where many wait for room
at once they go as they are. No call waits longer than `base_s` x running calls beyond its slack
once there is room.

*With whom*: a batch ends for all that is in it at once. So a query's items share one with those of
queries before it only if these wait no longer for them, taken together, than is saved for all that
wait when there is a batch less: `base_s`, for each of them `BEHIND` times, since more come
meanwhile. Where a batch costs nothing besides its items each query has its own, and where many
wait, batches are full. Prefills share freely: when they go is decided by the rule before.

While a prefill is under way none follows: it could not begin, and sent ahead it would go without
those that come until then. Where nothing runs, what has slack does not go along with what has none,
whose prefill it would lengthen: it goes alone, to an instance that has nothing to do, or joins a
later one. A call that is too large for what is left of a batch is the first of the next one, and
those behind it that do fit go along.

A piece of a prompt that is computed ahead never presses: the rest of the prompt takes it along if
it is still there. It goes while the instance has little to do. Where other queries had urgent work
within `QUIET` times what a batch costs, more of them will come: a batch for the piece would make
them wait, and the rest would be tied to the instance that has it.

Heaps by lane and instance, dead entries dropped when met: a choice costs O(log n).
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from teola.errors import InputError
from teola.graph import Op
from teola.policies.work import Slice, Slots, Taker, Work

PathEntry = tuple[float, float, float, int, int, Work]
"""Due, minus rest, arrival, seq and tries come before the work itself, which cannot be compared."""
Heap = list[PathEntry]
ANYWHERE: Final = -1
FEW: Final = 32
"""Works that are too large for the rest of a batch, beyond which it looks no further."""
LENGTH: Final = 0.75
"""Seconds of age for which a second of a query's length counts."""
BEHIND: Final = 4.0
"""Queries that a batch which is saved helps, for each one that waits: more come meanwhile."""
QUIET: Final = 40.0
"""Times what a batch costs: so long after urgent work of other queries, more is to be expected."""
SOON_S: Final = 1e-6
"""Times closer than this are one: a timer may fire early by its clock's resolution."""


class CriticalPath:
    """patience: how much waiting may cost for each second that it can save (0: never wait)."""

    eager = True

    def __init__(self, patience: float = 1.0) -> None:
        number = isinstance(patience, (int, float)) and not isinstance(patience, bool)
        if not number or not 0 <= patience < inf:
            raise InputError(
                f"batching policy 'critical_path': patience must be a number from 0 on, "
                f"got {patience!r}"
            )
        self.patience = patience
        self._lanes: dict[Op | None, dict[int, Heap]] = {}
        self._live = self._entries = 0
        self._runs: Counter[str] = Counter()
        """How many works of each query are queued."""
        self._asked = self._wake = -inf
        self._room_since: dict[int, float] = {}
        self._last: tuple[int, Work] | None = None
        self._newest: Work | None = None
        self._pressed: dict[int, tuple[str, float, float]] = {}
        """By instance: whose prefill without slack went there last, when, and when one of another
        query did."""

    def add(self, work: Work, now: float) -> None:
        estimate = work.spec.estimate
        due = _due(work)
        entry = (due, -estimate.rest_s - work.behind_s, work.arrival, work.seq, work.tries, work)
        heaps = self._lanes.setdefault(work.spec.lane, {})
        heappush(heaps.setdefault(work.affinity, []), entry)
        self._newest = work
        self._runs[work.run] += 1
        self._live += 1
        self._entries += 1

    def remove(self, work: Work, now: float) -> None:
        self._live -= 1
        self._runs[work.run] -= 1
        if not self._runs[work.run]:
            del self._runs[work.run]
        if self._entries > 64 + 2 * self._live:
            self._sweep()

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        if self._last is not None and not self._last[1].queued:
            self._room_since.pop(self._last[0], None)
            self._last = None
        if now != self._asked:
            self._asked, self._wake = now, inf
        if self._live == 1 and not slots.running and self._newest and self._newest.queued:
            return self._only(self._newest, slots, now)
        for heaps in self._open(slots):
            if self._under_way(heaps, slots):
                return []
            taker = Taker(slots)
            full = self._fill(heaps, taker)
            if self._splits(taker.slices, slots, now):
                taker = Taker(slots)
                full = self._fill(heaps, taker, now)
            if taker.slices:
                if slots.running:
                    fuller = not full or (taker.entries <= 0 < taker.weight)
                    behind = 0 if fuller else self._live - len(taker.slices)
                    if self._waits(taker.slices, slots, now, behind):
                        return []
                return self._sent(taker.slices, slots.instance, now)
        return []

    def priority(self, work: Work, now: float) -> int:
        """By what `choose` orders queries by, in ms."""
        return -round(1000 * _due(work))

    def wake_at(self, now: float) -> float | None:
        return self._wake if now < self._wake < inf else None

    def _only(self, work: Work, slots: Slots, now: float) -> list[Slice]:
        """The common case: one primitive is queued, and nothing runs that it would hold up."""
        taker = Taker(slots)
        if taker.fits(work):
            taker.take(work)
        if not taker.slices or self._splits(taker.slices, slots, now):
            return []
        return self._sent(taker.slices, slots.instance, now)

    def _sent(self, slices: list[Slice], instance: int, now: float) -> list[Slice]:
        """They go. Note whose prefills had no slack."""
        self._last = instance, slices[0].work
        if slices[0].work.spec.lane is None:
            for work, _, _ in slices:
                if _since(work) <= now + SOON_S:
                    run, at, before = self._pressed.get(instance, ("", -inf, -inf))
                    self._pressed[instance] = work.run, now, before if work.run == run else at
        return slices

    # --- what is there ----------------------------------------------------------------------

    def _open(self, slots: Slots) -> list[list[Heap]]:
        """For each lane that may run there, most urgent first: what is bound there or nowhere."""
        found = []
        for lane, by_instance in self._lanes.items():
            if slots.lane is None or lane is slots.lane:
                somewhere = by_instance.get(ANYWHERE), by_instance.get(slots.instance)
                heaps = [heap for heap in somewhere if heap]
                first = self._first(heaps)
                if first is not None:
                    found.append((first[0], heaps))
        if len(found) > 1:
            found.sort()
        return [heaps for _, heaps in found]

    def _first(self, heaps: list[Heap]) -> Heap | None:
        """Where the most urgent work is."""
        best = None
        for heap in heaps:
            while heap and not heap[0][-1].queued:
                heappop(heap)
                self._entries -= 1
            if heap and (best is None or heap[0] < best[0]):
                best = heap
        return best

    def _fill(self, heaps: list[Heap], taker: Taker, now: float = inf) -> bool:
        """Take the most urgent works that fit and have no slack left; whether no more do.

        Of one that does not fit, others take the place only in a batch that begins anew (it is the
        first of the next one then), and only after few such: a choice is no search.
        """
        aside: list[tuple[Heap, PathEntry]] = []
        joined: dict[str, float] = {}
        left_out, few = 0, FEW if taker.slots.idle else 0
        while taker.room and left_out <= few:
            heap = self._first(heaps)
            if heap is None:
                break
            entry = heappop(heap)
            aside.append((heap, entry))
            work = entry[-1]
            due = now == inf or _since(work) <= now
            if not due or not taker.fits(work):
                continue
            if work.spec.lane is not None and not self._may_join(work, taker.weight, joined):
                left_out += 1
                continue
            if not taker.take(work):
                left_out += taker.room
        for heap, entry in aside:
            heappush(heap, entry)
        return left_out > 0 or not taker.room

    def _may_join(self, work: Work, room: int, joined: dict[str, float]) -> bool:
        """Whether those before it in a batch wait no longer for all of its query's items there than
        is saved for all that wait. Then note in `joined`, by query and in order, by how much the
        batch takes longer for it."""
        estimate = work.spec.estimate
        longer_s = joined.get(work.run, 0.0) + estimate.item_s * min(work.remaining, room)
        before = len(joined) - (work.run in joined)
        if before and work.run != next(iter(joined)):
            saved_s = BEHIND * estimate.base_s * (len(self._runs) - before)
            if longer_s * before > saved_s:
                return False
        joined[work.run] = longer_s
        return True

    def _sweep(self) -> None:
        """Forget all that has gone."""
        kept: dict[Op | None, dict[int, Heap]] = {}
        for lane, by_instance in self._lanes.items():
            for instance, heap in by_instance.items():
                live = [entry for entry in heap if entry[-1].queued]
                if live:
                    heapify(live)
                    kept.setdefault(lane, {})[instance] = live
        self._lanes, self._entries = kept, self._live

    # --- now or later -----------------------------------------------------------------------

    def _under_way(self, heaps: list[Heap], slots: Slots) -> bool:
        """Whether a prefill runs there that another one would have to wait for."""
        if slots.idle or not slots.running or not self.patience:
            return False
        first = self._first(heaps)
        return first is not None and first[0][-1].spec.estimate.base_s > 0

    def _splits(self, slices: list[Slice], slots: Slots, now: float) -> bool:
        """Whether only those of these prefills go that have no slack. Note when to ask again."""
        if not slices or slices[0].work.spec.lane is not None:
            return False
        slack = [work for work, _, _ in slices if _since(work) > now + SOON_S]
        if not slack:
            return False
        ahead = [self._until(work, slots.instance) for work in slack if _since(work) == inf]
        until = max(ahead, default=-inf)
        if until > now + SOON_S:
            self._wake = min(self._wake, until, *map(_since, slack))
            return True
        return not slots.running and len(slack) < len(slices)

    def _until(self, work: Work, instance: int) -> float:
        """How long a piece that is computed ahead stays: others had urgent work there lately."""
        run, at, before = self._pressed.get(instance, ("", -inf, -inf))
        return (before if run == work.run else at) + QUIET * work.spec.estimate.base_s

    def _waits(self, slices: list[Slice], slots: Slots, now: float, behind: int) -> bool:
        """Whether this batch does not pay yet; then note when to ask again.

        behind: works that are queued besides, and wait for this batch to go.
        """
        base_s = max(work.spec.estimate.base_s for work, _, _ in slices)
        going = self.patience * base_s * slots.running
        if going <= 0:
            return False
        room = self._room_since.setdefault(slots.instance, now)
        before = room - base_s * (len(slices) + behind - 1)
        since = [max(before, _since(work)) for work, _, _ in slices]
        waiting = [at for at in since if at <= now + SOON_S]
        count = len(waiting) + behind
        even = (going + sum(waiting) + room * behind) / count if count else inf
        if even <= now + SOON_S:
            return False
        later = [at for at in since if at > now + SOON_S]
        self._wake = min(self._wake, even, *later)
        return True


def _due(work: Work) -> float:
    """What queries are ordered by."""
    return work.began + LENGTH * work.total_s


def _since(work: Work) -> float:
    """From when on it costs something that it waits: never, of a piece that the rest of its prompt
    can take along."""
    spec = work.spec
    if spec.ahead and not work.wanted and spec.estimate.base_s > 0:
        return inf
    return max(work.arrival, work.began + work.spec.estimate.latest_s)
