"""Pins: which version of a collection a query sees, and when what died is deleted.

    first search of a query        pins the newest version: its later searches see that one
    it ends, or waits for people   lets go
    a document is replaced         it stays for those who read older versions, in all processes
    nobody reads them any more     it is purged

Pins are in memory. Other processes know of them by one row a process and collection in
`teola.readers`, with the oldest version that any of its queries may read. It is written when the
first query pins the collection. Later queries pin later versions, so the row may stay behind. It is
brought up to date only where it is in the way of a purge: whoever purges says so to all.

Registering locks the collection's row FOR SHARE, and a purge excludes that while it looks how far
back anybody reads: so what is read while registering cannot be purged before the row is there. A
query that has not found its version yet counts as a reader of the newest one that this process has
seen (`HeldVersions`): the one that it will find is no older.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from teola.errors import EngineUnavailable

from .database import Database
from .presence import CHANNEL, PURGE, Presence

logger = logging.getLogger(__name__)

HOME = "SELECT id, version FROM teola.collections WHERE name = %s FOR SHARE"
REGISTER = """
INSERT INTO teola.readers (tenant, holder, collection, oldest) VALUES (%s, %s, %s, %s)
ON CONFLICT (holder, collection) DO UPDATE SET oldest = least(readers.oldest, excluded.oldest)
RETURNING oldest
"""
LOCK = "SELECT version FROM teola.collections WHERE id = %s FOR NO KEY UPDATE"
ADVANCE = "UPDATE teola.readers SET oldest = %s WHERE holder = %s AND collection = %s"
LEAVE = "DELETE FROM teola.readers WHERE holder = %s AND collection = %s"
OLDEST = """
WITH known AS MATERIALIZED (
    SELECT holder FROM teola.readers WHERE collection = %(collection)s AND holder <> %(token)s
), dead AS MATERIALIZED (
    SELECT holder FROM known WHERE pg_try_advisory_xact_lock_shared(holder)
), gone AS (
    DELETE FROM teola.readers
    WHERE collection = %(collection)s AND holder IN (SELECT holder FROM dead)
)
SELECT min(oldest) FROM teola.readers
WHERE collection = %(collection)s AND holder NOT IN (SELECT holder FROM dead)
"""
HELD_BACK = """
SELECT EXISTS (SELECT FROM teola.documents WHERE collection = %s AND died > %s)
"""
DELETE_DIED = """
WITH died AS (
    SELECT id FROM teola.documents WHERE collection = %s AND died <= %s
    ORDER BY id FOR UPDATE SKIP LOCKED
)
DELETE FROM teola.documents WHERE id IN (SELECT id FROM died)
"""
"""What another transaction copies chunks of is locked, and left for the next purge."""

EMPTIED = """
SELECT EXISTS (
    SELECT FROM teola.collections c
    WHERE c.id = %s AND (c.indexed OR EXISTS (
            SELECT FROM pg_class WHERE starts_with(relname, 'chunks_text_' || c.id || '_')))
        AND NOT EXISTS (SELECT FROM teola.documents WHERE collection = c.id))
