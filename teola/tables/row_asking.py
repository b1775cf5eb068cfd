"""Asking a call for the rows of a table, and what comes back as columns.

Long because it is one way of a row, from its inputs to its answer.

    DISTINCT inputs - answers -> column order -> sort -> rows through the core -> answers
    -> joined back

DuckDB makes the prompts' texts, their keys and their order, out of core. Rows stream from a second
connection, as fast as the engine answers, and answers are written as they come. So a run that is
killed has what came back until then, and asks for the rest when it is run again.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from teola.errors import reason_of
from teola.graph import DecodeParams
from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsHandle
from teola.tables.answer_table import AnswerTable, Operator, StoredAnswer
from teola.tables.extract import enforceable, extractor, shown
from teola.tables.llm_call import TEXT, LlmCall
from teola.tables.orders import ColumnOrder, Orders
from teola.tables.plan_steps import ROW, AskCall
from teola.tables.prompt_text import canonical, key_of, lines_of, literal
from teola.tables.run_limits import Spent, Stopped

if TYPE_CHECKING:
    import duckdb

BATCH: Final = 8192
"""Answers that are written together."""
BEHIND_S: Final = 1.0
"""How long an answer may wait to be written."""
LEAST_WARMED: Final = 64
"""Rows from which on the first one is asked alone, before the others."""
READ: Final = 2048
"""Rows that are read at a time."""
CHARACTERS_A_TOKEN: Final = 2.0
"""A prompt has fewer tokens than characters over this, for nearly all texts: what is reserved."""


class AskRows(Protocol):
    """Asks rows of an engine: `Runtime.ask_rows` with what a query gives it."""

    def __call__(
        self,
        call: RowsCall,
        rows: Iterator[Row],
        on_answers: OnAnswers,
        *,
        deadline_s: float | None,
    ) -> RowsHandle:
        """Begin to ask; see teola.runtime.rows."""


@dataclass(slots=True)
class Stage:
    """What became of one ask, in a report. order: of the fields. reason: why that one."""

    operator: str
    instruction: str
    rows: int = 0
    distinct: int = 0
    answered_before: int = 0
    asked: int = 0
    failed: int = 0
    unmatched: int = 0
    truncated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    order: list[str] = field(default_factory=list)
    reason: str = ""
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(slots=True)
class CallAsker:
    """Asks the calls of one run. model_of: the identity of a call's model. engine_of: its engine.
    progress: is told a stage as it goes on: rows to ask, those that ended, and the failed ones."""

    con: duckdb.DuckDBPyConnection
    answers: AnswerTable
    ask_rows: AskRows
    spent: Spent
    passes: frozenset[str]
    model_of: Callable[[LlmCall], str]
    progress: Callable[[Stage, int, int, int], None] | None = None
    stages: list[Stage] = field(default_factory=list)
    closed: bool = False
    """Nothing more is asked: rows go whose answers are not known."""
    _ids: Iterator[int] = field(default_factory=count)

    def run(self, ask: AskCall) -> None:
        """Give `ask.table` the columns of a call. Raises Stopped."""
        if not self.closed:
            self.spent.check()
        began = time.monotonic()
        call = ask.call
        operator = Operator(call.operator(self.model_of(call)), self.model_of(call), call.prompt)
        stage = Stage(operator.digest, call.prompt, order=list(call.names))
        self.stages.append(stage)
        alone = "dedup" not in self.passes or call.temperature > 0
        self._key(ask, operator, alone)
        try:
            self._gather(ask, stage, operator, alone)
            self._ask(ask, stage, operator)
        finally:
            stage.seconds = time.monotonic() - began
        self._join(ask, stage, operator)
        stage.seconds = time.monotonic() - began

    # --- inputs ---------------------------------------------------------------------------

    def _texts(self, ask: AskCall) -> list[str]:
        """SQL of each field's canonical text."""
        if not ask.fields:
            return []
        listed = ", ".join(f"{one} AS f{at}" for at, one in enumerate(ask.fields))
        rows = self.con.execute(f"DESCRIBE SELECT {listed} FROM {ask.table}").fetchall()
        return [canonical(f"({one})", row[1]) for one, row in zip(ask.fields, rows, strict=True)]

    def _key(self, ask: AskCall, operator: Operator, alone: bool) -> None:
        """The table gets the key of each row's question; no key where it is not asked."""
        texts = self._texts(ask)
        listed = "".join(f", {one} AS f{at}" for at, one in enumerate(texts))
        names = [f"f{at}" for at in range(len(texts))]
        key = key_of(operator.digest, ask.call.names, names, ROW if alone else "")
        guard = f"WHERE {ask.guard}" if ask.guard else ""
        self.con.execute(
            "CREATE OR REPLACE TABLE teola_asked AS "
            f"SELECT {', '.join([ROW, f'{key} AS key', *names])} "
            f"FROM (SELECT {ROW}{listed} FROM {ask.table} {guard})"
        )

    def _gather(self, ask: AskCall, stage: Stage, operator: Operator, alone: bool) -> None:
        """Distinct questions that have no answer yet."""
        names = "".join(f", any_value(f{at}) AS f{at}" for at in range(len(ask.fields)))
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_inputs AS SELECT key{names}, count(*) AS n "
            "FROM teola_asked GROUP BY key"
        )
        known = self.answers.known(
            operator.digest, "teola_inputs", failed=not self.spent.limits.retry_failed
        )
        self.con.execute(f"CREATE OR REPLACE TABLE teola_known AS {known}")
        (row,) = self.con.execute(
            "SELECT coalesce(sum(n), 0), count(*), (SELECT count(*) FROM teola_known) "
            "FROM teola_inputs"
        ).fetchall()
        stage.rows, stage.distinct, stage.answered_before = (int(one) for one in row)

    # --- asking ---------------------------------------------------------------------------

    def _ask(self, ask: AskCall, stage: Stage, operator: Operator) -> None:
        todo = stage.distinct - stage.answered_before
        if todo == 0 or self.closed:
            return
        self.answers.know(operator)
        began = time.monotonic()
        asked = _Asked(self, ask.call, stage, operator, todo)
        order = self.order(ask.call)
        stage.order, stage.reason = [ask.call.names[at] for at in order.positions], order.reason
        if "warm" in self.passes and todo >= LEAST_WARMED:
            # The first batch would compute the instruction as often as it has rows.
            asked.go(self._rows_sql(ask.call, order.positions), most=1)
        if asked.exceeded is None:
            asked.go(self._rows_sql(ask.call, order.positions))
        self.answers.ran(operator.model, stage.asked, time.monotonic() - began)

    def order(self, call: LlmCall) -> ColumnOrder:
        """The order of a call's fields, for what `_gather` found."""
        written = tuple(range(len(call.names)))
        if len(written) < 2:
            return ColumnOrder(written, 0.0, "there is one order only")
        if call.fixed_order:
            return ColumnOrder(written, 0.0, "fixed_order")
        if "columns" not in self.passes or "sort" not in self.passes:
            return ColumnOrder(written, 0.0, "as written: the pass is off")
        where = "WHERE key NOT IN (SELECT key FROM teola_known)"
        return Orders(self.con, "teola_inputs", where, call.names, len(call.prompt)).best()

    def _rows_sql(self, call: LlmCall, order: Sequence[int]) -> str:
        """SQL of the rows to ask in order: key, text, and a number that changes with the first
        ordered field."""
        names = [call.names[at] for at in order]
        texts = [f"f{at}" for at in order]
        first = f"hash({texts[0]})" if texts else "0"
        keys = ", ".join([*texts, "key"]) if "sort" in self.passes else "key"
        return (
            f"SELECT key, {lines_of(names, texts)} AS text, {first} AS opens FROM teola_inputs "
            f"WHERE key NOT IN (SELECT key FROM teola_known) ORDER BY {keys}"
        )

    def next_id(self) -> int:
        """Of a row."""
        return next(self._ids)

    # --- answers --------------------------------------------------------------------------

    def _join(self, ask: AskCall, stage: Stage, operator: Operator) -> None:
        """The table gets the answers as columns."""
        known = self.answers.known(operator.digest, "teola_inputs", failed=True)
        self.con.execute(f"CREATE OR REPLACE TABLE teola_known AS {known}")
        value = typed("a.value", ask.call)
        (row,) = self.con.execute(
            f"SELECT count(*) FILTER (WHERE a.error IS NULL AND {value} IS NULL), "
            "count(*) FILTER (WHERE a.error IS NOT NULL) FROM teola_known a"
        ).fetchall()
        stage.unmatched, stage.failed = int(row[0]), int(row[1])
        for error, rows, example in self.con.execute(
            "SELECT a.error, sum(i.n), min(a.key) FROM teola_known a JOIN teola_inputs i "
            "USING (key) WHERE a.error IS NOT NULL GROUP BY a.error ORDER BY 2 DESC LIMIT 20"
        ).fetchall():
            stage.errors[str(error)] = (int(rows), self._example(str(example), ask))
        self.con.execute(
            f"CREATE OR REPLACE TABLE teola_new AS SELECT b.*, {value} AS {ask.value}, "
            f"a.error AS {ask.error} FROM {ask.table} b "
            f"LEFT JOIN teola_asked k ON k.{ROW} = b.{ROW} "
            "LEFT JOIN teola_known a ON a.key = k.key "
            f"{'WHERE k.key IS NULL OR a.key IS NOT NULL ' if self.closed else ''}ORDER BY b.{ROW}"
        )
        self.con.execute(f"DROP TABLE {ask.table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {ask.table}")
        for table in ("teola_asked", "teola_inputs", "teola_known"):
            self.con.execute(f"DROP TABLE {table}")

    def _example(self, key: str, ask: AskCall) -> str:
        texts = [f"f{at}" for at in range(len(ask.fields))]
        found = self.con.execute(
            f"SELECT {lines_of(ask.call.names, texts)} FROM teola_inputs WHERE key = {literal(key)}"
        ).fetchall()
        return str(found[0][0]).strip()[:200] if found else ""


