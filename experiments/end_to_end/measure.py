"""What the best system sustains, then every system at parts of that, and one query alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.systems import BASELINES, SYSTEMS, TEOLA
from experiments.common import pool, workloads
from experiments.common.bound import bound
from experiments.common.command import Options, Report
from experiments.common.simulate import (
    FINE,
    LOADS,
    SUSTAINED_SEEDS,
    Setting,
    alone,
    holds,
    rounded,
    steady,
    sustained,
    under_load,
)
from experiments.common.testbed import SIZES, testbed
from experiments.common.workloads import APPS, Answers, example
from teola.runtime.in_flight import Query
from teola.runtime.sim import SimulatedQuery

ONCE: Final = ("teola", *(system.name for system in BASELINES))
"""Of which one query alone is measured: what the core knows makes no difference there."""


@dataclass(frozen=True)
class Point:
    """An application with an LLM size, and how it is simulated. seeds: how many."""

    app: str
    llm: str
    setting: Setting
    seeds: int = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--apps", type=_some(APPS), default=APPS, metavar=",".join(APPS))
    parser.add_argument("--llms", type=_some(SIZES), default=SIZES, metavar=",".join(SIZES))
    parser.add_argument("--arrivals", default="poisson", help="poisson, or a trace: see README.md")


def _some(valid: Sequence[str]) -> Any:
    def chosen(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in valid]:
            raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r} (valid: {', '.join(valid)})")
        return names

    return chosen


def measure(options: Options, progress: Progress) -> Report:
    """The report, apart from what is derived from its rows (see figures.py)."""
    given, workers = options.given, options.workers
    points = [
        Point(app, llm, _setting(options, app, llm), options.seeds)
        for app in given.apps
        for llm in given.llms
    ]
    ours = pool.run([(_ours, (point,)) for point in points], workers, progress, "saturation")
    others = [(at, system) for at in range(len(points)) for system in BASELINES]
    jobs = [(_better, (points[at], system.name, ours[at])) for at, system in others]
    best = [(rate, TEOLA.name) for rate in ours]
    for (at, system), rate in zip(
        others, pool.run(jobs, workers, progress, "who sustains more"), strict=True
    ):
        best[at] = max(best[at], (rate, system.name))
    runs = [
        (point, name, rate)
        for point, (rate, _) in zip(points, best, strict=True)
        for name in SYSTEMS
    ]
    rows = pool.run([(_rows, run) for run in runs], workers, progress, "under load")
    singles = pool.run([(one_query, (point,)) for point in points], 1, progress, "one query")
    return {
        "rows": [row for found in rows for row in found],
        "single_query": [single for single, _ in singles],
        "alone": [times for _, times in singles],
        "sustained": [
            {"app": point.app, "llm": point.llm, "system": name, "rate": rate}
            for point, (rate, name) in zip(points, best, strict=True)
        ],
        "about": {**options.about(), "arrivals": given.arrivals},
    }


def _setting(options: Options, app: str, llm: str) -> Setting:
    return Setting(
        app,
        testbed(llm),
        queries=options.queries,
        seed=options.seed,
        data=options.data,
        kind=options.given.arrivals,
    )


def _ours(point: Point) -> float:
    return rounded(sustained(TEOLA, point.setting))


def _better(point: Point, name: str, rate: float) -> float:
    """What a baseline sustains if it is more than that rate, else 0."""
    system, more = SYSTEMS[name], rate * FINE
    if not holds(system, point.setting, more):
        return 0.0
    return rounded(sustained(system, point.setting, more))


def _rows(point: Point, name: str, best: float) -> list[dict[str, Any]]:
    """A system at every load, from the highest one down: what is sustained there is below, too."""
    system, setting, rows, sustains = SYSTEMS[name], point.setting, [], False
    for load in reversed(LOADS):
        rate = rounded(load * best)
        some = [
            under_load(system, replace(setting, seed=setting.seed + k), rate)
            for k in range(max(point.seeds, SUSTAINED_SEEDS))
        ]
        sustains = sustains or steady(some[:SUSTAINED_SEEDS])
        rows += [
            {
                "app": point.app,
                "llm": point.llm,
                "load": load,
                "system": name,
                "seed": setting.seed + k,
                "mean_s": round(found.mean, 4),
                **{f"p{p}_s": round(found.percentile(p), 4) for p in (50, 95, 99)},
                "saturated": not sustains,
            }
            for k, found in enumerate(some[: point.seeds])
        ]
    return rows


def one_query(point: Point) -> tuple[dict[str, Any], dict[str, Any]]:
    """An example query after others like it: ours with the lower bound of the plan that ran, and
    the latency of every system."""
    query, setting = example(point.app), point.setting
    times = {
        name: round(alone(SYSTEMS[name], setting, query), 4) for name in ONCE if name != TEOLA.name
    }
    bounds: list[float] = []

    def keep(asked: Query, result: SimulatedQuery) -> None:
        values = setting.testbed.values
        given = workloads.inputs(point.app, query, values)
        answers = Answers(point.app, [query], values)
        bounds.append(bound(asked.plan, given, "0", answers, setting.testbed.profile).bound_s)

    ours = round(alone(TEOLA, setting, query, keep), 4)
    where = {"app": point.app, "llm": point.llm}
    single = {**where, "latency_s": ours, "bound_s": round(bounds[0], 4)}
    return single, {**where, TEOLA.name: ours, **times}
