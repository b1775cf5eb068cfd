"""`teola sql`: a query over tables, with calls of a language model in it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from teola.tables.done import Done
    from teola.tables.table_estimates import QueryEstimate
    from teola.tables.table_query import TableQuery

TABLES: Final = "The tables"
EXAMPLES = o.examples(
    "teola sql \"SELECT id, LLM('Tone?', text, choices := ['good', 'bad']) AS tone FROM r\" "
    "--table r=reviews.csv --llm http://localhost:8000/v1",
    "teola sql --file query.sql --table r=reviews.parquet --explain",
    "teola sql --file query.sql --table r=reviews.parquet --llm URL --out tones.parquet",
)


def sql(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", show_default=False, help="The query.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="NAME=FILE",
            show_default=False,
            rich_help_panel=TABLES,
            help="A table: a .parquet, .csv, .tsv or .jsonl file, or FILE::TABLE of a .duckdb or "
            "SQLite file, or postgresql://.../db::TABLE. May be repeated.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="QUERY.sql", show_default=False, help="Read the query from a file."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="Write the rows to a .parquet, .csv or .jsonl file.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            metavar="",
            rich_help_panel=o.OUTPUT,
            help="Show the stages, the rewrites, and what it would take. Nothing is asked.",
        ),
    ] = False,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            metavar="",
            rich_help_panel=o.OUTPUT,
            help="Run it, and show what it took beside the estimate.",
        ),
    ] = False,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|off",
            show_default=False,
            rich_help_panel=TABLES,
            help="The file that answers are kept in, by default answers.duckdb in the data folder; "
            "[bold]off[/bold] keeps none.",
        ),
    ] = None,
    on_error: Annotated[
        str,
        typer.Option(
            metavar="null|fail",
            rich_help_panel=o.BOUNDS,
            help="What a row's error is: no value, or the end of the query.",
        ),
    ] = "null",
    max_errors: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            show_default=False,
            rich_help_panel=o.BOUNDS,
            help="Rows with errors that it may have: a number, or a share below 1; by default 1 %, "
            "at least 10.",
        ),
    ] = None,
    most_calls: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default=False, rich_help_panel=o.BOUNDS, help="Prompts that are sent."
        ),
    ] = None,
    most_tokens: o.MostTokens = None,
    most_cost: o.MostCost = None,
    price: o.PriceOption = None,
    deadline: o.DeadlineOrNone = None,
    passes: o.PassesOption = None,
    batch_aware: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="The engine computes N prompts together and shares nothing among them: rows that "
            "begin alike are dealt to different batches.",
        ),
    ] = None,
    llm: o.Llm = None,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Run a SQL query over tables, in which LLM('instruction', column, ...) asks a language model.

    Each distinct prompt is asked once, and its answer is kept: the same query again, or one that
    was killed, asks for what is new. See docs/sql-reference.md.
    """
    from teola.extras import needs

    with needs("tables", "teola sql"):
        from teola import tables

    text = _query(query, file)
    given: dict[str, Any] = {
        "answers": False if answers == "off" else answers,
        "on_error": on_error,
        "max_errors": max_errors,
        "most_calls": most_calls,
        "most_tokens": most_tokens,
        "most_cost": most_cost,
        "price": price,
        "deadline_s": deadline,
        "passes": passes,
        "batch_aware": batch_aware,
    }
    named = _tables(table or [])
    # Where collections are is said as `teola index` says it; RETRIEVE searches there.
    places = (embedding, dimensions, dsn, data_dir)
    asked: dict[str, Any] = {"llm": llm[0] if llm and len(llm) == 1 else llm}
    made = tables.sql(text, named, **given)
    estimate = made.explain(**asked) if explain or analyze else None
    if estimate is not None and not analyze:
        _explain(estimate, as_json)
        return 0
    with ExitStack() as stack:
        if any(one is not None for one in places):
            from teola.cli.given import Engines

            engines = Engines(llm, dsn, data_dir, embedding=embedding, dimensions=dimensions)
            asked = {"runtime": stack.enter_context(engines.runtime())}
        done = _run(made, out, as_json, asked)
    return _ended(done, out, answers, estimate, as_json=as_json)


