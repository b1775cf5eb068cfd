"""Runs every batching policy on the same e-graphs, alone and under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.progress import Progress

from experiments.ablation_scheduling import tree
from experiments.baselines.systems import TEOLA, Cache, System
from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.common.latencies import geometric
from experiments.common.simulate import (
    LOADS,
    Setting,
    alone,
    rounded,
    sustained,
    under_load,
)
from experiments.common.testbed import testbed
from experiments.common.workloads import APPS, example

LLM: Final = "30b"
"""The paper's ablations have it."""
POLICIES: Final = ("fifo", "per_invocation", "topology", "critical_path")
COMPARED: Final = (
    ("topology", "fifo"),
    ("topology", "per_invocation"),
    ("critical_path", "topology"),
)
"""(policy, which it is compared with): how many times lower its mean latency is."""
INSTRUCTIONS: Final = {"cached": Cache.ALL, "computed": Cache.QUERY}
"""Whether the engines keep instructions, or compute them for every query."""
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
    jobs = [(_sustained, (settings[app], kept)) for app, kept in kinds]
    rates = pool.run(jobs, options.workers, progress, "saturation")
    runs = [
        (settings[app], kept, policy, rate, options.seeds)
        for (app, kept), rate in zip(kinds, rates, strict=True)
        for policy in POLICIES
    ]
    found = pool.run([(_rows, run) for run in runs], options.workers, progress, "under load")
    rows = [row for some in found for row in some]
    return {
        "rows": rows,
        "gains": _gains(rows),
        "tree": tree.measure(POLICIES, LLM, options.queries, options.seed),
        "about": {"llm": LLM, **options.about()},
    }


def _system(kept: str, policy: str) -> System:
    return replace(TEOLA, cache=INSTRUCTIONS[kept], batching=policy)


def _sustained(setting: Setting, kept: str) -> float:
    return rounded(sustained(_system(kept, TEOLA.batching), setting))


def _rows(
    setting: Setting, kept: str, policy: str, rate: float, seeds: int
) -> list[dict[str, Any]]:
    """Mean and 99th percentile in seconds at every load; of one query alone, its latency twice."""
    system = _system(kept, policy)
    where = {"app": setting.app, "instructions": kept}
    one = round(alone(system, setting, example(setting.app)), 4)
    rows = [{**where, "load": ONE, "policy": policy, "seed": 0, "mean_s": one, "p99_s": one}]
    for load in LOADS:
        for seed in range(setting.seed, setting.seed + seeds):
            found = under_load(system, replace(setting, seed=seed), rounded(load * rate))
            rows.append(
                {
                    **where,
                    "load": load,
                    "policy": policy,
                    "seed": seed,
                    "mean_s": round(found.mean, 4),
                    "p99_s": round(found.percentile(99), 4),
                }
            )
    return rows


def _gains(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many times lower the mean (and the 99th percentile) of one policy is than of another:
    the geometric mean over the seeds."""
    where = ("app", "instructions", "load")
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((*(row[k] for k in where), row["policy"]), []).append(row)

    def ratio(place: tuple[Any, ...], policy: str, other: str, name: str) -> float:
        pairs = zip(found[*place, other], found[*place, policy], strict=True)
        return round(geometric([theirs[name] / ours[name] for theirs, ours in pairs]), 4)

    return [
        {
            **dict(zip(where, place, strict=True)),
            "policy": policy,
            "against": other,
            "mean": ratio(place, policy, other, "mean_s"),
            "p99": ratio(place, policy, other, "p99_s"),
        }
        for policy, other in COMPARED
        for place in dict.fromkeys(key[:-1] for key in found)
    ]
