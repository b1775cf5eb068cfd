"""Who indexes a document: exactly one owner, the others wait, one takes over if it is gone.

Long because one claim goes through all of it.

    absent --claim--> pending(owner, holder) --last chunk--> published (publishing.py)
       ^                  |        |
       +---- release -----+        +-- holder's process gone: claimed by another, or swept

A document is claimed by its key, which says what it is; its id only names the row. `owner` is the
query, `holder` the token of the store that claimed for it (presence.py). A claim takes its
documents in the order of their keys and none beyond one that it must wait for. So a waiting claim
waits only for keys greater than all it holds, and claims never wait in a circle. (Several claim
calls of one owner are ordered only within each.)
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from psycopg import AsyncConnection, sql

from teola.engine import UNNAMED, Claim, DocumentKey, EmbedderIdentity
from teola.errors import DocumentError, EngineError, EngineUnavailable, InputError

from .database import Database
from .embedders import Admissions
from .presence import CHANNEL, Presence
from .publishing import Published, publish, take_chunks
from .schema import SCHEMA
from .values import check_key, check_name, json_text

logger = logging.getLogger(__name__)

FEW: Final = 64
"""Keys of more documents are computed in a thread."""
WRITTEN_AT_ONCE: Final = 500
"""Rows of one statement: to write its parameters down takes the loop a few milliseconds."""

INSERT = """
INSERT INTO teola.documents (id, key, tenant, collection, name, origin, sha256, reading, pipeline,
    metadata, asked, owner, holder)
SELECT id, key, %s, %s, name, origin, sha256, reading, pipeline, metadata,
    coalesce(%s, clock_timestamp()), %s, %s
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
        %s::text[]::jsonb[])
    AS new (id, key, name, origin, sha256, reading, pipeline, metadata)
ORDER BY key
ON CONFLICT (key) WHERE died IS NULL DO NOTHING
RETURNING key, id
"""
TAKE_OVER = """
UPDATE teola.documents d
SET owner = %s, holder = %s, expected = NULL, name = new.name, origin = new.origin,
    metadata = new.metadata, asked = greatest(d.asked, %s)
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]::jsonb[])
    AS new (key, name, origin, metadata)
WHERE d.key = new.key AND d.died IS NULL AND NOT d.ready
"""
CURRENT = """
SELECT d.name, d.key, d.origin
FROM teola.documents d JOIN teola.collections c ON c.id = d.collection
WHERE c.name = %(collection)s AND d.ready AND d.died IS NULL AND d.name = ANY(%(names)s)
    AND d.name_hash = ANY(ARRAY(
        SELECT hashtextextended(name, 0) FROM unnest(%(names)s::text[]) AS name))
ORDER BY d.key
"""
LOCK_COLLECTION = "SELECT FROM teola.collections WHERE name = %s FOR NO KEY UPDATE"
ASK_AGAIN = """
WITH mine AS (
    SELECT d.id, new.origin, d.asked < %(asked)s AS later
    FROM teola.documents d
    JOIN unnest(%(keys)s::text[], %(origins)s::text[]) AS new (key, origin) USING (key)
    WHERE d.ready AND d.died IS NULL ORDER BY d.key FOR NO KEY UPDATE OF d
), told AS (
    UPDATE teola.documents d SET asked = %(asked)s, origin = mine.origin
    FROM mine WHERE d.id = mine.id AND mine.later
)
SELECT count(*) FROM mine
"""
EXPECT = """
UPDATE teola.documents d SET expected = new.size
FROM unnest(%s::text[], %s::int[]) AS new (id, size)
WHERE d.id = new.id AND NOT d.ready AND d.owner = %s AND d.holder = %s
RETURNING d.id, d.stored = new.size
"""
DROP = f"""
WITH mine AS (
    SELECT id FROM teola.documents
    WHERE key = ANY(%s) AND NOT ready AND owner = %s AND holder = %s ORDER BY key FOR UPDATE
), gone AS (
    DELETE FROM teola.documents WHERE id IN (SELECT id FROM mine) RETURNING key
)
SELECT pg_notify('{CHANNEL}', key) FROM gone
"""
SWEEP = f"""
WITH dead AS MATERIALIZED (
    SELECT holder FROM (SELECT DISTINCT holder FROM teola.documents WHERE NOT ready) AS known
    WHERE pg_try_advisory_xact_lock_shared(holder)
), gone AS (
    DELETE FROM teola.documents
    WHERE NOT ready AND (holder IS NULL OR holder IN (SELECT holder FROM dead)) RETURNING key
)
SELECT pg_notify('{CHANNEL}', key) FROM gone
"""


@dataclass(slots=True)
class _ClaimRequest:
    """What one claim call asks for. keys: by document key, in order. asked: when that was; None
    until the database has told the time, and in collections without names."""

    tenant: str
    collection: str
    owner: str
    keys: Mapping[str, DocumentKey]
    embedder: EmbedderIdentity | None = None
    asked: datetime | None = None

    @property
    def named(self) -> bool:
        return self.collection != UNNAMED


class _Pending(NamedTuple):
    id: str
    owner: str
    holder: int


class _Held(NamedTuple):
    """A document that an owner of this store has claimed."""

    tenant: str
    key: str


@dataclass(slots=True)
class _Attempt:
    """How far one try came, by document key. ids: of those that are there. holder: of the document
    to wait for; None: try again at once."""

    ids: dict[str, str] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    replacing: set[str] = field(default_factory=set)
    finished: bool = False
    holder: int | None = None

    def include(self, before: _Attempt) -> None:
        """Carry over what an earlier try took or found to replace."""
        self.taken |= before.taken
        self.replacing |= before.replacing


OnPublished = Callable[[str, Published], None]
"""Told of a tenant's documents that became visible, after the transaction."""


