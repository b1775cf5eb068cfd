"""Storing chunks: one COPY and one transaction for all requests of a tenant in a batch.

Chunks become rows that nobody sees. The transaction that stores the last one a document expects
publishes the document (publishing.py). Chunks that are there already are skipped, so a request may
be repeated at any time and in any order; the row of the document, locked, puts writers in line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, DataError, IntegrityError, sql

from teola.engine import Chunk, EngineResult, Request, Scope
from teola.errors import EngineError, InputError

from .database import Database
from .ownership import lock
from .publishing import Published, publish
from .values import ChunkVector, check_place, clean, clean_place, vector

COPY = """
COPY pg_temp.staging (request, document, index, body, place, embedding)
FROM STDIN (FORMAT BINARY)
"""
COLUMN_TYPES = ("int4", "text", "int4", "text", "jsonb", "vector")
LOOK_UP = """
SELECT d.id, c.name FROM teola.documents d JOIN teola.collections c ON c.id = d.collection
WHERE d.id = ANY(%s)
"""
STORE = """
WITH new AS (
    INSERT INTO {chunks} (tenant, collection, document, index, body, place, embedding)
    SELECT d.tenant, d.collection, d.id, s.index, s.body, s.place, s.embedding
    FROM pg_temp.staging s JOIN teola.documents d ON d.id = s.document
    WHERE s.request = ANY(%s) AND NOT d.ready
    ON CONFLICT (document, index) DO NOTHING
    RETURNING document
), grown AS (SELECT document, count(*)::int AS by FROM new GROUP BY document)
UPDATE teola.documents d
SET stored = d.stored + g.by
FROM grown g WHERE d.id = g.document
RETURNING d.id, coalesce(d.stored = d.expected, false), coalesce(d.stored > d.expected, false)
"""


@dataclass(frozen=True, slots=True)
class Pieces:
    """One request, checked: (chunk, its vector) each. `number`: its place in the batch."""

    number: int
    scope: Scope
    rows: tuple[tuple[Chunk, ChunkVector], ...]

    @property
    def result(self) -> EngineResult:
        return {"stored": [f"{chunk.document}:{chunk.index}" for chunk, _ in self.rows]}

    @property
    def documents(self) -> set[str]:
        return {chunk.document for chunk, _ in self.rows}


def read(number: int, request: Request, dimensions: int) -> Pieces:
    """Check one request. Raises InputError."""
    vectors, chunks = request.inputs["vectors"], request.inputs["chunks"]
    if len(vectors) != len(chunks):
        raise InputError(f"{len(chunks)} chunks were given with {len(vectors)} vectors")
    rows = tuple(
        (chunk, vector(values, dimensions)) for chunk, values in zip(chunks, vectors, strict=True)
    )
    if any(chunk.index < 0 for chunk in chunks):
        raise InputError("a chunk has a negative index: count from 0")
    for chunk in chunks:
        check_place(chunk.place)
    return Pieces(number, request.inputs["scope"], rows)


@dataclass(frozen=True, slots=True)
class Stored:
    """What transactions did: results by number, and what each published."""

    results: dict[int, EngineResult | Exception]
    published: tuple[Published, ...] = ()


async def store(
    database: Database, chunks: sql.Identifier, tenant: str, batch: Sequence[Pieces]
) -> Stored:
    """Store a tenant's requests in the table `chunks`, in one transaction; if the data breaks it,
    each in its own."""
    try:
        return await _store(database, chunks, tenant, batch)
    except (DataError, IntegrityError, EngineError) as error:
        if isinstance(error, EngineError) and error.retryable:
            raise
        if len(batch) == 1:
            reason = " ".join(str(error).split())
            failure = EngineError(f"the chunks could not be stored: {reason}")
            return Stored({batch[0].number: failure})
    alone = [await store(database, chunks, tenant, [pieces]) for pieces in batch]
    results = {number: result for stored in alone for number, result in stored.results.items()}
    return Stored(results, tuple(published for stored in alone for published in stored.published))


async def _store(
    database: Database, chunks: sql.Identifier, tenant: str, batch: Sequence[Pieces]
) -> Stored:
    async with database.transaction(tenant) as connection:
        names = sorted(set().union(*(pieces.documents for pieces in batch)))
        await lock(connection, names)
        cursor = await connection.execute(LOOK_UP, (names,))
        homes = {name: collection async for name, collection in cursor}
        results = {pieces.number: _outcome(pieces, homes) for pieces in batch}
        good = [p for p in batch if not isinstance(results[p.number], Exception)]
        await _copy(connection, good)
        statement = sql.SQL(STORE).format(chunks=chunks)
        cursor = await connection.execute(statement, ([p.number for p in good],))
        grown = await cursor.fetchall()
        for name, _, excess in grown:
            if excess:
                raise EngineError(f"document {name} got more chunks than it was said to have")
        published = await publish(connection, [name for name, whole, _ in grown if whole])
        return Stored(results, (published,))


def _outcome(pieces: Pieces, homes: dict[str, str]) -> EngineResult | Exception:
    """The result, unless a document is not (or no longer) to be indexed there."""
    for document in sorted(pieces.documents):
        if homes.get(document) != pieces.scope.collection:
            return EngineError(
                f"document {document} is not being indexed in {pieces.scope.collection!r}: "
                "it was released or deleted, or the collection was embedded anew; claim it first"
            )
    return pieces.result


async def _copy(connection: AsyncConnection[Any], batch: Sequence[Pieces]) -> None:
    cursor = connection.cursor()
    async with cursor.copy(COPY) as copy:
        copy.set_types(COLUMN_TYPES)
        for pieces in batch:
            for chunk, values in pieces.rows:
                place = clean_place(chunk.place)
                at = (pieces.number, chunk.document, chunk.index)
                await copy.write_row((*at, clean(chunk.text), place, values))
