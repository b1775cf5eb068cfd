"""Running a query: where its answers are kept, who is asked, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from teola.data_folder import named_folder, xdg_folder
from teola.errors import InputError, reason_of
from teola.runtime.rows import RowPriority
from teola.runtime.runtime import Runtime
from teola.tables.answer_table import FILE, AnswerTable
from teola.tables.done import Done
from teola.tables.executor import Executor
from teola.tables.model_identity import identity_of, opened_runtime
from teola.tables.plan_builder import PASSES
from teola.tables.plan_steps import TablePlan
from teola.tables.report import report_of
from teola.tables.row_asking import AskRows, CallAsker, Stage
from teola.tables.run_limits import RunLimits, Spent, Stopped
from teola.tables.workspace import Workspace
from teola.tables.written_files import checked_out, write_result

AnswersPlace = str | Path | Literal[False] | None
"""Where answers are kept: a file; None: `answers.duckdb` in the data folder; False: nowhere."""
RESULT: Final = "teola_result"
OFF: Final = "off"


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
    progress: Callable[[Stage, int, int, int], None] | None = None
    ask_rows: AskRows | None = None
    """In place of a runtime's."""


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
    with _asking(workspace, plan, options, spent) as asker:
        stopped, final = _run(workspace, plan, asker)
        stages = asker.stages if asker is not None else []
    columns = plan.columns
    if final is None:
        empty = ", ".join(f"CAST(NULL AS {one.type})" for one in columns)
        names = ", ".join('"{}"'.format(one.name.replace('"', '""')) for one in columns)
        final = f"SELECT * FROM (SELECT {empty}) AS x({names}) LIMIT 0" if columns else "SELECT 1"
    con = workspace.con
    if out is not None:
        # Under its own name stands a result only if it is whole.
        whole = stopped is None
        count = 0
        if whole or plan.rowwise:
            path = out if whole else out.with_stem(f"{out.stem}.partial")
            count = write_result(con, final, path)
    else:
        con.execute(f"CREATE OR REPLACE TABLE {RESULT} AS {final}")
        ((count,),) = con.execute(f"SELECT count(*) FROM {RESULT}").fetchall()
        final = f"SELECT * FROM {RESULT}"
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
        None if out is not None else final,
        columns,
        report,
        stopped.reason if stopped is not None else "",
        stopped.cause if stopped is not None else None,
    )


def _run(
    workspace: Workspace, plan: TablePlan, asker: CallAsker | None
) -> tuple[Stopped | None, str | None]:
    """Run the steps. What ended it before, and the query for its rows, if it has some."""
    if asker is None:
        return None, plan.final
    executor = Executor(workspace.con, asker)
    left = list(plan.steps)
    stopped: Stopped | None = None
    try:
        while left:
            asker.spent.check()
            executor.step(left[0])
            del left[0]
    except Stopped as why:
        stopped = why
        if not plan.rowwise:
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
    workspace: Workspace, plan: TablePlan, options: RunOptions, spent: Spent
) -> Iterator[CallAsker | None]:
    """What asks the plan's calls; None where it has none."""
    calls = [ask.call for ask in plan.asks()]
    if not calls:
        yield None
        return
    with opened_runtime(options.llm, options.runtime, options.ask_rows is None) as runtime:
        identities: dict[str | None, str] = {}
        for call in calls:
            if call.model not in identities:
                identities[call.model] = identity_of(runtime, call.model)
        ask_rows = options.ask_rows
        if ask_rows is None:
            assert runtime is not None
            ask_rows = _of_runtime(runtime, options)
        answers = AnswerTable(workspace.con, answers_path(options.answers))
        try:
            yield CallAsker(
                workspace.con,
                answers,
                ask_rows,
                spent,
                options.passes,
                lambda call: identities[call.model],
                options.progress,
            )
        finally:
            answers.close()


def _of_runtime(runtime: Runtime, options: RunOptions) -> AskRows:
    def ask_rows(call: Any, rows: Any, on_answers: Any, *, deadline_s: float | None) -> Any:
        return runtime.ask_rows(
            call,
            rows,
            on_answers,
            tenant=options.tenant,
            app="tables",
            deadline_s=deadline_s,
            priority=options.priority,
        )

    return ask_rows


def price_of(given: str | Sequence[float] | None) -> tuple[float, ...] | None:
    """Three numbers from `IN,CACHED,OUT`. Raises InputError."""
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else list(given)
    try:
        found = tuple(float(one) for one in parts)
    except (TypeError, ValueError):
        found = ()
    if len(found) != 3:
        raise InputError(
            f"price {given!r} must be IN,CACHED,OUT: what 10^6 tokens of prompts, cached ones and "
            "answers cost, such as 2.5,0.25,10"
        )
    return found
