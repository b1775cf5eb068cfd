"""Aside: work that the event loop must not wait for, done in gulps by a thread of its own.

What comes within a tenth of a second is done together, so that a busy loop is seldom interrupted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LINGER_S: Final = 0.1


class Aside(Generic[T]):
    """Hands what is `put` to `work`, in order. most: may wait; further ones are dropped.

    `work` must not raise. `put` may be called on any thread and never waits.
    """

    def __init__(self, name: str, work: Callable[[list[T]], None], most: int) -> None:
        self._work, self._most = work, most
        self._waiting: deque[T] = deque()
        self._some, self._closing = threading.Event(), threading.Event()
        self.dropped = 0
        """How many were dropped so far."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Do this soon."""
        if len(self._waiting) >= self._most or self._closing.is_set():
            self.dropped += 1
            return
        self._waiting.append(item)
        if not self._some.is_set():
            self._some.set()

    def close(self, limit_s: float) -> bool:
        """Do what waits, take nothing more; whether that was done within the limit."""
        self._closing.set()
        self._some.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._some.wait()
            self._closing.wait(LINGER_S)
            self._some.clear()
            self._gulp()
        self._gulp()

    def _gulp(self) -> None:
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        if taken:
            self._work(taken)
