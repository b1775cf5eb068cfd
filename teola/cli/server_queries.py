"""`teola queries`: what a server was asked last."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teola.cli import options as o
from teola.cli import reaching as reach

if TYPE_CHECKING:
    from collections.abc import Mapping

QUERIES_EXAMPLES = o.examples(
    "teola queries",
    "teola queries --app advanced-rag --state failed",
    "teola queries --url https://teola.example:8080 --json",
)


def queries(
    app: reach.OfApp = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            show_default=False,
            help="Only those: running, waiting, ok, partial, failed, cancelled or deadline.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=reach.MOST, help="So many, the newest first.")
    ] = 20,
    url: reach.Url = reach.URL,
    key: reach.KeyOption = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """List the queries of a server that run, and the last that ended, with their questions."""
    from teola.cli.showing import console, print_json, show_table

    filters = {"app": app, "state": state, "limit": limit}
    params = {name: value for name, value in filters.items() if value is not None}
    with reach.reaching(url, key) as client:
        entries = reach.told(client.get("/v1/queries", params=params))["queries"]
    if as_json:
        print_json({"queries": entries})
    elif entries:
        whole = None if not console().is_terminal else reach.SHORT_ID
        heads = ("query", "state", "app", "asked", "took", "question")
        show_table(heads, [_row(entry, whole) for entry in entries], whole_lines=True)
    else:
        console().print("no queries", style="dim")
    return 0


def _row(entry: Mapping[str, Any], id_length: int | None) -> tuple[str, ...]:
    ended = entry.get("latency_s")
    return (
        entry["query_id"][:id_length],
        entry["state"],
        entry["app"],
        f"{reach.span(max(0.0, time.time() - entry['created']))} ago",
        f"{ended:.2f} s" if ended is not None else "-",
        " ".join(entry.get("question", "-").split()),
    )
