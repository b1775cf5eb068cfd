"""Being alive, and hearing that others are not: what ownership of pending documents rests on.

Each store keeps one connection open that holds an advisory lock on the store's random `token`
and listens for changes of documents. The lock is free as soon as the process is gone, however it
went; who waits for a document of that process waits for its lock, and is woken by the server.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

from psycopg import AsyncConnection, OperationalError, errors

from .database import Database

logger = logging.getLogger(__name__)
CHANNEL = "teola_documents"
"""Carries the key of a document that became visible or was given up; or `PURGE` and the id of a
collection that has documents which only queries in flight still see."""
PURGE = "purge:"


class Presence:
    """One store's sign of life, and its listener. on_purge: called with a collection that another
    process could not purge. on_lost: called when others took this process for gone."""

    def __init__(self, database: Database) -> None:
        self.token = secrets.randbits(62)
        self._database = database
        self._open = AsyncExitStack()
        self._ear: asyncio.Task[None] | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._watchers: dict[int, tuple[asyncio.Task[None], int]] = {}
        self._opening = asyncio.Lock()
        self.on_purge: Callable[[int], None] = lambda collection: None
        self.on_lost: Callable[[], None] = lambda: None

    async def ensure(self) -> None:
        """Show the sign of life, again if its connection was lost. Raises EngineUnavailable."""
        async with self._opening:
            if self.shown:
                return
            await self._hang_up()
            connection = await self._open.enter_async_context(self._database.dedicated())
            await connection.execute("SELECT pg_advisory_lock(%s)", (self.token,))
            await connection.execute(f"LISTEN {CHANNEL}")
            self._ear = asyncio.create_task(self._listen(connection), name="vectorstore-listen")

    @property
    def shown(self) -> bool:
        """Whether others take us for alive."""
        return self._ear is not None and not self._ear.done()

    async def close(self) -> None:
        async with self._opening:
            await self._hang_up()

    async def _hang_up(self) -> None:
        if self._ear is not None:
            self._ear.cancel()
            await asyncio.wait({self._ear})
            self._ear = None
        await self._open.aclose()

    async def _listen(self, connection: AsyncConnection[Any]) -> None:
        """Wake whoever waits for a document that changed; wake all, once the connection is lost."""
        try:
            async for notification in connection.notifies():
                payload = notification.payload
                if payload.startswith(PURGE):
                    self.on_purge(int(payload.removeprefix(PURGE)))
                else:
                    self.wake([payload])
        except OperationalError as error:
            logger.warning("lost the connection that shows us alive; making another: %s", error)
        finally:
            self.on_lost()
            self.wake(list(self._waiting))

    def wake(self, documents: Iterable[str]) -> None:
        """Wake those who wait for the documents here."""
        for document in documents:
            _wake(self._waiting.get(document, ()))

    @contextmanager
    def hearing(self, documents: Iterable[str]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of the documents changes."""
        event, names = asyncio.Event(), list(documents)
        for name in names:
            self._waiting.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            for name in names:
                self._waiting[name].discard(event)
                if not self._waiting[name]:
                    del self._waiting[name]

    async def wait(self, event: asyncio.Event, holder: int) -> None:
        """Until the event is set or the store with token `holder` is gone."""
        heard = asyncio.create_task(event.wait(), name="vectorstore-heard")
        try:
            async with self._watched(holder) as watcher:
                tasks = {heard, watcher} if watcher else {heard}
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if watcher in done:
                    await watcher
        finally:
            heard.cancel()
            await asyncio.wait({heard})

    @asynccontextmanager
    async def _watched(self, holder: int) -> AsyncIterator[asyncio.Task[None] | None]:
        """The one task that waits for the end of `holder`; the last who leaves cancels it."""
        if holder == self.token:
            yield None
            return
        task, count = self._watchers.get(holder, (None, 0))
        if task is None or task.done():
            task = asyncio.create_task(self._outlive(holder), name="vectorstore-watch")
            count = 0
        self._watchers[holder] = (task, count + 1)
        try:
            yield task
        finally:
            await self._leave(holder, task)

    async def _leave(self, holder: int, task: asyncio.Task[None]) -> None:
        current, count = self._watchers.get(holder, (task, 1))
        if current is task and count > 1:
            self._watchers[holder] = (task, count - 1)
            return
        if current is task:
            self._watchers.pop(holder, None)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # told to those who still waited; nobody is left to tell

    async def _outlive(self, holder: int) -> None:
        """Returns when the other's lock is free: its process is gone."""
        async with self._database.dedicated() as connection:
            # If *this* process goes, its waiting server process must not stay behind.
            with suppress(errors.InvalidParameterValue):  # servers on some systems cannot
                await connection.execute("SET client_connection_check_interval = '5s'")
            await connection.execute("SELECT pg_advisory_lock_shared(%s)", (holder,))


def _wake(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
