"""What servers that others run say is left of their budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from teola.engine import CallsServer, LeftOfMinute
from teola.runtime.hosts.local import LocalHost
from teola.schedule.events import LimitsTold, QueueEvent


class AccountWatch:
    """Tells the core what servers tell: of one turn of the loop what answers the newest call, and
    only if something has changed. post: takes the events."""

    def __init__(self, loop: asyncio.AbstractEventLoop, post: Callable[[QueueEvent], None]) -> None:
        self._loop, self._post = loop, post
        self._told: dict[tuple[str, int], LeftOfMinute] = {}
        self._last: dict[tuple[str, int], LeftOfMinute] = {}

    def watch(self, engine: str, instance: int, host: LocalHost) -> None:
        """From now on, if its engine calls such a server."""
        if isinstance(host.engine, CallsServer):
            host.engine.on_left(partial(self._hear, (engine, instance)))

    def _hear(self, place: tuple[str, int], left: LeftOfMinute) -> None:
        if not self._told:
            self._loop.call_soon(self._pass_on)
        before = self._told.get(place)
        if before is None or left.ago_s <= before.ago_s:
            self._told[place] = left

    def _pass_on(self) -> None:
        told, self._told = self._told, {}
        for (engine, instance), left in told.items():
            same = left._replace(ago_s=0.0)
            if self._last.get((engine, instance)) != same:
                self._last[engine, instance] = same
                self._post(LimitsTold(engine, instance, *left))
