"""The started vector store: its parts put together, and what it tells of collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg

from teola.engine import Admission, EmbedderIdentity, Request, Result
from teola.errors import EngineError, InputError
from teola.graph.ops import Op

from . import ingestion, searching
from .database import Database
from .embedders import Admissions
from .indexing import Indexes
from .ownership import Ownership
from .reindexing import Reindexing
from .schema import ChunkTables, chunk_tables
from .values import check_key

COLLECTIONS = """
SELECT c.name, count(*), sum(d.stored)
FROM teola.collections c JOIN teola.documents d ON d.collection = c.id
WHERE d.ready AND c.name IS NOT NULL GROUP BY c.name ORDER BY c.name
"""
DOCUMENTS = """
SELECT d.id, d.name, d.stored, d.created_at, d.metadata
FROM teola.documents d JOIN teola.collections c ON c.id = d.collection
WHERE d.ready AND c.name = %s ORDER BY d.created_at, d.id
"""
DELETE = """
WITH chosen AS (
    SELECT d.id FROM teola.documents d JOIN teola.collections c ON c.id = d.collection
    WHERE d.ready AND c.name = %(collection)s
        AND (%(documents)s::text[] IS NULL OR d.id = ANY (%(documents)s))
    ORDER BY d.id FOR UPDATE OF d
)
DELETE FROM teola.documents WHERE id IN (SELECT id FROM chosen)
"""
EMPTIED = """
SELECT c.id FROM teola.collections c
WHERE c.name = %s AND (c.indexed OR EXISTS (
        SELECT FROM pg_class WHERE starts_with(relname, 'chunks_text_' || c.id || '_')))
    AND NOT EXISTS (SELECT FROM teola.documents WHERE collection = c.id)
"""

Checked = TypeVar("Checked", ingestion.Pieces, searching.SearchRequest)
Outcome = Result | Exception


class ChunkStore:
    """Batches in, results out; see PgVector for the settings."""

    def __init__(self, database: Database, dimensions: int, exact_below: int) -> None:
        self._database = database
        self._dimensions = dimensions
        self._exact_below = exact_below
        self.admissions = Admissions(dimensions)
        self.ownership = Ownership(database, self.admissions)
        self.indexes = Indexes(database, dimensions, exact_below)
        self._tables = ChunkTables(dimensions, dimensions)

    async def open(self) -> None:
        await self._database.open()
        async with self._database.reading() as connection:
            self._tables = await chunk_tables(connection, self._dimensions)
        self.indexes.open(self._tables.own)
        self.admissions.main = self._tables.main
        await self.ownership.open()

    async def close(self) -> None:
        await self.indexes.close()
        await self.ownership.close()
        await self._database.close()

    async def ingest(self, requests: Mapping[int, Request]) -> dict[int, Outcome]:
        """Results by the requests' numbers."""
        results, tenants = self._checked(requests, ingestion.read)
        for tenant, batch in tenants.items():
            try:
                stored = await ingestion.store(self._database, self._tables.own, tenant, batch)
            except EngineError as error:
                results.update((pieces.number, error) for pieces in batch)
                continue
            results.update(stored.results)
            self.indexes.grown(tenant, stored.grown)
        return results

    async def search(self, requests: Mapping[int, Request]) -> dict[int, Outcome]:
        """Results by the requests' numbers."""
        results, tenants = self._checked(requests, searching.read)
        for tenant, batch in tenants.items():
            try:
                lacks_index = partial(self.indexes.searched, tenant)
                found = await searching.search(
                    self._database, self._tables, tenant, batch, self._exact_below, lacks_index
                )
                results.update(found)
            except EngineError as error:
                results.update((question.number, error) for question in batch)
            except psycopg.Error as error:
                reason = " ".join(str(error).split())
                failure = EngineError(f"the search failed: {reason}")
                results.update((question.number, failure) for question in batch)
        return results

    def _checked(
        self, requests: Mapping[int, Request], read: Callable[[int, Request, int], Checked]
    ) -> tuple[dict[int, Outcome], dict[str, list[Checked]]]:
        """The requests that are wrong, as results; the others, by tenant."""
        results: dict[int, Outcome] = {}
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

    async def execute(self, requests: Sequence[Request]) -> list[Outcome]:
        """One result, or what befell it, per request, in order."""
        numbered = dict(enumerate(requests))
        ingestions = {n: r for n, r in numbered.items() if r.op is Op.INGESTION}
        searches = {n: r for n, r in numbered.items() if r.op is Op.SEARCHING}
        results: dict[int, Outcome] = {
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
    ) -> Admission:
        async with self._database.transaction(tenant) as connection:
            return await self.admissions.check(connection, collection, embedder, remember)

    async def reindexing(
        self, tenant: str, collection: str, embedder: EmbedderIdentity
    ) -> tuple[Reindexing, bool]:
        tables, holder = self._tables, self.ownership.token
        work = Reindexing(
            self._database, tables, self.indexes, holder, tenant, collection, embedder
        )
        try:
            return work, await work.begin(self.admissions)
        except BaseException:
            await work.close()
            raise

    async def collections(self, tenant: str) -> list[dict[str, Any]]:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(COLLECTIONS)
            return [{"name": n, "documents": d, "chunks": c} async for n, d, c in cursor]

    async def documents(self, tenant: str, collection: str) -> list[dict[str, Any]]:
        fields = ("id", "name", "chunks", "created_at", "metadata")
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(DOCUMENTS, (collection,))
            return [dict(zip(fields, row, strict=True)) async for row in cursor]

    async def delete(self, tenant: str, collection: str, documents: Sequence[str] | None) -> int:
        chosen = None if documents is None else list(documents)
        async with self._database.transaction(tenant) as connection:
            values = {"collection": collection, "documents": chosen}
            deleted = (await connection.execute(DELETE, values)).rowcount
            emptied = await (await connection.execute(EMPTIED, (collection,))).fetchall()
        for (home,) in emptied:
            await self.indexes.drop(tenant, home)
        return deleted