"""
SWEEP_READERS = """
WITH known AS MATERIALIZED (SELECT DISTINCT holder FROM teola.readers),
dead AS MATERIALIZED (SELECT holder FROM known WHERE pg_try_advisory_xact_lock_shared(holder))
DELETE FROM teola.readers WHERE holder IN (SELECT holder FROM dead)
"""
DIED = "SELECT DISTINCT tenant, collection FROM teola.documents WHERE died IS NOT NULL"


class Pin(NamedTuple):
    collection: int
    version: int


NOWHERE = Pin(0, 0)
"""What a query sees of a collection that was not there when it first searched in it."""


class Searcher(NamedTuple):
    """A query and the name of a collection in which it searches."""

    owner: str
    collection: str


@dataclass(slots=True)
class _Readers:
    """Who reads a collection in this process. oldest: version of its row. seen: the newest version
    that anybody here has read. held: versions, with their numbers of readers. due: something waits
    for the row to go on."""

    tenant: str
    oldest: int
    seen: int
    due: bool = False
    held: Counter[int] = field(default_factory=Counter)

    @property
    def needed(self) -> int | None:
        """The oldest version that is read now."""
        return min(self.held, default=None)

    def add(self, version: int) -> None:
        self.seen = max(self.seen, version)
        self.held[version] += 1

    def remove(self, version: int) -> None:
        self.held[version] -= 1
        if not self.held[version]:
            del self.held[version]


class Pins:
    """See the module. on_emptied: awaited with a tenant and its collection that has an index and
    no documents any more."""

    def __init__(
        self,
        database: Database,
        presence: Presence,
        on_emptied: Callable[[str, int], Awaitable[None]],
    ) -> None:
        self._database, self._presence, self._on_emptied = database, presence, on_emptied
        self._pins: dict[str, dict[tuple[str, str], Pin]] = {}  # owner -> tenant, name
        self._readers: dict[int, _Readers] = {}
        self._ids: dict[tuple[str, str], int] = {}  # tenant, name -> collection with a row
        self._writing = asyncio.Lock()  # held by who changes rows of this process
        self._tasks: set[asyncio.Task[None]] = set()
        presence.on_purge, presence.on_lost = self._hear, self._lose

    async def open(self) -> None:
        """Begin to purge what others have left."""
        async with self._database.sweeping() as connection:
            await connection.execute(SWEEP_READERS)
            left = [(tenant, home) async for tenant, home in await connection.execute(DIED)]
        for tenant, home in left:
            self.purge_soon(tenant, home)

    async def close(self) -> None:
        """Let go of everything. The rows do not count once this process is gone."""
        await self.settle()
        self._readers.clear()
        self._pins.clear()
        self._ids.clear()

    async def settle(self) -> None:
        """Wait for the purges that are under way, and those that they lead to."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- reading --------------------------------------------------------------------------

    async def hold(self, tenant: str, queries: Iterable[Searcher]) -> HeldVersions:
        """Begin to read, in a collection each; end it with `HeldVersions.end`."""
        searchers = set(queries)
        absent: set[str] = set()
        while True:
            new = {
                q for q in searchers if (tenant, q.collection) not in self._pins.get(q.owner, {})
            }
            names = {query.collection for query in new} - absent
            unknown = [name for name in names if (tenant, name) not in self._ids]
            if not unknown:
                return HeldVersions(self, tenant, searchers, self._provisional(tenant, names))
            for name in sorted(unknown):
                if not await self._register(tenant, name):
                    absent.add(name)

    def _provisional(self, tenant: str, names: Iterable[str]) -> dict[str, Pin]:
        pins: dict[str, Pin] = {}
        for name in names:
            home = self._ids[tenant, name]
            readers = self._readers[home]
            pins[name] = Pin(home, readers.seen)
            readers.add(readers.seen)
        return pins

    def pinned(self, query: Searcher, tenant: str) -> Pin | None:
        return self._pins.get(query.owner, {}).get((tenant, query.collection))

    def pin(self, query: Searcher, tenant: str, pin: Pin) -> None:
        """What the query sees from now on. A `HeldVersions` reads the collection just now."""
        if self.pinned(query, tenant) is None:
            if pin != NOWHERE:
                self._readers[pin.collection].add(pin.version)
            self._pins.setdefault(query.owner, {})[tenant, query.collection] = pin

    def forget_name(self, tenant: str, name: str) -> None:
        """Forget a name that means another collection now, or none."""
        self._ids.pop((tenant, name), None)

    def unpin(self, owner: str) -> None:
        """See DocumentStore.unpin."""
        for pin in self._pins.pop(owner, {}).values():
            self.leave(pin)

    def leave(self, pin: Pin) -> None:
        """End one reading of a version."""
        readers = self._readers.get(pin.collection)
        if readers is not None:
            readers.remove(pin.version)
            self._look(pin.collection, readers)

    async def _register(self, tenant: str, name: str) -> bool:
        """Make a row for the collection; whether there is such a collection."""
        async with self._writing:
            if (tenant, name) in self._ids:
                return True
            await self._presence.ensure()
            async with self._database.transaction(tenant) as connection:
                cursor = await connection.execute(HOME, (name,))
                row = await cursor.fetchone()
                if row is None:
                    return False
                home, version = row
                registered = self._readers.get(home)
                needed = registered.needed if registered is not None else None
                oldest = version if needed is None else min(needed, version)
                values = (tenant, self._presence.token, home, oldest)
                (oldest,) = await (await connection.execute(REGISTER, values)).fetchone() or (0,)
            if not self._presence.shown:
                return True  # without a sign of life it does not count: it is written again
            readers = self._readers.setdefault(home, _Readers(tenant, oldest, version))
            readers.oldest = oldest
            readers.seen = max(readers.seen, version)
            self._ids[tenant, name] = home
            return True

    # --- purging --------------------------------------------------------------------------

    def purge_soon(self, tenant: str, collection: int) -> None:
        """Purge in the background."""
        self._begin(self._purge_quietly(tenant, collection))

    async def purge(self, tenant: str, collection: int) -> None:
        """Delete the collection's documents that nobody can see any more."""
        async with self._writing:
            readers = self._readers.get(collection)
            needed = readers.needed if readers is not None else None
            if readers is not None:
                readers.due = False
            if needed is None:
                self._forget_names(collection)  # at once: who comes now registers again
            async with self._database.transaction(tenant) as connection:
                horizon, held_back = await self._horizon(connection, collection, needed)
            if needed is None:  # not before: if this fails, the row is still there
                self._readers.pop(collection, None)
            elif readers is not None:
                readers.oldest, readers.due = needed, readers.due or held_back
                self._look(collection, readers)
        async with self._database.transaction(tenant) as connection:
            await connection.execute(DELETE_DIED, (collection, horizon))
            row = await (await connection.execute(EMPTIED, (collection,))).fetchone()
        if row is not None and row[0]:
            await self._on_emptied(tenant, collection)

    async def _horizon(
        self, connection: AsyncConnection[Any], collection: int, needed: int | None
    ) -> tuple[int, bool]:
        """The version before which nobody reads, and whether something that died later is left,
        of which others are told. needed: the oldest that is read here."""
        row = await (await connection.execute(LOCK, (collection,))).fetchone()
        version = row[0] if row is not None else 0
        token = self._presence.token
        if needed is None:
            await connection.execute(LEAVE, (token, collection))
        else:
            await connection.execute(ADVANCE, (needed, token, collection))
        values = {"collection": collection, "token": token}
        row = await (await connection.execute(OLDEST, values)).fetchone()
        horizon = version if row is None or row[0] is None else row[0]
        if needed is not None:  # our row may have been deleted, if we were taken for gone
            horizon = min(horizon, needed)
        row = await (await connection.execute(HELD_BACK, (collection, horizon))).fetchone()
        held_back = row is not None and bool(row[0])
        if held_back:
            notice = f"{PURGE}{collection}"
            await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, notice))
        return horizon, held_back

    def _forget_names(self, collection: int) -> None:
        for place in [place for place, home in self._ids.items() if home == collection]:
            del self._ids[place]

    def _hear(self, collection: int) -> None:
        """Another process could not purge the collection: our row may be in its way."""
        readers = self._readers.get(collection)
        if readers is not None:
            readers.due = True
            self._look(collection, readers)

    def _look(self, collection: int, readers: _Readers) -> None:
        """Purge if others wait for it and no query of ours needs the version of our row any
        more."""
        needed = readers.needed
        if readers.due and (needed is None or needed > readers.oldest):
            readers.due = False
            self.purge_soon(readers.tenant, collection)

    def _lose(self) -> None:
        """Forget our rows, which do not count any more. The next queries write them again."""
        self._ids.clear()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="vectorstore-purge")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _purge_quietly(self, tenant: str, collection: int) -> None:
        try:
            await self.purge(tenant, collection)
        except (psycopg.Error, EngineUnavailable) as error:
            logger.warning("documents that were replaced are deleted later: %s", error)
            if (readers := self._readers.get(collection)) is not None:
                readers.due = True


