"""Windows of rows at an engine's queue: which rows are out, and what becomes of those that end.

Long because what becomes of a row is decided in one place, however it ended.

    window   0 ............................................. 2048        one Work
    spans                        |==========================|           not sent yet
    flying   |=slice=|  |=slice=|                                       each with the rows that are
             x x . x x  . . x x .                                       out (.) and that are not (x)

A row is a call: it takes a place on its instance, its prompt counts there until its first token, it
is answered or fails by itself. All else is the window's. It is placed, charged and withdrawn as one
work. Rows that were not answered through no fault of theirs (their instance is gone, its server
takes no more) are put back into it, exactly they. Rows that failed and may be tried again are a
work of their own once the rest of the window is over, so a policy never holds two of one window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from teola.errors import EngineError
from teola.learning.observer import Observer
from teola.policies.work import Slice, Work, WorkKey, merged_spans, ranges
from teola.schedule.events import (
    AbortRows,
    Cause,
    Completed,
    Outbox,
    Recovered,
    Retried,
    RowFailure,
    RowsBegan,
    RowsEnded,
    RowsOver,
    SetTimer,
    Tell,
    Waits,
)
from teola.schedule.instances import CALLS_S, Instances
from teola.schedule.overdue import Overdue
from teola.schedule.placing import Placing
from teola.schedule.retry_budget import RetryBudget
from teola.schedule.waiting_line import WaitingLine

SliceKey = tuple[int, str, int, int]
"""Batch, run, window, and the first row."""


@dataclass(slots=True)
class RowSlice:
    """Rows lo..hi of a window that went to an instance together.

    key: the window.
    out: rows that have not come back.
    prefilling: how many of them have given no token.
    number: its key among those that may be overdue.
    heard: when something of it was heard last.
    wait_s: how long it may be silent (0: that was not looked at yet).
    """

    key: WorkKey
    lo: int
    hi: int
    instance: int
    batch: int
    out: set[int]
    prefilling: int
    number: WorkKey
    heard: float
    wait_s: float = 0.0


class RowsQueue(Protocol):
    """An engine's queue, as far as rows are concerned; see EngineQueue."""

    engine: str
    instances: Instances
    works: dict[WorkKey, Work]
    line: WaitingLine
    placing: Placing
    retry_budget: RetryBudget
    observer: Observer
    next_batch: int

    def blame(self, out: Outbox, i: int, cause: Cause, now: float) -> None:
        """An instance may be at fault."""

    def unbind(self, i: int, now: float) -> None:
        """An instance takes nothing for a while."""

    def expected_s(
        self, i: int, tokens: int, context: int, calls: int, answer: int, now: float
    ) -> float | None:
        """Seconds to a first token."""


