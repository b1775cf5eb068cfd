"""One thing to time, and how its seconds become the figure that is reported."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")

NODES = 50
"""Nodes in every chain and fan-out, the same for all systems."""


@dataclass(frozen=True, slots=True)
class Case:
    """`once` performs one repetition and returns its seconds; `figure` converts them for `key`.

    `once` times only the run itself, checks its result, and raises if the result is wrong: a
    system that skipped the work would otherwise win.
    """

    key: str
    once: Callable[[], Awaitable[float]]
    figure: Callable[[float], float]


def per_node_us(seconds: float) -> float:
    """Microseconds per node of a run over `NODES` nodes."""
    return seconds / NODES * 1e6


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
        if not expected(result):
            raise AssertionError(f"a timed run returned a wrong result: {result!r:.200}")
        return seconds

    return once
