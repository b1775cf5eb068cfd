"""Each query on each data set under each system, and from that the ablations and overheads."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.tables import ablations, live
from experiments.tables.model import EVICTION, PROFILE
from experiments.tables.queries import PASSES, QUERIES, Query
from experiments.tables.runs import FIT_ROWS, SYSTEMS, Measured, ablation, fitted, measured
from teola.runtime import machine

SIMULATED: Final = ("simulated", "ablations", "overheads")
REAL: Final = ("live", "local")
PARTS: Final = (*SIMULATED, *REAL, "hits")
OF_PARTS: Final = {
    "ablations": "ablations",
    "overheads": "overheads",
    "hits": "hits",
}
"""What of a report is a part's, apart from `rows` and `bounds`, which say whose they are."""
QUICK: Final = 10
"""By so much fewer rows there are with --quick."""


def rows_of(query: Query, quick: bool) -> int:
    """How many rows a query has."""
    return query.rows // QUICK if quick else query.rows


def measure(options: Options, progress: Progress) -> Report:
    """The report; see README.md."""
    given = options.given
    parts, seed = given.parts, options.seed
    began = time.perf_counter()
    report: Report = {"rows": [], "ablations": [], "overheads": []}
    if {*SIMULATED} & {*parts}:
        report |= _simulated(options, progress)
    for where in REAL:
        if where in parts:
            size = given.rows or live.ROWS[options.quick]
            rows, bounds = live.measure(where, size, seed, progress)
            report["rows"] += rows
            report.setdefault("bounds", []).extend(bounds)
    if "hits" in parts:
        report["hits"] = live.hits(given.rows or live.HIT_ROWS, seed)
    if given.beside:
        _add(report, load(given.beside), parts)
    report["about"] = {
        "quick": options.quick,
        "parts": [*parts, *_others(given.beside, parts)],
        "seed": seed,
        "profile": PROFILE,
        "eviction": EVICTION,
        "rows": given.rows,
        "answer_looked_for": PASSES,
        "live": {"model": live.SHAPE, "block_tokens": live.BLOCK_TOKENS, "output": live.OUTPUT},
        "machine": machine.describe(("duckdb", "sqlglot")),
        "took_s": round(time.perf_counter() - began, 1),
    }
    before = load(given.beside)["about"] if given.beside else {}
    if "local" in parts:
        local = {"model": live.LOCAL, "seed": seed, "output": live.OUTPUT}
        local["machine"] = machine.describe(("torch", "transformers"))
        if before and {*parts} == {"local"}:  # perhaps on another machine than the rest
            report["about"] = {**before, "parts": report["about"]["parts"]}
        report["about"]["local"] = local
    elif "local" in before:
        report["about"]["local"] = before["local"]
    return report


def _simulated(options: Options, progress: Progress) -> Report:
    given = options.given
    parts, workers, seed = given.parts, options.workers, options.seed
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
    return report


def _add(report: Report, other: Report, parts: Sequence[str]) -> None:
    """Add of another report what this one has not measured."""
    for part, key in OF_PARTS.items():
        if part not in parts and key in other:
            report[key] = other[key]
    order = ("simulated", *REAL)
    for key in ("rows", "bounds"):
        kept = [row for row in other.get(key, ()) if row["where"] not in parts]
        if whole := report.get(key, []) + kept:
            report[key] = sorted(whole, key=lambda row: order.index(row["where"]))
    if not report.get("fitted"):
        report["fitted"] = other.get("fitted", [])


def _others(path: Path | None, parts: Sequence[str]) -> list[str]:
    """Parts of another report that were not measured now."""
    return [one for one in load(path)["about"]["parts"] if one not in parts] if path else []


def load(path: Path) -> Report:
    """A report that was kept."""
    found: Report = json.loads(path.read_text(encoding="utf-8"))
    return found


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
