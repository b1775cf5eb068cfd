"""Runs every batching policy on the same e-graphs, alone and at every rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.progress import Progress

from experiments.ablation_scheduling import tree
from experiments.baselines.systems import TEOLA, Cache, System
from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.common.simulate import Setting, alone, saturation, under_load
from experiments.common.testbed import testbed
from experiments.common.workloads import APPS, example

LLM: Final = "13b"
POLICIES: Final = ("fifo", "per_invocation", "topology", "critical_path")
COMPARED: Final = (
    ("topology", "fifo"),
    ("topology", "per_invocation"),
    ("critical_path", "topology"),
)
"""(policy, which it is compared with): how many times lower its mean latency is."""
INSTRUCTIONS: Final = {"cached": Cache.ALL, "computed": Cache.QUERY}
"""Whether the engines keep instructions; if not, they are computed ahead for every query."""
LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
QUICK_LOADS: Final = (0.1, 0.8)
"""Parts of the rate at which `topology` saturates."""
SATURATING: Final = 400
ONE: Final = 0.0
"""The load of one query that has all engines to itself."""


def measure(options: Options, progress: Progress) -> Report:
    """Mean and 99th percentile of every policy at every load, and the tree of section 1."""
    kinds = [(app, kept) for app in APPS for kept in INSTRUCTIONS]
    settings = {
        app: Setting(
            app, testbed(LLM), queries=options.queries, seed=options.seed, data=options.data
        )
        for app in APPS
    }
    rates = pool.run(
        [(_saturation, (settings[app], kept)) for app, kept in kinds],
        options.workers,
        progress,
        "saturation",
    )
    loads = QUICK_LOADS if options.quick else LOADS
    places = [
        (app, kept, load, float(f"{load * rate:.4g}"), policy)
        for (app, kept), rate in zip(kinds, rates, strict=True)
        for load in (ONE, *loads)
        for policy in POLICIES
    ]
    jobs = [
        (_latency, (settings[app], kept, policy, rate)) for app, kept, _, rate, policy in places
    ]
    found = pool.run(jobs, options.workers, progress, "under load")
    keys = ("app", "instructions", "load", "rate", "policy", "mean_s", "p99_s")
    rows = [
        dict(zip(keys, (*place, *latency), strict=True))
        for place, latency in zip(places, found, strict=True)
    ]
    return {
        "rows": rows,
        "gains": _gains(rows),
        "tree": tree.measure(POLICIES, options.queries, options.seed),
        "about": {"llm": LLM, **options.about()},
    }


def _system(kept: str, policy: str) -> System:
    return replace(TEOLA, cache=INSTRUCTIONS[kept], batching=policy)


def _saturation(setting: Setting, kept: str) -> float:
    few = replace(setting, queries=min(SATURATING, setting.queries))
    return saturation(_system(kept, "topology"), few)


def _latency(setting: Setting, kept: str, policy: str, rate: float) -> tuple[float, float]:
    """Mean and 99th percentile in seconds; of one query alone, its latency twice."""
    system = _system(kept, policy)
    if rate == ONE:
        seconds = round(alone(system, setting, example(setting.app)), 4)
        return seconds, seconds
    found = under_load(system, setting, rate)
    return round(found.mean, 4), round(found.percentile(99), 4)


def _gains(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many times lower the mean (and the 99th percentile) of one policy is than of another."""
    where = ("app", "instructions", "load")
    found = {(*(r[k] for k in where), r["policy"]): r for r in rows}
    return [
        {
            **{k: row[k] for k in where},
            "policy": policy,
            "against": other,
            "mean": round(found[*place, other]["mean_s"] / row["mean_s"], 4),
            "p99": round(found[*place, other]["p99_s"] / row["p99_s"], 4),
        }
        for policy, other in COMPARED
        for row in rows
        if row["policy"] == policy
        for place in [tuple(row[k] for k in where)]
    ]
