"""Running a query: where its answers are kept, who is asked, and how it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import duckdb

from teola.data_folder import named_folder, xdg_folder
from teola.errors import InputError, reason_of
from teola.runtime.rows import RowPriority
from teola.runtime.runtime import Runtime
from teola.tables.answer_table import FILE, AnswerTable
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
from teola.tables.result_stream import ResultStream, RowSpool
from teola.tables.retrieval import Retriever, SearchTexts, search_of
from teola.tables.row_asking import CallAsker, asks_nothing
from teola.tables.run_limits import RunLimits, Spent, Stopped
from teola.tables.workspace import Workspace
from teola.tables.written_files import PartFolder, checked_out, write_result

AnswersPlace = str | Path | Literal[False] | None
"""Where answers are kept: a file; None: `answers.duckdb` in the data folder; False: nowhere."""
RESULT: Final = "teola_result"
OFF: Final = "off"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunOptions:
    """How a query is run; see `TableQuery.run`."""

    llm: Any = None
    runtime: Runtime | None = None
    answers: AnswersPlace = None
    out: str | Path | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    passes: frozenset[str] = frozenset(PASSES)
    tenant: str = ""
    priority: RowPriority = "rows"
    progress: AskProgress | None = None
    batch_aware: int | None = None
    ask_rows: AskRows | None = None
    """In place of a runtime's."""
    search: SearchTexts | None = None
    """In place of a runtime's."""
    spool: RowSpool | None = None
    """Where rows come while others are asked."""

    def __post_init__(self) -> None:
        places = self.batch_aware
        if places is not None and (type(places) is not int or places < 2):
            raise InputError(
                f"batch_aware is the number of prompts that the engine computes together, at least "
                f"2, not {places!r}"
            )


def answers_path(given: AnswersPlace) -> Path | None:
    """The file that answers are kept in; None: none."""
    if given is False or given == OFF:
        return None
    if given is None:
        import platformdirs

        return (named_folder() or xdg_folder() or platformdirs.user_data_path("teola")) / FILE
    return Path(given).expanduser()


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
        sinks = [one for one in (parts, options.spool) if one is not None]
        stream = ResultStream(workspace.con, plan, sinks) if sinks else None
        if asker is not None:
            asker.stream = stream
        stopped, final = _run(workspace, plan, asker)
        stages = asker.stages if asker is not None else []
        con, count = workspace.con, 0
        if out is None:
            try:
                con.execute(f"CREATE OR REPLACE TABLE {RESULT} AS {final or no_rows(plan)}")
            except duckdb.Error as error:  # such as a CAST that an answer does not stand
                stopped = stopped or _failed(error)
                con.execute(f"CREATE OR REPLACE TABLE {RESULT} AS {no_rows(plan)}")
            ((count,),) = con.execute(f"SELECT count(*) FROM {RESULT}").fetchall()
        elif final is not None:
            # Under its own name stands a result only if it is whole.
            path = out if stopped is None else out.with_stem(f"{out.stem}.partial")
            count = write_result(con, final, path)
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
    )


@contextmanager
def _parts(out: Path | None) -> Iterator[PartFolder | None]:
    """Where the rows of a file stand until it is whole."""
    parts = PartFolder(out) if out is not None else None
    try:
        yield parts
    finally:
        if parts is not None:
            parts.close()


def _ended_by(error: BaseException) -> Stopped | None:
    """How a query ends that this has interrupted; None: it does not say."""
    if isinstance(error, Stopped):
        return error
    # DuckDB's own words where Ctrl-C finds it at work.
    if isinstance(error, KeyboardInterrupt) or "Query interrupted" in str(error):
        return Stopped("cancelled", "the query was cancelled")
    # A source that breaks off, a full disk.
    return _failed(error) if isinstance(error, duckdb.Error) else None


def _failed(error: Exception) -> Stopped:
    return Stopped("failed", said(error), error)


def no_rows(plan: TablePlan) -> str:
    """A query that gives the columns of a plan, and no row."""
    if not plan.columns:
        return "SELECT 1"
    empty = ", ".join(f"CAST(NULL AS {one.type})" for one in plan.columns)
    names = ", ".join(quoted(one.name) for one in plan.columns)
    return f"SELECT * FROM (SELECT {empty}) AS x({names}) LIMIT 0"


def _run(
    workspace: Workspace, plan: TablePlan, asker: CallAsker | None
) -> tuple[Stopped | None, str | None]:
    """Run the steps. What ended it before, and the query for its rows, if it has some."""
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
    """What asks the plan's calls; None where it has none. notes: what its user has to know."""
    calls = [call for ask in plan.asks() for call in prompted(ask.call)]
    retrievals = [one.call for one in plan.retrievals()]
    if not calls and not retrievals:
        yield None
        return
    needed = options.ask_rows is None and bool(calls)
    searched = options.search is None and bool(retrievals)
    with opened_runtime(options.llm, options.runtime, needed, searched) as runtime:
        identities: dict[str | None, ModelIdentity] = {}
        for call in calls:
            if call.model not in identities:
                identities[call.model] = identity_of(runtime, call.model)
        ask_rows = options.ask_rows
        if ask_rows is None and calls:
            assert runtime is not None
            ask_rows = _of_runtime(runtime, options)
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
        path = answers_path(options.answers) if calls else None
        if windows is not None and path is not None and not path.exists():
            windows.of(calls[0])  # an instruction without room leaves no file
        answers = AnswerTable(workspace.con, path)
        try:
            if answers.path is not None:
                for one in identities.values():
                    if one.doubt and not answers.knows(one.name) and one.doubt not in notes:
                        notes.append(one.doubt)
                        log.warning(one.doubt)
            query = digest_of(plan)
            asker = CallAsker(
                workspace.con,
                answers,
                ask_rows or asks_nothing,
                spent,
                options.passes,
                lambda call: identities[call.model].name,
                options.progress,
                options.tenant,
                f"{query}:{answers.samples_of(query)}",
            )
            asker.retriever = retriever
            asker.batch_aware = options.batch_aware or 0
            if windows is not None:
                asker.window_of = windows.of
            yield asker
            sampled = any(call.temperature > 0 and not call.shared for call in calls)
            if sampled and not asker.unanswered:
                answers.sampled(query)
        finally:
            answers.close()


def digest_of(plan: TablePlan) -> str:
    """Of a query, so that its samples are found again when it was interrupted."""
    return sha256(repr(plan).encode()).hexdigest()[:16]


def _of_runtime(runtime: Runtime, options: RunOptions) -> AskRows:
    return partial(runtime.ask_rows, tenant=options.tenant, app="tables", priority=options.priority)
