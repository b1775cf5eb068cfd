"""Replays each file in each cell, which is a size of memory and a load, under each policy."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.replay.calls import Recording
from experiments.replay.replay import Fleet, replay
from experiments.replay.traces import public
from teola.errors import InputError

OURS: Final = "graph_aware"
PLAIN: Final = "marginal_cost"
"""The same costs without programs."""
TAIL: Final = "lmetric"
"""Whose first tokens `OURS` is measured against."""
ROUTERS: Final = (PLAIN, TAIL, "sglang", "aibrix", "dynamo", "least_loaded")
POLICIES: Final = (OURS, *ROUTERS)
KV_TOKENS: Final = (40_000, 60_000, 90_000, 150_000)
SPEEDUPS: Final = (1.0, 2.0, 3.0, 5.0, 8.0)
QUICK_KV_TOKENS: Final = (60_000,)
INSTANCES: Final = 4
HALVES: Final = ("tuned", "other")
"""Sessions on which options were chosen, and those that nobody looked at."""
OVERLOADED_S: Final = 10.0
"""Where the best mean latency is longer the queue grows without end, and the order of routers is
chance."""
Row = Mapping[str, Any]


class Cell(NamedTuple):
    """Where all policies are compared."""

    file: str
    kv_tokens: int
    speedup: float


def measure(options: Options, progress: Progress) -> Report:
    """rows: of each file, cell and policy; to_best: its mean latency over the best router's.
    over_best: how `OURS` compares over all cells. Raises InputError."""
    given = options.given
    files: Sequence[Path] = given.files
    if not files:
        raise InputError("give the traces to replay: python -m experiments.cliffs FILE ...")
    if len({path.name for path in files}) < len(files):
        raise InputError("two files have the same name, which their rows are told apart by")
    for path in files:
        recording(path, given.half, options.seed)
    sizes = QUICK_KV_TOKENS if options.quick else KV_TOKENS
    places = [
        (path, kv_tokens, speedup, policy)
        for speedup in reversed(SPEEDUPS)
        for path in files
        for kv_tokens in sizes
        for policy in given.policies
    ]
    known = {_place(row): row for row in _kept(given.kept)}
    missing = [place for place in places if (place[0].name, *place[1:]) not in known]
    more = given.half, options.seed, given.kept
    jobs: list[pool.Job[Report]] = [(_row, (*place, *more)) for place in missing]
    found = pool.run(jobs, options.workers, progress, "replays")
    known |= {_place(row): row for row in found}
    rows = compared(
        known[path.name, kv_tokens, speedup, policy]
        for path in files
        for kv_tokens in sizes
        for speedup in SPEEDUPS
        for policy in given.policies
    )
    about = {"quick": options.quick, "half": given.half, "seed": options.seed}
    about |= {"files": [path.name for path in files], "instances": _fleet(given.half).instances}
    return {"about": about, "rows": rows, "over_best": over_best(rows)}


def _place(row: Row) -> tuple[str, int, float, str]:
    return row["file"], row["kv_tokens"], row["speedup"], row["routing"]


def _kept(path: Path | None) -> list[Row]:
    """Rows of an earlier run of the same files that was ended. Raises InputError."""
    if path is None or not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise InputError(f"{path} has a line that is no row: {error}") from None


@lru_cache(maxsize=8)
def recording(path: Path, half: str | None, seed: int) -> Recording:
    """A file's calls: all of them, or those of half of its sessions, drawn by seed."""
    found = public(path)
    if half is None:
        return found
    sessions = sorted({call.session for call in found.calls})
    random.Random(f"cliffs/{seed}").shuffle(sessions)
    middle = len(sessions) // 2
    kept = {*sessions[:middle]} if half == HALVES[0] else {*sessions[middle:]}
    return replace(found, calls=tuple(call for call in found.calls if call.session in kept))


def _fleet(half: str | None) -> Fleet:
    return Fleet(instances=INSTANCES if half is None else INSTANCES // 2)


def _row(
    path: Path,
    kv_tokens: int,
    speedup: float,
    policy: str,
    half: str | None,
    seed: int,
    kept: Path | None,
) -> Report:
    fleet = replace(_fleet(half), kv_tokens=kv_tokens, routing=policy)
    found = replay(recording(path, half, seed), fleet, speedup=speedup)
    row = {
        "file": path.name,
        "kv_tokens": kv_tokens,
        "speedup": speedup,
        "routing": policy,
        "latency_s": round(found.mean("latency_s"), 4),
        "ttft_s": round(found.mean("ttft_s"), 4),
        "ttft_p99_s": round(found.percentile("ttft_s", 99), 4),
        "hit_ratio": round(found.hit_ratio, 4),
    }
    if kept is not None:
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return row


# --- what is compared -----------------------------------------------------------------------


def by_cell(rows: Iterable[Row]) -> dict[Cell, dict[str, Row]]:
    """Rows by cell and policy."""
    found: dict[Cell, dict[str, Row]] = {}
    for row in rows:
        cell = Cell(row["file"], row["kv_tokens"], row["speedup"])
        found.setdefault(cell, {})[row["routing"]] = row
    return found


def compared(rows: Iterable[Row]) -> list[Report]:
    """Rows with `to_best`: the mean latency over the least one of the cell's routers (of all
    policies where there is no other)."""
    found = []
    for of in by_cell(rows).values():
        others = [row["latency_s"] for name, row in of.items() if name in ROUTERS]
        best = min(others or [row["latency_s"] for row in of.values()])
        found += [{**row, "to_best": round(row["latency_s"] / best, 4)} for row in of.values()]
    return found


def over_best(rows: Sequence[Row]) -> Report:
    """By policy: its mean latency over the best router's in the geometric mean of cells
    (`geometric_mean`), in the worst cell (`worst`), and in the worst of those in which the best
    router answers within `OVERLOADED_S` (`worst_within`)."""
    found: Report = {}
    cells = by_cell(rows).values()
    for name in dict.fromkeys(row["routing"] for row in rows):
        own = [of[name] for of in cells]
        within = [
            row["to_best"] for row in own if row["latency_s"] <= OVERLOADED_S * row["to_best"]
        ]
        found[name] = {
            "geometric_mean": round(exp(fmean(log(row["to_best"]) for row in own)), 4),
            "worst": max(row["to_best"] for row in own),
            "worst_within": max(within, default=None),
        }
    return found