class Ownership:
    """The claims that this store made, by owner."""

    def __init__(
        self,
        database: Database,
        presence: Presence,
        admissions: Admissions,
        on_published: OnPublished,
    ) -> None:
        self._database = database
        self._presence, self._admissions = presence, admissions
        self._on_published = on_published
        self._chunks = sql.Identifier(SCHEMA, "chunks")
        self._held: dict[str, dict[str, _Held]] = {}  # owner -> document
        self._claiming: Counter[str] = Counter()  # claim calls in progress, by owner
        self._leftovers: list[tuple[str, dict[str, str]]] = []  # could not be given up yet
        self._cleaning: set[asyncio.Task[None]] = set()

    async def open(self, chunks: sql.Identifier) -> None:
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

    async def claim(
        self,
        tenant: str,
        collection: str,
        keys: Sequence[DocumentKey],
        owner: str,
        asked: float | None = None,
        embedder: EmbedderIdentity | None = None,
    ) -> list[Claim]:
        """See DocumentStore.claim. A key that is given twice is owned once."""
        check_key("tenant", tenant)
        check_key("collection", collection)
        if len(keys) > FEW:
            names, ordered = await asyncio.to_thread(_ordered, tenant, collection, keys)
        else:
            names, ordered = _ordered(tenant, collection, keys)
        request = _ClaimRequest(tenant, collection, owner, ordered, embedder)
        before = {document.key for document in self._held.get(owner, {}).values()}
        done: _Attempt | None = None
        self._claiming[owner] += 1
        try:
            await self._clear_leftovers()
            done = await self._acquire(request, asked)
            if done.owned:  # else nobody would release it
                mine = {done.ids[name]: _Held(tenant, name) for name in done.owned}
                self._held.setdefault(owner, {}).update(mine)
        finally:
            try:
                if done is None:  # an error, or the claim was cancelled while it waited
                    refused = request.keys.keys() - before
                    await self._give_up(owner, dict.fromkeys(refused, tenant))
            finally:  # also if it is cancelled once more
                self._claiming[owner] -= 1
                if not self._claiming[owner]:
                    del self._claiming[owner]
        first = {name: position for position, name in reversed(list(enumerate(names)))}
        return [_claimed(done, name, first[name] == i) for i, name in enumerate(names)]

    async def expect(self, owner: str, sizes: Mapping[str, int]) -> None:
        """See DocumentStore.expect."""
        claimed = self._held.get(owner, {})
        for name, size in sizes.items():
            if size < 1:
                raise DocumentError("a document without text cannot be indexed: leave it out")
            if name not in claimed:
                raise EngineError(
                    f"document {name} is not claimed by query {owner}: claim it first"
                )
        for tenant, names in _by_tenant({name: claimed[name].tenant for name in sizes}).items():
            async with self._database.transaction(tenant) as connection:
                await lock(connection, names)
                amounts = [sizes[name] for name in names]
                values = (names, amounts, owner, self._presence.token)
                cursor = await connection.execute(EXPECT, values)
                updated = {name: complete async for name, complete in cursor}
                whole = [name for name, complete in updated.items() if complete]
                published = await publish(connection, whole)
            self._on_published(tenant, published)
            if len(updated) < len(names):
                raise EngineError(
                    f"query {owner} lost documents it was indexing (the connection to the store "
                    "had broken): ask again",
                    retryable=True,
                )

    async def release(self, owner: str) -> None:
        """See DocumentStore.release."""
        if owner in self._held:
            documents = self._held[owner].values()
            await self._give_up(owner, {document.key: document.tenant for document in documents})

    # --- claiming -------------------------------------------------------------------------

    async def _acquire(self, request: _ClaimRequest, asked_s: float | None) -> _Attempt:
        """Try, and wait for what is in the way, until every document is owned or there."""
        before = _Attempt()
        with self._presence.hearing(request.keys) as changed:
            while True:
                await self._presence.ensure()
                changed.clear()
                attempt, published = await self._try(request, asked_s)
                self._on_published(request.tenant, published)
                attempt.include(before)
                if attempt.finished:
                    return attempt
                if attempt.holder is not None:
                    await self._presence.wait(changed, attempt.holder)
                before = attempt

    async def _try(
        self, request: _ClaimRequest, asked_s: float | None
    ) -> tuple[_Attempt, Published]:
        attempt, published = _Attempt(), Published()
        async with self._database.transaction(request.tenant) as connection:
            if request.named:
                request.asked = request.asked or await _time(connection, asked_s)
                attempt.replacing = await _replacing(connection, request)
            ready = await _ready(connection, request.keys)
            attempt.ids |= ready
            names = [name for name in request.keys if name not in ready]
            pending = await self._pending(connection, names)
            blocked = await self._first_blocked(connection, request.owner, pending)
            names = [name for name in names if blocked is None or name < blocked[0]]
            free = [name for name in names if name in pending]
            stale = [n for n in free if not self._is_ours(request.owner, pending[n])]
            await self._take_over(connection, request, stale)
            attempt.ids |= {name: pending[name].id for name in free}
            absent = [n for n in names if n not in pending]
            inserted = await self._insert(connection, request, absent)
            attempt.ids |= inserted
            if request.named and inserted:
                whole = await take_chunks(connection, self._chunks, list(inserted.values()))
                published = await publish(connection, whole)
                attempt.taken = {name for name, id in inserted.items() if id in whole}
            attempt.owned = {*free, *inserted} - attempt.taken
            complete = len(inserted) == len(absent)  # else another was quicker: look again
            if complete and blocked is None:
                attempt.finished = not request.named or await _ask_again(connection, request, ready)
            elif complete and blocked is not None:
                attempt.holder = blocked[1]
        return attempt, published

    async def _pending(
        self, connection: AsyncConnection[Any], names: list[str]
    ) -> dict[str, _Pending]:
        """The pending documents of these keys; their rows are locked."""
        if not names:
            return {}
        cursor = await connection.execute(
            "SELECT key, id, owner, holder FROM teola.documents"
            " WHERE key = ANY(%s) AND died IS NULL AND NOT ready ORDER BY key FOR UPDATE",
            (names,),
        )
        return {key: _Pending(*rest) async for key, *rest in cursor}

    async def _first_blocked(
        self, connection: AsyncConnection[Any], asking: str, pending: Mapping[str, _Pending]
    ) -> tuple[str, int] | None:
        """Key of the first document that another, living owner is indexing, with the holder's
        token."""
        if not pending:
            return None
        token = self._presence.token
        others = sorted(
            {document.holder for document in pending.values() if document.holder != token}
        )
        cursor = await connection.execute(
            "SELECT h FROM unnest(%s::bigint[]) AS h WHERE pg_try_advisory_xact_lock_shared(h)",
            (others,),
        )
        dead = {holder async for (holder,) in cursor}
        for name, document in pending.items():
            ours = document.holder == token
            alive = self._lives(document.owner) if ours else document.holder not in dead
            if alive and not self._is_ours(asking, document):
                return name, document.holder
        return None

    async def _take_over(
        self, connection: AsyncConnection[Any], request: _ClaimRequest, names: list[str]
    ) -> None:
        """Continue for a dead owner. Chunks that it stored are kept: they would be the same."""
        head = (request.owner, self._presence.token, request.asked)
        for part in _parts(names):
            keys = [request.keys[name] for name in part]
            columns = (
                part,
                [key.name for key in keys],
                [key.origin for key in keys],
                [json_text(key.metadata) for key in keys],
            )
            await connection.execute(TAKE_OVER, (*head, *columns))

    async def _insert(
        self, connection: AsyncConnection[Any], request: _ClaimRequest, names: list[str]
    ) -> dict[str, str]:
        """Insert documents that are absent; the ids of those that nobody else inserted
        meanwhile."""
        if not names:
            return {}
        collection = await self._collection(connection, request)
        owner = (request.asked, request.owner, self._presence.token)
        inserted: dict[str, str] = {}
        for part in _parts(names):
            keys = [request.keys[name] for name in part]
            columns = (
                [uuid.uuid4().hex for _ in part],
                part,
                [key.name for key in keys],
                [key.origin for key in keys],
                [key.sha256 for key in keys],
                [key.reading for key in keys],
                [key.pipeline for key in keys],
                [json_text(key.metadata) for key in keys],
            )
            values = (request.tenant, collection, *owner, *columns)
            cursor = await connection.execute(INSERT, values)
            inserted |= {key: id async for key, id in cursor}
        return inserted

    async def _collection(self, connection: AsyncConnection[Any], request: _ClaimRequest) -> int:
        """Id of the collection, made if need be. Collections stay, even empty."""
        where = (request.tenant, request.collection)
        if request.embedder is not None:
            return await self._admissions.enter(connection, *where, request.embedder)
        await connection.execute(
            "INSERT INTO teola.collections (tenant, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            where,
        )
        cursor = await connection.execute(
            "SELECT id FROM teola.collections WHERE tenant = %s AND name = %s", where
        )
        row = await cursor.fetchone()
        if row is None:
            raise EngineError(f"the collection {request.collection!r} was dropped: ask again")
        return int(row[0])

    def _is_ours(self, owner: str, document: _Pending) -> bool:
        return (document.owner, document.holder) == (owner, self._presence.token)

    def _lives(self, owner: str) -> bool:
        """Whether an owner of this store still indexes (else it was not given up in order)."""
        return owner in self._held or self._claiming[owner] > 0

    # --- giving up ------------------------------------------------------------------------

    async def _give_up(self, owner: str, documents: dict[str, str]) -> None:
        """Delete those of the documents that are pending, even if the caller is cancelled
        meanwhile."""
        task = asyncio.create_task(self._drop(owner, documents), name="vectorstore-release")
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        await asyncio.shield(task)

    async def _drop(self, owner: str, documents: dict[str, str]) -> None:
        """Delete an owner's pending documents. Without a connection they are kept for a later try;
        once this process is gone, another one sweeps them."""
        for tenant, keys in _by_tenant(documents).items():
            try:
                async with self._database.transaction(tenant) as connection:
                    await connection.execute(DROP, (keys, owner, self._presence.token))
            except EngineUnavailable as error:
                logger.warning("could not release documents of query %s yet: %s", owner, error)
                self._leftovers.append((owner, dict.fromkeys(keys, tenant)))
        claimed = self._held.get(owner, {})
        for id in [id for id, document in claimed.items() if document.key in documents]:
            del claimed[id]
        if not claimed:
            self._held.pop(owner, None)
        self._presence.wake(documents)

    async def _clear_leftovers(self) -> None:
        leftovers, self._leftovers = self._leftovers, []
        for owner, documents in leftovers:
            mine = {document.key for document in self._held.get(owner, {}).values()}
            await self._give_up(owner, {k: t for k, t in documents.items() if k not in mine})


