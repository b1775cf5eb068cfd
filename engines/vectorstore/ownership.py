"""Who indexes a document: exactly one owner, the others wait, one takes over if it is gone.

    absent --claim--> pending(owner, holder) --last chunk--> ready
       ^                  |        |
       +---- release -----+        +-- holder's process gone: claimed by another, or swept

`owner` is the query, `holder` the token of the store that claimed for it (presence.py). A claim
takes its documents in the order of their ids and none beyond one that it must wait for. So a
waiting claim waits only for ids greater than all it holds, and claims never wait in a circle.
(Several claim calls of one owner are ordered only within each.)
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from teola.engine import Claim, DocumentKey
from teola.errors import DocumentError, EngineError, EngineUnavailable

from .database import Database
from .presence import CHANNEL, Presence
from .values import check_key, check_name, json_text

logger = logging.getLogger(__name__)

INSERT = """
INSERT INTO teola.documents
    (id, key, tenant, collection, name, sha256, pipeline, metadata, owner, holder)
SELECT id, id, %s, %s, name, sha256, pipeline, metadata, %s, %s
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]::jsonb[])
    AS new (id, name, sha256, pipeline, metadata)
ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id
"""
TAKE_OVER = """
UPDATE teola.documents d
SET owner = %s, holder = %s, expected = NULL, name = new.name, metadata = new.metadata
FROM unnest(%s::text[], %s::text[], %s::text[]::jsonb[]) AS new (id, name, metadata)
WHERE d.id = new.id AND NOT d.ready
"""
EXPECT = """
UPDATE teola.documents d
SET expected = new.size, ready = (d.stored = new.size),
    owner = CASE WHEN d.stored = new.size THEN NULL ELSE d.owner END,
    holder = CASE WHEN d.stored = new.size THEN NULL ELSE d.holder END
