"""`teola trace`: what happened to a query of a server, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from teola.runtime.observe.recorded import Recorded

TRACE_EXAMPLES = o.examples(
    "teola trace ID",
    "teola trace ID --format perfetto --out trace.json",
    "teola trace ID --url https://teola.example:8080 --format json",
)
LIMIT_S: Final = 30.0


class Form(StrEnum):
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
    url: Annotated[
        str, typer.Option(metavar="URL", help="The server.", envvar="TEOLA_URL")
    ] = "http://127.0.0.1:8080",
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            envvar="TEOLA_API_KEY",
            help="An API key, if the server wants one; better in the environment than here.",
        ),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="text: a timeline; perfetto: for ui.perfetto.dev; mermaid: a Gantt chart; json: "
            "every span.",
        ),
    ] = Form.TEXT,
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

    found, recorded = fetched(url.rstrip("/"), id, key)
    if form is Form.TEXT and out is None:
        show_timeline(recorded, console())
        return 0
    as_told = json.dumps(found, indent=2, ensure_ascii=False)
    text = as_told if form is Form.JSON else drawn(recorded, form)
    if out is None:
        typer.echo(text)
    else:
        write(text, out)
    return 0


def fetched(url: str, id: str, key: str | None) -> tuple[dict[str, Any], Recorded]:
    """A query's trace as the server tells it, and with its graph. Raises InputError, TeolaError."""
    import httpx

    from teola.runtime.observe.recorded import Recorded

    query = f"/v1/queries/{quote(id, safe='')}"
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with _reaching(url), httpx.Client(base_url=url, headers=headers, timeout=LIMIT_S) as client:
        trace = _told(client.get(f"{query}/trace"))
        graph = client.get(f"{query}/graph")
        return trace, Recorded.from_json(trace, _told(graph) if graph.is_success else None)


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Raise what went wrong on the way as one line."""
    import httpx

    from teola.errors import EngineUnavailable, InputError

    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise InputError(f"--url {url!r} is no URL, such as http://127.0.0.1:8080") from None
    except httpx.HTTPError as error:
        raise EngineUnavailable(
            f"no server answers at {url} ({type(error).__name__}): start one with `teola serve`, "
            "or give --url"
        ) from None


def _told(response: Any) -> dict[str, Any]:
    """The JSON of an answer. Raises InputError with what the server says."""
    from teola.errors import InputError

    try:
        found = response.json()
    except ValueError:
        raise InputError(f"{response.url} is no Teola server: it answers no JSON") from None
    if response.is_success and isinstance(found, dict):
        return found
    error = found.get("error", {}) if isinstance(found, dict) else {}
    message = error.get("message") if isinstance(error, dict) else None
    hint = "; give --key, or set TEOLA_API_KEY" if response.status_code == 401 else ""
    raise InputError(f"{message or f'the server answers {response.status_code}'}{hint}")


def drawn(recorded: Recorded, form: Form) -> str:
    """A trace in one of the forms that are drawn from it."""
    from io import StringIO

    from rich.console import Console

    from teola.cli.timeline import show_timeline
    from teola.runtime.observe.gantt import to_mermaid
    from teola.runtime.observe.perfetto import to_perfetto

    if form is Form.PERFETTO:
        return json.dumps(to_perfetto(recorded), ensure_ascii=False)
    if form is Form.MERMAID:
        return to_mermaid(recorded)
    text = StringIO()
    show_timeline(recorded, Console(file=text, width=10_000, highlight=False, markup=False))
    return text.getvalue().rstrip("\n")


def write(text: str, path: Path) -> None:
    """Write a text to a file. Raises InputError."""
    from teola.errors import InputError

    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from None
