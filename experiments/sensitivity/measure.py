"""Every headline with every derived or assumed figure changed, one at a time."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.systems import PAPERS, TEOLA
from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.common.simulate import Setting, alone, rounded, sustained, under_load
from experiments.common.testbed import testbed
from experiments.common.workloads import example
from experiments.sensitivity.parameters import BY_KEY

ROUGH: Final = 1.05
"""How exactly what is sustained is found: it only says where the loads are."""
ONE: Final = "one query"
LOADS: Final = {"50% load": 0.5, "80% load": 0.8}
"""Parts of what Teola sustains."""
COMPARED: Final = (TEOLA, *PAPERS)
NOMINAL: Final = ("", 1.0)
SLOWEST: Final = "slowest"
Case = tuple[str, float, str, str]
"""Parameter ("" for none), factor, application, LLM."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--values", type=_keys, default=tuple(BY_KEY), metavar="KEY,KEY")


def _keys(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in BY_KEY]:
        raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r} (valid: {', '.join(BY_KEY)})")
    return names


def measure(options: Options, progress: Progress) -> Report:
    """The report: each headline as it is and its range, those against each baseline, all runs."""
    cases = _cases(options.given.values)
    jobs = [(speedups, (_setting(options, case),)) for case in cases]
    found = pool.run(jobs, options.workers, progress, "a value changed")
    rows = [
        {
            "parameter": key,
            "factor": factor,
            "app": app,
            "llm": llm,
            "load": load,
            "baseline": name,
            "speedup": speedup,
        }
        for (key, factor, app, llm), speeds in zip(cases, found, strict=True)
        for (load, name), speedup in speeds.items()
    ]
    return {
        "headlines": ranges(slowest(rows)),
        "baselines": ranges(rows),
        "rows": rows,
        "about": options.about(),
    }


def _cases(keys: Iterable[str]) -> list[Case]:
    """All that is run, each application with each LLM as it is first."""
    wanted = [
        (p.key, factor, app, p.llm)
        for p in map(BY_KEY.__getitem__, keys)
        for app in p.apps
        for factor in p.factors
    ]
    plain = dict.fromkeys((*NOMINAL, app, llm) for _, _, app, llm in wanted)
    return [*plain, *wanted]


def _setting(options: Options, case: Case) -> Setting:
    key, factor, app, llm = case
    bed = testbed(llm)
    if key:
        bed = BY_KEY[key].change(bed, factor)
    return Setting(app, bed, queries=options.queries, seed=options.seed, data=options.data)


def speedups(setting: Setting) -> dict[tuple[str, str], float]:
    """By load and baseline: its mean latency over Teola's. Loads go by what saturates here."""
    most = sustained(TEOLA, setting, fine=ROUGH)
    query = example(setting.app)
    means: dict[str, Mapping[str, float]] = {
        ONE: {system.name: alone(system, setting, query) for system in COMPARED}
    }
    for load, part in LOADS.items():
        rate = rounded(part * most)
        means[load] = {system.name: under_load(system, setting, rate).mean for system in COMPARED}
    return {
        (load, name): round(mean / by_system["teola"], 4)
        for load, by_system in means.items()
        for name, mean in by_system.items()
        if name != "teola"
    }


def slowest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each run and load the speedup over the slowest baseline, as the paper's headlines are."""
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("parameter", "factor", "app", "llm", "load"))
        if key not in found or row["speedup"] > found[key]["speedup"]:
            found[key] = row
    return [{**row, "baseline": SLOWEST} for row in found.values()]


def ranges(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each headline: as it is, the least and the greatest, and which change made these."""
    where = ("app", "llm", "load", "baseline")
    found = []
    for plain in (row for row in rows if not row["parameter"]):
        same = [row for row in rows if all(row[k] == plain[k] for k in where)]
        least = min(same, key=lambda row: row["speedup"])
        most = max(same, key=lambda row: row["speedup"])
        found.append(
            {
                **{key: plain[key] for key in where},
                "speedup": plain["speedup"],
                "least": least["speedup"],
                "least_with": _named(least),
                "most": most["speedup"],
                "most_with": _named(most),
            }
        )
    return found


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['parameter']} x {row['factor']:g}" if row["parameter"] else ""
