"""Threads for functions that block: one for each call that runs, used again when it is idle.

They are daemons, so the end of the process does not wait for a call that nobody wants any more.
How many calls run is bounded by who makes them; what has been given up still takes a thread until
it returns, and that is bounded here.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from teola.errors import EngineError

MOST: Final = 4096
"""Threads at once."""
IDLE: Final = 64
"""Of those that have nothing to do, as many are kept."""

ThreadWork = tuple[Callable[[], Any], "Future[Any]"]
T = TypeVar("T")
P = ParamSpec("P")


class Threads:
    """See the module. name: of each thread."""

    def __init__(self, name: str, most: int = MOST) -> None:
        self.name, self.most = name, most
        self.count = 0
        """Threads that there are."""
        self._idle: deque[SimpleQueue[ThreadWork | None]] = deque()
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[], Any]) -> Any:
        """What `work` returns, called in a thread. Cancelling lets go of it. Raises EngineError."""
        done: Future[Any] = Future()
        self._give((work, done))
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """Let threads end as soon as they have nothing to do."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, deque()
        for inbox in idle:
            inbox.put(None)

    def _give(self, work: ThreadWork) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
            if inbox is None:
                if self.count >= self.most:
                    raise EngineError(
                        f"{self.count} threads are busy with functions, some perhaps with calls "
                        "that were given up; let the functions return sooner, or make them async"
                    )
                self.count += 1
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name=self.name, daemon=True).start()
        inbox.put(work)

    def _serve(self, inbox: SimpleQueue[ThreadWork | None]) -> None:
        while (work := inbox.get()) is not None:
            _do(*work)
            del work
            with self._lock:
                if self._closed or len(self._idle) >= IDLE:
                    break
                self._idle.append(inbox)
        with self._lock:
            self.count -= 1


def _do(work: Callable[[], Any], done: Future[Any]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the future passes it on to who waits
        done.set_exception(error)
    else:
        done.set_result(result)


class LastingPool(ThreadPoolExecutor):
    """A ThreadPoolExecutor that still works while the process exits.

    Python ends the threads of all pools as soon as the main thread has ended, before functions that
    are registered with `atexit` run, and starts none from then on. What a pool is given after that
    runs in the thread that gives it, so that engines can be closed.
    """

    _closed = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See ThreadPoolExecutor. Raises RuntimeError after `shutdown`."""
        try:
            return super().submit(work, *args, **kwargs)
        except RuntimeError:
            if self._closed or threading.main_thread().is_alive():
                raise
        done: Future[T] = Future()
        _do(lambda: work(*args, **kwargs), done)
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See ThreadPoolExecutor."""
        self._closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)
