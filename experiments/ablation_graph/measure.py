"""Runs every variant of the passes, alone and under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.modules import chain
from experiments.baselines.systems import TEOLA, Cache, System
from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.common.simulate import Setting, alone, saturation, under_load
from experiments.common.testbed import testbed
from experiments.common.workloads import APPS, example
from teola.graph import Graph

LLM: Final = "13b"
PARALLEL: Final = ("prune_dependencies", "split_prefilling")
PIPELINED: Final = ("decompose_stages", "pipeline_decoding")
VARIANTS: Final[Mapping[str, Sequence[str]]] = {
    "none": (),
    "parallelisation": PARALLEL,
    "pipelining": PIPELINED,
    "both": ("prune_dependencies", "decompose_stages", "split_prefilling", "pipeline_decoding"),
}
"""The passes of each variant, in the pipeline's order (paper, section 7.4). Pipelining alone keeps
the order of modules between which no data flows."""
CACHES: Final = {"instructions computed": Cache.QUERY, "instructions cached": Cache.ALL}
"""Whether the engines keep instructions: the paper's ablation computes them for each query."""
LOADS: Final = {"10%": 0.1, "40%": 0.4, "80%": 0.8}
"""Parts of the saturation rate without any pass."""
SATURATING: Final = 400
ONE: Final = "one query"


def measure(options: Options, progress: Progress) -> Report:
    """Mean latency of every variant, alone and under load."""
    settings = {
        app: Setting(
            app, testbed(LLM), queries=options.queries, seed=options.seed, data=options.data
        )
        for app in APPS
    }
    kinds = [(app, cache) for app in APPS for cache in CACHES]
    rates = pool.run(
        [(_saturation, (settings[app], cache)) for app, cache in kinds],
        options.workers,
        progress,
        "saturation",
    )
    places = [
        (app, cache, load, 0.0 if load == ONE else float(f"{LOADS[load] * rate:.4g}"), name)
        for (app, cache), rate in zip(kinds, rates, strict=True)
        for load in (ONE, *LOADS)
        for name in VARIANTS
    ]
    jobs = [(_mean, (settings[app], cache, name, rate)) for app, cache, _, rate, name in places]
    means = pool.run(jobs, options.workers, progress, "under load")
    keys = ("app", "instructions", "load", "rate", "variant", "mean_s")
    rows = [
        dict(zip(keys, (*place, mean), strict=True))
        for place, mean in zip(places, means, strict=True)
    ]
    return {"rows": rows, "speedups": _speedups(rows), "about": {"llm": LLM, **options.about()}}


def _system(cache: str, variant: str) -> System:
    p_graph = loosened if variant == "pipelining" else chain
    return replace(TEOLA, p_graph=p_graph, cache=CACHES[cache], passes=tuple(VARIANTS[variant]))


def loosened(graph: Graph) -> Graph:
    """Without the orders that data imply: as long as they stand, a module waits for the whole of
    the one before it, and its pieces cannot follow one another."""
    made = []
    for p in graph.primitives:
        read = {ref.producer for ref in p.refs()}
        after = tuple(o for o in p.after if o.effect or o.producer not in read)
        made.append(replace(p, after=after))
    return Graph(graph.name, made, graph.outputs, graph.inputs)


def _saturation(setting: Setting, cache: str) -> float:
    few = replace(setting, queries=min(SATURATING, setting.queries))
    return saturation(_system(cache, "none"), few)


def _mean(setting: Setting, cache: str, variant: str, rate: float) -> float:
    system = _system(cache, variant)
    if rate == 0.0:
        return round(alone(system, setting, example(setting.app)), 4)
    return round(under_load(system, setting, rate).mean, 4)


def _speedups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many times lower than without passes the mean latency is."""
    where = ("app", "instructions", "load")
    plain = {tuple(r[k] for k in where): r["mean_s"] for r in rows if r["variant"] == "none"}
    return [
        {
            **{key: r[key] for key in (*where, "variant")},
            "speedup": round(plain[tuple(r[k] for k in where)] / r["mean_s"], 4),
        }
        for r in rows
        if r["variant"] != "none"
    ]
