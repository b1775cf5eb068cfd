"""Embedding a collection anew: another one is filled beside it, and takes its name.

    source    has the name; it is searched, indexed into and deleted from as ever
    target    has no name, so nobody sees it; `replaces` the source

Each current document of the source gets one in the target, whose id follows from both, with the
same chunks and new vectors. What is there stays there: whoever goes on after the death of a process
does the rest. Once both have the same documents, which only holds under a lock on the source, one
transaction gives the name to the target. The source's documents die in it, so queries that read
them go on, and they are deleted when nobody does (as those that were replaced). Where others index
so much that both are never the same, nothing more may be begun in the source after some tries.

Documents that were being indexed into the source at that moment are given up: their chunks come
from the embedder before. Their owners are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from pgvector import Vector as Wire
from psycopg import AsyncConnection, OperationalError, Rollback, errors, sql

from teola.engine import Chunk, DocumentKey, EmbedderIdentity
from teola.errors import EngineError, EngineUnavailable, InputError, UnknownName

from .database import Database
from .embedders import CLOSED_LOCK, Admissions, embedded_by
from .indexing import Indexes
from .ownership import document_key
from .pins import Pins
from .publishing import announce
from .schema import ChunkTables
from .values import vector

REINDEX_LOCK: Final = 0x7E01A5
BATCH: Final = 64
"""Chunks that are embedded and stored at once."""
OPEN_TRIES: Final = 3
"""Of the exchange, before the source is closed to who wants to index into it."""
LOCK_TIMEOUT: Final = "500ms"
"""How long the exchange waits for others: less than the second after which PostgreSQL looks for a
circle of waits and ends one of them, so it is the exchange that gives way."""

ALONE = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
TWIN = "md5({target} || '/' || {document})"
"""Id of the document of the target that is like one of the source."""

CURRENT = r"""
WITH d AS (
    SELECT DISTINCT ON (name, sha256, reading, metadata,
        regexp_replace(pipeline, '^([^/]*/\d+/\d+)/.*$', '\1')) *
    FROM teola.documents WHERE collection = {source} AND ready AND died IS NULL
    ORDER BY name, sha256, reading, metadata,
        regexp_replace(pipeline, '^([^/]*/\d+/\d+)/.*$', '\1'), id
)
"""
"""What has to be in the target. Of what was indexed with two embedders, one."""

MISSING = (
    CURRENT
    + """
SELECT d.id, d.stored, d.sha256, d.pipeline, d.name, d.metadata, d.reading
FROM d LEFT JOIN teola.documents t ON t.id = {twin} WHERE t.ready IS NOT TRUE ORDER BY d.id
"""
)
SIZE = CURRENT + "SELECT count(*), coalesce(sum(stored), 0)::int FROM d"
TEXTS = """
SELECT c.document, c.index, c.body
FROM unnest(%s::text[], %s::int[], %s::int[]) AS slice (document, low, high)
JOIN {chunks} c ON c.document = slice.document AND c.index >= low AND c.index < high
WHERE NOT EXISTS (SELECT FROM {own} n WHERE n.document = {twin} AND n.index = c.index)
ORDER BY c.document, c.index
"""
DOCUMENTS = """
INSERT INTO teola.documents
    (id, key, tenant, collection, name, origin, sha256, reading, pipeline, metadata, created_at,
    asked, expected, owner, holder)
SELECT {twin}, '~' || new.key, d.tenant, {target}, d.name, d.origin, d.sha256, d.reading,
    new.pipeline, d.metadata, d.created_at, d.asked, d.stored, 'reindex', %s
FROM unnest(%s::text[], %s::text[], %s::text[]) AS new (id, key, pipeline)
JOIN teola.documents d ON d.id = new.id
WHERE d.collection = {source} AND d.ready AND d.died IS NULL
ORDER BY d.id
ON CONFLICT DO NOTHING
"""
"""A key is marked until the exchange, for the source's documents may have the same one."""

COPY = "COPY pg_temp.staging (request, document, index, embedding) FROM STDIN (FORMAT BINARY)"
COLUMN_TYPES = ("int4", "text", "int4", "vector")
CHUNKS = """
WITH new AS (
    INSERT INTO {own} (tenant, collection, document, index, body, place, embedding)
    SELECT c.tenant, t.collection, t.id, c.index, c.body, c.place, s.embedding
    FROM pg_temp.staging s
    JOIN {chunks} c ON c.document = s.document AND c.index = s.index
    JOIN teola.documents t ON t.id = {twin}
    WHERE NOT t.ready
    ON CONFLICT (document, index) DO NOTHING
    RETURNING document
), grown AS (SELECT document, count(*)::int AS by FROM new GROUP BY document)
UPDATE teola.documents d
SET stored = d.stored + g.by,
    ready = d.stored + g.by = d.expected,
    owner = CASE WHEN d.stored + g.by = d.expected THEN NULL ELSE d.owner END,
    holder = CASE WHEN d.stored + g.by = d.expected THEN NULL ELSE d.holder END
FROM grown g WHERE d.id = g.document
"""

