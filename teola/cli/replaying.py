"""`teola replay`: what other policies, pools, rates or objectives would have done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from teola.cli import options as o
from teola.errors import InputError

REPLAY_EXAMPLES = o.examples(
    "teola replay calls.jsonl --pool pool.json --set routing=workload_balanced",
    "teola replay calls.jsonl --pool pool.json --set routing=paced --set batching=paced --rate 0.2",
)


def replay(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="Recorded queries: a file of calls, or timelines."),
    ],
    pool: Annotated[
        Path,
        typer.Option(
            "--pool",
            metavar="FILE",
            help="Profile of the engine whose calls they are, with a pool.",
        ),
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            show_default=False,
            help="batching, routing, batching.OPTION or routing.OPTION; may be repeated.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="X",
            show_default=False,
            help="Queries a second; else they come as they were recorded.",
        ),
    ] = None,
    slo_scale: Annotated[
        float,
        typer.Option(
            "--slo-scale",
            metavar="X",
            help="Objective of queries that state none, in times what they take alone.",
        ),
    ] = 5.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of arrivals at a rate.")] = 0,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            show_default=False,
            help="Write a page there, too: the table, and a plot of queries in time by objective.",
        ),
    ] = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Replay recorded queries on simulated instances, under the policies given with --set.

    A file of calls has one JSON object a line: {"arrival": 0.0, "app": "x", "stages": [[["step",
    300, 20]], ...], "finish_by_s": 60}; a stage is a list of calls side by side, a call a name, the
    tokens of its prompt and those of its answer. Or it is a JSON list of such queries, or a
    timeline that a server told (`teola trace ID --format json`), or a list of these. The policies
    that serve by default are replayed beside those of --set, to compare with.
    """
    from teola.cli.showing import print_json
    from teola.runtime.tuning.recorded_queries import read_queries
    from teola.runtime.tuning.whatif import HEAD, WhatIf, read_pool, shown_table, table_lines
    from teola.runtime.tuning.whatif_page import to_html

    queries = read_queries(trace)
    whatif = WhatIf.of(sets or [], rate, slo_scale, seed)
    comparison = whatif.compare(queries, read_pool(pool))
    if page is not None:
        try:
            page.write_text(to_html(HEAD, table_lines(comparison), comparison), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write the page {str(page)!r}: {error.strerror}") from None
    if as_json:
        print_json(comparison)
    else:
        print(shown_table(comparison))
    return 0
