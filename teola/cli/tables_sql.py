"""`teola sql`: a query over tables, with calls of a language model in it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from teola.cli import options as o
from teola.cli.visible import visible

if TYPE_CHECKING:
    from teola.cli.given import Engines
    from teola.runtime.runtime import Runtime
    from teola.tables.done import Done
    from teola.tables.table_estimates import QueryEstimate
    from teola.tables.table_query import TableQuery

TABLES: Final = "The tables"
ERRORS: Final = 3
"""Of rows, that are told."""
EXAMPLE: Final = 100
"""Characters of a row with an error."""
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
        typer.Option(
            metavar="QUERY.sql",
            show_default=False,
            rich_help_panel=TABLES,
            help="Read the query from a file.",
        ),
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
            metavar="PATH|DSN|off",
            callback=o.answers_without_password,
            show_default=False,
            rich_help_panel=TABLES,
            help="Where answers are kept: a file, by default answers.duckdb in the data folder; or "
            "postgresql://..., which several processes share; [bold]off[/bold] keeps none.",
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
    passes: Annotated[
        str | None,
        typer.Option(
            metavar="all|none|A,B",
            show_default=False,
            rich_help_panel=o.OPTIMISER,
            help="Which rewrites may be made; by default all of them.",
        ),
    ] = None,
    batch_aware: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="The engine computes N prompts together and shares nothing among them: rows that "
            "begin alike are dealt to different batches.",
        ),
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL|PATH",
            show_default=False,
            rich_help_panel=o.ENGINES,
            help="Who is asked: an OpenAI-compatible server, such as http://localhost:8000/v1, or "
            "the folder of a Hugging Face model, which then runs in this process. Several servers "
            "of one model: give the option once for each.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            rich_help_panel=o.ENGINES,
            help="A configuration file: its engines are asked, with their models and keys "
            "(`teola config init` writes one). Options here change what it says.",
        ),
    ] = None,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    ray: o.RowsOnRay = None,
    workers: o.Workers = 2,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Run a SQL query over tables, in which LLM('instruction', column, ...) asks a language model.

    Each distinct prompt is asked once, and its answer is kept.

    The same query again, or one that was killed, asks for what is new. See docs/tables.md.
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
    asked: dict[str, Any] = {"llm": llm[0] if llm and len(llm) == 1 else llm}
    made = tables.sql(text, named, **given)
    if ray is not None:
        asked |= {"on": "ray", "ray": None if ray == "local" else ray, "workers": workers}
    with ExitStack() as stack:
        # Where collections are is said as `teola index` says it; RETRIEVE searches there.
        if config or any(one is not None for one in (embedding, dimensions, dsn, data_dir)):
            from teola.cli.given import Engines

            engines = Engines(llm, dsn, data_dir, embedding=embedding, dimensions=dimensions)
            del asked["llm"]
            asked["runtime"] = stack.enter_context(_runtime(engines, config))
        estimate = made.explain(**asked) if explain or analyze else None
        if estimate is not None and not analyze:
            _explain(estimate, as_json)
            return 0
        done = _run(made, out, as_json, asked)
    return _ended(done, out, estimate, price, keeps=answers != "off", as_json=as_json)


def _runtime(engines: Engines, config: Path | None) -> Runtime:
    """The engines of a configuration, or the usual ones, with the options put over them."""
    from teola.config import read

    return engines.runtime() if config is None else engines.configured(read(config), [])


def _explain(estimate: QueryEstimate, as_json: bool) -> None:
    from teola.cli.showing import console, print_json

    if as_json:
        print_json(estimate.to_json())
        return
    out = console()
    out.print(estimate.text(out.width if out.is_terminal else None), soft_wrap=True)


def _ended(
    done: Done,
    out: Path | None,
    estimate: QueryEstimate | None,
    price: str | None,
    *,
    keeps: bool,
    as_json: bool,
) -> int:
    """Show what came of a query. The exit code."""
    from teola.cli.showing import print_json

    if as_json:
        more = {"explain": estimate.to_json()} if estimate is not None else {}
        print_json({**_json(done, out), **more})
    else:
        if estimate is not None:
            _explain(estimate, as_json)
        _show(done, out, price)
    if done.report["asked"] or done.report["answered_before"]:
        _say(done.notes)
    if not as_json:
        _say(_errors(done.report["errors"]))
    whole = done.state == "ok" or (done.state == "partial" and not done.reason)
    if whole:
        return 0
    _say([f"{done.state}: {done.reason}"])
    report = done.report
    if keeps and report["asked"] + report["answered_before"] > report["failed"]:
        _say(["answers are kept; the same command goes on from there"])
    return 1


def _errors(errors: list[dict[str, Any]]) -> list[str]:
    """What is said of rows with errors."""
    told = []
    for one in errors[:ERRORS]:
        rows = "1 row has" if one["rows"] == 1 else f"{one['rows']:,} rows have"
        such = textwrap.shorten(one["example"], EXAMPLE, placeholder=" ...")
        told.append(f"{rows} an error: {one['error']}" + (f" (such as {such})" if such else ""))
    if len(errors) > ERRORS:
        told.append(f"and {len(errors) - ERRORS:,} other errors: --json lists them")
    return told


def _say(lines: Iterable[str]) -> None:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    for line in lines:
        told = visible(f"teola: {line}")
        if width is not None:
            told = textwrap.fill(told, width, subsequent_indent="  ", break_on_hyphens=False)
        print(told, file=sys.stderr)


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
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from teola.tables.call_stage import CallStage

    if as_json or not sys.stderr.isatty():
        done: Done = made.run(check=False, out=out, **asked)
        return done
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[int, Any] = {}

        def progress(stage: CallStage, total: int, ended: int, failed: int) -> None:
            if id(stage) not in tasks:
                instruction = visible(stage.instruction[:22])
                tasks[id(stage)] = bar.add_task(instruction, total=total, told="")
            hits = stage.cached_tokens / stage.prompt_tokens if stage.prompt_tokens else 0.0
            bar.update(
                tasks[id(stage)], completed=ended, told=f"{hits:.0%} cached, {failed} errors"
            )

        shown: Done = made.run(check=False, out=out, progress=progress, **asked)
    return shown


def _json(done: Done, out: Path | None) -> dict[str, Any]:
    return dict(done.report) if out is not None else done.to_json()


def _show(done: Done, out: Path | None, price: str | None) -> None:
    from teola.cli.showing import console, show_table, shown_value
    from teola.price import Price
    from teola.tables.report import summary_of

    report = done.report
    if out is None and (done.row_count or not done.reason):
        shown = [[shown_value(value) for value in row] for row in done.rows]
        show_table([one.name for one in done.columns], shown)
    tokens = [report[f"{name}_tokens"] for name in ("prompt", "completion", "cached")]
    cost = Price.parse(price).cost(*tokens) if price is not None else None
    line = summary_of(report, f" in {done.file}" if done.file is not None else "", cost)
    console().print(line, style="dim")
