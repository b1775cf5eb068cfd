"""`teola trace`: what happened to a query of a server, and when."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teola.cli import options as o
from teola.cli import reaching as reach
from teola.cli.visible import visible, visible_json

if TYPE_CHECKING:
    from teola.runtime.observe.recorded import Recorded

TRACE_EXAMPLES = o.examples(
    "teola trace ID",
    "teola trace ID --format perfetto --out trace.json",
    "teola trace ID --url https://teola.example:8080 --format json",
)


class TraceForm(StrEnum):
    """Forms of a trace."""

    TEXT = "text"
    JSON = "json"
    PERFETTO = "perfetto"
    MERMAID = "mermaid"


def trace(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID", show_default=False, help="The query's id: it is in every answer and log."
        ),
    ],
    url: reach.Url = reach.URL,
    key: reach.KeyOption = None,
    form: Annotated[
        TraceForm,
        typer.Option(
            "--format",
            help="text: a timeline; perfetto: for ui.perfetto.dev; mermaid: a Gantt chart; json: "
            "every span.",
        ),
    ] = TraceForm.TEXT,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Write it there instead of printing it."
        ),
    ] = None,
    debug: o.Debug = False,
) -> int:
    """Show where the time of a query went.

    A timeline of every primitive on every instance: what waited (░), what ran (█), in which batch.
    """
    from teola.cli.showing import console
    from teola.cli.timeline import show_timeline
    from teola.runtime.observe.recorded import Recorded

    if form is TraceForm.JSON:
        text = json.dumps(fetched(url, id, key, "trace")[0], indent=2, ensure_ascii=False)
    else:
        recorded = Recorded.from_json(*fetched(url, id, key, "timeline"))
        if form is TraceForm.TEXT and out is None:
            show_timeline(recorded, console())
            return 0
        text = drawn(recorded, form)
    if out is None:
        typer.echo(visible(visible_json(text)))
    else:
        write_text(text, out)
    return 0


def fetched(
    url: str, id: str, key: str | None, what: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A query's trace or timeline as the server tells it, and its graph if it has one. Raises
    InputError, TeolaError."""
    query = reach.query_path(id)
    with reach.reaching(url, key) as client:
        recorded = reach.told(client.get(f"{query}/{what}"))
        graph = client.get(f"{query}/graph")
        return recorded, reach.told(graph) if graph.is_success else None


def drawn(recorded: Recorded, form: TraceForm) -> str:
    """A trace in one of the forms that are drawn from it."""
    from io import StringIO

    from rich.console import Console

    from teola.cli.timeline import show_timeline
    from teola.runtime.observe.gantt import to_mermaid
    from teola.runtime.observe.perfetto import to_perfetto

    if form is TraceForm.PERFETTO:
        return json.dumps(to_perfetto(recorded), ensure_ascii=False)
    if form is TraceForm.MERMAID:
        return to_mermaid(recorded)
    text = StringIO()
    show_timeline(recorded, Console(file=text, width=10_000, highlight=False, markup=False))
    return text.getvalue().rstrip("\n")


def write_text(text: str, path: Path) -> None:
    """Write a text to a file. Raises InputError."""
    from teola.errors import InputError

    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from None
