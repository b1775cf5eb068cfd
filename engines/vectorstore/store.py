"""The started vector store: its parts put together, and what it tells of collections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg

from teola.engine import EmbedderAdmission, EmbedderIdentity, EngineResult, Request
from teola.errors import EngineError, InputError
from teola.graph.ops import Op

from . import ingestion, searching
from .database import Database
from .embedders import ABANDON, Admissions
from .indexing import Indexes
from .ownership import Ownership
from .pins import Pins
from .presence import Presence
from .publishing import Published
from .reindexing import CollectionReindexing
from .schema import ChunkTables, chunk_tables, ensure_chunks
from .searching import LacksIndex
from .values import check_key

COLLECTIONS = """
SELECT c.name, count(*), sum(d.stored)
FROM teola.collections c JOIN teola.documents d ON d.collection = c.id
WHERE d.ready AND d.died IS NULL AND c.name IS NOT NULL GROUP BY c.name ORDER BY c.name
"""
DOCUMENTS = """
SELECT d.id, d.name, d.stored, d.created_at, d.metadata, d.origin
FROM teola.documents d JOIN teola.collections c ON c.id = d.collection
WHERE d.ready AND d.died IS NULL AND c.name = %s ORDER BY d.created_at, d.id
"""
LOCK = "SELECT id FROM teola.collections WHERE name = %s FOR NO KEY UPDATE"
CHOSEN = """
SELECT id FROM teola.documents
WHERE collection = %(collection)s AND ready AND died IS NULL
    AND (%(documents)s::text[] IS NULL OR id = ANY (%(documents)s))
