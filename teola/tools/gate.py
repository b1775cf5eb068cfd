"""Gate: lets so many in at once, first come, first served, whatever loops they run on."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import Self

from teola.errors import InputError


class Gate:
    """`async with gate:` waits for a place. most: places; None: any number."""

    def __init__(self, most: int | None) -> None:
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise InputError(f"at_once must be 1, 2, 3, ..., got {most!r}")
        self.most = most
        self._free = most or 0
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        turn = self._ask()
        if turn is not None:
            try:
                await asyncio.wrap_future(turn)
            except BaseException:
                if not turn.cancel():  # its turn had come meanwhile
                    self._leave()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _ask(self) -> Future[None] | None:
        """None if there is room; else what is done when there is."""
        if self.most is None:
            return None
        with self._lock:
            if self._free:
                self._free -= 1
                return None
            turn: Future[None] = Future()
            self._waiting.append(turn)
            return turn

    def _leave(self) -> None:
        if self.most is None:
            return
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    break
            else:
                self._free += 1
                return
        turn.set_result(None)
