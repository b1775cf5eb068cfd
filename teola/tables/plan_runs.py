"""Running a query: where its answers are kept, who is asked, and how it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import duckdb

from teola.errors import InputError, UnknownName, reason_of
from teola.price import FREE
from teola.runtime.rows import RowPriority
from teola.runtime.runtime import Runtime
from teola.tables.answer_table import LEASE_S, AnswersLost
from teola.tables.answers_place import AnswersPlace, answers_place, opened_answers
from teola.tables.done import Done
from teola.tables.duckdb_schema import quoted, said
from teola.tables.executor import Executor
from teola.tables.group_asking import prompted
from teola.tables.model_identity import ModelIdentity, identity_of, opened_runtime
from teola.tables.model_windows import ModelWindows
from teola.tables.plan_builder import PASSES
from teola.tables.plan_steps import TablePlan
from teola.tables.question_run import AskProgress, AskRows
from teola.tables.report import report_of
from teola.tables.result_stream import ResultStream, RowSink
from teola.tables.retrieval import Retriever, SearchTexts, search_of
from teola.tables.row_asking import CallAsker, asks_nothing
from teola.tables.run_limits import RunLimits, Spent, Stopped
from teola.tables.workspace import Workspace
from teola.tables.written_files import PartFolder, checked_out, write_result

if TYPE_CHECKING:
    from teola.runtime.hosts.ray_rows import RayRows

RowPlace = Literal["here", "ray"]
"""Where rows are asked: by an engine of this process, or on workers of a Ray cluster."""
RESULT: Final = "teola_result"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunOptions:
    """How a query is run; see `TableQuery.run`."""

    llm: Any = None
    runtime: Runtime | None = None
    answers: AnswersPlace = None
    answers_lease_s: float = LEASE_S
    """How long keys that it has claimed in a database stay claimed once it is dead."""
    on: RowPlace = "here"
    ray: str | None = None
    """Address of the Ray cluster; None: this machine."""
    workers: int = 2
    """Workers of the Ray cluster."""
    out: str | Path | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    passes: frozenset[str] = frozenset(PASSES)
    tenant: str = ""
    answers_of: str | None = None
    """The owner of the answers; None: the tenant."""
    priority: RowPriority = "rows"
    progress: AskProgress | None = None
    batch_aware: int | None = None
    ask_rows: AskRows | None = None
    """In place of a runtime's."""
    search: SearchTexts | None = None
    """In place of a runtime's."""
    spool: RowSink | None = None
    """Gets rows of the result while others are asked."""
    since: datetime | None = None
    """When an earlier run of the query began (UTC), which was interrupted: what its calls took from
    then on counts against the limits."""

    def __post_init__(self) -> None:
        places = self.batch_aware
        if places is not None and (type(places) is not int or places < 2):
            raise InputError(
                f"batch_aware is the number of prompts that the engine computes together, at least "
                f"2, not {places!r}"
            )


