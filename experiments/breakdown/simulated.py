"""The breakdown in simulation: the paper's testbed, one query and under load.

What a query waits inside an LLM instance for its next step counts as execution: the simulator's
trace does not tell it apart. Optimisation is measured, on this machine, and not simulated.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from experiments.baselines.systems import TEOLA, Planner
from experiments.breakdown.path import Parts, parts
from experiments.common import command
from experiments.common.simulate import Setting, alone, rounded, sustained, under_load
from experiments.common.testbed import testbed
from experiments.common.workloads import example
from teola.graph import Op
from teola.graph.ops import CONTROL, DECODES
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Span
from teola.runtime.sim import SimulatedQuery

LLM: Final = "30b"
"""The paper's breakdown has it."""
LOADS: Final = {"50% load": 0.5, "80% load": 0.8}
"""Parts of what Teola sustains."""
REPETITIONS: Final = 200
FIRST_REPETITIONS: Final = 9


def rows(app: str, options: command.Options) -> list[dict[str, Any]]:
    """Mean parts of one query, and of those at each load."""
    setting = Setting(app, testbed(LLM), options.queries, options.seed, options.data)
    planning = cached_planning(setting)
    hop = setting.testbed.profile.dispatch_s

    def inside(span: Span) -> float:
        op = Op(span.op)
        return span.end - span.start - (0.0 if op in DECODES or op in CONTROL else hop)

    found: list[Parts] = []

    def keep(query: Query, result: SimulatedQuery) -> None:
        found.append(parts(query.trace, inside, 0.0))

    alone(TEOLA, setting, example(app), keep)
    made = [_row(app, "one query", found, planning)]
    most = sustained(TEOLA, setting)
    for load, part in LOADS.items():
        found.clear()
        under_load(TEOLA, setting, rounded(part * most), keep)
        made.append(_row(app, load, found, planning))
    return made


def planning(app: str) -> dict[str, Any]:
    """Seconds to plan a query of the paper's example: the first of its shape, and any other."""
    setting = Setting(app, testbed(LLM))
    times = []
    for _ in range(FIRST_REPETITIONS):
        planner = Planner(TEOLA, app, setting.testbed)
        began = time.perf_counter()
        planner.plan(48)
        times.append(time.perf_counter() - began)
    return {
        "app": app,
        "first_s": round(statistics.median(times), 7),
        "cached_s": round(cached_planning(setting), 7),
    }


def cached_planning(setting: Setting) -> float:
    """Seconds to plan a query whose shape was seen before: median of many."""
    planner = Planner(TEOLA, setting.app, setting.testbed)
    planner.plan(48)
    times = []
    for i in range(REPETITIONS):
        began = time.perf_counter()
        planner.plan(48 + i % 16)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _row(app: str, load: str, found: list[Parts], planning: float) -> dict[str, Any]:
    together = sum(found, Parts()) + Parts(optimisation=planning * len(found))
    return row(app, "simulated", load, together, len(found))


def row(app: str, runtime: str, load: str, together: Parts, queries: int) -> dict[str, Any]:
    """One line of the report: shares of the latency, and the mean latency."""
    return {
        "app": app,
        "runtime": runtime,
        "load": load,
        "latency_s": round(together.total / queries, 4),
        **{
            name: round(getattr(together, name) / together.total, 7)
            for name in ("optimisation", "communication", "queueing", "execution")
        },
        "queries": queries,
    }
