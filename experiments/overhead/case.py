"""One thing to time, and how its seconds become the figure that is reported."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")

NODES = 50
"""Nodes in every chain and fan-out, the same for all systems."""
AT_ONCE = (1, 2, 8)
"""Concurrent queries that are timed."""


@dataclass(frozen=True, slots=True)
class Case:
    """`once` performs one repetition and returns its seconds; `figure` converts them for `key`.

    `once` times only the run itself, checks its result, and raises if the result is wrong: a
    system that skipped the work would otherwise win.
    """

    key: str
    once: Callable[[], Awaitable[float]]
    figure: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a waiting query holds. prepare: given how many there will be, what runs one query of the
    chain to its result; its first node waits at the gate. expected: of the result."""

    key: str
    prepare: Callable[[int, Gate], Callable[[], Coroutine[Any, Any, Any]]]
    expected: Callable[[Any], bool]


@dataclass(slots=True)
class Gate:
    """Where queries wait, on whatever loop they run."""

    _futures: list[asyncio.Future[None]] = field(default_factory=list)
    _open: bool = False

    @property
    def waiting(self) -> int:
        """How many have come."""
        return len(self._futures)

    async def wait(self) -> None:
        """Until the gate is opened."""
        if not self._open:
            self._futures.append(asyncio.get_running_loop().create_future())
            await self._futures[-1]

    def open(self) -> None:
        """Let all of them go on, and others pass."""
        self._open = True
        for future in self._futures:
            future.get_loop().call_soon_threadsafe(future.set_result, None)
        self._futures.clear()

    def close(self) -> None:
        """Who comes now has to wait."""
        self._open = False


async def kib_each(footprint: Footprint, queries: int) -> float:
    """KiB that Python allocates and holds for each of `queries` that wait in their first node.

    Two have run before, so what is made once for all is not counted.
    """
    gate = Gate()
    gate.open()
    run = footprint.prepare(queries, gate)
    for _ in range(2):
        _check(await run(), footprint.expected)
    gate.close()
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        tasks = [asyncio.create_task(run()) for _ in range(queries)]
        async with asyncio.timeout(120):
            while gate.waiting < queries:
                await asyncio.sleep(0.01)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gate.open()
    for result in await asyncio.gather(*tasks):
        _check(result, footprint.expected)
    return (held - before) / queries / 1024


def per_node_us(seconds: float) -> float:
    """Microseconds per node of a run over `NODES` nodes."""
    return seconds / NODES * 1e6


def several(
    key: str, run: Callable[[], Awaitable[Result]], expected: Callable[[Result], bool]
) -> list[Case]:
    """The cases of a run with `NODES` nodes: alone (`key` with `_us`), and 2 and 8 at once."""
    return [_at_once(key, run, expected, queries) for queries in AT_ONCE]


def _at_once(
    key: str, run: Callable[[], Awaitable[Result]], expected: Callable[[Result], bool], queries: int
) -> Case:
    if queries == 1:
        return Case(f"{key}_us", timed(run, expected), per_node_us)
    together = timed(
        lambda: asyncio.gather(*(run() for _ in range(queries))),
        lambda results: all(map(expected, results)),
    )
    return Case(f"{key}_{queries}_us", together, lambda seconds: per_node_us(seconds) / queries)


def milliseconds(seconds: float) -> float:
    return seconds * 1e3


def per_second(count: int) -> Callable[[float], float]:
    """A rate: `count` things were done in the seconds of one repetition."""
    return lambda seconds: count / seconds


def timed(
    run: Callable[[], Awaitable[Result]], expected: Callable[[Result], bool]
) -> Callable[[], Awaitable[float]]:
    """A `once` that awaits `run()` under the clock and then checks what came out."""

    async def once() -> float:
        start = time.perf_counter()
        result = await run()
        seconds = time.perf_counter() - start
        _check(result, expected)
        return seconds

    return once


def _check(result: Result, expected: Callable[[Result], bool]) -> None:
    if not expected(result):
        raise AssertionError(f"a measured run returned a wrong result: {result!r:.200}")
