"""What LLM instances say that their prefix caches keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from teola.engine import TellsPrefixes
from teola.errors import TeolaError
from teola.runtime.hosts.local import LocalHost
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import PrefixChanged, QueueEvent


class PrefixWatch:
    """Tells the core what engines tell. post: takes the events."""

    def __init__(self, loop: asyncio.AbstractEventLoop, post: Callable[[QueueEvent], None]) -> None:
        self._loop, self._post = loop, post
        self._watchers: dict[tuple[str, int], asyncio.Task[None]] = {}

    def watch(self, queue: EngineQueue, instance: int, host: LocalHost) -> None:
        """From now on, if this engine tells and its routing wants to know."""
        if not (host.tells_prefixes and queue.placing.by_keys):
            return
        place = queue.engine, instance
        watcher = self._watchers.get(place)
        if watcher is None or watcher.done():
            self._watchers[place] = self._loop.create_task(self._report(*place, host))

    def tasks(self) -> Iterable[asyncio.Task[None]]:
        """What it has begun."""
        return self._watchers.values()

    async def _report(self, engine: str, instance: int, host: LocalHost) -> None:
        told = host.engine
        assert isinstance(told, TellsPrefixes)
        try:
            async for change in told.prefix_changes():
                self._post(PrefixChanged(engine, instance, *change))
        except TeolaError:
            return  # calls on it will tell what is wrong