# --- keys and names ---------------------------------------------------------------------------


def document_key(tenant: str, collection: str, key: DocumentKey) -> str:
    """Digest of what makes a document the same one: its collection, its bytes and how they are
    read; where names count, its name and metadata too."""
    identity = [tenant, collection, key.sha256, key.pipeline]
    if collection != UNNAMED:
        metadata = json.dumps(json.loads(json_text(key.metadata)), sort_keys=True)
        identity += [key.name, key.reading, metadata]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _ordered(
    tenant: str, collection: str, keys: Sequence[DocumentKey]
) -> tuple[list[str], dict[str, DocumentKey]]:
    """The document key of each, as given, and each different document by its document key, in
    order. Raises InputError."""
    for key in keys:
        check_name("document", key.name)
    if collection != UNNAMED:
        _check_distinct(keys)
    names = [document_key(tenant, collection, key) for key in keys]
    by_key = dict(zip(reversed(names), reversed(keys), strict=True))  # the first of equals wins
    return names, {name: by_key[name] for name in sorted(by_key)}


def _parts(names: list[str]) -> Iterator[list[str]]:
    for i in range(0, len(names), WRITTEN_AT_ONCE):
        yield names[i : i + WRITTEN_AT_ONCE]


def _check_distinct(keys: Iterable[DocumentKey]) -> None:
    """Raise InputError for two documents of one name."""
    seen: dict[str, DocumentKey] = {}
    for key in keys:
        other = seen.setdefault(key.name, key)
        if other != key:
            places = " and ".join(repr(document.origin or "a text") for document in (other, key))
            raise InputError(
                f"two documents are named {key.name!r} ({places}), and a name is one document of "
                "a collection: name them differently"
            )


