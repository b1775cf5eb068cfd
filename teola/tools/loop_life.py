"""What tools keep as long as an event loop runs: threads for functions that block, and connections
to servers. A Runtime ends it with its loop; elsewhere connections end when the loop's tasks are
cancelled, as `asyncio.run` does, and threads when the next loop begins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from teola.plain_json import is_small
from teola.threads import Threads


class Closes(Protocol):
    """Something that is kept."""

    async def close(self) -> None:
        """End it, so that nothing of it is left."""
        ...


C = TypeVar("C", bound=Closes)
T = TypeVar("T")


class LoopLife:
    """What is kept on one loop."""

    def __init__(self) -> None:
        self.threads = Threads("teola-tool")
        self._kept: dict[object, Closes] = {}
        self._aside = asyncio.Semaphore(1)

    async def aside(self, work: Callable[[], T], *values: Any) -> T:
        """What `work` makes of these values: here if they are small, else in a thread, one after
        another: many at once would take the processor from the loop in turns."""
        if all(map(is_small, values)):
            return work()
        async with self._aside:
            result: T = await self.threads.run(work)
            return result

    def keeps(self, key: object) -> bool:
        """Whether there is something under `key`."""
        return key in self._kept

    def keep(self, key: object, make: Callable[[], C]) -> C:
        """What is kept under `key`, made if there is nothing."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[return-value]  # a key belongs to one maker

    async def end(self, key: object) -> None:
        """Close what is kept under `key`."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            await kept.close()

    async def close(self) -> None:
        """Close everything."""
        self.threads.close()
        kept, self._kept = self._kept, {}
        await asyncio.gather(*(thing.close() for thing in kept.values()))


_lives: Final[dict[asyncio.AbstractEventLoop, LoopLife]] = {}
_changing: Final = threading.Lock()


def here() -> LoopLife:
    """The life of the loop that runs."""
    loop = asyncio.get_running_loop()
    life = _lives.get(loop)
    if life is None:
        with _changing:
            for other in [ended for ended in _lives if ended.is_closed()]:
                _lives.pop(other).threads.close()
            life = _lives[loop] = LoopLife()
    return life


async def close_here() -> None:
    """End what tools keep on the loop that runs; a later call begins anew."""
    with _changing:
        life = _lives.pop(asyncio.get_running_loop(), None)
    if life is not None:
        await life.close()
