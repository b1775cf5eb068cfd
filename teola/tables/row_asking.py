"""Asking a call for the rows of a table, and what comes back as columns. Long because all of it
works on the same temporary tables.

    DISTINCT inputs - answers -> column order -> sort -> rows through the core -> answers
    -> joined back

DuckDB makes the prompts' texts, their keys and their order, out of core. Rows stream from a second
connection, as fast as the engine answers, and answers are written as they come (question_run). So a
run that is killed has what came back until then, and asks for the rest when it is run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from teola.tables.answer_table import AnswerTable, Operator
from teola.tables.batch_dealing import DEALT, dealt_rows
from teola.tables.call_stage import CallStage
from teola.tables.context_order import share_contexts
from teola.tables.extract import wanted_of
from teola.tables.folding import folded
from teola.tables.llm_call import TEXT, LlmCall
from teola.tables.orders import LONGEST_S, OF_RUN, ColumnOrder, Orders, rows_sql
from teola.tables.plan_steps import ROW, AskCall, Retrieve
from teola.tables.prompt_text import canonical, key_of, lines_of, literal
from teola.tables.question_run import STRAY, AskProgress, AskRows, QuestionRun
from teola.tables.result_stream import ResultStream
from teola.tables.retrieval import Retriever
from teola.tables.run_limits import LEAST_ERRORS, Spent
from teola.tables.shared_beginnings import POSITIONS
from teola.tables.sorted_rows import SortedRows
from teola.tables.value_cutting import ModelWindow, cut_values
from teola.tables.workspace import give_back

if TYPE_CHECKING:
    import duckdb

LEAST_WARMED: Final = 64
"""Rows from which on the first one is asked alone, before the others."""
ONLY_ORDER: Final = "there is one order only"
SHORT: Final = 512
"""Bytes of values that are in every model's window, and a field's name and what is around it."""
UNKNOWN: Final = "WHERE key NOT IN (SELECT key FROM teola_known)"


class Gathered(NamedTuple):
    """How many questions a call has. known: questions that have an answer. before: questions that
    had one when the run began. bytes: bytes of the longest question's values."""

    rows: int
    distinct: int
    known: int
    before: int
    bytes: int


class WindowOf(Protocol):
    """The window of a call's model; see ModelWindows.of."""

    def __call__(self, call: LlmCall, *, look: bool) -> ModelWindow | None:
        """The window, or None where it is not known."""


def no_window(call: LlmCall, *, look: bool) -> None:
    """A WindowOf for models whose windows are not known."""


def asks_nothing(*_: Any, **__: Any) -> Any:
    """An AskRows for runs in which nothing may be asked."""
    raise AssertionError("nothing is asked here")