class _Asked:
    """One ask that goes on: rows are read in one thread, answers come in another, and are written
    in the one that waits."""

    def __init__(
        self, asker: CallAsker, call: LlmCall, stage: Stage, operator: Operator, todo: int
    ) -> None:
        self.asker, self.call, self.stage, self.operator = asker, call, stage, operator
        self.todo = todo
        self.extract = extractor(call)
        self.keys: dict[int, str] = {}
        self.warmed: set[str] = set()
        self.came: queue.SimpleQueue[Sequence[RowAnswer]] = queue.SimpleQueue()
        self.first_error: str | None = None
        self.over = self.failures = 0

    @property
    def exceeded(self) -> str | None:
        """The budget that nothing more is asked for."""
        return self.asker.spent.exceeded

    def go(self, sql: str, most: int | None = None) -> None:
        """Ask rows, the first `most`. Raises Stopped."""
        asker, spent = self.asker, self.asker.spent
        left_s = spent.left_s()
        if left_s == 0.0:
            spent.check()
        cursor = asker.con.cursor()
        handle: RowsHandle | None = None
        stopped: Stopped | None = None
        try:
            handle = asker.ask_rows(
                RowsCall(self.call.prompt, self.call.model or "llm", decode_of(self.call)),
                self._rows(cursor, sql, most),
                self.came.put,
                deadline_s=left_s,
            )
            try:
                stopped = self._follow(handle)
            except KeyboardInterrupt:
                stopped = Stopped("cancelled", "the query was cancelled")
            except BaseException:  # such as a full disk: nobody will read what is asked
                handle.cancel()
                raise
            if stopped is not None:
                handle.cancel()
            end = handle.result()
        finally:
            self._write(self._drained())
            cursor.close()
        if stopped is not None:
            raise stopped
        if end.state == "deadline":
            raise Stopped(
                "deadline", f"the deadline of {spent.limits.deadline_s or 0:g} s has passed"
            )
        if end.state == "cancelled":
            raise Stopped("cancelled", "the query was cancelled")
        if end.state == "failed":
            error = end.error
            raise Stopped("failed", reason_of(error) if error else "rows could not be asked", error)
        if spent.exceeded is not None:
            raise Stopped("partial", f"{spent.exceeded} is reached")

    def _rows(self, cursor: duckdb.DuckDBPyConnection, sql: str, left: int | None) -> Iterator[Row]:
        spent, most = self.asker.spent, self.call.max_tokens
        before: int | None = None
        prefix = len(self.call.prompt)
        for batch in cursor.sql(sql).to_arrow_reader(READ):
            keys, texts, opens = (column.to_pylist() for column in batch.columns)
            for key, text, first in zip(keys, texts, opens, strict=True):
                if key in self.warmed:
                    continue
                if left == 0:
                    return
                left = left - 1 if left is not None else None
                id = self.asker.next_id()
                tokens = int((prefix + len(text)) / CHARACTERS_A_TOKEN) + 1
                if not spent.admit(id, tokens, most):
                    return
                self.keys[id] = key
                self.stage.asked += 1
                if left is not None:
                    self.warmed.add(key)
                yield Row(id, text, first != before)
                before = first

    def _follow(self, handle: RowsHandle) -> Stopped | None:
        """Write answers as they come until the run has ended. Why it has to end before, if so."""
        held: list[RowAnswer] = []
        since = time.monotonic()
        last = False
        while not last:
            try:
                held += self.came.get(timeout=0.05 if held else 0.2)
            except queue.Empty:
                last = ended(handle)
            if last:
                held += self._drained()
            now = time.monotonic()
            if last or len(held) >= BATCH or (held and now - since >= BEHIND_S / 2):
                self._write(held)
                held = []
            if not held:
                since = now
            stopped = self._stopped()
            if stopped is not None:
                self._write(held)
                return stopped
        return None

    def _stopped(self) -> Stopped | None:
        """Why the run has to end now."""
        spent, limits = self.asker.spent, self.asker.spent.limits
        try:
            spent.check()
        except Stopped as stopped:
            return stopped
        if self.first_error is not None and limits.on_error == "fail":
            return Stopped("failed", f"a row failed: {self.first_error}")
        allowed = limits.errors_allowed(self.stage.distinct)
        if spent.failed > allowed:
            return Stopped(
                "failed",
                f"{spent.failed:,} rows failed, and max_errors allows {allowed:,}; "
                f"the first: {self.first_error}",
            )
        return None

    def _drained(self) -> list[RowAnswer]:
        found: list[RowAnswer] = []
        while True:
            try:
                found += self.came.get_nowait()
            except queue.Empty:
                return found

    def _write(self, held: Sequence[RowAnswer]) -> None:
        if not held:
            return
        stage, spent, extract = self.stage, self.asker.spent, self.extract
        rows: list[StoredAnswer] = []
        for id, text, error, prompt, cached, generated in held:
            value = storable(extract(text)) if text is not None else None
            error = storable(error)
            rows.append(StoredAnswer(self.keys.pop(id), value, error, prompt, cached, generated))
            failed = error is not None
            self.over += 1
            self.failures += failed
            if failed and self.first_error is None:
                self.first_error = error
            stage.prompt_tokens += prompt
            stage.cached_tokens += cached or 0
            stage.completion_tokens += generated or 0
            spent.ended(id, failed, prompt, cached or 0, generated or 0)
        self.asker.answers.add(self.operator.digest, rows)
        if self.asker.progress is not None:
            self.asker.progress(stage, self.todo, self.over, self.failures)


def storable(text: str | None) -> str | None:
    """A text that UTF-8 has: halves of a surrogate pair are joined, single ones replaced."""
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
        choices=tuple(map(shown, call.choices)) if call.choices else None,
        pattern=enforceable(call.pattern) if call.pattern else None,
    )


def typed(sql: str, call: LlmCall) -> str:
    """SQL of an answer's value in the type of its column; NULL where it is none."""
    if call.schema is not None:
        if call.type == TEXT:
            return f"json_extract_string(TRY_CAST({sql} AS JSON), '$')"
        return f"TRY_CAST(TRY_CAST({sql} AS JSON) AS {call.type})"
    return sql if call.type == TEXT else f"TRY_CAST({sql} AS {call.type})"
