"""An event loop whose time passes only when nothing else is left to do, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

THREAD_S = 0.003
"""Until a function that was given to a thread has returned."""


class Jumping(selectors.SelectSelector):
    """Waits for nothing: instead of sleeping, it moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if timeout is None:
            assert ready, "everything waits for something that cannot happen any more"
        elif timeout > 0 and not ready:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at time 0. Raises AssertionError where a real loop would wait for ever."""

    def __init__(self) -> None:
        self._jumping = Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Here, a little later: a thread would be as late as it likes."""
        done: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if not done.done():
                done.set_result(func(*args))

        self.call_later(THREAD_S, run)
        return done
