"""critical_path: short and old queries first, their longest remaining path first, batches that pay.

Long because the rules look at one another: who goes first decides who shares a batch.

Five rules, all in seconds of the profile (teola.policies.work.Estimate).

*Between queries*: by `admitted + LENGTH * total_s`, where `total_s` is when the query would be done
if all its primitives ran one after another, with those that it grows or is expected to grow: a map
of 200 calls counts as 200, and so does each of them. A part is as old as the query that its user
asked for: the last turn of a loop is no newcomer. Of queries of one age the shortest goes first,
which is what lowers the mean; an old one overtakes a short one. A query is overtaken only by those
that come less than its own length after it, or fit a batch in which it has no place; so none
starves, however many come.

*Before all others*: works in a hurry. A query is given up at its deadline, and what was done for it
by then was for nothing. A work is in a hurry once its latest start has come: `HURRY` times what is
left of its query's longest path before the deadline, that being `LEAST_S` at least. Of two such
works the one with the earlier deadline goes first. One that cannot be done in time any more is
ordered as if it had no deadline. In an overload, where all have the same time, all would be in a
hurry in the end: so works in a hurry have at most half of an engine's time, counted by the seconds
of what is sent, `SPARE_S` ahead.

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
wait, batches are full. They are as full as they can be where a server counts requests. Prefills
share freely: when they go is decided by the rule before.

While a prefill is under way none follows: it could not begin, and sent ahead it would go without
those that come until then. Where nothing runs, what has slack does not go along with what has none,
whose prefill it would lengthen: it goes alone, to an instance that has nothing to do, or joins a
later one. A call that is too large for what is left of a batch is the first of the next one, and
those behind it that do fit go along.

A piece of a prompt that is computed ahead never presses: the rest of the prompt takes it along if
it is still there. It goes while the instance has little to do. Where other queries had urgent work
within `QUIET` times what a batch costs, more of them will come: a batch for the piece would make
them wait, and the rest would be tied to the instance that has it.

Rows of a table wait for nothing, and nothing waits for them: their windows come long after calls by
the first rule, none of a prefill's costs counts them, and they press no piece that is computed
ahead.

A choice costs O(log n) (`LaneHeaps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar, Final

from teola.errors import InputError
from teola.graph import Op
from teola.plain_number import is_number
from teola.policies.lane_heaps import ANYWHERE, LaneHeaps
from teola.policies.work import Slice, Slots, Taker, Work

PathEntry = tuple[float, float, float, int, int, Work]
"""Due, minus rest, arrival, seq and tries come before the work itself, which cannot be compared."""
Heap = list[PathEntry]
FEW: Final = 32
"""Works that are too large for the rest of a batch, beyond which it looks no further."""
LENGTH: Final = 0.75
"""Seconds of age for which a second of a query's length counts."""
BEHIND: Final = 4.0
"""Queries that a batch which is saved helps, for each one that waits: more come meanwhile."""
HURRY: Final = 2.0
"""Times what is left of a query: what may be lost until a call that runs makes room, and to
estimates that are too short."""
LEAST_S: Final = 1.0
"""Seconds for which the shortest rest of a path counts: answers differ in length."""
SPARE_S: Final = 30.0
"""Seconds of works without hurry that count for those in a hurry, at most: so much of these may go
together, a quarter of the time that queries have by default."""
UNKNOWN_S: Final = 1.0
"""For which a work counts of which no time is known."""
AHEAD_S: Final = 1e6
"""So much more urgent is a work in a hurry in the engine's own queue."""
QUIET: Final = 40.0
"""Times what a batch costs: so long after urgent work of other queries, more is to be expected."""
SOON_S: Final = 1e-6
"""Times closer than this are one: a timer may fire early by its clock's resolution."""


