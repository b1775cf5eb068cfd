"""Runs advanced RAG on more and more instances, and with more and more queries.

Each size runs in a process of its own, one after the other, so that memory and time are its own.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log
from multiprocessing import get_context
from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.modules import chain
from experiments.baselines.systems import Planner, System
from experiments.common import workloads
from experiments.common.arrivals import arrivals
from experiments.common.command import Options, Report
from experiments.common.testbed import testbed
from experiments.common.workloads import Answers, Drawn
from experiments.scale import long_prompts
from teola.runtime import machine
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim, SimulatedQuery
from teola.schedule.events import State

APP: Final = "advanced-rag"
LLM: Final = "13b"
INSTANCES: Final = (10, 100, 1000)
SHARES: Final = {"embedding": 0.27, "rerank": 0.27, "llm": 0.45, "vectorstore": 0.01}
"""Of all instances: about what a query asks of each engine."""
RATE: Final = 0.108
"""Queries a second for each instance: engines are busy for about 60 % of the time."""
DRAWN: Final = 1000
"""Different queries; they come again and again."""
FED: Final = 1000
"""Queries that are handed to the simulator at a time, so that those to come need no memory."""
LONG_CALLS: Final = 4000
LONG_ROUTINGS: Final = ("least_loaded", "prefix_affinity")
"""Of calls with prompts of 7,000 tokens."""
FEWER: Final = (100, 10, 1)
"""Divisors of the number of queries, where it grows; the sizes of INSTANCES have a tenth of it."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated."""

    instances: int
    queries: int
    batching: str
    seed: int


class Again(Sequence[Drawn]):
    """The drawn queries, over and over."""

    def __init__(self, drawn: Sequence[Drawn]) -> None:
        self.drawn = drawn

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, k: Any) -> Any:
        return self.drawn[k % len(self.drawn)]


def measure(options: Options, progress: Progress) -> Report:
    """A row for each size, and how time and memory grow."""
    most = options.queries
    pairs = [(count, max(1, most // 10)) for count in INSTANCES]
    pairs += [(INSTANCES[-1], max(1, most // fewer)) for fewer in FEWER]
    batching = options.given.batching
    sizes = [Size(i, q, batching, options.seed) for i, q in dict.fromkeys(pairs)]
    task = progress.add_task("sizes", total=len(sizes))
    rows = []
    for size in sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(simulate, size).result())
        progress.advance(task)
    about = {"app": APP, "llm": LLM, "batching": batching, "machine": machine.describe(())}
    calls = min(LONG_CALLS, most)
    long = [long_prompts.measure(calls, name, options.seed) for name in LONG_ROUTINGS]
    found = {"rows": rows, "growth": growth(rows), "long_prompts": long}
    return {**found, "about": {**about, **options.about()}}


def simulate(size: Size) -> dict[str, Any]:
    """Run one size; its row. rss_mb: the most that the process ever held (10^6 bytes)."""
    bed = testbed(LLM)
    drawn = Again(workloads.draw(APP, min(DRAWN, size.queries), bed.values, seed=size.seed))
    planner = Planner(System("teola", chain, "all"), APP, bed)
    times = arrivals(RATE * size.instances, size.queries, seed=size.seed)
    answers = Answers(APP, drawn, bed.values)
    done = [0, 0]

    def ended(query: Query, result: SimulatedQuery) -> None:
        assert result.state is State.OK, "a simulated query failed"
        done[0] += 1
        done[1] += len(query.plan)
        answers.forget(query.id)

    instances = shared_out(size.instances)
    sim = Sim(
        bed.profile,
        batching=size.batching,
        instances=instances,
        outcomes=answers,
        on_finish=ended,
    )
    gc.collect()
    before = peak_mb()
    began, cpu = time.perf_counter(), time.process_time()
    for first in range(0, size.queries, FED):
        some = times[first : first + FED]
        for number, at in enumerate(some, first):
            query = drawn[number]
            given = workloads.inputs(APP, query, bed.values)
            sim.submit(planner.plan(query.chunks), given, at=at, id=str(number), app=APP)
        sim.run(until=some[-1])
        sim.results.clear()
    sim.run()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert done[0] == size.queries, "the simulator lost queries"
    return {
        "instances": sum(instances.values()),
        "queries": size.queries,
        "primitives": done[1],
        "virtual_s": round(sim.now, 1),
        "wall_s": round(wall, 4),
        "cpu_s": round(cpu, 2),
        "rss_mb": round(peak_mb(), 1),
        "start_mb": round(before, 1),
        "primitives_per_s": round(done[1] / wall),
    }


def shared_out(instances: int) -> dict[str, int]:
    """Instances of each engine."""
    return {name: max(1, round(share * instances)) for name, share in SHARES.items()}


def peak_mb() -> float:
    """The largest resident set of this process so far, in 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Exponents: ten times as many instances (queries) take 10 ** exponent times the processor
    time and memory. Instances grow at one number of queries, and the other way round."""
    most = max(row["instances"] for row in rows)
    few = [row for row in rows if row["queries"] == _commonest(rows)]
    large = [row for row in rows if row["instances"] == most]
    found = {}
    for by, some in (("instances", few), ("queries", large)):
        for what in ("cpu_s", "rss_mb"):
            found[f"{what}_by_{by}"] = round(_slope(some, by, what), 3)
    return found


def _commonest(rows: Sequence[Mapping[str, Any]]) -> int:
    counts = [row["queries"] for row in rows]
    return max(counts, key=counts.count)


def _slope(rows: Sequence[Mapping[str, Any]], by: str, what: str) -> float:
    """Least squares through the logarithms."""
    points = [(log(row[by]), log(max(row[what], 1e-3))) for row in rows]
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    above = sum((a - x) * (b - y) for a, b in points)
    below = sum((a - x) ** 2 for a, _ in points)
    return above / below if below else 0.0