ORDER BY key FOR NO KEY UPDATE
"""
DELETE = """
WITH grown AS (
    UPDATE teola.collections SET version = version + 1 WHERE id = %s RETURNING id, version
)
UPDATE teola.documents d SET died = g.version FROM grown g WHERE d.id = ANY(%s)
"""

Checked = TypeVar("Checked", ingestion.Pieces, searching.SearchRequest)
BatchOutcome = EngineResult | Exception


class ChunkStore:
    """Batches in, results out; see PgVector for the settings."""

    def __init__(self, database: Database, dimensions: int, exact_below: int) -> None:
        self._database = database
        self._dimensions = dimensions
        self._exact_below = exact_below
        self._presence = Presence(database)
        self._tables = ChunkTables(dimensions, dimensions)
        self._made, self._making = False, asyncio.Lock()
        self.admissions = Admissions(dimensions)
        self.indexes = Indexes(database, dimensions, exact_below)
        self.ownership = Ownership(database, self._presence, self.admissions, self._published)
        self.pins = Pins(database, self._presence, self.indexes.drop)

    async def open(self) -> None:
        await self._database.open()
        async with self._database.reading() as connection:
            self._tables = await chunk_tables(connection, self._dimensions)
        self.indexes.open(self._tables.own)
        self.admissions.main = self._tables.main
        self._made = self._tables.main == self._tables.width
        await self.ownership.open(self._tables.own)
        await self.pins.open()

    async def close(self) -> None:
        await self.indexes.close()
        await self.ownership.close()
        await self.pins.close()
        await self._presence.close()
        await self._database.close()

    async def settle(self) -> None:
        """Wait for what goes on in the background."""
        await self.indexes.settle()
        await self.pins.settle()

    async def release(self, owner: str) -> None:
        self.pins.unpin(owner)
        await self.ownership.release(owner)

    def _published(self, tenant: str, published: Published) -> None:
        self.indexes.grown(tenant, published.grown)
        for home in published.replaced:
            self.pins.purge_soon(tenant, home)

    async def _ensure_table(self) -> None:
        """Make the store's own table of chunks, once. Not at the start: a store that only lists or
        deletes needs no table of its dimensions."""
        if self._made:
            return
        async with self._making:
            if not self._made:
                async with self._database.admin() as connection:
                    await ensure_chunks(connection, self._tables)
                self._made = True

    async def ingest(self, requests: Mapping[int, Request]) -> dict[int, BatchOutcome]:
        """Results by the requests' numbers."""
        results, tenants = self._checked(requests, ingestion.read)
        for tenant, batch in tenants.items():
            try:
                await self._ensure_table()
                stored = await ingestion.store(self._database, self._tables.own, tenant, batch)
            except EngineError as error:
                results.update((pieces.number, error) for pieces in batch)
                continue
            results.update(stored.results)
            for published in stored.published:
                self._published(tenant, published)
        return results

    async def search(self, requests: Mapping[int, Request]) -> dict[int, BatchOutcome]:
        """Results by the requests' numbers."""
        results, tenants = self._checked(requests, searching.read)
        for tenant, batch in tenants.items():
            try:
                await self._ensure_table()
                lacks_index = partial(self.indexes.searched, tenant)
                results.update(await self._search(tenant, batch, lacks_index))
            except EngineError as error:
                results.update((question.number, error) for question in batch)
            except psycopg.Error as error:
                reason = " ".join(str(error).split())
                failure = EngineError(f"the search failed: {reason}")
                results.update((question.number, failure) for question in batch)
        return results

    async def _search(
        self, tenant: str, batch: Sequence[searching.SearchRequest], lacks_index: LacksIndex
    ) -> dict[int, BatchOutcome]:
        """Answer them, each in the version that its query sees."""
        while True:
            hold = await self.pins.hold(tenant, {question.query for question in batch})
            try:
                results = await searching.search(
                    self._database,
                    self._tables,
                    tenant,
                    batch,
                    hold,
                    self._exact_below,
                    lacks_index,
                )
            finally:
                hold.end()
            if results is not None:
                return results

    def _checked(
        self, requests: Mapping[int, Request], read: Callable[[int, Request, int], Checked]
    ) -> tuple[dict[int, BatchOutcome], dict[str, list[Checked]]]:
        """The requests that are wrong, as results; the others, by tenant."""
        results: dict[int, BatchOutcome] = {}
        tenants: dict[str, list[Checked]] = {}
        for number, request in requests.items():
            scope = request.inputs["scope"]
            try:
                check_key("tenant", scope.tenant)
                if request.context.tenant != scope.tenant:
                    raise InputError("a query may use only its own tenant's collections")
                checked = read(number, request, self._dimensions)
            except InputError as error:
                results[number] = error
            else:
                tenants.setdefault(scope.tenant, []).append(checked)
        return results, tenants

    async def execute(self, requests: Sequence[Request]) -> list[BatchOutcome]:
        """One result or error for each request, in order."""
        numbered = dict(enumerate(requests))
        ingestions = {n: r for n, r in numbered.items() if r.op is Op.INGESTION}
        searches = {n: r for n, r in numbered.items() if r.op is Op.SEARCHING}
        results: dict[int, BatchOutcome] = {
            n: InputError(f"the vector store does not do {r.op.value}: it ingests and searches")
            for n, r in numbered.items()
            if n not in ingestions and n not in searches
        }
        if ingestions:
            results.update(await self.ingest(ingestions))
        if searches:
            results.update(await self.search(searches))
        return [results[number] for number in numbered]

    async def admit(
        self, tenant: str, collection: str, embedder: EmbedderIdentity, remember: bool
    ) -> EmbedderAdmission:
        async with self._database.transaction(tenant) as connection:
            return await self.admissions.check(connection, collection, embedder, remember)

    async def reindexing(
        self, tenant: str, collection: str, embedder: EmbedderIdentity
    ) -> tuple[CollectionReindexing, bool]:
        tables, holder = self._tables, self._presence.token
        parts = self._database, tables, self.indexes, self.pins, holder
        work = CollectionReindexing(*parts, tenant, collection, embedder)
        try:
            await self._ensure_table()
            return work, await work.begin(self.admissions)
        except BaseException:
            await work.close()
            raise

    async def collections(self, tenant: str) -> list[dict[str, Any]]:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(COLLECTIONS)
            return [{"name": n, "documents": d, "chunks": c} async for n, d, c in cursor]

    async def documents(self, tenant: str, collection: str) -> list[dict[str, Any]]:
        fields = ("id", "name", "chunks", "created_at", "metadata", "origin")
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(DOCUMENTS, (collection,))
            return [dict(zip(fields, row, strict=True)) async for row in cursor]

    async def delete(self, tenant: str, collection: str, documents: Sequence[str] | None) -> int:
        values = {"documents": None if documents is None else list(documents)}
        async with self._database.transaction(tenant) as connection:
            row = await (await connection.execute(LOCK, (collection,))).fetchone()
            if row is None:
                return 0
            home = row[0]
            cursor = await connection.execute(CHOSEN, {**values, "collection": home})
            chosen = [id async for (id,) in cursor]
            if chosen:
                await connection.execute(DELETE, (home, chosen))
            if documents is None:
                await connection.execute(ABANDON, {"source": home})
        await self.pins.purge(tenant, home)
        return len(chosen)
