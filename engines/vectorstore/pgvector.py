"""The vector store engine: PostgreSQL with pgvector, embedded or a server of the user's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teola.engine import (
    Claim,
    DocumentKey,
    EmbedderAdmission,
    EmbedderIdentity,
    EngineKind,
    EngineResult,
    EngineSpec,
    Reindexing,
    Request,
)
from teola.errors import EngineUnavailable, InputError
from teola.graph.ops import Op

from .embedded import EmbeddedPostgres
from .home import Home

if TYPE_CHECKING:
    from .store import ChunkStore


class PgVector:
    """A DocumentStore. Many queries, collections and tenants share its one schema, `teola`.

    dsn: a PostgreSQL server with pgvector; without it the embedded server runs, in `data_dir`
    (by default the user's own). A connection pooler must be in session mode. dimensions: of the
    embedder's vectors. exact_below: collections with fewer chunks are searched exactly, larger
    ones through an HNSW index. pool_size: connections for queries, at most; a store keeps one
    more, and one for each process whose document it waits for. programs: folder of PostgreSQL's
    programs for the embedded server, if not the packaged ones.
    """

    def __init__(
        self,
        name: str = "vectorstore",
        dsn: str | None = None,
        data_dir: str | Path | None = None,
        dimensions: int = 384,
        exact_below: int = 10_000,
        max_batch: int = 256,
        pool_size: int = 8,
        programs: str | Path | None = None,
    ) -> None:
        if dsn is not None and data_dir is not None:
            raise InputError("give the vector store a dsn or a data_dir, not both")
        for option, value in {"dimensions": dimensions, "pool_size": pool_size}.items():
            if value < 1:
                raise InputError(f"{option} of the vector store is {value}: give at least 1")
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.VECTORSTORE,
            ops=frozenset({Op.INGESTION, Op.SEARCHING}),
            max_batch=max_batch,
            concurrency=min(4, pool_size),
            description="PostgreSQL with pgvector",
            full_text=True,
        )
        self._dsn = dsn
        self._embedded = None if dsn else EmbeddedPostgres(data_dir, programs=programs)
        self.dimensions = dimensions
        self._exact_below = exact_below
        self._pool_size = pool_size
        self._store: ChunkStore | None = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    async def start(self) -> None:
        """Start or reach the server, make or check the schema, delete what the dead left.

        Raises EngineUnavailable: one line, with what to do, without the password.
        """
        from . import schema
        from .database import Database, Tables
        from .store import ChunkStore

        migrate = partial(schema.migrate, dimensions=self.dimensions)
        tables = Tables("vector store", schema.SCHEMA, migrate, schema.STAGING)
        if self._embedded is not None:
            admin, query = await asyncio.to_thread(self._embedded.start)
            database = Database(tables, admin, query, self._pool_size, self._embedded.start)
        else:
            database = Database(tables, self._dsn or "", None, self._pool_size)
        self._store = ChunkStore(database, self.dimensions, self._exact_below)
        await self._store.open()

    async def close(self) -> None:
        """Leave no connection, no transaction and, as the last user, no process. Repeatable."""
        store, self._store = self._store, None
        try:
            if store is not None:
                await store.close()
        finally:
            if self._embedded is not None:
                await asyncio.to_thread(self._embedded.close)

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        """INGESTION: `vectors`, `chunks`, `scope` -> `stored`, the chunks' ids. SEARCHING:
        `vectors`, `scope` -> `hits`, a list for each vector, best first; scores are cosine
        similarities. A chunk's id is "document:index"."""
        return await self._started.execute(requests)

    async def admit(
        self, tenant: str, collection: str, embedder: EmbedderIdentity, *, remember: bool = True
    ) -> EmbedderAdmission:
        """See DocumentStore."""
        return await self._started.admit(tenant, collection, embedder, remember)

    async def claim(
        self,
        tenant: str,
        collection: str,
        keys: Sequence[DocumentKey],
        owner: str,
        asked: float | None = None,
        embedder: EmbedderIdentity | None = None,
    ) -> list[Claim]:
        """See DocumentStore. A key that is given twice is owned at its first place only."""
        ownership = self._started.ownership
        return await ownership.claim(tenant, collection, keys, owner, asked, embedder)

    async def expect(self, owner: str, sizes: Mapping[str, int]) -> None:
        """See DocumentStore. Raises DocumentError for a document without chunks."""
        await self._started.ownership.expect(owner, sizes)

    async def release(self, owner: str) -> None:
        """See DocumentStore. May be repeated; unknown owners hold nothing, nor does a store that is
        closed."""
        if self._store is not None:
            await self._store.release(owner)

    def unpin(self, owner: str) -> None:
        """See DocumentStore."""
        if self._store is not None:
            self._store.pins.unpin(owner)

    async def collections(self, tenant: str) -> list[dict[str, Any]]:
        """`name`, `documents`, `chunks` of each collection that has a visible document."""
        return await self._started.collections(tenant)

    async def documents(self, tenant: str, collection: str) -> list[dict[str, Any]]:
        """`id`, `name`, `chunks`, `created_at`, `metadata`, `origin` of each visible document."""
        return await self._started.documents(tenant, collection)

    async def delete(self, tenant: str, collection: str, documents: Sequence[str] | None) -> int:
        """Delete visible documents (None: all of the collection); how many."""
        return await self._started.delete(tenant, collection, documents)

    async def reindexing(
        self, tenant: str, collection: str, embedder: EmbedderIdentity
    ) -> tuple[Reindexing, bool]:
        """See Reindexes."""
        return await self._started.reindexing(tenant, collection, embedder)

    def database(self) -> Home:
        """The database that it stores in: a use of its own, which ends with its own `close`."""
        if self._embedded is None:
            return Home(self._dsn or "")
        return Home(self._embedded.again())

    async def settle(self) -> None:
        """Wait for what goes on in the background: indexes are built, what died is purged."""
        await self._started.settle()

    @property
    def _started(self) -> ChunkStore:
        if self._store is None:
            raise EngineUnavailable("the vector store is not started: call start() first")
        return self._store
