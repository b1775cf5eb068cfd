"""Each query on each data set under each system, and from that the ablations and overheads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.tables import ablations
from experiments.tables.model import EVICTION, PROFILE
from experiments.tables.queries import PASSES, QUERIES, Query
from experiments.tables.runs import FIT_ROWS, SYSTEMS, Measured, ablation, fitted, measured
from teola.runtime import machine

PARTS: Final = ("simulated", "ablations", "overheads")
QUICK: Final = 10
"""By so much fewer rows there are with --quick."""


def rows_of(query: Query, quick: bool) -> int:
    """How many rows a query has."""
    return query.rows // QUICK if quick else query.rows


def measure(options: Options, progress: Progress) -> Report:
    """The report; see README.md."""
    given = options.given
    parts, workers, seed = given.parts, options.workers, options.seed
    began = time.perf_counter()
    cells = [*QUERIES]
    outputs = _fit(cells, given.output, seed, workers, progress)
    for (name, data), output in outputs.items():
        progress.console.print(f"{name} on {data}: answers of {output} tokens", highlight=False)
    jobs: list[pool.Job[Measured]] = []
    keys = []
    systems = [*SYSTEMS] if {"simulated", "ablations"} & {*parts} else ["ours"]
    for cell in cells:
        size = given.rows or rows_of(QUERIES[cell], options.quick)
        for system in systems:
            keys.append((cell, system, size))
            jobs.append((measured, (*cell, system, size, outputs[cell], seed)))
    found = dict(zip(keys, pool.run(jobs, workers, progress, "queries"), strict=True))
    report: Report = {"rows": [], "ablations": [], "overheads": []}
    if "simulated" in parts:
        report["rows"] = [_row(*key, one) for key, one in found.items()]
    if "ablations" in parts:
        size = given.rows or QUERIES["Q1", "movies"].rows // (QUICK if options.quick else 1)
        report["ablations"] = [
            *_hit_shares(found),
            *ablations.measure(size, outputs, seed, workers, progress),
        ]
    if "overheads" in parts:
        report["overheads"] = [
            _overhead(*cell, one) for (cell, system, _), one in found.items() if system == "ours"
        ]
    report["fitted"] = [
        {"query": name, "data": data, "output_tokens": output, "given": bool(given.output)}
        for (name, data), output in outputs.items()
    ]
    report["about"] = {
        "quick": options.quick,
        "parts": list(parts),
        "seed": seed,
        "profile": PROFILE,
        "eviction": EVICTION,
        "rows": given.rows,
        "answer_looked_for": PASSES,
        "machine": machine.describe(("duckdb", "sqlglot")),
        "took_s": round(time.perf_counter() - began, 1),
    }
    return report


def _fit(
    cells: Sequence[tuple[str, str]],
    output: int | None,
    seed: int,
    workers: int,
    progress: Progress,
) -> dict[tuple[str, str], int]:
    """Tokens of an answer by query and data set. output: of all, where it is given."""
    if output:
        return dict.fromkeys(cells, output)
    jobs: list[pool.Job[int]] = [(fitted, (*cell, FIT_ROWS, seed)) for cell in cells]
    return dict(zip(cells, pool.run(jobs, workers, progress, "fitting"), strict=True))


def _row(cell: tuple[str, str], system: str, rows: int, one: Measured) -> Report:
    return {
        "where": "simulated",
        "query": cell[0],
        "data": cell[1],
        "system": system,
        "rows": rows,
        "calls": one.calls,
        "prompt_tokens": one.prompt_tokens,
        "hit_tokens": one.hit_tokens,
        "hit_share": round(one.hit_share, 4),
        "seconds": round(one.seconds, 2),
    }


def _hit_shares(found: dict[tuple[tuple[str, str], str, int], Measured]) -> list[Report]:
    """What of the prompts is found, in the table's order and reordered. ratio: against the first
    of them."""
    return [
        ablation("hit_share", cell[1], f"{cell[0]} {system}", rows, one,
                 found[cell, "fifo", rows].seconds)
        for (cell, system, rows), one in found.items()
        if system in ("fifo", "psm")
    ]  # fmt: skip


def _overhead(name: str, data: str, one: Measured) -> Report:
    whole, embedding_s = one.seconds + one.sql_s + one.plan_s, one.embedding_s
    return {
        "query": name,
        "data": data,
        "sql_share": round(one.sql_s / whole, 5),
        "embedding_share": None if embedding_s is None else round(embedding_s / whole, 5),
        "plan_share": round(one.plan_s / whole, 5),
    }