def _explain(estimate: QueryEstimate, as_json: bool) -> None:
    from teola.cli.showing import print_json

    if as_json:
        print_json(estimate.to_json())
    else:
        print(estimate)


def _ended(
    done: Done,
    out: Path | None,
    answers: str | None,
    estimate: QueryEstimate | None,
    *,
    as_json: bool,
) -> int:
    """Show what came of a query. The exit code."""
    from teola.cli.showing import print_json

    if as_json:
        more = {"explain": estimate.to_json()} if estimate is not None else {}
        print_json({**_json(done, out), **more})
    else:
        if estimate is not None:
            print(estimate)
        _show(done, out)
    for one in done.notes:
        print(f"teola: {one}", file=sys.stderr)
    if done.reason:
        print(f"teola: {done.state}: {done.reason}", file=sys.stderr)
    if done.state in ("ok", "partial") and not (done.state == "partial" and done.reason):
        return 0
    if answers != "off":
        print("teola: answers are kept; the same command goes on from there", file=sys.stderr)
    return 1


def _query(query: str | None, file: Path | None) -> str:
    from teola.errors import InputError

    if (query is None) == (file is None):
        raise InputError("give the query, or --file QUERY.sql")
    if query is not None:
        return query
    assert file is not None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--file {file} cannot be read: {error}") from None


def _tables(typed: list[str]) -> dict[str, str]:
    from teola.errors import InputError

    found: dict[str, str] = {}
    for one in typed:
        name, equals, where = one.partition("=")
        if not equals or not name.strip() or not where.strip():
            raise InputError(f"--table {one!r} must be NAME=FILE, such as r=reviews.csv")
        if name.lower() in (known.lower() for known in found):
            raise InputError(f"--table {name!r} was given twice: give each table its own name")
        found[name] = where
    return found


def _run(made: TableQuery, out: Path | None, as_json: bool, asked: dict[str, Any]) -> Done:
    """Run the query, with a bar at a terminal. asked: who is."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from teola.cli.showing import console
    from teola.tables.call_stage import CallStage

    if as_json or not sys.stderr.isatty():
        done: Done = made.run(check=False, out=out, **asked)
        return done
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    _ = console
    with Progress(*columns, transient=True) as bar:
        tasks: dict[int, Any] = {}

        def progress(stage: CallStage, total: int, ended: int, failed: int) -> None:
            if id(stage) not in tasks:
                tasks[id(stage)] = bar.add_task(stage.instruction[:40], total=total, told="")
            hits = stage.cached_tokens / stage.prompt_tokens if stage.prompt_tokens else 0.0
            bar.update(
                tasks[id(stage)], completed=ended, told=f"{hits:.0%} cached, {failed} errors"
            )

        shown: Done = made.run(check=False, out=out, progress=progress, **asked)
    return shown


def _json(done: Done, out: Path | None) -> dict[str, Any]:
    report = dict(done.report)
    if out is not None:
        return report
    rows = [[plain(value) for value in row] for row in done.rows]
    return {"columns": report.pop("columns"), "rows": rows, **report}


def plain(value: Any) -> Any:
    """A value of a row as JSON has it: what JSON has no type for is its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _show(done: Done, out: Path | None) -> None:
    from teola.cli.showing import console, show_table

    if out is None:
        shown = [["" if value is None else str(value) for value in row] for row in done.rows]
        show_table([one.name for one in done.columns], shown)
    report = done.report
    where = f" in {out}" if out is not None else ""
    console().print(
        f"{report['row_count']:,} rows{where}, {report['state']}: {report['asked']:,} asked, "
        f"{report['answered_before']:,} answered before, {report['failed']:,} failed, "
        f"{report['unmatched']:,} unmatched; {report['prompt_tokens']:,} prompt tokens "
        f"({report['cached_tokens']:,} cached), {report['seconds']:.1f} s",
        style="dim",
    )
