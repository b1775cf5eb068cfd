"""A runtime's thread, and its tasks: how they ended, and ending them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

from teola.threads import LastingPool


class LoopThread(threading.Thread):
    """A thread that runs a runtime's loop, and must not be blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.set_default_executor(LastingPool(thread_name_prefix="asyncio"))
        super().__init__(target=loop.run_forever, name="teola", daemon=True)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end; a second cancellation would interrupt their clean-up."""
    found = list(tasks)
    for task in found:
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*found, return_exceptions=True)


def in_vain(task: asyncio.Task[Any]) -> bool:
    """Whether it ended, but not as it should."""
    return task.cancelled() or task.exception() is not None
