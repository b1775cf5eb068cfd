"""Timing: one query at a time in turns, the best capacity, and Poisson arrivals at parts of it.

All systems answer the first repetition before any answers the second, each time in an order that is
drawn anew, so a disturbance of the machine hits all alike, and what one leaves behind does not
always hit the same next one. All answer the same queries.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from experiments.real_engines.recording import Log
from experiments.real_engines.servers import busy_s
from experiments.real_engines.steps import System
from experiments.real_engines.workload import Query, Workload, arrivals
from teola.runtime.observe.trace import Trace

ONE = "one"
AT_ONCE = 4
"""Queries in flight when capacity is measured."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One query: seconds to the whole answer, and to its first token."""

    latency_s: float
    first_token_s: float


@dataclass(slots=True)
class Point:
    """What was measured of a system at one application, document size and load.

    busy: processor seconds in all, by process. traces: of our queries, one at a time.
    """

    system: str
    style: str
    app: str
    chunks: int
    load: str
    samples: list[Sample] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)


class Measurement:
    """Measures systems on a workload. told: is called with the name of each query that ended.

    processes: pids whose processor time is read.
    """

    def __init__(self, workload: Workload, processes: dict[str, int], told: Told) -> None:
        self._workload, self._processes, self._told = workload, processes, told
        self.points: dict[tuple[str, str, str, int, str], Point] = {}

    async def in_turns(
        self, systems: Sequence[System], app: str, chunks: int, repetitions: int
    ) -> None:
        """One query at a time; one more before them, unmeasured: nobody is the first of a size."""
        await systems[-1].answer(self._workload.query(app, chunks, "first", 0), Log())
        for repetition in range(repetitions):
            order = list(systems)
            random.Random(f"{app} {chunks} {repetition}").shuffle(order)
            for system in order:
                await self._alone(system, app, chunks, repetition)

    async def _alone(self, system: System, app: str, chunks: int, place: int) -> None:
        point = self._point(system, app, chunks, ONE)
        query = self._workload.query(app, chunks, ONE, place)
        before = busy_s(self._processes)
        point.samples.append(await self._one(system, query))
        self._add_busy(point, before)
        if trace := getattr(system, "last_trace", None):
            point.traces.append(trace)

    async def capacity(
        self, systems: Sequence[System], app: str, chunks: int, queries: int
    ) -> float:
        """Queries a second of the best of `systems`, `AT_ONCE` of them in flight."""
        best = 0.0
        for system in systems:
            waiting = [self._workload.query(app, chunks, "most", i) for i in range(queries)]
            began = time.monotonic()
            workers = (self._drain(system, waiting) for _ in range(AT_ONCE))
            await asyncio.gather(*workers)
            best = max(best, queries / (time.monotonic() - began))
        return best

    async def _drain(self, system: System, waiting: list[Query]) -> None:
        while waiting:
            await self._one(system, waiting.pop())

    async def arriving(
        self, system: System, app: str, chunks: int, load: str, rate: float, queries: int
    ) -> None:
        """Poisson arrivals at `rate` queries a second."""
        point = self._point(system, app, chunks, load)
        waiting = [self._workload.query(app, chunks, load, i) for i in range(queries)]
        before = busy_s(self._processes)
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._later(system, query, began + at))
                for query, at in zip(waiting, arrivals(rate, queries), strict=True)
            ]
        point.samples += [task.result() for task in running]
        self._add_busy(point, before)

    async def _later(self, system: System, query: Query, at: float) -> Sample:
        await asyncio.sleep(at - time.monotonic())
        return await self._one(system, query)

    async def _one(self, system: System, query: Query) -> Sample:
        log, began = Log(), time.monotonic()
        await system.answer(query, log)
        ended = time.monotonic()
        self._told(f"{system.name} {system.style}".strip())
        return Sample(ended - began, (log.first_token_at or ended) - began)

    def _point(self, system: System, app: str, chunks: int, load: str) -> Point:
        key = (system.name, system.style, app, chunks, load)
        return self.points.setdefault(key, Point(*key))

    def _add_busy(self, point: Point, before: dict[str, float]) -> None:
        for name, seconds in busy_s(self._processes).items():
            point.busy[name] = point.busy.get(name, 0.0) + seconds - before[name]
