"""Replays every workload at every rate under every policy, and compares what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, Final

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.replay.synthetic import PREBLE
from experiments.routing.routed_per_second import routed_per_s
from experiments.routing.sweep import (
    ABLATION,
    FACTORS,
    FILES,
    Routing,
    Swept,
    ordered,
    row,
    saturation,
)
from teola.errors import UnknownName
from teola.policies.routing import ROUTING
from teola.runtime import machine

INSTANCES: Final = (4, 8)
ABLATED: Final = "toolbench"
POLICIES: Final = ("round_robin", *(name for name in ROUTING if name != "round_robin"))
MEASURED: Final = ("marginal_cost", "graph_aware", "e2")
"""Of which it is told how many calls a second they place."""
Row = Mapping[str, Any]
Key = tuple[str, float]


def measure(options: Options, progress: Progress) -> Report:
    """rows: of each replay. ratios: how policies compare. routed_per_s: by policy."""
    given = options.given
    policies = _policies(given.policies)
    seeds = range(options.seed, options.seed + _seeds(options))
    swept = _swept(options)
    found = (
        pool.run([(saturation, (one,)) for one in swept], options.workers, progress, "rates")
        if given.trace is None
        else [given.speedup] * len(swept)
    )
    jobs = []
    for one, most in zip(swept, found, strict=True):
        factors = FACTORS if given.trace is None else (1.0,)
        ablated = "e2" in policies and one.workload == ABLATED
        more = [routing for routing in ABLATION if routing.name not in policies] if ablated else []
        routings = [*(Routing(name, name, {}) for name in policies), *more]
        jobs += [
            (row, (one, most * factor, routing, seed))
            for factor in reversed(factors)
            for routing in routings
            for seed in seeds
        ]
    rows = ordered(pool.run(jobs, options.workers, progress, "replays"))
    per_s = {name: routed_per_s(name) for name in MEASURED if name in policies}
    about = {"machine": machine.describe(()), **options.about(), "seeds": len(seeds)}
    about["lengths"] = "those of the traces" if options.data or given.trace else "made by seed"
    about["profile"] = given.profile or "llama-8b-h100"
    return {"rows": rows, "ratios": ratios(rows), "routed_per_s": per_s, "about": about}


def _seeds(options: Options) -> int:
    """One for a trace, unless told."""
    return 1 if options.given.trace is not None and not options.given.seeds else options.seeds


def _policies(given: str | None) -> tuple[str, ...]:
    """Those that were asked for. Raises UnknownName."""
    if given is None:
        return POLICIES
    names = tuple(name.strip() for name in given.split(","))
    for name in names:
        if name not in ROUTING:
            raise UnknownName("routing policy", name, ROUTING)
    return tuple(dict.fromkeys(names))


def _swept(options: Options) -> list[Swept]:
    """Workloads, those that take longest first."""
    given = options.given
    counts = [given.instances] if given.instances else [*INSTANCES]
    more = {"count": options.queries, "data": options.data, "profile": given.profile}
    if given.trace is not None:
        return [Swept(given.trace.stem, counts[0], **more, file=given.trace)]
    traces = FILES if options.data is not None else {}
    names = [*reversed([*PREBLE]), *traces]
    return [Swept(name, count, **more) for count in counts for name in names]


# --- what is compared -----------------------------------------------------------------------


def ratios(rows: Sequence[Row]) -> Report:
    """over_best: by policy, its mean latency (of seeds) over the best policy's, in the geometric
    mean of cells and in the worst one. e2_ahead, oracle_over_e2: least and most, over the cells, of
    another's time over E2's. ablation: means over the cells of its workload, by variant."""
    mean, p99 = (by_cell(rows, what) for what in ("mean_s", "p99_s"))
    extra = {routing.name for routing in ABLATION} - set(ROUTING)
    found: Report = {"over_best": over_best(mean, extra)}
    for name, other in (("e2_ahead", "round_robin"), ("oracle_over_e2", "oracle_partition")):
        both = [cell for cell, of in mean.items() if other in of and "e2" in of]
        if both:
            found[name] = {
                what: [
                    round(pick(of[cell][other] / of[cell]["e2"] for cell in both), 3)
                    for pick in (min, max)
                ]
                for what, of in (("mean", mean), ("p99", p99))
            }
    ablated = [cell for cell, of in mean.items() if "e2-per-request" in of]
    if ablated:
        found["ablation"] = {
            name: {
                "mean_s": fmean(mean[cell][name] for cell in ablated),
                "p99_s": fmean(p99[cell][name] for cell in ablated),
            }
            for name in ("round_robin", *(routing.name for routing in ABLATION))
            if all(name in mean[cell] for cell in ablated)
        }
    return found


def by_cell(rows: Sequence[Row], what: str) -> dict[Key, dict[str, float]]:
    """A figure's mean over seeds, by workload and rate, and policy."""
    found: dict[Key, dict[str, list[float]]] = {}
    for one in rows:
        cell = found.setdefault((one["workload"], one["rate"]), {})
        cell.setdefault(one["policy"], []).append(one[what])
    return {key: {name: fmean(some) for name, some in of.items()} for key, of in found.items()}


def over_best(cells: Mapping[Key, Mapping[str, float]], but: set[str]) -> Report:
    """By policy, the best first."""
    over: dict[str, list[float]] = {}
    for of in cells.values():
        some = {name: value for name, value in of.items() if name not in but}
        best = min(some.values())
        for name, value in some.items():
            over.setdefault(name, []).append(value / best)
    found = {
        name: {
            "geometric_mean": round(exp(fmean(map(log, some))), 4),
            "worst": round(max(some), 4),
        }
        for name, some in over.items()
    }
    return dict(sorted(found.items(), key=lambda item: item[1]["geometric_mean"]))