class RowSlices:
    """The slices of rows of one engine that are in flight."""

    def __init__(self, queue: RowsQueue) -> None:
        self._queue = queue
        self._slices: dict[SliceKey, RowSlice] = {}
        self._numbered: dict[WorkKey, RowSlice] = {}
        self._count = 0
        self.overdue: Overdue | None = None
        """Notices rows that give no token; see EngineQueue."""
        self._kept, self._alarm = False, 0.0

    def of(self, work: Work) -> list[RowSlice]:
        """The slices of a window that are in flight. O(all of the engine): for tests."""
        key = work.run, work.primitive
        return [row_slice for row_slice in self._slices.values() if row_slice.key == key]

    # --- places that are left to calls ------------------------------------------------------

    def submitted(self, work: Work, now: float) -> None:
        """A work for this engine came, rows or a call."""
        instances = self._queue.instances
        if work.spec.yields:
            instances.leaves_room = True
        elif not work.spec.rows:
            instances.last_call = now

    def reconsider(self, now: float) -> None:
        """Before a round: whether places are left to calls by now."""
        instances = self._queue.instances
        kept = instances.leaves_room and now < instances.last_call + CALLS_S
        if self._kept and not kept:
            self._queue.line.asking.forget()
        self._kept = kept

    def wake(self, now: float) -> float | None:
        """When the places may be for rows again that are left to calls now. Set anew once it is
        over, and not with each call."""
        if not self._kept or not self._queue.line.ready:
            return None
        if self._alarm <= now:
            self._alarm = self._queue.instances.last_call + CALLS_S
        return self._alarm

    # --- what goes out ----------------------------------------------------------------------

    def shared(self, slices: list[Slice], idle: int) -> list[Slice]:
        """The part of the first rows that one instance takes, if so many idle ones share what is
        left of their window."""
        work, lo, hi = slices[0]
        most = max(1, ceil(work.remaining / idle)) if work.affinity < 0 else hi - lo
        return [Slice(work, lo, min(hi, lo + most))]

    def sent(self, work: Work, lo: int, hi: int, place: tuple[int, int], now: float) -> None:
        """Rows of a window are about to go; place: to which instance, in which batch."""
        (i, batch), key = place, (work.run, work.primitive)
        self._count += 1
        number = work.run, self._count
        rows = set(range(lo, hi))
        row_slice = RowSlice(key, lo, hi, i, batch, rows, hi - lo, number, now)
        self._slices[batch, *key, lo] = self._numbered[number] = row_slice
        if work.spec.yields:
            self._queue.instances[i].rows += hi - lo
        if self.overdue is not None:
            own_tokens, pending = (hi - lo) * work.missing, self._queue.instances[i].weight
            answer = work.spec.answer_tokens
            expected = self._queue.expected_s(i, own_tokens, work.row_tokens, 1, answer, now)
            self.overdue.sent(number, i, batch, expected, now, pending + own_tokens)

    def news(self, i: int, slices: Sequence[Slice]) -> list[Slice]:
        """What a routing policy is told of a batch for instance `i`: a window is one call to it,
        which begins with its first rows."""
        slices_told = []
        for piece in slices:
            if (window := piece.work.window) is None:
                slices_told.append(piece)
            elif window.told < 0:
                window.told = i
                slices_told.append(piece)
        return slices_told

    # --- what comes back --------------------------------------------------------------------

    def ended(self, event: RowsEnded, now: float) -> Outbox:
        """Rows of a slice gave their first tokens, were answered, or failed."""
        one = self._slices.get((event.batch, event.run, event.primitive, event.lo))
        out: Outbox = []
        if one is None:
            return out  # of an instance that is gone
        queue = self._queue
        work, one.heard = queue.works[one.key], now
        if self.overdue is not None and (event.firsts or event.ended):
            self.overdue.gave(one.number, now)
        if event.firsts:
            self._began(one, work, event.firsts, now)
            if event.primitive == 0 and not work.withdrawn:
                out.append(Tell(event.run, RowsBegan(event.primitive)))
        answered = 0
        for lo, hi in event.ended:
            answered += hi - lo
            one.out.difference_update(range(lo, hi))
        if answered:
            self._answered(out, one, work, answered, event, now)
        over = self._failed(out, one, event.failed, now) if event.failed else []
        work = queue.works[one.key]
        if not work.withdrawn:
            work.done += answered
            if answered or over:
                out.append(RowsOver(event.run, event.primitive, event.given, over))
        if not one.out:
            self._close(out, one, now)
        return out

    def lost(self, i: int, cause: Cause, now: float, out: Outbox) -> None:
        """Instance `i` is gone: what has not come back from it will not."""
        for row_slice in [
            row_slice for row_slice in self._slices.values() if row_slice.instance == i
        ]:
            work, rows = self._queue.works[row_slice.key], sorted(row_slice.out)
            self._land(row_slice, work, len(rows), row_slice.prefilling, now)
            row_slice.out.clear()
            if not work.withdrawn:
                back, over = self._again(work, rows, cause)
                self._put_back(work, back, -1, now)
                self._fail(out, row_slice.key, over)
                if back:
                    out.append(Retried(work.run, work.primitive, cause))
            self._close(out, row_slice, now)

    def late(self, now: float, out: Outbox) -> None:
        """The rows of a slice that give no token in time go elsewhere, once all others of it have
        come back, as a call does (`EngineQueue.woken`)."""
        for late in self.overdue.late(now) if self.overdue is not None else ():
            row_slice = self._numbered[late.key]
            row_slice.wait_s = row_slice.wait_s or late.after_s
            work, silent = (
                self._queue.works[row_slice.key],
                now >= row_slice.heard + row_slice.wait_s,
            )
            if not work.withdrawn and silent and row_slice.prefilling == len(row_slice.out):
                self._late(out, row_slice, work, late.again, now)

    def _late(self, out: Outbox, row_slice: RowSlice, work: Work, again: bool, now: float) -> None:
        queue, i, window = self._queue, row_slice.instance, work.window
        assert window is not None
        instances = queue.instances
        elsewhere, calls = instances.others(i, now), instances[i].calls
        quota = instances.limit(i, queue.engine)
        quota.late(calls, now, others=elsewhere, again=again)
        instances.changed.add(i)
        complaint = (
            f"instance {i} of {queue.engine!r} gave no token for {now - row_slice.heard:.0f} s"
        )
        cause = Cause(EngineError(complaint, retryable=True), True, lost=quota.probing > 0)
        rows = sorted(row_slice.out)
        may = all(window.tries.get(row, 0) < work.spec.retries for row in rows)
        if not (elsewhere and may and (cause.lost or queue.retry_budget.affordable)):
            return
        out.append(AbortRows(queue.engine, i, row_slice.batch, *row_slice.key, row_slice.lo))
        self._land(row_slice, work, len(rows), row_slice.prefilling, now)
        row_slice.out.clear()
        queue.blame(out, i, cause, now)
        work = queue.works[row_slice.key]
        back, over = self._again(work, rows, cause)
        self._later(work, back, cause, i)
        self._fail(out, row_slice.key, over)
        out.append(Retried(work.run, work.primitive, cause))
        self._close(out, row_slice, now)

    # --- steps of that ----------------------------------------------------------------------

    def _began(self, row_slice: RowSlice, work: Work, firsts: int, now: float) -> None:
        """Count rows that have given their first tokens."""
        queue, window = self._queue, work.window
        assert window is not None
        row_slice.prefilling -= firsts
        if self.overdue is not None and not row_slice.prefilling:
            self.overdue.came(row_slice.number, now)
        queue.instances.began(row_slice.instance)
        queue.instances.prefilled(row_slice.instance, firsts * work.missing)
        if not window.begun and window.told == row_slice.instance:
            window.begun = True
            if queue.placing.follows:
                queue.placing.prefilled(row_slice.instance, work, now)

    def _land(self, row_slice: RowSlice, work: Work, rows: int, unbegun: int, now: float) -> None:
        """Count rows that leave their places. unbegun: how many of them had given no token."""
        instances, weight = self._queue.instances, unbegun * work.missing
        row_slice.prefilling -= unbegun
        here = instances.land(row_slice.instance, row_slice.batch, work.weighs(rows), weight, rows)
        self._queue.observer.rows(row_slice.instance, -rows, now)
        if work.spec.yields:
            here.rows -= rows

    def _answered(
        self, out: Outbox, row_slice: RowSlice, work: Work, rows: int, event: RowsEnded, now: float
    ) -> None:
        """Count rows that were answered."""
        queue, i, window = self._queue, row_slice.instance, work.window
        assert window is not None
        self._land(row_slice, work, rows, 0, now)
        target = queue.instances[i]
        window.generated += event.generated or 0
        if target.quota is not None:
            for _ in range(rows):
                queue.instances.came_back(i, row_slice.batch, now)
            if event.generated is not None:
                target.quota.settled(event.generated - rows * work.drawn, work.sent, now)
        if target.health is not None:
            ramp = target.health.succeeded(now)
            out += [Recovered(queue.engine, i)] if ramp else []
            out += [SetTimer(queue.engine, at) for at in ramp]

    def _failed(
        self, out: Outbox, row_slice: RowSlice, failed: Sequence[RowFailure], now: float
    ) -> list[tuple[int, Cause]]:
        """Some of its rows were not answered; those that will not be."""
        queue, i = self._queue, row_slice.instance
        row_slice.out.difference_update([failure.row for failure in failed])
        work = queue.works[row_slice.key]
        refused = [f for f in failed if f.cause.refused is not None and not f.begun]
        failures = [f for f in failed if f.cause.refused is None or f.begun]
        if failures:
            self._land(row_slice, work, len(failures), sum(not f.begun for f in failures), now)
        for failure in failures:
            queue.blame(out, i, failure.cause, now)
        over: list[tuple[int, Cause]] = []
        work = queue.works[row_slice.key]
        if not work.withdrawn:
            for row, cause, _ in failures:
                back, lost = self._again(work, [row], cause)
                self._later(work, back, cause, i)
                over += lost
            self._done(work, len(over))
            if len(over) < len(failures):
                out.append(Retried(*row_slice.key, failures[-1].cause))
        return over + self._refused(out, row_slice, refused, now) if refused else over

    def _refused(
        self, out: Outbox, row_slice: RowSlice, failed: Sequence[RowFailure], now: float
    ) -> list[tuple[int, Cause]]:
        """A server did not take some of its rows: they are put back. That holds up the window as
        one, of which the driver is told once; the rows that will not be answered."""
        queue, i, until = self._queue, row_slice.instance, now
        work = queue.works[row_slice.key]
        for failure in failed:
            self._land(row_slice, work, 1, 1, now)
            why = failure.cause.refused
            assert why is not None
            until = queue.instances.refused(
                i, queue.engine, why, row_slice.batch, queue.next_batch, now
            )
        queue.unbind(i, now)
        work, over, back = queue.works[row_slice.key], list[tuple[int, Cause]](), list[int]()
        if work.withdrawn:
            return over
        usable = any(instance.usable(now) for instance in queue.instances)
        for row, cause, _ in failed:
            assert cause.refused is not None
            costs = usable and cause.refused.kind != "busy"
            again, lost = self._again(work, [row], cause, costs=costs, budgeted=False)
            back += again
            over += lost
        self._done(work, len(over))
        last = failed[-1].cause
        away = last.refused is not None and last.refused.kind == "away"
        avoid = i if away and queue.instances.others(i, now) else -1
        self._put_back(work, sorted(back), avoid, now)
        if back:
            until = now if usable else queue.instances.opens_at(now) or until
            out.append(Waits(queue.engine, i, *row_slice.key, until, last))
        return over

    def _again(
        self,
        work: Work,
        rows: Iterable[int],
        cause: Cause,
        *,
        costs: bool = True,
        budgeted: bool = True,
    ) -> tuple[list[int], list[tuple[int, Cause]]]:
        """Which of these rows may be asked again, each of which that costs a try, and which not."""
        budget, window = self._queue.retry_budget, work.window
        assert window is not None
        back: list[int] = []
        over: list[tuple[int, Cause]] = []
        for row in rows:
            tries = window.tries.get(row, 0)
            has_try = tries < work.spec.retries or not costs
            if cause.retryable and has_try and (cause.lost or not budgeted or budget.affordable):
                back.append(row)
                if costs:
                    window.tries[row] = tries + 1
                if budgeted:
                    budget.count(cause)
            else:
                over.append((row, cause))
        return back, over

    def _later(self, work: Work, rows: Sequence[int], cause: Cause, instance: int) -> None:
        """Let these rows go again when the rest of their window is over."""
        window = work.window
        assert window is not None
        window.failed.update(dict.fromkeys(rows, cause))
        window.failed_at = instance

    def _put_back(self, work: Work, rows: Sequence[int], avoid: int, now: float) -> None:
        """Queue rows where they stood: they have not come back from where they were."""
        if rows:
            self._told(work, now, failed=True)
            spans = merged_spans([*ranges(rows), *work.spans])
            self._queue.placing.rows_again(work, spans, avoid, now)

    def _fail(self, out: Outbox, key: WorkKey, over: Sequence[tuple[int, Cause]]) -> None:
        """Tell that these rows will not be answered."""
        if over:
            self._done(self._queue.works[key], len(over))
            out.append(RowsOver(*key, None, over))

    def _done(self, work: Work, errors: int) -> None:
        """Count rows that will not be answered, and are over."""
        assert work.window is not None
        work.done += errors
        work.window.errors += errors

    def _close(self, out: Outbox, row_slice: RowSlice, now: float) -> None:
        """All rows of a slice have come back. What follows if it was its window's last."""
        queue = self._queue
        work = queue.works[row_slice.key]
        del self._slices[row_slice.batch, *row_slice.key, row_slice.lo]
        del self._numbered[row_slice.number]
        del work.flying[row_slice.lo, row_slice.hi]
        if self.overdue is not None:
            self.overdue.left(row_slice.number)
        if work.flying or (work.spans and not work.withdrawn):
            return
        window = work.window
        assert window is not None
        if window.failed and not work.withdrawn:
            failed, window.failed = window.failed, {}
            avoid = window.failed_at if queue.instances.others(window.failed_at, now) else -1
            self._told(work, now, failed=True)
            queue.placing.rows_again(work, ranges(sorted(failed)), avoid, now)
            return
        del queue.works[row_slice.key]
        self._told(work, now, failed=work.withdrawn)
        if not work.withdrawn:
            out.append(Tell(work.run, Completed(work.primitive, {"failed": window.errors})))
        if not any(waiting.spec.yields for waiting in queue.works.values()):
            queue.instances.leaves_room = False

    def _told(self, work: Work, now: float, *, failed: bool) -> None:
        """Tell the routing policy that the call is over that a window is to it, if it knows it."""
        window, placing = work.window, self._queue.placing
        assert window is not None
        if window.told < 0:
            return
        at, window.told, window.begun = window.told, -1, False
        if placing.follows:
            generated = None if failed else round(window.generated / work.total)
            placing.finished(at, work, now, failed, None, generated)