async def _time(connection: AsyncConnection[Any], asked_s: float | None) -> datetime:
    """`asked_s`, in seconds since 1970, or now by the database's clock."""
    cursor = await connection.execute(
        "SELECT coalesce(to_timestamp(%s::float8), clock_timestamp())", (asked_s,)
    )
    row = await cursor.fetchone()
    assert row is not None
    return cast("datetime", row[0])


async def _replacing(connection: AsyncConnection[Any], request: _ClaimRequest) -> set[str]:
    """Document keys whose names have another version now. Raises DocumentError."""
    values = {"collection": request.collection, "names": [k.name for k in request.keys.values()]}
    cursor = await connection.execute(CURRENT, values)
    current: dict[str, list[tuple[str, str | None]]] = {}
    async for name, key, origin in cursor:
        current.setdefault(name, []).append((key, origin))
    replacing: set[str] = set()
    for name, key in request.keys.items():
        for other, origin in current.get(key.name, ()):
            elsewhere = None not in (origin, key.origin) and origin != key.origin
            if elsewhere and not key.replace:
                raise DocumentError(
                    f"the document {key.name!r} comes from {origin!r}, and {key.origin!r} is "
                    "another file: `--replace` (replace=True) puts it in that one's place, "
                    "`--root DIR` (root=DIR) names both by their way from DIR"
                )
            if other != name:
                replacing.add(name)
    return replacing


