"""Finds the KV memory that a run had, where it does not tell, from how many requests ran at once.

Where memory is the limit, fewer run at once than there are places, and others wait. A replay says
how many would run with so much memory, and the memory with which as many run as did is taken. What
a step takes is found with it in turns, since each depends on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Final

import numpy
from numpy.typing import NDArray

from teola.profile import StepTime
from teola.runtime.step_fit.fit import fitted
from teola.runtime.step_fit.recorded_run import RecordedRequest, RecordedRun
from teola.runtime.step_fit.stepping import replay

FEWER: Final = 0.95
"""Memory was the limit if fewer ran than this part of those that would without one."""
TURNS: Final = 6
CLOSE: Final = 0.003
"""A turn that changes the memory by no more than this fraction is the last one."""
LOOKS: Final = 400
"""Times at which requests are counted."""
Times = NDArray[numpy.float64]


def learned(run: RecordedRun, count: int) -> tuple[RecordedRun, StepTime]:
    """The run with its KV memory, and its step, both by the first `count` requests. The memory
    stays None if the run does not tell of it and it was not the limit."""
    time = fitted(run, count)
    if run.kv_blocks is not None:
        return run, time
    for _ in range(TURNS):
        before: int | None = run.kv_blocks
        blocks = _blocks(run, time, count)
        run = replace(run, kv_blocks=blocks)
        if blocks is None:
            return run, fitted(run, count) if before is not None else time
        time = fitted(run, count, time)
        if before is not None and abs(blocks - before) <= CLOSE * before:
            break
    return run, time


def _blocks(run: RecordedRun, time: StepTime, count: int) -> int | None:
    """With so much memory as many run at once as did; None: with any."""

    def would_run(blocks: int | None) -> float:
        return _ran(replay(replace(run, kv_blocks=blocks), time).answered[:count])

    wanted = _ran(run.requests[:count])
    if wanted >= FEWER * would_run(None):
        return None
    low, high = run.largest, 2 * (run.kv_blocks or run.largest)
    while would_run(high) < wanted:
        low, high = high, 2 * high
    while high - low > max(1, CLOSE * low):
        middle = (low + high) // 2
        if would_run(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def _ran(requests: Sequence[RecordedRequest]) -> float:
    """How many generated at once, on average, while another one of them waited for its first token;
    infinite if none ever did. Until the last of them has its first token, no later one runs."""
    times = numpy.linspace(0.0, max(one.first for one in requests), LOOKS, endpoint=False)
    waited = _between(requests, times, lambda one: one.queued, lambda one: one.first)
    times = times[waited > 0]
    if not len(times):
        return inf
    return float(_between(requests, times, lambda one: one.first, lambda one: one.last).mean())


def _between(
    requests: Sequence[RecordedRequest],
    times: Times,
    begins: Callable[[RecordedRequest], float],
    ends: Callable[[RecordedRequest], float],
) -> Times:
    """At each of these times, how many requests have begun and not ended."""
    begun = numpy.searchsorted(
        numpy.sort([begins(request) for request in requests]), times, "right"
    )
    ended = numpy.searchsorted(numpy.sort([ends(request) for request in requests]), times, "right")
    return (begun - ended).astype(float)
