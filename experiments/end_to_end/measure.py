"""The sweep: saturation rates first, then every system at every rate, and one query alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.systems import ALL, BASELINES, SYSTEMS, TEOLA, Planner
from experiments.common import pool, workloads
from experiments.common.bound import Bound, bound
from experiments.common.command import Options, Report
from experiments.common.simulate import Setting, alone, saturation, under_load
from experiments.common.testbed import SIZES, Testbed, testbed
from experiments.common.workloads import APPS, Answers, example
from teola.profile import Profile

LOW, HIGH = 0.1, 0.8
"""Low and high load, as parts of the slowest baseline's saturation rate."""
OF_SLOWEST: Final = (LOW, 0.3, 0.55, HIGH)
OF_BEST: Final = (0.85, 1.0, 1.2)
QUICK_OF_SLOWEST: Final = (LOW, HIGH)
QUICK_OF_BEST: Final = (1.2,)
SATURATING: Final = 400
"""Queries with which a saturation rate is found."""
AGENT: Final = "search-agent"
SPECULATION: Final = {"judge": {"speculate": True}}
"""The search starts while the judge still decides, and is undone if it was not wanted."""


@dataclass(frozen=True)
class Point:
    """An application with an LLM size, and how it is simulated."""

    app: str
    llm: str
    setting: Setting


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
    given = options.given
    points = [
        Point(app, llm, _setting(options, app, llm)) for app in given.apps for llm in given.llms
    ]
    pairs = [(point, name) for point in points for name in ALL]
    jobs = [(_saturation, (point, name)) for point, name in pairs]
    found = pool.run(jobs, options.workers, progress, "saturation")
    saturations = {
        (point.app, point.llm, name): rate for (point, name), rate in zip(pairs, found, strict=True)
    }
    runs = [
        (point, name, rate)
        for point in points
        for rate in _rates(point, saturations, options.quick)
        for name in ALL
    ]
    rows = pool.run([(_row, run) for run in runs], options.workers, progress, "under load")
    singles = pool.run([(one_query, (p,)) for p in points], 1, progress, "one query")
    return {
        "rows": [row for row in rows if row["system"] in SYSTEMS],
        "topology": [row for row in rows if row["system"] not in SYSTEMS],
        "single_query": [
            {"app": p.app, "llm": p.llm, "latency_s": mine["teola"], "bound_s": bound.bound_s}
            for p, (mine, bound, _) in zip(points, singles, strict=True)
        ],
        "alone": [
            {"app": p.app, "llm": p.llm, "unlimited_s": unlimited.bound_s, **mine}
            for p, (mine, _, unlimited) in zip(points, singles, strict=True)
        ],
        "loads": [_loads(point, saturations) for point in points],
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


def _saturation(point: Point, name: str) -> float:
    setting = replace(point.setting, queries=min(SATURATING, point.setting.queries))
    return round(saturation(ALL[name], setting), 4)


def _loads(point: Point, saturations: dict[tuple[str, str, str], float]) -> dict[str, Any]:
    """Rates of low and high load, and the saturation rate of every system."""
    rates = {name: saturations[point.app, point.llm, name] for name in ALL}
    slowest = min(rates[system.name] for system in BASELINES)
    return {
        "app": point.app,
        "llm": point.llm,
        "low": _rounded(LOW * slowest),
        "high": _rounded(HIGH * slowest),
        "saturation": rates,
    }


def _rates(
    point: Point, saturations: dict[tuple[str, str, str], float], quick: bool
) -> list[float]:
    rates = _loads(point, saturations)["saturation"]
    slowest = min(rates[system.name] for system in BASELINES)
    best = max(rates[name] for name in SYSTEMS)
    of_slowest = QUICK_OF_SLOWEST if quick else OF_SLOWEST
    of_best = QUICK_OF_BEST if quick else OF_BEST
    found = {_rounded(part * slowest) for part in of_slowest}
    return sorted(found | {_rounded(part * best) for part in of_best})


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")


def _row(point: Point, name: str, rate: float) -> dict[str, Any]:
    found = under_load(ALL[name], point.setting, rate)
    return {
        "app": point.app,
        "llm": point.llm,
        "rate": rate,
        "system": name,
        "mean_s": round(found.mean, 4),
        "p50_s": round(found.percentile(50), 4),
        "p99_s": round(found.percentile(99), 4),
    }


def one_query(point: Point) -> tuple[dict[str, float], Bound, Bound]:
    """Latency of the example query with every system; Teola's bound, and the bound if there were
    as many LLM instances as it could use."""
    query = example(point.app)
    mine = {name: round(alone(system, point.setting, query), 4) for name, system in ALL.items()}
    if point.app == AGENT:
        setting = replace(point.setting, overrides=SPECULATION)
        mine["speculating"] = round(alone(TEOLA, setting, query), 4)
    testbed = point.setting.testbed
    return (
        mine,
        _bound(point, testbed),
        _bound(point, replace(testbed, profile=_unlimited(testbed))),
    )


def _bound(point: Point, testbed: Testbed) -> Bound:
    query, values = example(point.app), testbed.values
    plan = Planner(TEOLA, point.app, testbed).plan(query.chunks)
    given = workloads.inputs(point.app, query, values)
    found = bound(plan, given, "0", Answers(point.app, [query], values), testbed.profile)
    return Bound(round(found.path_s, 4), round(found.bound_s, 4))


def _unlimited(testbed: Testbed) -> Profile:
    engines = {
        name: replace(engine, instances=1000) if engine.step.base_s else engine
        for name, engine in testbed.profile.engines.items()
    }
    return replace(testbed.profile, engines=engines)