class HeldVersions:
    """Keeps what some queries read from being purged, for as long as one transaction looks. pinned:
    ids of collections that they see a version of already. names: of collections in which they look
    for the first time."""

    def __init__(
        self, pins: Pins, tenant: str, queries: Iterable[Searcher], provisional: dict[str, Pin]
    ) -> None:
        self._pins, self._tenant, self._provisional = pins, tenant, provisional
        self._queries = list(queries)
        self.pinned, self.names = self._pinned_now, set(provisional)

    @property
    def _pinned_now(self) -> set[int]:
        pins = (self._pins.pinned(query, self._tenant) for query in self._queries)
        return {pin.collection for pin in pins if pin is not None}

    def fits(self, names: Mapping[str, int]) -> bool:
        """Whether names still mean the collections that are read. names: what they mean now."""
        moved = [
            name for name, pin in self._provisional.items() if names.get(name) != pin.collection
        ]
        for name in moved:
            self._pins.forget_name(self._tenant, name)
        read = self.pinned | {pin.collection for pin in self._provisional.values()}
        return not moved and self._pinned_now <= read

    def settle(self, query: Searcher, versions: Mapping[int, int], *, keep: bool) -> Pin | None:
        """What the query sees, by the newest versions of collections; None: no such collection.
        keep: it sees the same until it is unpinned."""
        pin = self._pins.pinned(query, self._tenant)
        if pin is not None:
            return pin if pin.collection in versions else None
        provisional = self._provisional.get(query.collection)
        if provisional is None:
            pin = NOWHERE
        else:
            pin = Pin(provisional.collection, versions[provisional.collection])
        if keep:
            self._pins.pin(query, self._tenant, pin)
        return pin if pin != NOWHERE else None

    def end(self) -> None:
        """End the reading. May be repeated."""
        for pin in self._provisional.values():
            self._pins.leave(pin)
        self._provisional = {}
