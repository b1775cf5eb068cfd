"""`teola run` and `teola explain`: one query of an application."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from collections.abc import Iterator

    from teola.cli.answer_line import AnswerLine
    from teola.cli.watching import Watch
    from teola.graph import ToolStep
    from teola.query.result import Result
    from teola.runtime.live.query import Progress, Token

RUN_EXAMPLES = o.examples(
    'teola run advanced-rag -i question="How tall is it?" -i documents=tower.pdf',
    'teola run naive-rag -i question="Who wrote it?" -i collection=papers --stream',
    'teola run advanced-rag -i question="Why?" -i documents=docs/ -s expand.n=4',
    'teola run search-agent -i question="Who keeps the lamp?" --web-search notes/',
    'teola run mine.py:app -i question="Why?" --llm http://localhost:8000/v1',
)
EXPLAIN_EXAMPLES = o.examples(
    "teola explain advanced-rag --profile paper-13b",
    "teola explain advanced-rag --learn learned/",
    "teola explain advanced-rag --format dot | dot -Tsvg > graph.svg",
    'teola explain naive-rag --analyze -i question="Why?" -i documents=notes.md',
)


WAITS: Final = 3
"""Exit code of a query that waits for people where nobody can be asked."""
NOBODY: Final = (
    "the query asks people, and there is no terminal to ask at, so it was given up: run it at one, "
    "or serve the application, and answer with `teola waiting` and `teola answer`"
)


class ExplanationForm(StrEnum):
    """Forms of an explanation."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


def run(
    app: o.AppName,
    inputs: o.Inputs = None,
    sets: o.Sets = None,
    deadline: o.Deadline = 120.0,
    finish_by: o.FinishBy = None,
    most_tokens: o.MostTokens = None,
    most_cost: o.MostCost = None,
    price: o.PriceOption = None,
    passes: o.PassesOption = None,
    profile: o.ProfileName = None,
    learn: o.Learn = None,
    batching: o.Batching = None,
    llm: o.Llm = None,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    web_search: o.WebSearchOption = None,
    ray: o.OnRay = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            metavar="",
            rich_help_panel=o.OUTPUT,
            help="Print the answer as it comes; with --json one event a line.",
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="Write where the time went, for ui.perfetto.dev.",
        ),
    ] = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Answer one query with an application.

    Prints the answer, its sources, and how long it took. What the query asks people is asked at the
    terminal; without one it ends with exit code 3.
    """
    from teola.catalogue import load_app
    from teola.cli.answer_line import AnswerLine
    from teola.cli.given import Engines, at_home, parse_inputs, parse_overrides
    from teola.cli.prompting import Prompter, at_a_terminal
    from teola.cli.tracing import TraceForm, drawn, write_text
    from teola.cli.watching import watching
    from teola.runtime.observe.recorded import Recorded

    chosen = load_app(app)
    values, overrides = parse_inputs(chosen, inputs or []), parse_overrides(sets or [])
    engines = Engines(
        llm=llm,
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        batching=batching,
        profile=profile,
        debug=debug,
        web_search=web_search,
        ray=ray,
        embedding=embedding,
        dimensions=dimensions,
        learn=learn,
        price=price,
    )
    line = AnswerLine()
    with at_home(chosen, engines) as runtime, watching() as watch:

        def before() -> None:
            watch.hide()
            line.end()

        events = chosen.stream(
            values,
            overrides=overrides,
            passes=passes,
            deadline_s=deadline,
            finish_by_s=finish_by,
            most_tokens=most_tokens,
            most_cost=most_cost,
            on_ask=Prompter(before) if at_a_terminal() else None,
        )
        watch.start(runtime, chosen.engine_names, chosen.optional_engines)
        result = _follow(events, watch, line, stream, as_json)
        if trace is not None and result is not None and result.trace is not None:
            write_text(drawn(Recorded.of(result.trace), TraceForm.PERFETTO), trace)
    if result is not None and result.state == "waiting":
        print(f"teola: {NOBODY}", file=sys.stderr)
        return WAITS
    return 0


def _follow(
    events: Iterator[Token | Progress | ToolStep | Result],
    watch: Watch,
    line: AnswerLine,
    stream: bool,
    as_json: bool,
) -> Result | None:
    """Show a query as it runs, and its result, which is returned."""
    from teola.cli.showing import print_json, show_result
    from teola.graph import ToolStep
    from teola.runtime.live.query import Progress, Token

    kinds = {Token: "token", Progress: "progress", ToolStep: "step"}
    result: Result | None = None
    with line:
        for event in events:
            if isinstance(event, (Token, Progress, ToolStep)):
                if stream and as_json:
                    kind = kinds[type(event)]
                    print_json({"event": kind, **event._asdict()}, indent=None)
                elif isinstance(event, Progress):
                    if not line.open:
                        watch.event(event)
                elif isinstance(event, ToolStep):
                    line.end()
                    watch.call(event)
                elif stream:
                    watch.hide()
                    line.write(event.text)
                continue
            watch.hide()
            result = event
    if result is not None and as_json:
        head = {"event": "result"} if stream else {}
        print_json({**head, **result.to_json()}, indent=None if stream else 2)
    elif result is not None:
        steps_shown = bool(watch.calls) and sys.stdout.isatty()
        show_result(result, streamed=line.written, told_steps=steps_shown)
    return result


def explain(
    app: o.AppName,
    inputs: o.Inputs = None,
    sets: o.Sets = None,
    passes: o.PassesOption = None,
    profile: o.ProfileName = None,
    learn: o.Learn = None,
    batching: o.Batching = None,
    llm: o.Llm = None,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    web_search: o.WebSearchOption = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            metavar="",
            rich_help_panel=o.OUTPUT,
            help="Run the query, and show what was measured beside the estimates.",
        ),
    ] = False,
    form: Annotated[
        ExplanationForm,
        typer.Option("--format", rich_help_panel=o.OUTPUT, help="Form of the explanation."),
    ] = ExplanationForm.TEXT,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Show how a query would run: its graph before and after each pass, and why.

    Nothing is run or stored, unless with --analyze. Without documents, 48 chunks
    are assumed. The times are those of --profile, else what the folder for --learn
    holds, else what the engines declare. The formats mermaid and dot show the
    optimised graph.
    """
    from teola.catalogue import load_app
    from teola.cli.given import Engines, at_home, parse_inputs, parse_overrides
    from teola.cli.showing import print_json, show_explanation
    from teola.cli.watching import watching
    from teola.errors import InputError

    kept = None if analyze or learn == "off" else learn
    if kept and not Path(kept).expanduser().is_dir():
        raise InputError(f"there is no folder {learn!r} for --learn: run the application with it")
    chosen = load_app(app)
    values, overrides = parse_inputs(chosen, inputs or []), parse_overrides(sets or [])
    engines = Engines(
        llm=llm,
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        batching=batching,
        debug=debug,
        web_search=web_search,
        embedding=embedding,
        dimensions=dimensions,
        learn=learn,
    )
    with at_home(chosen, engines), watching() as watch:
        if analyze or values.get("documents"):
            watch.show("running the query" if analyze else "splitting the documents")
        explanation = chosen.explain(
            values, profile=profile, overrides=overrides, passes=passes, analyze=analyze
        )
    if as_json or form is ExplanationForm.JSON:
        print_json(explanation.to_json())
    else:
        show_explanation(explanation, form.value)
    return 0