def run_plan(
    workspace: Workspace, plan: TablePlan, options: RunOptions, cancel: Spent | None = None
) -> Done:
    """Run a plan on the workspace that it was made on. The result keeps the workspace open.

    Raises InputError before anything is asked where something is missing or wrong.
    """
    spent = cancel or Spent(options.limits)
    out = checked_out(options.out) if options.out is not None else None
    notes: list[str] = []
    with (
        _asking(workspace, plan, options, spent, notes) as asker,
        _parts(out) as parts,
    ):
        sinks: list[RowSink] = [sink for sink in (parts, options.spool) if sink is not None]
        stream = ResultStream(workspace.con, plan, sinks) if sinks else None
        if asker is not None:
            asker.stream = stream
        stopped, final = _run(workspace, plan, asker)
        stages = asker.stages if asker is not None else []
        con, count = workspace.con, 0
        file: Path | None = None
        if out is None:
            try:
                con.execute(f"CREATE OR REPLACE TABLE {RESULT} AS {final or no_rows(plan)}")
            except duckdb.Error as error:  # such as a CAST that an answer does not stand
                stopped = stopped or _failed(error)
                con.execute(f"CREATE OR REPLACE TABLE {RESULT} AS {no_rows(plan)}")
            ((count,),) = con.execute(f"SELECT count(*) FROM {RESULT}").fetchall()
        elif final is not None:
            # Under its own name stands a result only if it is whole.
            file = out if stopped is None else out.with_stem(f"{out.stem}.partial")
            count = write_result(con, final, file)
        if stream is not None and options.spool is not None:
            stream.sinks = [options.spool]
            stream.rest(f"FROM {RESULT}" if out is None else final)
        if asker is not None and stopped is not None:
            asker.closed = True
    columns = plan.columns
    state = "ok"
    if stopped is not None:
        state = stopped.state
    elif any(stage.failed for stage in stages):
        state = "partial"
    notes += [note for stage in stages if (note := stage.note())]
    report = report_of(
        columns, stages, row_count=count, state=state, seconds=time.monotonic() - spent.began
    )
    return Done(
        workspace,
        None if out is not None else f"SELECT * FROM {RESULT}",
        columns,
        report,
        stopped.reason if stopped is not None else "",
        stopped.cause if stopped is not None else None,
        tuple(notes),
        file,
    )


@contextmanager
def _parts(out: Path | None) -> Iterator[PartFolder | None]:
    """The folder that holds parts of an output file until it is complete."""
    parts = PartFolder(out) if out is not None else None
    try:
        yield parts
    finally:
        if parts is not None:
            parts.close()


def _ended_by(error: BaseException) -> Stopped | None:
    """The state of a query that was interrupted by this error; None: it is no interruption."""
    if isinstance(error, Stopped):
        return error
    # DuckDB's own words where Ctrl-C finds it at work.
    if isinstance(error, KeyboardInterrupt) or "Query interrupted" in str(error):
        return Stopped("cancelled", "the query was cancelled")
    if isinstance(error, AnswersLost):
        return Stopped("failed", reason_of(error), error)
    # A source that breaks off, a full disk.
    return _failed(error) if isinstance(error, duckdb.Error) else None


def _failed(error: Exception) -> Stopped:
    return Stopped("failed", said(error), error)


def no_rows(plan: TablePlan) -> str:
    """A query with the columns of a plan, and without rows."""
    if not plan.columns:
        return "SELECT 1"
    empty = ", ".join(f"CAST(NULL AS {column.type})" for column in plan.columns)
    names = ", ".join(quoted(column.name) for column in plan.columns)
    return f"SELECT * FROM (SELECT {empty}) AS x({names}) LIMIT 0"


def _run(
    workspace: Workspace, plan: TablePlan, asker: CallAsker | None
) -> tuple[Stopped | None, str | None]:
    """Run the steps. Returns what stopped it early, if anything did, and the query for the result's
    rows."""
    if asker is None:
        return None, plan.final
    executor = Executor(workspace.con, asker, plan.steps[-1] if plan.streams else None)
    left = list(plan.steps)
    stopped: Stopped | None = None
    try:
        while left:
            asker.spent.check()
            executor.step(left[0])
            del left[0]
    except (duckdb.Error, RuntimeError, KeyboardInterrupt, Stopped) as error:
        stopped = _ended_by(error)
        if stopped is None:
            raise
        if not plan.rowwise or stopped.cause is error:
            return stopped, None
        # Rows whose answers are known are right; the others go.
        asker.closed = True
        try:
            for step in left:
                executor.step(step)
        except Exception as error:  # noqa: BLE001 - the query has ended; its rows are a bonus
            stopped.add_note(reason_of(error))
            return stopped, None
    return stopped, plan.final


