"""One query over tables, in a thread of its own: planned, run, and told how it goes on.

check ──▶ plan over empty tables: what is wrong with a query is known before it begins
work  ──▶ tables ──▶ plan ──▶ confined ──▶ asked ──▶ rows as JSON
                      └─▶ "plan"            └─▶ "progress", "rows"
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import duckdb
from sqlglot import exp

from teola.errors import DeadlineExceeded, InputError, QueryCancelled, QueryFailed, TeolaError
from teola.policies.ledger import Ledger
from teola.runtime.observe.usage import CallCounts
from teola.runtime.runtime import Runtime
from teola.serve.table_queries.registered_tables import RegisteredTables, check_characters
from teola.tables.call_stage import CallStage
from teola.tables.done import Done
from teola.tables.places import refused
from teola.tables.plan_runs import RunOptions, run_plan
from teola.tables.plan_steps import TablePlan
from teola.tables.planner import plan_text
from teola.tables.query_text import read_query
from teola.tables.report import plain, with_rows
from teola.tables.run_limits import RunLimits, Spent
from teola.tables.workspace import Workspace

if TYPE_CHECKING:
    from teola.tables.sources import TableSource

APP: Final = "query-tables"
"""As queries over tables are listed; no application that is served may have it."""
EVERY_S: Final = 0.25
"""Between two events of progress of one call."""
FIRST: Final = 20
"""Rows that are told while others are asked."""
SHOWN: Final = 500
"""Characters of a value of these rows, and of an instruction beside its progress."""
FETCHED: Final = 500
OF_SERVER: Final = ("current_setting", "getenv", "getvariable", "query", "query_table")
OF_CATALOGUE: Final = ("duckdb_", "pg_get_", "pragma_")
"""Beginnings of functions that tell of the server's files and tables."""

TellEvent = Callable[[str, Mapping[str, Any]], None]
"""Is given kinds of events and what they say; from any thread."""


@dataclass(frozen=True, slots=True)
class TableAsker:
    """Whose query it is. budget: what pays for it (None: nothing bounds it). left_s: until its
    deadline. since: when an earlier run of it began (UTC; None: there was none)."""

    tenant: str
    budget: Ledger | None = None
    left_s: float | None = None
    since: datetime | None = None


def check_table_query(tables: RegisteredTables, tenant: str, query: str) -> None:
    """Raise InputError for what can be known to be wrong with a query before it begins. Blocks."""
    check_characters(query, tables.limits)
    sources = used(query, tables.open_to(tenant))
    try:
        with Workspace(sources, empty=True) as workspace:
            tables.confine(workspace, tenant)
            plan_text(workspace.con, query, list(sources))
    except InputError as error:
        raise _told(tables, error) from None


