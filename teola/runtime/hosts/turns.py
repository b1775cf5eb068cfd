"""Turns: how much of one kind of work runs at once, and how much of it for one tenant.

A free place goes to who of those that wait runs least, and among equals to who came first. One
tenant never has all places, so that another never waits for the first one's work to end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """places: how many at once, of all tenants; of one, all but one. For one event loop."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._share = max(1, places - 1)
        self._running: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """A place, as soon as there is one."""
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tenant, called))
        self._call()
        try:
            await called
            yield
        finally:
            if (tenant, called) in self._waiting:  # cancelled before its turn came
                self._waiting.remove((tenant, called))
            else:
                self._free += 1
                self._running.subtract((tenant,))
                self._running += Counter()  # forget whoever runs none
            self._call()

    def _call(self) -> None:
        """Give away what is free."""
        while self._free:
            waiting = [entry for entry in self._waiting if not entry[1].done()]
            able = [entry for entry in waiting if self._running[entry[0]] < self._share]
            if not able:
                return
            tenant, called = min(able, key=lambda entry: self._running[entry[0]])
            self._waiting.remove((tenant, called))
            self._free -= 1
            self._running[tenant] += 1
            called.set_result(None)
