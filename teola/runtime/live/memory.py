"""How much KV memory busy LLM instances have left, asked now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from teola.engine import TellsMemory
from teola.errors import TeolaError
from teola.runtime.hosts.local import LocalHost
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceChanged, QueueEvent

INTERVAL_S: Final = 0.25
"""How often a busy LLM instance is asked for its free KV memory. A vLLM computes 10 ms on that, so
up to a second apart while there is room for `AMPLE` times what may be in prefilling."""
AMPLE: Final = 4


class MemoryWatch:
    """Tells the core what engines tell. post: takes the events."""

    def __init__(self, loop: asyncio.AbstractEventLoop, post: Callable[[QueueEvent], None]) -> None:
        self._loop, self._post = loop, post
        self._watchers: dict[tuple[str, int], asyncio.Task[None]] = {}

    def watch(self, queue: EngineQueue, instance: int, host: LocalHost) -> None:
        """While calls run on an engine that tells its free KV memory, ask it now and then."""
        key = (queue.engine, instance)
        watcher = self._watchers.get(key)
        if host.tells_memory and (watcher is None or watcher.done()):
            self._watchers[key] = self._loop.create_task(self._report(queue, instance, host))

    def tasks(self) -> Iterable[asyncio.Task[None]]:
        """What it has begun."""
        return self._watchers.values()

    async def _report(self, queue: EngineQueue, instance: int, host: LocalHost) -> None:
        engine, pause = host.engine, INTERVAL_S
        assert isinstance(engine, TellsMemory)
        while queue.instances[instance].entries:
            await asyncio.sleep(pause)
            try:
                free = await engine.capacity()
            except TeolaError:
                return  # calls on it will tell what is wrong
            if free is not None and queue.instances[instance].entries:
                self._post(InstanceChanged(queue.engine, instance, free))
            ample = free is not None and free >= AMPLE * queue.instances[instance].limits.max_batch
            pause = min(2 * pause, 1.0) if ample else INTERVAL_S