def used(query: str, sources: Mapping[str, TableSource]) -> dict[str, TableSource]:
    """The tables that a query names. Raises InputError, UnknownName."""
    try:
        tree = read_query(query, sources)
        for node in tree.find_all(exp.Func):
            name = str(node.this if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
            if name in OF_SERVER or name.startswith(OF_CATALOGUE):
                message = f"{name}() reads what is the server's"
                raise refused(message, node, query, "only the registered tables can be read")
        names = {table.name.lower() for table in tree.find_all(exp.Table)}
    except RecursionError:
        raise InputError("the query nests too deeply: write it flatter, or with WITH") from None
    return {name: source for name, source in sources.items() if name.lower() in names}


@dataclass(slots=True)
class TableRun:
    """See the module. options: of the request, by the names of RunLimits."""

    tables: RegisteredTables
    runtime: Runtime
    query: str
    options: Mapping[str, Any]
    asker: TableAsker
    tell: TellEvent
    spent: Spent = field(init=False)
    took: CallCounts = field(default_factory=CallCounts)
    _con: duckdb.DuckDBPyConnection | None = None
    _closing: Lock = field(default_factory=Lock)
    _due: dict[str, float] = field(default_factory=dict)
    _stages: dict[int, CallStage] = field(default_factory=dict)
    """Those of calls that have asked, by their ids."""

    def __post_init__(self) -> None:
        limits = self.tables.limits
        self.spent = Spent(
            RunLimits(
                **self.options,
                deadline_s=self.asker.left_s,
                most_questions=limits.questions,
                most_rows=limits.rows,
            ),
            self.asker.budget,
        )

    def stop(self) -> None:
        """End it soon; what was answered is kept."""
        self.spent.cancelled.set()

    def interrupt(self) -> None:
        """End what DuckDB does at the moment, which may take long."""
        with self._closing:
            if self._con is not None:
                self._con.interrupt()

    def work(self) -> dict[str, Any]:
        """The result as JSON values. Blocks. Raises AnswersInUse where another process has the
        answers, and what ends a query without a result."""
        try:
            return self._work()
        except InputError as error:
            raise _told(self.tables, error) from None

    def _work(self) -> dict[str, Any]:
        tables, tenant = self.tables, self.asker.tenant
        sources = used(self.query, tables.open_to(tenant))
        workspace = Workspace(sources, in_file=False)  # what it spills is bounded
        with self._closing:
            self._con = workspace.con
        try:
            plan = plan_text(workspace.con, self.query, list(sources))
            tables.confine(workspace, tenant)
            self._tell_plan(plan)
            done = run_plan(workspace, plan, self._options(), self.spent)
            self._count(done)
            return self._result(done)
        finally:
            with self._closing:
                self._con = None
                workspace.close()

    def _options(self) -> RunOptions:
        kept, tenant = self.tables.answers, self.asker.tenant
        return RunOptions(
            runtime=self.runtime,
            answers=kept.place(tenant),
            limits=self.spent.limits,
            tenant=tenant,
            answers_of=kept.owner(tenant),
            progress=self._progress,
            spool=FirstRows(self.tell),
            since=self.asker.since,
        )

    def _count(self, done: Done) -> None:
        """Note what the query took."""
        report = done.report
        costs = [(self._cost(stage), stage.asked) for stage in self._stages.values()]
        self.took = CallCounts(
            report["prompt_tokens"],
            report["cached_tokens"],
            report["completion_tokens"],
            report["asked"],
            unpriced=sum(asked for cost, asked in costs if cost is None),
            cost=sum(cost for cost, _ in costs if cost is not None),
        )

    def _cost(self, stage: CallStage) -> float | None:
        """What a call has taken, by its model's price; None: the model has none."""
        price = self.runtime.price_of(stage.model)
        if price is None:
            return None
        return price.cost(stage.prompt_tokens, stage.completion_tokens, stage.cached_tokens)

    def _result(self, done: Done) -> dict[str, Any]:
        reason = self.tables.told(done.reason)
        if done.state not in ("ok", "partial"):
            kinds: dict[str, type[TeolaError]] = {
                "cancelled": QueryCancelled,
                "deadline": DeadlineExceeded,
            }
            if isinstance(done.cause, (duckdb.DataError, duckdb.ProgrammingError)):
                raise InputError(reason)  # such as a CAST that a value does not stand
            raise kinds.get(done.state, QueryFailed)(reason) from _ours(done.cause)
        self.spent.limits.check_rows(done.row_count)
        whole = with_rows(done.report, ())
        whole["rows"] = self._rows(done)
        return {**whole, "reason": reason} if reason else whole

    def _rows(self, done: Done) -> list[list[Any]]:
        """All rows, as JSON values. Raises InputError where they are too large."""
        rows: list[list[Any]] = []
        size, most = 0, self.tables.limits.bytes
        for batch in done.fetched(FETCHED):
            listed = [[plain(value) for value in row] for row in batch]
            size += len(json.dumps(listed, ensure_ascii=False).encode("utf-8", "replace"))
            if size > most:
                raise InputError(
                    f"the result is larger than the {most:,} bytes of JSON that are given at once: "
                    "select fewer columns, or add a LIMIT; what was answered is kept, and not "
                    "asked again"
                )
            rows += listed
        return rows

    # --- how it goes on ------------------------------------------------------------------------

    def _tell_plan(self, plan: TablePlan) -> None:
        rewrites = [
            {"rule": one.rule, "what": one.what, "reason": one.reason} for one in plan.rewrites
        ]
        calls = [
            {"instruction": ask.call.prompt, "model": ask.call.model or "llm"}
            for ask in plan.asks()
        ]
        columns = [{"name": one.name, "type": one.type} for one in plan.columns]
        self.tell("plan", {"columns": columns, "calls": calls, "rewrites": rewrites})

    def _progress(self, stage: CallStage, todo: int, ended: int, failed: int) -> None:
        now = time.monotonic()
        self._stages[id(stage)] = stage
        between = 0 < ended < todo
        if between and now < self._due.get(stage.operator, 0.0):
            return
        self._due[stage.operator] = now + EVERY_S
        told = {
            "operator": stage.operator,
            "instruction": stage.instruction[:SHOWN],
            "rows": stage.rows,
            "distinct": stage.distinct,
            "answered_before": stage.answered_before,
            "to_ask": todo,
            "ended": ended,
            "failed": failed,
            "prompt_tokens": stage.prompt_tokens,
            "cached_tokens": stage.cached_tokens,
            "completion_tokens": stage.completion_tokens,
            "cost": self._cost(stage),
        }
        self.tell("progress", told)


class FirstRows:
    """A RowSink: tells the first rows that come, a few of them."""

    def __init__(self, tell: TellEvent) -> None:
        self._tell, self._left = tell, FIRST

    def write(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """See RowSink."""
        if not self._left:
            return
        rows = con.execute(f"SELECT * FROM ({sql}) LIMIT {self._left}").fetchall()
        if rows:
            self._left -= len(rows)
            self._tell("rows", {"rows": [[_shown(value) for value in row] for row in rows]})


def _shown(value: Any) -> Any:
    """A value as JSON has it, cut where it is long."""
    found = plain(value)
    if isinstance(found, (list, dict)):
        text = json.dumps(found, ensure_ascii=False)
        return found if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    if isinstance(found, str) and len(found) > SHOWN:
        return f"{found[:SHOWN]}…"
    return found


def _told(tables: RegisteredTables, error: InputError) -> InputError:
    """The error, without the places of tables."""
    text = str(error)
    told = tables.told(text)
    if told == text:
        return error
    return InputError(told)


def _ours(cause: Exception | None) -> Exception | None:
    return cause if isinstance(cause, TeolaError) else None
