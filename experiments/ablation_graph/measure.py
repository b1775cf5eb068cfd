"""Runs the applications with all passes, without each, and with some: alone and under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.modules import chain
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
from teola.graph import Graph
from teola.passes import PIPELINE

LLM: Final = "30b"
"""The paper's ablations have it."""
ALL: Final = tuple(PIPELINE)
WHOLE: Final = "all"
PIPELINED: Final = ("decompose_stages", "pipeline_decoding", "split_reranking")
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "none": (),
    "parallelisation": tuple(name for name in ALL if name not in PIPELINED),
    "pipelining": PIPELINED,
    WHOLE: ALL,
}
"""The passes of figure 9's variants (paper, section 7.4). Pipelining alone keeps the order of
modules between which no data flows."""
WITHOUT: Final = {f"without {name}": tuple(p for p in ALL if p != name) for name in ALL}
VARIANTS: Final = {**GROUPS, **WITHOUT}
CACHES: Final = {"": Cache.ALL, ", instructions computed": Cache.QUERY}
"""What is added to the application's name: engines keep instructions, or compute them for each
query, as in the paper's ablation."""
ONE: Final = 0.0
"""The load of one query that has all engines to itself."""
Means = Mapping[float, Sequence[float]]
"""By load: the mean latency in seconds of each seed."""


def measure(options: Options, progress: Progress) -> Report:
    """How many times as high the mean is without each pass, and how many times lower with some."""
    settings = {
        app: Setting(
            app, testbed(LLM), queries=options.queries, seed=options.seed, data=options.data
        )
        for app in APPS
    }
    kinds = [(app, kept) for app in APPS for kept in CACHES]
    jobs = [(_sustained, (settings[app], kept)) for app, kept in kinds]
    rates = pool.run(jobs, options.workers, progress, "saturation")
    runs = [
        (settings[app], kept, name, rate, options.seeds)
        for (app, kept), rate in zip(kinds, rates, strict=True)
        for name in VARIANTS
    ]
    found = pool.run([(_means, run) for run in runs], options.workers, progress, "under load")
    means = {
        (setting.app + kept, name): some
        for (setting, kept, name, _, _), some in zip(runs, found, strict=True)
    }
    places = [app + kept for app, kept in kinds]
    return {
        "rows": _rows(places, means),
        "groups": _groups(places, means),
        "sustained": [
            {"app": place, "rate": rate} for place, rate in zip(places, rates, strict=True)
        ],
        "about": {"llm": LLM, **options.about()},
    }


def _system(kept: str, variant: str) -> System:
    p_graph = loosened if variant == "pipelining" else chain
    return replace(TEOLA, p_graph=p_graph, cache=CACHES[kept], passes=tuple(VARIANTS[variant]))


def loosened(graph: Graph) -> Graph:
    """Without the orders that data imply: as long as they stand, a module waits for the whole of
    the one before it, and its pieces cannot follow one another."""
    made = []
    for p in graph.primitives:
        read = {ref.producer for ref in p.refs()}
        after = tuple(o for o in p.after if o.effect or o.producer not in read)
        made.append(replace(p, after=after))
    return Graph(graph.name, made, graph.outputs, graph.inputs)


def _sustained(setting: Setting, kept: str) -> float:
    return rounded(sustained(_system(kept, WHOLE), setting))


def _means(setting: Setting, kept: str, variant: str, rate: float, seeds: int) -> Means:
    system = _system(kept, variant)
    return {ONE: [alone(system, setting, example(setting.app))]} | {
        load: [
            under_load(system, replace(setting, seed=setting.seed + k), rounded(load * rate)).mean
            for k in range(seeds)
        ]
        for load in LOADS
    }


def _rows(places: Sequence[str], means: Mapping[tuple[str, str], Means]) -> list[dict[str, Any]]:
    """For each pass: the mean latency without it divided by that with all of them."""
    return [
        {
            "app": app,
            "pass": name,
            "load": load,
            "ratio": _ratio(means[app, f"without {name}"], means[app, WHOLE], load),
        }
        for app in places
        for name in ALL
        for load in LOADS
    ]


def _groups(places: Sequence[str], means: Mapping[tuple[str, str], Means]) -> list[dict[str, Any]]:
    """How many times lower than without passes the mean latency is; `mean_s`: of the first seed."""
    return [
        {
            "app": app,
            "load": load,
            "variant": name,
            "mean_s": round(means[app, name][load][0], 4),
            "speedup": _ratio(means[app, "none"], means[app, name], load),
        }
        for app in places
        for load in (ONE, *LOADS)
        for name in GROUPS
    ]


def _ratio(other: Means, ours: Means, load: float) -> float:
    pairs = zip(other[load], ours[load], strict=True)
    return round(geometric([theirs / mine for theirs, mine in pairs]), 4)
