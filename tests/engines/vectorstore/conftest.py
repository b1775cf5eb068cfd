"""A real embedded server for all tests of the store, and short ways to talk to it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from teola.engine import Chunk, DocumentKey, QueryContext, Request, Scope
from teola.graph.ops import IngestionParams, Op, SearchParams
from teola_engines.vectorstore import EmbeddedPostgres, PgVector, schema
from teola_engines.vectorstore.database import Database, Tables

DIMENSIONS = 16


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Unlike pytest's own, one that the account which serves root can be let into."""
    folder = Path(tempfile.mkdtemp(prefix="teola-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(servers: None) -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def template(servers: None) -> Iterator[Path]:
    """A folder with a new cluster that nobody runs; making one takes a second or two."""
    with temporary_folder() as folder:
        embedded = EmbeddedPostgres(folder)
        embedded.start()
        embedded.close()
        yield folder


@pytest.fixture
def cluster(template: Path) -> Iterator[Path]:
    """A folder of the test's own, with a cluster."""
    with temporary_folder() as folder:
        subprocess.run(["cp", "-a", f"{template}/.", folder], check=True)
        yield folder


@dataclass(frozen=True)
class Server:
    data_dir: Path
    admin: str
    query: str

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask as the superuser, who sees everything."""
        with psycopg.connect(self.admin, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="session")
def server(servers: None) -> Iterator[Server]:
    with temporary_folder() as folder:
        embedded = EmbeddedPostgres(folder)
        try:
            yield Server(folder, *embedded.start())
        finally:
            embedded.close()


@pytest.fixture
async def store(server: Server) -> AsyncIterator[PgVector]:
    store = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def other(server: Server) -> AsyncIterator[PgVector]:
    """A second store, as another process would have."""
    store = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def connected(admin: str, query: str | None = None) -> AsyncIterator[Database]:
    """A store's connections, of which one is for queries."""
    migrate = partial(schema.migrate, dimensions=DIMENSIONS)
    database = Database(Tables("vector store", schema.SCHEMA, migrate), admin, query, 1)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


def key(name: str, **metadata: Any) -> DocumentKey:
    return DocumentKey(hashlib.sha256(name.encode()).hexdigest(), "v1", name, metadata)


def vectors(count: int, seed: int = 0, dimensions: int = DIMENSIONS) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32))


@dataclass(frozen=True)
class Corner:
    """One tenant's collection, seen by one query."""

    tenant: str = field(default_factory=lambda: f"tenant-{uuid.uuid4().hex[:8]}")
    collection: str = "papers"
    query: str = "q1"

    def scope(self, **rest: Any) -> Scope:
        return Scope(self.tenant, self.collection, **rest)

    def _request(self, query: str, op: Op, params: Any, **inputs: Any) -> Request:
        context = QueryContext(query, self.tenant)
        return Request(op, params, inputs, context, f"{query}:{op.value}")

    def ingestion(self, chunks: Sequence[Chunk], values: Sequence[np.ndarray]) -> Request:
        inputs = {"vectors": list(values), "chunks": list(chunks), "scope": self.scope()}
        return self._request(self.query, Op.INGESTION, IngestionParams(), **inputs)

    def search(
        self, values: Sequence[np.ndarray], top_k: int = 3, query: str | None = None, **scope: Any
    ) -> Request:
        """A search of `query` (None: of a query of its own, which sees the newest version)."""
        inputs = {"vectors": list(values), "scope": self.scope(**scope)}
        asks = query or uuid.uuid4().hex
        return self._request(asks, Op.SEARCHING, SearchParams(top_k), **inputs)

    async def claim(self, store: PgVector, *keys: DocumentKey, owner: str = "q1") -> list[Any]:
        return await store.claim(self.tenant, self.collection, keys, owner)

    async def index(
        self, store: PgVector, document: DocumentKey, values: Sequence[np.ndarray]
    ) -> str:
        """Claim, ingest in one piece, release; the document's id."""
        (claim,) = await self.claim(store, document, owner="indexer")
        await store.expect("indexer", {claim.document: len(values)})
        chunks = pieces(claim.document, len(values), document.name)
        (result,) = await store.execute([self.ingestion(chunks, values)])
        assert not isinstance(result, Exception), result
        await store.release("indexer")
        return claim.document


def pieces(document: str, count: int, name: str = "a.txt") -> list[Chunk]:
    return [Chunk(document, i, f"{name} {i}", name) for i in range(count)]


@pytest.fixture
def corner() -> Corner:
    return Corner()