LOCK = """
SELECT FROM teola.documents WHERE collection = {source} AND NOT ready ORDER BY key FOR UPDATE
"""
"""Before the collection, as those do who make documents visible."""

HOLD = "SELECT FROM teola.collections WHERE id = {source} AND name = %s FOR UPDATE"
LEFT_OVER = (
    CURRENT
    + """
DELETE FROM teola.documents t WHERE t.collection = {target} AND t.id NOT IN (SELECT {twin} FROM d)
"""
)
PENDING = "DELETE FROM teola.documents WHERE collection = {source} AND NOT ready RETURNING key"
LEAVE = """
WITH leaving AS (
    UPDATE teola.collections SET name = NULL, version = version + 1 WHERE id = {source}
    RETURNING version
)
UPDATE teola.documents SET died = (SELECT version FROM leaving)
WHERE collection = {source} AND died IS NULL
"""
ENTER = """
WITH entered AS (
    UPDATE teola.collections SET name = %s, replaces = NULL WHERE id = {target}
)
UPDATE teola.documents t SET key = substr(t.key, 2), asked = d.asked, origin = d.origin
FROM teola.documents d
WHERE t.collection = {target} AND d.collection = {source} AND t.id = {twin}
"""


@dataclass(frozen=True, slots=True)
class Twin:
    """A document of the source, and the key and pipeline of its copy in the target."""

    document: str
    chunks: int
    key: str
    pipeline: str


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """Chunks `low` to `high` of a document."""

    twin: Twin
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class ReindexBatch:
    """Chunks that are embedded at once."""

    slices: tuple[ChunkRange, ...]

    @property
    def size(self) -> int:
        """See ReindexingPart."""
        return sum(span.high - span.low for span in self.slices)


