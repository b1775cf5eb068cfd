"""Keeps engine instances that run elsewhere alive: looks after them, replaces those that died.

The core hears InstanceDown when one is lost and InstanceUp when its successor has started. Work
waits for that one until `TRIES` attempts have failed by themselves, or `PATIENCE_S` have passed;
then the core hears that nothing need wait. A process that was killed while it started is not
counted: that says nothing about the next one (docs/decisions/0043-killed-while-starting.md). What
stands in the way may still go, so it is tried again every `MOST_PAUSE_S`. Servers that others run
(a vLLM by URL) are not ours to restart: the core's own ejection deals with them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from teola.errors import EngineError, EngineUnavailable
from teola.runtime.hosts.remote import Killed, RemoteEngine
from teola.runtime.observe.noting import note
from teola.schedule.events import InstanceDown, InstanceUp, QueueEvent

PING_EVERY_S: Final = 5.0
PING_LIMIT_S: Final = 30.0
TRIES: Final = 5
PATIENCE_S: Final = 120.0
"""The time that queries have by default: few of those that wait would live to see a later
success."""
PAUSE_S: Final = 0.5
"""Before the second attempt; doubled before each further one."""
WAITED_FOR_PAUSE_S: Final = 5.0
"""The longest while work waits for the instance."""
MOST_PAUSE_S: Final = 60.0
"""The longest once nothing waits for it."""

log = logging.getLogger(__name__)


class Supervisor:
    """Watches engines on one event loop. post: takes what the core is to hear."""

    def __init__(self, post: Callable[[QueueEvent], None]) -> None:
        self._post = post
        self._tasks: set[asyncio.Task[None]] = set()
        self._minding: dict[tuple[str, int], asyncio.Task[None]] = {}

    def watch(self, name: str, instance: int, engine: RemoteEngine) -> None:
        """Look after a running engine from now on."""

        def lost(error: EngineUnavailable) -> None:
            note(
                log,
                logging.WARNING,
                "engine_lost",
                "engine %(engine)s: instance %(instance)d is lost (%(error_type)s); "
                "starting another",
                engine=name,
                instance=instance,
                error_type=type(error).__name__,
            )
            self._post(InstanceDown(name, instance))
            self.heal(name, instance, engine)

        self._mind(name, instance, self._ping(engine))
        engine.on_lost = lost
        if engine.dead is not None:  # since it started, while nobody looked
            lost(engine.dead)

    def heal(self, name: str, instance: int, engine: RemoteEngine) -> None:
        """Start an engine that does not run, if need be several times, and look after it then."""
        engine.on_lost = None  # until there is another
        self._mind(name, instance, self._replace(name, instance, engine))

    def leave(self, name: str, instance: int, engine: RemoteEngine) -> None:
        """Look after it no more; a successor that is being started is abandoned."""
        engine.on_lost = None
        if task := self._minding.pop((name, instance), None):
            task.cancel()

    async def close(self) -> None:
        """Stop looking; what is being started is abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _mind(self, name: str, instance: int, work: Coroutine[Any, Any, None]) -> None:
        """Do this for the instance, instead of what was done for it before."""
        before = self._minding.get((name, instance))
        if before is not None and before is not asyncio.current_task():
            before.cancel()
        task = self._minding[name, instance] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ping(self, engine: RemoteEngine) -> None:
        """Ask now and then whether it is there; one that hangs is killed."""
        while engine.dead is None:
            await asyncio.sleep(PING_EVERY_S)
            try:
                async with asyncio.timeout(PING_LIMIT_S):
                    await engine.ask("ping")
            except TimeoutError:
                engine.kill()
                name = engine.spec.name
                engine.lost(EngineUnavailable(f"engine {name!r}: no sign of life, killed"))
            except EngineError:
                return  # it has told of its end itself

    async def _replace(self, name: str, instance: int, engine: RemoteEngine) -> None:
        until = asyncio.get_running_loop().time() + PATIENCE_S
        pause, failures, waited_for = PAUSE_S, 0, True
        for attempt in itertools.count(1):
            try:
                await engine.start()
            except EngineError as error:
                failures += not isinstance(error, Killed)
                note(
                    log,
                    logging.WARNING,
                    "engine_start_failed",
                    "engine %(engine)s, instance %(instance)d: attempt %(attempt)d: %(error_type)s",
                    engine=name,
                    instance=instance,
                    attempt=attempt,
                    error_type=type(error).__name__,
                )
            else:
                self._post(InstanceUp(name, instance))
                message = "engine %(engine)s: instance %(instance)d runs again"
                note(log, logging.INFO, "engine_restarted", message, engine=name, instance=instance)
                self.watch(name, instance, engine)
                return
            late = asyncio.get_running_loop().time() >= until
            if waited_for and (failures >= TRIES or late):
                waited_for = False
                self._post(InstanceDown(name, instance, healing=False))
                message = "engine %(engine)s: instance %(instance)d is down; trying on now and then"
                note(log, logging.ERROR, "engine_down", message, engine=name, instance=instance)
            await asyncio.sleep(pause)
            pause = min(2 * pause, WAITED_FOR_PAUSE_S if waited_for else MOST_PAUSE_S)