async def _ready(connection: AsyncConnection[Any], keys: Iterable[str]) -> dict[str, str]:
    cursor = await connection.execute(
        "SELECT key, id FROM teola.documents WHERE key = ANY(%s) AND died IS NULL AND ready",
        (list(keys),),
    )
    return {key: id async for key, id in cursor}


async def _ask_again(
    connection: AsyncConnection[Any], request: _ClaimRequest, ready: Iterable[str]
) -> bool:
    """Write down that documents that are there were asked for again now. False if some went
    meanwhile."""
    keys = list(ready)
    if not keys:
        return True
    if len(request.keys) > 1:  # who locks one current document and then another stands in line
        await connection.execute(LOCK_COLLECTION, (request.collection,))
    origins = [request.keys[key].origin for key in keys]
    values = {"keys": keys, "origins": origins, "asked": request.asked}
    cursor = await connection.execute(ASK_AGAIN, values)
    return await cursor.fetchone() == (len(keys),)


def _claimed(done: _Attempt, key: str, first: bool) -> Claim:
    owned = key in done.owned
    taken = key in done.taken and not owned
    new = first and (owned or taken)
    return Claim(done.ids[key], owned and first, taken and first, new and key in done.replacing)


async def lock(connection: AsyncConnection[Any], documents: Sequence[str]) -> None:
    """Lock pending documents, always in the same order, so that lockers never wait in a circle."""
    await connection.execute(
        "SELECT FROM teola.documents WHERE id = ANY(%s) AND NOT ready ORDER BY key FOR UPDATE",
        (list(documents),),
    )


def _by_tenant(documents: Mapping[str, str]) -> dict[str, list[str]]:
    tenants: dict[str, list[str]] = {}
    for name, tenant in sorted(documents.items()):
        tenants.setdefault(tenant, []).append(name)
    return tenants