@dataclass(slots=True)
class CallAsker:
    """Asks the calls of one run. model_of: the identity of a call's model. tenant: whose answers
    they are ("": nobody's in particular). sample: tells this run's samples (at a temperature above
    0) from those of others."""

    con: duckdb.DuckDBPyConnection
    answers: AnswerTable
    ask_rows: AskRows
    spent: Spent
    passes: frozenset[str]
    model_of: Callable[[LlmCall], str]
    progress: AskProgress | None = None
    tenant: str = ""
    sample: str = ""
    window_of: WindowOf = no_window
    closed: bool = False
    """Nothing more is asked, and rows without answers are dropped."""
    in_windows: bool = False
    """Rows are taken in windows, so nobody knows yet how many there will be."""
    warms: bool = True
    """One engine answers all rows, so what one row computes is there for the others."""
    retriever: Retriever | None = None
    """Searches for contexts, in plans with a RETRIEVE."""
    stream: ResultStream | None = None
    """Gets rows of the result as they are answered."""
    batch_aware: int = 0
    """Places of the batches that rows are dealt to (0: they are not)."""
    _stages: dict[AskCall | Retrieve, CallStage] = field(default_factory=dict)
    _recounted: set[AskCall] = field(default_factory=set)

    @property
    def stages(self) -> list[CallStage]:
        """The stage of each call, in the order in which the calls were first asked."""
        return list(self._stages.values())

    @property
    def unanswered(self) -> bool:
        """Whether a further run has something to ask again."""
        return self.closed or any(stage.failed for stage in self._stages.values())

    def run(self, ask: AskCall, came: str | None = None) -> None:
        """Give `ask.table` the columns of a call. came: SQL of which rows are in the result once
        they have them; None: nobody knows yet. Raises Stopped."""
        if not self.closed:
            self.spent.check()
        began = time.monotonic()
        operator = self.operator(ask.call)
        earlier = self._stages.get(ask)
        stage = earlier or CallStage(
            operator.digest,
            ask.call.prompt,
            ask.call.model or "llm",
            order=list(ask.call.names),
            wanted=wanted_of(ask.call),
        )
        self._stages[ask] = stage
        try:
            self._key(ask, operator)
            gathered = self._gather(ask, operator)
            if truncated := self._fit(ask, operator, gathered):
                gathered = self._gather(ask, operator)
            self._drop_texts()
            if earlier is None or not self.closed:
                self._count(stage, gathered)
                stage.truncated += truncated
                self._ask(
                    ask, stage, operator, gathered.distinct - gathered.known, self._look(ask, came)
                )
            elif ask not in self._recounted:
                # It was interrupted: what is known of its rows is looked at once more.
                stage.recount()
                self._recounted.add(ask)
            self._join(ask, stage, operator)
        finally:
            stage.seconds += time.monotonic() - began

    def retrieve(self, step: Retrieve) -> None:
        """Give the table the contexts of a RETRIEVE. Raises Stopped."""
        assert self.retriever is not None
        if step not in self._stages:
            self._stages[step] = CallStage(step.call.digest, step.call.shown)
        began = time.monotonic()
        try:
            self.retriever.run(step, self._stages[step], closed=self.closed)
        finally:
            self._stages[step].seconds += time.monotonic() - began

    def stage(self, ask: AskCall) -> CallStage:
        """The stage of a call that was asked."""
        return self._stages[ask]

    def operator(self, call: LlmCall) -> Operator:
        """The operator under which a call's answers are kept."""
        model = self.model_of(call)
        return Operator(call.operator(model, self.tenant), model, call.prompt)

    def errors_allowed(self) -> int:
        """How many rows of the query may have errors, by the number that it has asked so far."""
        allowed = self.spent.limits.errors_allowed(self.spent.questions)
        share = self.spent.limits.max_errors
        if self.in_windows and share is not None and share < 1:
            return max(allowed, LEAST_ERRORS)  # of 16 rows 5 % are none: judged at the end
        return allowed

    def windows_over(self) -> None:
        """Judge the errors once all windows of rows were taken. Raises Stopped."""
        self.in_windows = False
        if not self.closed and (why := self.spent.failed_too_often(self.errors_allowed())):
            raise why

    # --- inputs ---------------------------------------------------------------------------

    def _make(self, table: str, sql: str) -> None:
        """Make a table of a query's rows."""
        self.con.execute(f"CREATE OR REPLACE TABLE {table} AS {sql}")
        give_back(self.con)

    def _texts(self, ask: AskCall, *, fold: bool = False) -> list[str]:
        """SQL of each field's canonical text. fold: of the same one for all that are one."""
        if not ask.fields:
            return []
        if ask.call.listed:
            return list(ask.fields)
        listed = ", ".join(f"{field} AS f{at}" for at, field in enumerate(ask.fields))
        rows = self.con.execute(f"DESCRIBE SELECT {listed} FROM {ask.table}").fetchall()
        rules = ask.call.fold if fold else ()
        return [
            canonical(folded(f"({field})", row[1], rules), row[1])
            for field, row in zip(ask.fields, rows, strict=True)
        ]

    def _own(self, ask: AskCall) -> str:
        """SQL that tells the questions of rows with equal values apart; "": they are one
        question."""
        if ask.call.temperature > 0 and not ask.call.shared:
            return f"{literal(f'{self.sample} {ask.value} ')}, {ROW}"
        return "" if "dedup" in self.passes else ROW

    def _key(self, ask: AskCall, operator: Operator) -> None:
        """Add the key of each row's question to the table; NULL where it is not asked."""
        texts = self._texts(ask)
        listed = "".join(f", {text} AS f{at}" for at, text in enumerate(texts))
        names = [f"f{at}" for at in range(len(texts))]
        keyed = names
        if ask.call.fold:
            keyed = [f"g{at}" for at in range(len(texts))]
            same = zip(self._texts(ask, fold=True), keyed, strict=True)
            listed += "".join(f", {field} AS {name}" for field, name in same)
        key = key_of(operator.digest, ask.call.names, keyed, self._own(ask))
        guard = f"WHERE {ask.guard}" if ask.guard else ""
        self._make(
            "teola_asked",
            f"SELECT {', '.join([ROW, f'{key} AS key', *names])} "
            f"FROM (SELECT {ROW}{listed} FROM {ask.table} {guard})",
        )

    def _gather(self, ask: AskCall, operator: Operator) -> Gathered:
        """Count the distinct questions, and those that have an answer."""
        # Of rows that are one by a rule the first asks, with all of its fields. Grouping looks at
        # keys alone: a hash table of the texts would be as large as all of them.
        names = "".join(f", a.f{at}" for at in range(len(ask.fields)))
        self._make(
            "teola_inputs",
            f"SELECT a.key{names}, g.n FROM teola_asked a JOIN (SELECT min({ROW}) AS first, "
            f"count(*) AS n FROM teola_asked GROUP BY key) g ON a.{ROW} = g.first",
        )
        self.answers.fetch(operator.digest, "teola_inputs")
        known = self.answers.known(
            operator.digest, "teola_inputs", failed=not self.spent.limits.retry_failed
        )
        self._make("teola_known", known)
        lengths = " + ".join(f"strlen(f{at})" for at in range(len(ask.fields))) or "0"
        (row,) = self.con.execute(
            "SELECT coalesce(sum(n), 0), count(*), (SELECT count(*) FROM teola_known), "
            f"(SELECT count(*) FROM teola_known WHERE before), coalesce(max({lengths}), 0) "
            "FROM teola_inputs"
        ).fetchall()
        return Gathered(*(int(aggregate) for aggregate in row))

    def _drop_texts(self) -> None:
        """From here on rows have keys alone: their texts are those of the questions."""
        self._make("teola_new", f"SELECT {ROW}, key FROM teola_asked")
        self.con.execute("DROP TABLE teola_asked")
        self.con.execute("ALTER TABLE teola_new RENAME TO teola_asked")

    def _count(self, stage: CallStage, gathered: Gathered) -> None:
        distinct = gathered.distinct
        if stage.rows:  # windows before this one have counted what they asked
            distinct -= gathered.known - gathered.before
        stage.rows += gathered.rows
        stage.distinct += distinct
        stage.answered_before += gathered.before
        self.spent.questions += distinct

    def _fit(self, ask: AskCall, operator: Operator, gathered: Gathered) -> int:
        """Cut questions to the model's window, and give those that were cut new keys. Returns how
        many were cut."""
        call, asking = ask.call, gathered.distinct > gathered.known and not self.closed
        if ask.call.listed or (not asking and gathered.bytes <= SHORT):
            return 0
        window = self.window_of(call, look=not self.closed)
        if window is None or gathered.bytes + len(call.names) * SHORT <= window.room(call):
            return 0
        # By all rows and not by those to ask: the same table is cut alike the next time.
        order = self.order(call, where="", groups=False).positions
        if not call.names or not cut_values(self.con, "teola_inputs", call, order, window):
            return 0
        fields = [f"f{at}" for at in range(len(call.names))]
        key = key_of(
            operator.digest, call.names, [f"c.{field}" for field in fields], self._own(ask)
        )
        listed = ", ".join(f"coalesce(c.{field}, a.{field}) AS {field}" for field in fields)
        self._make(
            "teola_new",
            f"SELECT a.{ROW}, CASE WHEN c.key IS NULL THEN a.key ELSE {key} END AS key, {listed}, "
            "c.key IS NOT NULL AS cut FROM teola_asked a LEFT JOIN teola_cut c USING (key)",
        )
        ((count,),) = self.con.execute(
            "SELECT count(DISTINCT key) FROM teola_new WHERE cut"
        ).fetchall()
        self._make("teola_asked", "FROM teola_new")
        self.con.execute("DROP TABLE teola_new")
        self.con.execute("DROP TABLE teola_cut")
        return int(count)

    # --- asking ---------------------------------------------------------------------------

    def _look(self, ask: AskCall, came: str | None) -> Callable[[], None] | None:
        """A function that streams answered rows; None where they are in no result yet."""
        stream, operator = self.stream, self.operator(ask.call)
        if stream is None or came is None or self.closed or stream.table != ask.table:
            return None

        def rows() -> str:
            answers = self.answers.known(operator.digest, "teola_inputs", failed=False)
            return self._answered(ask, f"({answers})", f"main.{ask.table}")

        return partial(stream.look, rows, came)

    def _ask(
        self,
        ask: AskCall,
        stage: CallStage,
        operator: Operator,
        todo: int,
        look: Callable[[], None] | None,
    ) -> None:
        if todo == 0 or self.closed:
            return
        limits = self.spent.limits
        if limits.most_calls is None:
            limits.check_questions(todo)
        self.answers.know(operator)
        began, before = time.monotonic(), stage.asked
        run = QuestionRun(
            self.con,
            self.answers,
            self.ask_rows,
            self.spent,
            ask.call,
            operator,
            stage,
            todo,
            self.errors_allowed,
            self.progress,
            look,
        )
        self.share_contexts(ask.call)
        order = self.order(ask.call, todo)
        stage.order, stage.reason = [ask.call.names[at] for at in order.positions], order.reason
        if self.progress is not None:
            self.progress(stage, todo, 0, 0)
        rows = self._rows(ask.call, order)
        if self.batch_aware:
            rows = dealt_rows(self.con, rows, self.batch_aware)
            stage.reason += f"; dealt to batches of {self.batch_aware}"
        try:
            # Without it the first batch computes the instruction as often as it has rows.
            warm = "warm" in self.passes and todo >= LEAST_WARMED and self.warms
            run.go(rows, warm=warm, shared=order.share)
            run.finish(rows, shared=order.share)
        finally:
            give_back(self.con)
            self.answers.ran(operator.model, stage.asked - before, time.monotonic() - began)
            for table in (POSITIONS, DEALT):
                self.con.execute(f"DROP TABLE IF EXISTS {table}")

    def share_contexts(self, call: LlmCall) -> None:
        """Order the contexts of the questions by how many rows share them."""
        if "contexts" in self.passes and not call.fixed_order:
            for at in call.contexts:
                share_contexts(self.con, "teola_inputs", f"f{at}", UNKNOWN)

    def order(
        self, call: LlmCall, todo: int = 0, where: str = UNKNOWN, *, groups: bool = True
    ) -> ColumnOrder:
        """The order of a call's fields, for what `_gather` found. todo: how many are asked, by
        which the time to plan is bounded. where: which of it. groups: whether rows may have orders
        of their own."""
        written = tuple(range(len(call.names)))
        if len(written) < 2:
            why = "rows in their group's order" if call.listed else ONLY_ORDER
            return ColumnOrder(written, 0.0, why)
        if call.fixed_order:
            return ColumnOrder(written, 0.0, "fixed_order")
        if "columns" not in self.passes or "sort" not in self.passes:
            return ColumnOrder(written, 0.0, "as written: the pass is off")
        if call.contexts and "contexts" in self.passes:
            # Two lists may begin alike and be two values, which no count of values shows.
            first = (*call.contexts, *(at for at in written if at not in call.contexts))
            return ColumnOrder(first, 0.0, "contexts first: rows share them one by one")
        run_s = self.answers.seconds_of(self.model_of(call), todo) if todo else None
        longest_s = LONGEST_S if run_s is None else min(LONGEST_S, OF_RUN * run_s)
        orders = Orders(self.con, "teola_inputs", where, call.names, len(call.prompt), longest_s)
        return orders.best(groups=groups)

    def _rows(self, call: LlmCall, order: ColumnOrder) -> SortedRows:
        """The rows to ask, see `rows_sql`."""
        opens, first = "", order.positions[0] if order.positions else None
        if first is not None and first in call.contexts:
            first_of = f"CASE WHEN json_valid(f{first}) THEN json_extract(f{first}, '$[0]') END"
            opens = f"coalesce(hash({first_of}), 0)"
        return rows_sql(
            "teola_inputs",
            UNKNOWN,
            call.names,
            order,
            in_order="sort" in self.passes,
            text="f0" if call.listed else "",
            opens=opens,
        )

    # --- answers --------------------------------------------------------------------------

    def _join(self, ask: AskCall, stage: CallStage, operator: Operator) -> None:
        """Add the answers to the table as columns."""
        answers = self.answers.known(operator.digest, "teola_inputs", failed=True)
        self._make("teola_known", answers)
        value = typed("a.value", ask.call)
        (row,) = self.con.execute(
            f"SELECT count(*) FILTER (WHERE a.error IS NULL AND {value} IS NULL), "
            "count(*) FILTER (WHERE a.error IS NOT NULL), "
            f"min(a.value) FILTER (WHERE a.error IS NULL AND {value} IS NULL) FROM teola_known a"
        ).fetchall()
        stage.unmatched += int(row[0])
        stage.failed += int(row[1])
        stage.stray = stage.stray or str(row[2] or "")[:STRAY]
        for error, rows, example in self.con.execute(
            "SELECT a.error, sum(i.n), min(a.key) FROM teola_known a JOIN teola_inputs i "
            "USING (key) WHERE a.error IS NOT NULL GROUP BY a.error ORDER BY 2 DESC LIMIT 20"
        ).fetchall():
            stage.add_error(str(error), int(rows), self._example(str(example), ask))
        # Beside the rows as they are: joining and sorting them would hold all of them in memory.
        answered = (
            f"SELECT b.rowid AS teola_at, {value} AS value, a.error AS error, "
            f"k.key IS NULL OR a.key IS NOT NULL AS closed FROM {ask.table} b "
            f"LEFT JOIN teola_asked k ON k.{ROW} = b.{ROW} "
            "LEFT JOIN teola_known a ON a.key = k.key ORDER BY teola_at"
        )
        self._make(
            "teola_new",
            f"SELECT b.*, a.value AS {ask.value}, a.error AS {ask.error} "
            f"FROM {ask.table} b POSITIONAL JOIN ({answered}) a"
            f"{' WHERE a.closed' if self.closed else ''}{self._by_row(ask.table)}",
        )
        self.con.execute(f"DROP TABLE {ask.table}")
        self.con.execute(f"ALTER TABLE teola_new RENAME TO {ask.table}")
        for table in ("teola_asked", "teola_inputs", "teola_known"):
            self.con.execute(f"DROP TABLE {table}")

    def _by_row(self, table: str) -> str:
        """SQL that sorts a table by its rows' numbers; "": it is sorted."""
        ((is_sorted,),) = self.con.execute(
            f"SELECT coalesce(bool_and({ROW} > before), true) FROM "
            f"(SELECT {ROW}, lag({ROW}) OVER () AS before FROM {table})"
        ).fetchall()
        return "" if is_sorted else f" ORDER BY b.{ROW}"

    def _answered(self, ask: AskCall, known: str, table: str) -> str:
        """SQL of the rows of a table that need no other answer, with theirs."""
        return (
            f"SELECT b.*, {typed('a.value', ask.call)} AS {ask.value}, a.error AS {ask.error} "
            f"FROM {table} b LEFT JOIN teola_asked k ON k.{ROW} = b.{ROW} "
            f"LEFT JOIN {known} a ON a.key = k.key WHERE k.key IS NULL OR a.key IS NOT NULL"
        )

    def _example(self, key: str, ask: AskCall) -> str:
        texts = [f"f{at}" for at in range(len(ask.fields))]
        row = self.con.execute(
            f"SELECT {prompt_lines(ask.call, ask.call.names, texts)} FROM teola_inputs "
            f"WHERE key = {literal(key)}"
        ).fetchall()
        return str(row[0][0]).strip()[:200] if row else ""


def prompt_lines(call: LlmCall, names: Sequence[str], texts: Sequence[str]) -> str:
    """SQL of the text after the instruction in a prompt. texts: SQL of each field's text."""
    return texts[0] if call.listed else lines_of(names, texts)


def typed(sql: str, call: LlmCall) -> str:
    """SQL of an answer's value in the type of its column; NULL where it is none."""
    if call.listed:
        return sql
    if call.schema is not None:
        if call.type == TEXT:
            return f"json_extract_string(TRY_CAST({sql} AS JSON), '$')"
        return f"TRY_CAST(TRY_CAST({sql} AS JSON) AS {call.type})"
    return sql if call.type == TEXT else f"TRY_CAST({sql} AS {call.type})"