class CollectionReindexing:
    """See teola.engine.Reindexing."""

    def __init__(
        self,
        database: Database,
        tables: ChunkTables,
        indexes: Indexes,
        pins: Pins,
        holder: int,
        tenant: str,
        collection: str,
        embedder: EmbedderIdentity,
    ) -> None:
        self._database, self._tables = database, tables
        self._indexes, self._pins = indexes, pins
        self._holder, self._tenant, self._name = holder, tenant, collection
        self._embedder = embedder
        self._opened = AsyncExitStack()
        self._tries = 0
        self._parts: dict[str, sql.Composable] = {}
        self.source = self.target = 0
        self.documents = self.chunks = 0

    async def begin(self, admissions: Admissions) -> bool:
        """False if the collection is this embedder's already. Raises UnknownName, InputError."""
        self._session = await self._opened.enter_async_context(self._database.dedicated())
        alone = await self._session.execute(ALONE, (REINDEX_LOCK, f"{self._tenant}/{self._name}"))
        if await alone.fetchone() != (True,):
            raise InputError(
                f"the collection {self._name!r} is being embedded anew already: wait for that"
            )
        async with self._database.transaction(self._tenant) as connection:
            recorded, same = await admissions.source(connection, self._name, self._embedder)
            if recorded is None:
                names = await connection.execute(
                    "SELECT name FROM teola.collections WHERE name IS NOT NULL ORDER BY name"
                )
                raise UnknownName("collection", self._name, [name async for (name,) in names])
            self.source = recorded.number
            self._parts = {"source": sql.Literal(recorded.number)}
            size = await connection.execute(self._sql(SIZE))
            self.documents, self.chunks = await size.fetchone() or (0, 0)
            if same:
                return False
            self.target = await admissions.target(
                connection, self._tenant, recorded.number, self._embedder
            )
        self._parts |= {
            "target": sql.Literal(self.target),
            "chunks": self._tables.of(recorded.dimensions),
            "own": self._tables.own,
        }
        return True

    async def close(self) -> None:
        """See teola.engine.Reindexing."""
        await self._opened.aclose()

    async def batches(self) -> list[ReindexBatch]:
        """See teola.engine.Reindexing."""
        async with self._database.transaction(self._tenant) as connection:
            await connection.execute(self._sql(LEFT_OVER, "d.id"))
            cursor = await connection.execute(self._sql(MISSING, "d.id"))
            twins = [self._twin(*row) async for row in cursor]
        return list(_batches(twins))

    async def texts(self, batch: ReindexBatch) -> list[Chunk]:
        """See teola.engine.Reindexing."""
        slices = (
            [span.twin.document for span in batch.slices],
            [span.low for span in batch.slices],
            [span.high for span in batch.slices],
        )
        async with self._database.transaction(self._tenant) as connection:
            cursor = await connection.execute(self._sql(TEXTS, "c.document"), slices)
            return [Chunk(document, index, text, "") async for document, index, text in cursor]

    async def store(
        self, batch: ReindexBatch, texts: Sequence[Chunk], vectors: Sequence[Any]
    ) -> None:
        """See teola.engine.Reindexing."""
        twins = {span.twin.document: span.twin for span in batch.slices}
        keys = [twin.key for twin in twins.values()]
        pipelines = [twin.pipeline for twin in twins.values()]
        rows = [
            (0, chunk.document, chunk.index, Wire(vector(values, self._tables.width)))
            for chunk, values in zip(texts, vectors, strict=True)
        ]
        async with self._database.transaction(self._tenant) as connection:
            values = (self._holder, list(twins), keys, pipelines)
            await connection.execute(self._sql(DOCUMENTS, "d.id"), values)
            async with connection.cursor().copy(COPY) as copy:
                copy.set_types(COLUMN_TYPES)
                for row in rows:
                    await copy.write_row(row)
            await connection.execute(self._sql(CHUNKS, "s.document"))

    async def finish(self) -> bool:
        """See teola.engine.Reindexing."""
        await self._indexes.complete(self._tenant, self.target)
        self._tries += 1
        if self._tries == OPEN_TRIES:
            await self._close_source()
            return False  # what was begun before is seen now
        async with self._database.transaction(self._tenant) as connection:
            done = False
            try:
                async with connection.transaction():
                    done = await self._exchanged(connection)
                    if not done:
                        raise Rollback
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                return False
        if done:
            self._pins.purge_soon(self._tenant, self.source)
        return done

    async def _close_source(self) -> None:
        try:
            await self._session.execute(
                "SELECT pg_advisory_lock(%s, %s)", (CLOSED_LOCK, self.source)
            )
        except OperationalError as error:
            raise EngineUnavailable(
                f"lost the connection that shows that {self._name!r} is embedded anew: go on with "
                f"`teola collections reindex {self._name}`"
            ) from error

    async def _exchanged(self, connection: AsyncConnection[Any]) -> bool:
        await connection.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
        await connection.execute(self._sql(LOCK))
        source_row = await connection.execute(self._sql(HOLD), (self._name,))
        if not source_row.rowcount:
            raise EngineError(f"the collection {self._name!r} got another embedder meanwhile")
        # What is made visible just now is visible after this, or gone.
        pending = await connection.execute(self._sql(PENDING))
        await announce(connection, [key async for (key,) in pending])
        missing = await connection.execute(self._sql(MISSING, "d.id"))
        if missing.rowcount:
            return False
        await connection.execute(self._sql(LEFT_OVER, "d.id"))
        await connection.execute(self._sql(LEAVE))
        await connection.execute(self._sql(ENTER, "d.id"), (self._name,))
        return True

    def _twin(
        self,
        document: str,
        chunks: int,
        sha256: str,
        pipeline: str,
        name: str,
        metadata: dict[str, Any],
        reading: str | None,
    ) -> Twin:
        anew = embedded_by(pipeline, self._embedder)
        key = DocumentKey(sha256, anew, name, metadata, reading=reading or "")
        return Twin(document, chunks, document_key(self._tenant, self._name, key), anew)

    def _sql(self, statement: Any, document: str = "") -> sql.Composed:
        """A statement with its numbers and tables filled in. document: column with the id of a
        document of the source; the statement speaks of its copy."""
        parts = dict(self._parts)
        if document:
            column = sql.SQL(document)  # type: ignore[arg-type]
            parts["twin"] = sql.SQL(TWIN).format(target=parts["target"], document=column)
        return sql.SQL(statement).format(**parts)


def _batches(twins: Sequence[Twin]) -> Iterator[ReindexBatch]:
    """All chunks, in order, BATCH at once."""
    chosen: list[ChunkRange] = []
    room = BATCH
    for twin in twins:
        low = 0
        while low < twin.chunks:
            high = min(twin.chunks, low + room)
            chosen.append(ChunkRange(twin, low, high))
            room, low = room - (high - low), high
            if not room:
                yield ReindexBatch(tuple(chosen))
                chosen, room = [], BATCH
    if chosen:
        yield ReindexBatch(tuple(chosen))
