"""The processor time of an event loop's turns: what one turn takes, everybody else waits for.

It is the loop's thread alone that counts, so neighbours on the machine do not change it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import thread_time
from typing import Any

MOST_S = 0.5
"""Of one turn, whatever a tool, a client or a model gives: twice what `experiments.doors` allows,
since processors differ that much."""


@dataclass
class LongestTurn:
    """seconds: of processor time that the longest turn took."""

    seconds: float = 0.0


@contextmanager
def longest_turn(loop: asyncio.AbstractEventLoop | None = None) -> Iterator[LongestTurn]:
    """Measures the turns of a loop, which may run in another thread; by default of the one that
    runs here, with what is left of the turn in which this begins and what there was of the one in
    which it ends."""
    timed: Any = loop or asyncio.get_running_loop()
    turn, longest, began = timed._run_once, LongestTurn(), thread_time()

    def count() -> None:
        longest.seconds = max(longest.seconds, thread_time() - began)

    def run_once() -> None:
        nonlocal began
        if loop is None:
            count()
        began = thread_time()
        turn()
        count()

    timed._run_once = run_once
    gc.freeze()  # no full collection of what exists already counts as part of a turn
    try:
        yield longest
    finally:
        del timed._run_once
        if loop is None:
            count()