@contextmanager
def _asking(
    workspace: Workspace, plan: TablePlan, options: RunOptions, spent: Spent, notes: list[str]
) -> Iterator[CallAsker | None]:
    """The asker of the plan's calls; None where it has none. notes: gets what its user has to
    know."""
    calls = [call for ask in plan.asks() for call in prompted(ask.call)]
    retrievals = [retrieval.call for retrieval in plan.retrievals()]
    if not calls and not retrievals:
        yield None
        return
    needed = options.ask_rows is None and bool(calls)
    searched = options.search is None and bool(retrievals)
    check_place(options)
    with (
        opened_runtime(options.llm, options.runtime, needed, searched) as runtime,
        ExitStack() as places,
    ):
        identities: dict[str | None, ModelIdentity] = {}
        for call in calls:
            if call.model not in identities:
                identities[call.model] = identity_of(runtime, call.model)
        ask_rows = options.ask_rows
        if ask_rows is None and calls:
            assert runtime is not None
            ask_rows = _asked_of(places.enter_context(_place(runtime, options)), options)
        retriever = None
        if retrievals:
            search = options.search
            if search is None:
                assert runtime is not None
                search = search_of(runtime, options.tenant)
            retriever = Retriever(workspace.con, search, spent)
            retriever.check(retrievals)
        windows = None
        if calls and runtime is not None and options.ask_rows is None:
            windows = ModelWindows(runtime, calls, spent)
        place = answers_place(options.answers) if calls else None
        if windows is not None and isinstance(place, Path) and not place.exists():
            windows.of(calls[0])  # an instruction without room leaves no file
        answers = opened_answers(
            workspace.con, place, lease_s=options.answers_lease_s, check=spent.check
        )
        try:
            if answers.kept:
                for identity in identities.values():
                    if (
                        identity.doubt
                        and not answers.knows(identity.name)
                        and identity.doubt not in notes
                    ):
                        notes.append(identity.doubt)
                        log.warning(identity.doubt)
            query = query_digest(plan)
            asker = CallAsker(
                workspace.con,
                answers,
                ask_rows or asks_nothing,
                spent,
                options.passes,
                lambda call: identities[call.model].name,
                options.progress,
                options.tenant if options.answers_of is None else options.answers_of,
                f"{query}:{answers.samples_of(query)}",
            )
            if options.since is not None and runtime is not None:
                for operator, call in {asker.operator(call).digest: call for call in calls}.items():
                    price = runtime.price_of(call.model or "llm") or FREE
                    spent.took_before(*answers.took([operator], options.since), price)
            asker.retriever = retriever
            asker.warms = options.on == "here"
            asker.batch_aware = options.batch_aware or 0
            if windows is not None:
                asker.window_of = windows.of
            yield asker
            sampled = any(call.temperature > 0 and not call.shared for call in calls)
            if sampled and not asker.unanswered:
                answers.sampled(query)
        finally:
            answers.close()


def query_digest(plan: TablePlan) -> str:
    """Digest of a query, by which an interrupted run finds its samples again."""
    return sha256(repr(plan).encode()).hexdigest()[:16]


def check_place(options: RunOptions) -> None:
    """Check the options about where rows are asked. Raises InputError, UnknownName."""
    if options.on not in (places := get_args(RowPlace)):
        raise UnknownName("on", str(options.on), places)
    if options.on == "here":
        return
    if options.limits.most_tokens is not None or options.limits.most_cost is not None:
        raise InputError(
            "workers of on='ray' cannot share a budget of tokens or money: give most_calls in "
            "place of most_tokens and most_cost"
        )


@contextmanager
def _place(runtime: Runtime, options: RunOptions) -> Iterator[Runtime | RayRows]:
    """Where rows are asked. On Ray, the runtime's own engine only tells its window."""
    if options.on == "here":
        yield runtime
        return
    from teola.runtime.hosts.ray_rows import RayRows

    with closing(RayRows(runtime.configs, options.workers, options.ray)) as rows:
        yield rows


def _asked_of(place: Runtime | RayRows, options: RunOptions) -> AskRows:
    return partial(place.ask_rows, tenant=options.tenant, app="tables", priority=options.priority)