FROM unnest(%s::text[], %s::int[]) AS new (id, size)
WHERE d.id = new.id AND NOT d.ready AND d.owner = %s AND d.holder = %s
RETURNING d.id, d.ready
"""
DROP = f"""
WITH mine AS (
    SELECT id FROM teola.documents
    WHERE id = ANY(%s) AND NOT ready AND owner = %s AND holder = %s ORDER BY id FOR UPDATE
), gone AS (
    DELETE FROM teola.documents WHERE id IN (SELECT id FROM mine) RETURNING id
)
SELECT pg_notify('{CHANNEL}', id) FROM gone
"""
SWEEP = f"""
WITH dead AS MATERIALIZED (
    SELECT holder FROM (SELECT DISTINCT holder FROM teola.documents WHERE NOT ready) AS known
    WHERE pg_try_advisory_xact_lock_shared(holder)
), gone AS (
    DELETE FROM teola.documents
    WHERE NOT ready AND (holder IS NULL OR holder IN (SELECT holder FROM dead)) RETURNING id
)
SELECT pg_notify('{CHANNEL}', id) FROM gone
"""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one claim call asks for; `keys` by document id, in the order of the ids."""

    tenant: str
    collection: str
    owner: str
    keys: Mapping[str, DocumentKey]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How far one try came. `holder`: of the document to wait for; None: try again at once."""

    owned: frozenset[str]
    finished: bool
    holder: int | None = None


class Ownership:
    """The claims that this store made, by owner."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._presence = Presence(database)
        self._held: dict[str, dict[str, str]] = {}  # owner -> document -> tenant
        self._claiming: Counter[str] = Counter()  # claim calls in progress, by owner
        self._leftovers: list[tuple[str, dict[str, str]]] = []  # could not be given up yet
        self._cleaning: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Show that we live, then delete what the dead left unfinished."""
        await self._presence.ensure()
        async with self._database.sweeping() as connection:
            await connection.execute(SWEEP)

    async def close(self) -> None:
        """Give up every claim that is left."""
        for owner in list(self._held):
            await self.release(owner)
        if self._cleaning:
            await asyncio.wait(self._cleaning)
        await self._presence.close()

    async def claim(
        self, tenant: str, collection: str, keys: Sequence[DocumentKey], owner: str
    ) -> list[Claim]:
        """See DocumentStore.claim. A key that is given twice is owned once."""
        check_key("tenant", tenant)
        check_key("collection", collection)
        for key in keys:
            check_name("document", key.name)
        ids = [document_id(tenant, collection, key) for key in keys]
        by_id = dict(zip(reversed(ids), reversed(keys), strict=True))  # the first of equals wins
        wanted = _Wanted(tenant, collection, owner, {name: by_id[name] for name in sorted(by_id)})
        before = frozenset(self._held.get(owner, {}))
        owned: frozenset[str] | None = None
        self._claiming[owner] += 1
        try:
            await self._clear_leftovers()
            owned = await self._acquire(wanted)
            if owned:  # else nobody would release it
                self._held.setdefault(owner, {}).update(dict.fromkeys(owned, tenant))
        finally:
            try:
                if owned is None:  # an error, or the claim was cancelled while it waited
                    refused = wanted.keys.keys() - before
                    await self._give_up(owner, dict.fromkeys(refused, tenant))
            finally:  # also if it is cancelled once more
                self._claiming[owner] -= 1
                if not self._claiming[owner]:
                    del self._claiming[owner]
        first = {name: position for position, name in reversed(list(enumerate(ids)))}
        return [Claim(name, name in owned and first[name] == i) for i, name in enumerate(ids)]

    async def expect(self, owner: str, sizes: Mapping[str, int]) -> None:
        """See DocumentStore.expect."""
        held = self._held.get(owner, {})
        for name, size in sizes.items():
            if size < 1:
                raise DocumentError("a document without text cannot be indexed: leave it out")
            if name not in held:
                raise EngineError(
                    f"document {name} is not claimed by query {owner}: claim it first"
                )
        for tenant, names in _by_tenant({name: held[name] for name in sizes}).items():
            async with self._database.transaction(tenant) as connection:
                await lock(connection, names)
                amounts = [sizes[name] for name in names]
                values = (names, amounts, owner, self._presence.token)
                cursor = await connection.execute(EXPECT, values)
                known = {name: ready async for name, ready in cursor}
                await announce(connection, [name for name, ready in known.items() if ready])
            if len(known) < len(names):
                raise EngineError(
                    f"query {owner} lost documents it was indexing (the connection to the store "
                    "had broken): ask again",
                    retryable=True,
                )

    async def release(self, owner: str) -> None:
        """See DocumentStore.release."""
        if owner in self._held:
            await self._give_up(owner, dict(self._held[owner]))

    # --- claiming -------------------------------------------------------------------------

    async def _acquire(self, wanted: _Wanted) -> frozenset[str]:
        """Try, and wait for what is in the way, until every document is owned or ready."""
        with self._presence.hearing(wanted.keys) as changed:
            while True:
                await self._presence.ensure()
                changed.clear()
                attempt = await self._try(wanted)
                if attempt.finished:
                    return attempt.owned
                if attempt.holder is not None:
                    await self._presence.wait(changed, attempt.holder)

    async def _try(self, wanted: _Wanted) -> _Attempt:
        async with self._database.transaction(wanted.tenant) as connection:
            names = list(wanted.keys)
            cursor = await connection.execute(
                "SELECT id FROM teola.documents WHERE id = ANY(%s) AND ready", (names,)
            )
            ready = {name async for (name,) in cursor}
            names = [name for name in names if name not in ready]
            if not names:
                return _Attempt(frozenset(), finished=True)
            pending = await self._pending(connection, names)
            blocked = await self._first_blocked(connection, wanted.owner, pending)
            names = [name for name in names if blocked is None or name < blocked[0]]
            owned = {n for n in names if self._is_ours(wanted.owner, pending.get(n))}
            stale = [n for n in names if n in pending and n not in owned]
            await self._take_over(connection, wanted, stale)
            owned.update(stale)
            absent = [n for n in names if n not in pending]
            inserted = await self._insert(connection, wanted, absent)
            owned.update(inserted)
        complete = len(inserted) == len(absent)  # else another was quicker: look again
        holder = blocked[1] if blocked and complete else None
        return _Attempt(frozenset(owned), complete and blocked is None, holder)

    async def _pending(
        self, connection: AsyncConnection[Any], names: list[str]
    ) -> dict[str, tuple[str, int]]:
        """Owner and holder of those that are being indexed, locked."""
        cursor = await connection.execute(
            "SELECT id, owner, holder FROM teola.documents"
            " WHERE id = ANY(%s) AND NOT ready ORDER BY id FOR UPDATE",
            (names,),
        )
        return {name: (owner, holder) async for name, owner, holder in cursor}

    async def _first_blocked(
        self,
        connection: AsyncConnection[Any],
        asking: str,
        pending: Mapping[str, tuple[str, int]],
    ) -> tuple[str, int] | None:
        """The first document whose owner lives, and is another; with the holder's token."""
        token = self._presence.token
        others = sorted({holder for _, holder in pending.values() if holder != token})
        cursor = await connection.execute(
            "SELECT h FROM unnest(%s::bigint[]) AS h WHERE pg_try_advisory_xact_lock_shared(h)",
            (others,),
        )
        dead = {holder async for (holder,) in cursor}
        for name, (owner, holder) in pending.items():
            alive = holder not in dead if holder != token else self._lives(owner)
            if alive and not self._is_ours(asking, (owner, holder)):
                return name, holder
        return None

    async def _take_over(
        self, connection: AsyncConnection[Any], wanted: _Wanted, names: list[str]
    ) -> None:
        """Continue for a dead owner. Chunks that it stored are kept: they would be the same."""
        if names:
            keys = [wanted.keys[name] for name in names]
            metadata = [json_text(key.metadata) for key in keys]
            values = (names, [key.name for key in keys], metadata)
            await connection.execute(TAKE_OVER, (wanted.owner, self._presence.token, *values))

    async def _insert(
        self, connection: AsyncConnection[Any], wanted: _Wanted, names: list[str]
    ) -> list[str]:
        if not names:
            return []
        collection = await self._collection(connection, wanted)
        keys = [wanted.keys[name] for name in names]
        columns = (
            names,
            [key.name for key in keys],
            [key.sha256 for key in keys],
            [key.pipeline for key in keys],
            [json_text(key.metadata) for key in keys],
        )
        head = (wanted.tenant, collection, wanted.owner, self._presence.token)
        cursor = await connection.execute(INSERT, (*head, *columns))
        return [name async for (name,) in cursor]

    async def _collection(self, connection: AsyncConnection[Any], wanted: _Wanted) -> int:
        """Id of the collection, made if need be. Collections stay, even empty."""
        where = (wanted.tenant, wanted.collection)
        await connection.execute(
            "INSERT INTO teola.collections (tenant, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            where,
        )
        cursor = await connection.execute(
            "SELECT id FROM teola.collections WHERE tenant = %s AND name = %s", where
        )
        row = await cursor.fetchone()
        if row is None:
            raise EngineError(f"the collection {wanted.collection!r} was dropped: ask again")
        return int(row[0])

    def _is_ours(self, owner: str, found: tuple[str, int] | None) -> bool:
        return found == (owner, self._presence.token)

    def _lives(self, owner: str) -> bool:
        """Whether an owner of this store still indexes (else it was not given up in order)."""
        return owner in self._held or self._claiming[owner] > 0

    # --- giving up ------------------------------------------------------------------------

    async def _give_up(self, owner: str, documents: dict[str, str]) -> None:
        """Delete what is pending of them, even if the caller is cancelled meanwhile."""
        task = asyncio.create_task(self._drop(owner, documents), name="vectorstore-release")
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        await asyncio.shield(task)

    async def _drop(self, owner: str, documents: dict[str, str]) -> None:
        """Without a connection they are kept for later: a dead process's are swept anyway."""
        for tenant, names in _by_tenant(documents).items():
            try:
                async with self._database.transaction(tenant) as connection:
                    await connection.execute(DROP, (names, owner, self._presence.token))
            except EngineUnavailable as error:
                logger.warning("could not release documents of query %s yet: %s", owner, error)
                self._leftovers.append((owner, dict.fromkeys(names, tenant)))
        held = self._held.get(owner, {})
        for name in documents:
            held.pop(name, None)
        if not held:
            self._held.pop(owner, None)
        self._presence.wake(documents)

    async def _clear_leftovers(self) -> None:
        leftovers, self._leftovers = self._leftovers, []
        for owner, documents in leftovers:
            mine = self._held.get(owner, {})
            await self._give_up(owner, {n: t for n, t in documents.items() if n not in mine})


def document_id(tenant: str, collection: str, key: DocumentKey) -> str:
    """The same bytes, read the same way into the same collection, are the same document."""
    identity = json.dumps([tenant, collection, key.sha256, key.pipeline])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


async def lock(connection: AsyncConnection[Any], documents: Sequence[str]) -> None:
    """Lock pending documents, always in the same order, so that lockers never wait in a circle."""
    await connection.execute(
        "SELECT FROM teola.documents WHERE id = ANY(%s) AND NOT ready ORDER BY id FOR UPDATE",
        (list(documents),),
    )


async def announce(connection: AsyncConnection[Any], documents: Sequence[str]) -> None:
    """Tell those who wait, once the transaction commits."""
    if documents:
        await connection.execute(
            "SELECT pg_notify(%s, id) FROM unnest(%s::text[]) AS id", (CHANNEL, list(documents))
        )


def _by_tenant(documents: Mapping[str, str]) -> dict[str, list[str]]:
    tenants: dict[str, list[str]] = {}
    for name, tenant in sorted(documents.items()):
        tenants.setdefault(tenant, []).append(name)
    return tenants
