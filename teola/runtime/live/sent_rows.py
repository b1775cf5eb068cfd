"""Rows of live runs: windows are taken from their sources, and each row that is sent is a task.

Long because a row that is sent is followed to its end in one place.

What becomes of the rows of a slice is told once in a turn of the event loop (RowsEnded), whatever
ended in it. What a row was answered goes through the core unread and comes back (RowsOver) if its
slice is still known there, so that each row is answered once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from functools import partial
from math import ceil
from typing import Any, NamedTuple, Protocol, cast

from teola.engine import (
    LONGEST_ANSWER,
    Call,
    Delta,
    LanguageModel,
    QueryContext,
    TextPart,
    Usage,
    check_length,
)
from teola.errors import InputError, OutputError, QueryCancelled, TeolaError, reason_of
from teola.graph import DecodeParams, Role
from teola.policies.ledger import Reservation
from teola.policies.work import Slice, Work, ranges
from teola.runtime.asked_rows import AskedRows
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.batch import refusal_of
from teola.runtime.live.entering import entered
from teola.runtime.live.row_budget import RowBudget
from teola.runtime.live.row_source import AnswerSink, RowSource
from teola.runtime.live.thoughts import OPENS, Spoken
from teola.runtime.observe.noting import working_for
from teola.runtime.observe.trace import Trace
from teola.runtime.outputs import no_delta, opened_stream
from teola.runtime.rows import Row, RowAnswer, RowsEnd
from teola.schedule.core import Core
from teola.schedule.events import (
    AbortRows,
    Cause,
    Dispatch,
    QueueEvent,
    RowFailure,
    RowsCame,
    RowsEnded,
    RowsOver,
    RunEvent,
    SourceEnded,
)
from teola.schedule.row_run import RowRun

CHARACTERS: float = 4.0
"""Characters of a token, before an engine has counted any."""
SAMPLED = 64
"""Rows of a window by which one knows how long they are."""


class LiveRows(AskedRows[Row]):
    """A live run of rows. context: of its calls. instruction: what each prompt begins with.
    deadline: on the loop's clock. done: is given its end."""

    def __init__(
        self,
        run: RowRun,
        trace: Trace,
        context: QueryContext,
        instruction: str,
        decode: DecodeParams,
        source: RowSource,
        sink: AnswerSink,
        done: asyncio.Future[RowsEnd],
        shared: float = 0.0,
    ) -> None:
        super().__init__(run, trace, shared)
        self.context, self.decode = context, decode
        self.instruction = TextPart(Role.INSTRUCTION, instruction)
        self.source, self.sink, self.done = source, sink, done
        self.deadline = context.deadline
        self.timer: asyncio.TimerHandle | None = None
        self.budget: RowBudget | None = None
        self.wanted = 0
        self._characters = 0

    def row_tokens(self, rows: list[Row]) -> int:
        """Tokens of a row's prompt on average, as far as one knows: by lengths, and by what engines
        counted."""
        some = rows[:: max(1, len(rows) // SAMPLED)]
        length = sum(len(row.text) for row in some) / len(some) + len(self.instruction.text)
        counted = self.prompt_tokens if self.answered and self._characters else 0
        each = self._characters / counted if counted else CHARACTERS
        return max(1, round(length / each))

    def give(self, over: RowsOver) -> None:
        """Rows are over: their answers go to whoever asked."""
        pairs: list[tuple[RowAnswer, int]] = over.given or []
        answers = [answer for answer, _ in pairs]
        prompt = cached = written = 0
        silent = unread = 0  # what an engine that counts nothing has taken, by lengths
        for answer, characters in pairs:
            if answer.prompt_tokens:
                prompt += answer.prompt_tokens
                self._characters += characters
            else:
                silent += characters
            cached += answer.cached or 0
            written += answer.generated or 0
            if answer.generated is None:
                unread += len(answer.text or "")
        usage, i = Usage(prompt, written, cached), over.primitive
        self.used(usage)
        lost = self.over(i, len(pairs), over.failed)
        if self.budget is not None:
            estimated = Usage(ceil(silent / CHARACTERS), ceil(unread / CHARACTERS))
            self.budget.used(i, usage)
            self.budget.used(i, estimated)
            if i not in self.windows:
                self.budget.settle(i)
        for row, (_, cause) in zip(lost, over.failed, strict=True):
            answers.append(RowAnswer(row.id, None, reason_of(cause.error)))
        self.sink.put(answers)

    def tried(self, i: int, row: Row, pieces: list[str], usage: Usage | None) -> None:
        """A try of a row of window `i` has failed or was given up, after it took tokens."""
        if self.budget is None:
            return
        if usage is None or not usage.prompt_tokens:
            written = sum(map(len, pieces))
            usage = Usage(self.row_tokens([row]), ceil(written / CHARACTERS))
        self.budget.failed(i, usage)

    def end(self, now: float) -> None:
        """It has ended: its source is let go, and its end told after its last answer."""
        finish = self.ended
        assert finish is not None
        self.context.life.over = True
        self.source.close()
        if self.budget is not None:
            self.budget.close()
        if self.timer is not None:
            self.timer.cancel()
        end = RowsEnd(
            finish.state.value,
            self.asked,
            self.failed,
            self.tries,
            self.prompt_tokens,
            self.cached_tokens,
            self.completion_tokens,
            now - self.run.began,
            finish.cause.error if finish.cause is not None else None,
        )
        loop = asyncio.get_running_loop()

        def told() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._tell, end)

        self.sink.end(told)

    def _tell(self, end: RowsEnd) -> None:
        if not self.done.done():
            self.done.set_result(end)


class _Ended(NamedTuple):
    row: int
    answer: RowAnswer
    characters: int


class _Slice:
    """Rows that were sent together, and what has become of them since that was told last."""

    __slots__ = (
        "asked",
        "command",
        "ended",
        "failed",
        "firsts",
        "host",
        "left",
        "lo",
        "rows",
        "tasks",
        "work",
    )

    def __init__(
        self, asked: LiveRows, host: LocalHost, command: Dispatch, work: Work, lo: int, hi: int
    ) -> None:
        self.asked, self.host, self.command, self.work = asked, host, command, work
        self.rows, self.lo, self.left = asked.windows[work.primitive], lo, hi - lo
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.ended: list[_Ended] = []
        self.failed: list[RowFailure] = []
        self.firsts = 0


class RowsDriver(Protocol):
    """A live driver, as far as rows are concerned; see Live."""

    core: Core
    loop: asyncio.AbstractEventLoop
    hosts: dict[tuple[str, int], LocalHost]
    rows: dict[str, AskedRows[Any]]

    def tell(self, run: str, event: RunEvent, now: float) -> None:
        """Give the core an event of a run."""

    def came(self, event: QueueEvent) -> None:
        """Something has come in."""

    def wake(self) -> None:
        """Handle it soon."""

    def turn(self) -> None:
        """Handle it now."""

    def context(self) -> Context:
        """What a task is to be entered in; a copy."""
        ...


class SentRows:
    """All runs of rows of a live driver."""

    def __init__(self, live: RowsDriver) -> None:
        self._live = live
        self._slices: dict[tuple[str, int, int, int], _Slice] = {}
        self._dirty: dict[_Slice, None] = {}
        self._scheduled = self._entering = False

    def __bool__(self) -> bool:
        return bool(self._slices)

    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of all rows that are out."""
        return [task for sent_slice in self._slices.values() for task in sent_slice.tasks.values()]

    # --- windows ----------------------------------------------------------------------------

    def want(self, asked: LiveRows) -> None:
        """There is room for another window."""
        asked.wanted += 1
        self._live.loop.call_soon(self.look, asked)

    def look(self, asked: LiveRows) -> None:
        """Take windows, as far as they are wanted and there."""
        live = self._live
        while asked.wanted and asked.ended is None and not asked.sink.full():
            failed, warming = asked.source.error is not None, asked.run.warming
            rows = [] if failed else asked.source.take(warming=warming)
            if not rows:
                if asked.source.ended:
                    asked.wanted = 0
                    live.tell(asked.id, SourceEnded(asked.source.error), live.loop.time())
                    live.wake()
                return
            asked.wanted -= 1
            reserved: Reservation | None = None
            if asked.budget is not None:
                reserved = self._afford(asked, asked.budget, rows)
                if reserved is None:
                    return
            self._measure(asked, rows, reserved)

    def _afford(self, asked: LiveRows, budget: RowBudget, rows: list[Row]) -> Reservation | None:
        """Leave of a window as many rows as its run can pay for, and put back the others; what was
        reserved for them. None: there are none, and it is tried again, or the run ends."""
        live, tokens = self._live, asked.row_tokens(rows)
        why: Exception | None = None
        reserved: Reservation | None = None
        count = 0
        # Until answers have told how many tokens a text has, the estimate counts for few rows.
        most = len(rows) if asked.answered else min(len(rows), SAMPLED)
        try:
            count, reserved = budget.afford(most, tokens)
        except InputError as error:
            why = error
        asked.source.put_back(rows[count:])
        del rows[count:]
        if reserved is not None:
            return reserved
        asked.wanted += 1
        why = why or budget.wait(tokens, partial(self._look_soon, asked))
        if why is not None:
            live.tell(asked.id, SourceEnded(why), live.loop.time())
            live.wake()
        return None

    def _look_soon(self, asked: LiveRows) -> None:
        """`look`, from any thread: accounts may be shared with queries of other runtimes."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._live.loop.call_soon_threadsafe(self.look, asked)

    def _measure(self, asked: LiveRows, rows: list[Row], made: Reservation | None) -> None:
        """Tell the run that these rows came; with the keys of the first prompt, if the engine's
        routing goes by them, which takes a while."""
        live, engine = self._live, asked.run.engine
        host = live.hosts[engine, 0]
        if not live.core.queues[engine].placing.by_keys or host.keys is None:
            self._came(asked, rows, (), made)
            return
        call, keys = self._call(asked, rows[0], 0), host.keys
        work = live.loop.run_in_executor(None, keys.keys, call)
        work.add_done_callback(lambda found: self._keyed(asked, rows, made, found))

    def _keyed(
        self,
        asked: LiveRows,
        rows: list[Row],
        made: Reservation | None,
        found: asyncio.Future[Any],
    ) -> None:
        if found.cancelled() or asked.ended is not None:
            return
        failed = found.exception() is not None  # the calls will fail, too, and tell why
        self._came(asked, rows, () if failed else found.result().blocks, made)

    def _came(
        self, asked: LiveRows, rows: list[Row], keys: tuple[Any, ...], made: Reservation | None
    ) -> None:
        live = self._live
        if asked.budget is not None and made is not None:
            # Only now: windows that are measured beside this one may have come before it.
            asked.budget.begins(len(asked.run.plan), made)
        tokens = asked.row_tokens(rows)
        if keys:
            block = live.core.queues[asked.run.engine].instances[0].limits.block_tokens
            keys = keys[: tokens // block]
        asked.opened(rows)
        came = RowsCame(len(rows), tokens, asked.found_of(tokens), keys)
        live.tell(asked.id, came, live.loop.time())
        live.wake()

    # --- rows -------------------------------------------------------------------------------

    def begin(self, host: LocalHost, command: Dispatch, sent: Slice) -> None:
        """Rows of a window go to an instance. What needs not wait has ended when this returns."""
        live, (work, lo, hi) = self._live, sent
        asked = cast("LiveRows | None", live.rows.get(work.run))
        if asked is None:
            self._nobody(command, sent)
            return
        sent_slice = _Slice(asked, host, command, work, lo, hi)
        self._slices[work.run, work.primitive, command.batch, lo] = sent_slice
        context, loop = live.context(), live.loop
        context.run(working_for.set, (asked.id,))
        around, self._entering = self._entering, True
        try:
            for row in range(lo, hi):
                task = entered(loop, self._row(sent_slice, row), context.copy())
                if not task.done():
                    sent_slice.tasks[row] = task
        finally:
            self._entering = around
        if sent_slice in self._dirty:
            del self._dirty[sent_slice]
            live.came(self._told(sent_slice))
            live.wake()

    def _nobody(self, command: Dispatch, sent: Slice) -> None:
        work, lo, hi = sent
        gone = Cause(QueryCancelled("the run ended before its rows were asked"))
        failed = [RowFailure(row, gone) for row in range(lo, hi)]
        place = command.engine, command.batch, work.run, work.primitive, lo
        self._live.came(RowsEnded(*place, failed=failed))
        self._live.wake()

    def _call(self, asked: LiveRows, row: Row, priority: int) -> Call:
        parts = asked.instruction, TextPart(Role.QUESTION, row.text)
        category = asked.run.asker.app, "rows"
        return Call(asked.context, parts, asked.decode, None, priority, category)

    async def _row(self, sent_slice: _Slice, k: int) -> None:
        """Ask one row."""
        asked, row, begun = sent_slice.asked, sent_slice.rows[k], False
        model = cast("LanguageModel", sent_slice.host.engine)
        pieces: list[str] = []
        written = 0
        usage: Usage | None = None
        try:
            stream = opened_stream(model, self._call(asked, row, sent_slice.work.priority))
            try:  # a stream that has come to its end need not be closed: `aclosing` takes its time
                async for delta in stream:
                    if not isinstance(delta, Delta):
                        raise no_delta(model.spec.name, delta)
                    if not begun:
                        begun = True
                        sent_slice.firsts += 1
                        self._changed(sent_slice)
                    if delta.text:
                        written += len(delta.text)
                        check_length(model.spec.name, "an answer", written, LONGEST_ANSWER)
                        pieces.append(delta.text)
                    usage = delta.usage or usage
            except BaseException:
                await stream.aclose()
                raise
            if not begun:
                complaint = "the engine ended the stream before its first token"
                raise OutputError(complaint, retryable=True)
        except asyncio.CancelledError:
            asked.tried(sent_slice.work.primitive, row, pieces, usage)
            sent_slice.failed.append(RowFailure(k, Cause(QueryCancelled("aborted")), begun))
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            if begun:
                asked.tried(sent_slice.work.primitive, row, pieces, usage)
            again = isinstance(error, TeolaError) and error.retryable
            refused = refusal_of(error) if again else None
            sent_slice.failed.append(RowFailure(k, Cause(error, again, refused=refused), begun))
        else:
            text = "".join(pieces)
            if OPENS in text and not asked.decode.keep_thoughts:
                spoken = Spoken()
                text = spoken.feed(text) + spoken.end()
            characters = len(asked.instruction.text) + len(row.text)
            sent_slice.ended.append(_Ended(k, _answer(row.id, text.strip(), usage), characters))
        sent_slice.left -= 1
        sent_slice.tasks.pop(k, None)
        self._changed(sent_slice)

    def _changed(self, sent_slice: _Slice) -> None:
        """Something has become of a slice: the core is told at the end of this turn."""
        self._dirty[sent_slice] = None
        if not (self._scheduled or self._entering):
            self._scheduled = True
            self._live.loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._scheduled = False
        dirty, self._dirty = self._dirty, {}
        for sent_slice in dirty:
            self._live.came(self._told(sent_slice))
        self._live.turn()

    def _told(self, sent_slice: _Slice) -> RowsEnded:
        """What has become of a slice since the core was told last."""
        ended, sent_slice.ended = sent_slice.ended, []
        failed, sent_slice.failed = sent_slice.failed, []
        firsts, sent_slice.firsts = sent_slice.firsts, 0
        command, work = sent_slice.command, sent_slice.work
        if not sent_slice.left:
            del self._slices[work.run, work.primitive, command.batch, sent_slice.lo]
        cached = generated = None
        if ended:
            ended.sort()
            counts = [answer.cached for _, answer, _ in ended if answer.cached is not None]
            cached = sum(counts) if counts else None
            written = [a.generated for _, a, _ in ended if a.generated is not None]
            generated = sum(written) if written else None
        return RowsEnded(
            command.engine,
            command.batch,
            work.run,
            work.primitive,
            sent_slice.lo,
            ranges([row for row, _, _ in ended]),
            failed,
            firsts,
            cached,
            generated,
            [(answer, characters) for _, answer, characters in ended],
        )

    def abort(self, command: AbortRows) -> None:
        """Stop what is left of a slice."""
        key = command.run, command.primitive, command.batch, command.lo
        if (sent_slice := self._slices.get(key)) is not None:
            for task in list(sent_slice.tasks.values()):
                task.cancel()


def _answer(id: int, text: str, usage: Usage | None) -> RowAnswer:
    if usage is None:
        return RowAnswer(id, text, None)
    told = usage.prompt_tokens or usage.cached_tokens
    cached = usage.cached_tokens if told else None
    return RowAnswer(id, text, None, usage.prompt_tokens, cached, usage.completion_tokens or None)
