"""One run of rows: the questions of a call are sent, and their answers written as they come.

    reading thread    DuckDB ──▶ rows, as fast as the engine answers
    answering thread  answers ──▶ `came`, and the log beside an answers file
    this thread       `came` ──▶ the answers table, 0.1 s after the last write or 8,192 rows

An answer leaves `came` only once it is on the disk, so nothing that stops this thread (Ctrl-C, a
full disk, an exception of a caller's function) loses what was paid for. What the log has is not
lost where the process is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from teola.errors import BudgetSpent, reason_of
from teola.graph import DecodeParams
from teola.policies.ledger import Ledger
from teola.price import Price
from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsEnd, RowsHandle
from teola.tables.answer_table import FREE_KEYS, AnswerTable, Operator, StoredAnswer
from teola.tables.call_stage import CallStage
from teola.tables.extract import choice_text, enforceable, extractor
from teola.tables.llm_call import LlmCall
from teola.tables.run_limits import Spent, Stopped
from teola.tables.sorted_rows import SortedRows
from teola.tables.workspace import cursor_of

if TYPE_CHECKING:
    import duckdb

BATCH: Final = 8192
"""Answers that are written together."""
LOOK_S: Final = 0.1
"""Seconds between two looks whether a run has to end, at which what came is written. Rows that come
faster share a write."""
READ: Final = 2048
"""Rows that are read, and claimed, at a time."""
AWAITED_S: Final = 0.2
"""How often answers of other runs are looked for."""

STRAY: Final = 80
"""Characters of an answer without a value that are shown."""

AskProgress = Callable[[CallStage, int, int, int], None]
"""Is told a stage as it goes on: rows to ask, those that ended, and the failed ones."""


class AskRows(Protocol):
    """Asks rows of an engine: `Runtime.ask_rows` with what a query gives it."""

    def __call__(
        self,
        call: RowsCall,
        rows: Iterator[Row],
        on_answers: OnAnswers,
        *,
        deadline_s: float | None,
        budget: Ledger | None,
        price: Price | None,
    ) -> RowsHandle:
        """Begin to ask; see teola.runtime.rows."""


class QuestionRun:
    """Sends the questions of one call. todo: how many there are. allowed: how many errors the
    query may have now. wrote: is called when answers are on the disk."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        answers: AnswerTable,
        ask_rows: AskRows,
        spent: Spent,
        call: LlmCall,
        operator: Operator,
        stage: CallStage,
        todo: int,
        allowed: Callable[[], int],
        progress: AskProgress | None,
        wrote: Callable[[], None] | None = None,
    ) -> None:
        self.con, self.answers, self.ask_rows, self.spent = con, answers, ask_rows, spent
        self.call, self.operator, self.stage, self.todo = call, operator, stage, todo
        self.allowed, self.progress, self.wrote = allowed, progress, wrote
        self.extract = extractor(call)
        self.keys: dict[int, str] = {}
        self.came: list[tuple[int, StoredAnswer]] = []
        """Answers that are not written yet, by the ids of their rows."""
        self._lock, self._woken = threading.Lock(), threading.Event()
        self.over = self.failures = self.others = 0

    def go(self, rows: SortedRows, *, warm: bool, shared: float) -> None:
        """Ask rows. warm, shared: see RowsCall. Raises Stopped."""
        spent, call, cursor = self.spent, self.call, cursor_of(self.con)
        end: RowsEnd | None = None
        reads = threading.Lock()
        try:
            left_s = spent.left_s()
            if left_s == 0.0:
                spent.check()
            handle = self.ask_rows(
                RowsCall(call.prompt, call.model or "llm", decode_of(call), warm, shared),
                self._rows(cursor, rows, reads),
                self._hear,
                deadline_s=left_s,
                budget=spent.ledger,
                price=spent.price,
            )
            try:
                stopped = self._follow(handle)
            except KeyboardInterrupt:
                stopped = Stopped("cancelled", "the query was cancelled")
            except BaseException:  # a full disk, SIGTERM: nobody will read what is asked
                handle.cancel()
                raise
            if stopped is not None:
                handle.cancel()
            end = handle.result()
        finally:
            try:
                self._write()
            finally:
                self.answers.release()
                with reads:  # rows that nobody asks any more may still be read
                    cursor.close()
                self.stage.asked += end.asked if end is not None else self.over
        self._judge(stopped, end)

    def finish(self, rows: SortedRows, *, shared: float) -> None:
        """Wait for the answers to rows that other runs have claimed, and ask those that they let go
        of. rows: all of them. shared: see RowsCall. Raises Stopped."""
        spent = self.spent
        free = SortedRows(
            f"SELECT key, text, opens FROM ({rows.sql}) WHERE key IN (SELECT key FROM {FREE_KEYS})",
            ("text", "key"),
        )
        while True:
            came = self.answers.settle(self.operator.digest)
            self.stage.answered_before += came.answered
            self.others += came.answered
            self.failures += came.errors
            spent.failed += came.errors
            spent.first_error = spent.first_error or came.error
            if came.answered:
                self._tell()
            if (why := self._failed()) is not None:
                raise why
            if came.free:
                self.go(free, warm=False, shared=shared)
            elif came.left:
                left_s = spent.left_s()
                spent.cancelled.wait(AWAITED_S if left_s is None else min(AWAITED_S, left_s))
                spent.check()
            else:
                return

    def _tell(self) -> None:
        if self.wrote is not None:
            self.wrote()
        if self.progress is not None:
            self.progress(self.stage, self.todo, self.over + self.others, self.failures)

    def _judge(self, stopped: Stopped | None, end: RowsEnd) -> None:
        spent, error = self.spent, end.error
        if stopped is not None:
            raise stopped
        if isinstance(error, BudgetSpent):
            raise Stopped("partial", spent.reached(error))
        if end.state == "deadline":
            raise Stopped(
                "deadline", f"the deadline of {spent.limits.deadline_s or 0:g} s has passed"
            )
        if end.state == "cancelled":
            raise Stopped("cancelled", "the query was cancelled")
        if end.state == "failed":
            raise Stopped("failed", reason_of(error) if error else "rows could not be asked", error)
        if spent.exceeded is not None:
            raise Stopped("partial", f"{spent.exceeded} is reached")
        if (why := self._failed()) is not None:  # the last answers may have been the ones too many
            raise why

    def _rows(
        self, cursor: duckdb.DuckDBPyConnection, rows: SortedRows, reads: threading.Lock
    ) -> Iterator[Row]:
        before: int | None = None
        batches = rows.batches(cursor, READ)
        while True:
            with reads:
                batch = next(batches, None)
            if batch is None:
                return
            keys, texts, opens = (column.to_pylist() for column in batch.columns)
            own = set(self.answers.claim(self.operator.digest, keys))
            for key, text, first in zip(keys, texts, opens, strict=True):
                if key not in own:
                    continue
                if not self.spent.admit():
                    return
                id = self.spent.next_id()
                self.keys[id] = key
                yield Row(id, text, first != before)
                before = first

    def _hear(self, answers: Sequence[RowAnswer]) -> None:
        rows = [self._stored(answer) for answer in answers]
        arrivals = self.answers.arrivals
        with self._lock:
            self.came += zip((answer.id for answer in answers), rows, strict=True)
            if arrivals is not None:
                arrivals.add(self.operator.digest, rows)
        if len(self.came) >= BATCH:
            self._woken.set()

    def _follow(self, handle: RowsHandle) -> Stopped | None:
        """Write answers as they come until the run has ended. Returns why it has to stop early, if
        it has to."""
        handle.when_over(self._woken.set)
        while True:
            # Not at each answer: rows that end one by one would have this thread take turns with
            # the one that asks them.
            self._woken.wait(LOOK_S)
            self._woken.clear()
            last = ended(handle)
            if last or self.came:
                self._write()
                if self.wrote is not None:
                    self.wrote()
            if last:
                return None
            if (stopped := self._stopped()) is not None:
                return stopped

    def _stopped(self) -> Stopped | None:
        """Why the run has to stop now; None: it goes on."""
        try:
            self.spent.check()
        except Stopped as stopped:
            return stopped
        return self._failed()

    def _failed(self) -> Stopped | None:
        return self.spent.failed_too_often(self.allowed())

    def _write(self) -> None:
        """Write answers that have come. If it fails, answers that are not stored yet are still in
        memory."""
        arrivals = self.answers.arrivals
        with self._lock:
            # Not what comes meanwhile: that would be small writes without end.
            left = len(self.came)
            if left and arrivals is not None:
                arrivals.turn()
        written = left
        while left:
            with self._lock:
                batch = self.came[: min(left, BATCH)]
            left -= len(batch)
            self.answers.add(self.operator.digest, [row for _, row in batch])
            with self._lock:
                del self.came[: len(batch)]
            self._count(batch)
            if self.progress is not None:
                self.progress(self.stage, self.todo, self.over + self.others, self.failures)
        if written and arrivals is not None:
            with self._lock:
                arrivals.written()

    def _stored(self, answer: RowAnswer) -> StoredAnswer:
        id, text, error, prompt, cached, generated = answer
        value = storable(self.extract(text)) if text is not None else None
        if text is not None and value is None and not self.stage.stray:
            self.stage.stray = text[:STRAY]
        return StoredAnswer(self.keys[id], value, storable(error), prompt, cached, generated)

    def _count(self, batch: Sequence[tuple[int, StoredAnswer]]) -> None:
        stage = self.stage
        failed = [row for _, row in batch if row.error is not None]
        if failed:
            self.spent.first_error = self.spent.first_error or failed[0].error
        for id, row in batch:
            del self.keys[id]
            stage.prompt_tokens += row.prompt_tokens
            stage.cached_tokens += row.cached_tokens or 0
            stage.completion_tokens += row.completion_tokens or 0
        self.over += len(batch)
        self.failures += len(failed)
        self.spent.failed += len(failed)


def storable(text: str | None) -> str | None:
    """A text that UTF-8 can encode: halves of a surrogate pair are joined, single ones replaced."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def ended(handle: RowsHandle) -> bool:
    """Whether a run of rows has ended and all of its answers were given."""
    try:
        handle.result(timeout=0)
    except TimeoutError:
        return False
    return True


def decode_of(call: LlmCall) -> DecodeParams:
    """How a call's answers are generated."""
    return DecodeParams(
        max_tokens=call.max_tokens,
        temperature=call.temperature,
        schema=call.schema,
        choices=tuple(map(choice_text, call.choices)) if call.choices else None,
        pattern=enforceable(call.pattern) if call.pattern else None,
    )