class CriticalPath:
    """patience: how much waiting may cost for each second that it can save (0: never wait)."""

    eager = True
    tunable: ClassVar[Mapping[str, tuple[float, ...]]] = {"patience": (0.0, 0.5, 1.0, 2.0)}

    def __init__(self, patience: float = 1.0) -> None:
        self.tune(patience)
        self.waiting = LaneHeaps[PathEntry]()
        self._coming: list[tuple[float, int, int, Work]] = []
        """Works with a deadline, by their latest start."""
        self._hurried: dict[Op | None, dict[int, Heap]] = {}
        """Works whose latest start has come, by their deadlines. They stand in `waiting`, too."""
        self._spare_s = 0.0
        self._chosen: dict[int, Work] = {}
        """Works of the last batch that went first because they were in a hurry."""
        self._runs: dict[str, int] = {}
        """How many works of each query are queued."""
        self._asked = self._wake = -inf
        self._room_since: dict[int, float] = {}
        self._last: tuple[int, Work] | None = None
        self._newest: Work | None = None
        self._pressed: dict[int, tuple[str, float, float]] = {}
        """Instance -> whose prefill without slack went there last, when, and when one of another
        query did."""

    def tune(self, patience: float) -> None:
        """From the next choice on."""
        if not is_number(patience) or not 0 <= patience < inf:
            raise InputError(
                f"batching policy 'critical_path': patience must be a number from 0 on, "
                f"got {patience!r}"
            )
        self.patience = patience

    def add(self, work: Work, now: float) -> None:
        rest_s = work.spec.estimate.rest_s + work.behind_s
        entry = (_due(work), -rest_s, work.arrival, work.seq, work.tries, work)
        self.waiting.add(work, entry)
        if work.deadline < inf:
            heappush(self._coming, (_latest_start(work), work.seq, work.tries, work))
        self._newest = work
        self._runs[work.run] = self._runs.get(work.run, 0) + 1

    def remove(self, work: Work, now: float) -> None:
        self.waiting.remove()
        queued = self._runs[work.run] - 1
        if queued:
            self._runs[work.run] = queued
        else:
            del self._runs[work.run]
        if work.flying and (self._spare_s < SPARE_S or self._chosen):
            self._charge(work)
        if len(self._coming) > 64 + 2 * self.waiting.live:
            self._sweep()

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        if self._last is not None and not self._last[1].queued:
            self._room_since.pop(self._last[0], None)
            self._last = None
        if now != self._asked:
            self._asked, self._wake = now, inf
        if self._chosen:
            self._chosen = {}
        self._hurry(now)  # first, so that nothing that is to come lies in the past
        newest, alone = self._newest, self.waiting.live == 1 and not slots.running
        if (
            alone
            and newest
            and newest.queued
            and (newest.deadline == inf or _latest_start(newest) > now)
        ):
            return self._only(newest, slots, now)
        for lane, heaps in self._open(slots):
            if self._under_way(heaps, slots):
                return []
            taker, hurried = Taker(slots), self._in_hurry(lane, slots)
            full = self._fill(heaps, taker, hurried)
            if self._splits(taker.slices, slots, now):
                taker = Taker(slots)
                full = self._fill(heaps, taker, hurried, now)
            if taker.slices:
                if slots.running and not self._chosen:
                    fuller = not full or (taker.entries <= 0 < taker.weight)
                    behind = 0 if fuller else self.waiting.live - len(taker.slices)
                    if self._waits(taker.slices, slots, now, behind):
                        return []
                return self._sent(taker.slices, slots.instance, now)
        return []

    def priority(self, work: Work, now: float) -> int:
        """A query's place in the order of `choose`, in ms."""
        due = work.deadline - AHEAD_S if work.seq in self._chosen else _due(work)
        return -round(1000 * due)

    def wake_at(self, now: float) -> float | None:
        if not now < self._wake < inf:
            return None
        return min(self._wake, self._coming[0][0]) if self._coming else self._wake

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
                if _since(work) <= now + SOON_S and not work.row_tokens:
                    run, at, before = self._pressed.get(instance, ("", -inf, -inf))
                    self._pressed[instance] = work.run, now, before if work.run == run else at
        return slices

    # --- what is there ----------------------------------------------------------------------

    def _open(self, slots: Slots) -> list[tuple[Op | None, list[Heap]]]:
        """Each lane that may run there, most urgent first, with what is bound there or nowhere."""
        lanes = []
        for lane, heaps, first in self.waiting.open(slots):
            hurried = self._next_in_hurry(self._in_hurry(lane, slots))
            urgent = first[0] if hurried is None else hurried[0]
            lanes.append((hurried is None, urgent, lane, heaps))
        if len(lanes) > 1:
            lanes.sort(key=lambda entry: entry[:2])
        return [(lane, heaps) for _, _, lane, heaps in lanes]

    def _fill(self, heaps: list[Heap], taker: Taker, hurried: list[Heap], now: float = inf) -> bool:
        """Take the most urgent works that fit and have no slack left; whether no more do. Those in
        a hurry come first, as long as they have time to spare.

        Of one that does not fit, others take the place only in a batch that begins anew (it is the
        first of the next one then), and only after few such: a choice is no search.
        """
        aside: list[tuple[Heap, PathEntry]] = []
        joined: dict[str, float] = {}
        left_out, few = 0, FEW if taker.slots.idle else 0
        spare_s, chosen = self._spare_s, dict[int, Work]()
        while taker.room and left_out <= few:
            heap = self._next_in_hurry(hurried) if hurried and spare_s > 0 else None
            urgent = heap is not None
            if heap is None and (heap := self.waiting.first(heaps)) is None:
                break
            entry = heappop(heap)
            aside.append((heap, entry))
            work = entry[-1]
            due = urgent or now == inf or _since(work) <= now
            if not due or work.seq in chosen or not taker.fits(work):
                continue
            shares = work.spec.lane is None or taker.slots.rationed
            longer_s = 0.0 if shares else self._longer_s(work, taker.weight, joined)
            if longer_s is None:
                left_out += 1
                continue
            before = len(taker.slices)
            if not taker.take(work):
                left_out += taker.room
            if len(taker.slices) == before:
                continue  # too large for what is left: nobody there waits for it
            joined[work.run] = longer_s
            if urgent:
                chosen[work.seq] = work
                spare_s -= _taken_s(work)
        for heap, entry in aside:
            heappush(heap, entry)
        self._chosen = chosen
        return left_out > 0 or not taker.room

    def _longer_s(self, work: Work, room: int, joined: Mapping[str, float]) -> float | None:
        """By how much all of its query's items make a batch longer, with those of this work. None:
        those before it there would wait longer for them, together, than is saved for all that wait.
        joined: the same of each query in the batch, in order.
        """
        estimate = work.spec.estimate
        longer_s = joined.get(work.run, 0.0) + estimate.item_s * min(work.remaining, room)
        before = len(joined) - (work.run in joined)
        if before and work.run != next(iter(joined)):
            saved_s = BEHIND * estimate.base_s * (len(self._runs) - before)
            if longer_s * before > saved_s:
                return None
        return longer_s

    def _sweep(self) -> None:
        """Forget all that has gone of what had a deadline."""
        self._coming = [entry for entry in self._coming if entry[-1].queued]
        heapify(self._coming)
        for by_instance in self._hurried.values():
            for instance, heap in [*by_instance.items()]:
                by_instance[instance] = [entry for entry in heap if entry[-1].queued]
                heapify(by_instance[instance])

    # --- works in a hurry -------------------------------------------------------------------

    def _hurry(self, now: float) -> None:
        """Hurry works whose latest start has come."""
        coming = self._coming
        while coming and coming[0][0] <= now:
            work = heappop(coming)[-1]
            if work.queued:
                heaps = self._hurried.setdefault(work.spec.lane, {})
                rest_s = -work.spec.estimate.rest_s - work.behind_s
                entry = (work.deadline, rest_s, work.arrival, work.seq, work.tries, work)
                heappush(heaps.setdefault(work.affinity, []), entry)

    def _in_hurry(self, lane: Op | None, slots: Slots) -> list[Heap]:
        """Heaps of what is in a hurry, of this lane and for this instance."""
        by_instance = self._hurried.get(lane)
        if not by_instance:
            return []
        somewhere = by_instance.get(ANYWHERE), by_instance.get(slots.instance)
        return [heap for heap in somewhere if heap]

    def _next_in_hurry(self, heaps: list[Heap]) -> Heap | None:
        """Where the one with the earliest deadline is that can still be met."""
        now, best = self._asked, None
        for heap in heaps:
            while heap and not (heap[0][-1].queued and now + _left_s(heap[0][-1]) <= heap[0][0]):
                heappop(heap)
            if heap and (best is None or heap[0] < best[0]):
                best = heap
        return best

    def _charge(self, work: Work) -> None:
        """It was sent. What is in no hurry earns for those that are."""
        taken_s = _taken_s(work)
        if self._chosen.pop(work.seq, None) is not None:
            self._spare_s -= taken_s
        else:
            self._spare_s = min(SPARE_S, self._spare_s + taken_s)

    # --- now or later -----------------------------------------------------------------------

    def _under_way(self, heaps: list[Heap], slots: Slots) -> bool:
        """Whether a prefill runs there that another one would have to wait for."""
        if slots.idle or not slots.running or not self.patience:
            return False
        first = self.waiting.first(heaps)
        return first is not None and first[0][-1].spec.estimate.base_s > 0

    def _splits(self, slices: list[Slice], slots: Slots, now: float) -> bool:
        """Whether only those of these prefills go that have no slack. Note when to ask again."""
        if not slices or slices[0].work.spec.lane is not None:
            return False
        slack = [
            work
            for work, _, _ in slices
            if _since(work) > now + SOON_S and work.seq not in self._chosen
        ]
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
    return work.admitted + LENGTH * work.total_s


def _left_s(work: Work) -> float:
    """Seconds of its query's longest path that are left, the work's own included (0: unknown)."""
    return work.spec.estimate.rest_s + work.behind_s if work.total_s else 0.0


def _latest_start(work: Work) -> float:
    return work.deadline - HURRY * max(LEAST_S, _left_s(work))


def _taken_s(work: Work) -> float:
    """Seconds of its engine."""
    return work.spec.estimate.call_s or UNKNOWN_S


def _since(work: Work) -> float:
    """From when on it costs something that it waits: never, of a piece that the rest of its prompt
    can take along."""
    spec = work.spec
    if spec.ahead and not work.wanted and spec.estimate.base_s > 0:
        return inf
    return max(work.arrival, work.began + work.spec.estimate.latest_s)
