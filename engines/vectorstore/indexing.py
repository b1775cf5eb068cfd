"""Indexes of each large collection, made in the background: HNSW of its vectors, and an index of
its text for each language in which it is searched by words.

An index covers only its collection (a partial index): other collections neither pay for it when
they grow nor dilute its results, and small ones have none. Until it is there, the collection is
searched exactly. It is built without blocking writers, by the role that owns the tables.

The index of text is one of an expression: no table is rewritten for it. Row-level security lets
PostgreSQL use it only if the functions in it are declared leakproof, which only a superuser may do.
The embedded server does; of other servers, an administrator decides (docs/operations.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from teola.errors import EngineUnavailable

from . import lexical, schema
from .database import Database

logger = logging.getLogger(__name__)
BUILD_LOCK = 0x7E01A1
MAX_DIMENSIONS = 2000
"""More than this pgvector does not index; such stores are searched exactly."""

LARGE = """
SELECT c.id FROM teola.collections c WHERE c.id = ANY(%s) AND NOT c.indexed AND %s <= (
    SELECT coalesce(sum(stored), 0) FROM teola.documents WHERE collection = c.id AND ready)
"""
TEXT_FROM = 1_000
"""Chunks that a collection has before its text is indexed. Reading so many takes 0.1 s. Of fewer,
an index saves little where a question has words of most: these are cut into words to be scored. And
500 more indexes cost every statement about chunks a millisecond, to be planned."""

LARGE_TEXT = """
SELECT %s <= (SELECT coalesce(sum(stored), 0) FROM teola.documents WHERE collection = %s AND ready)
"""
CREATE_TEXT = """
CREATE INDEX CONCURRENTLY {index} ON {chunks}
USING gin (to_tsvector({language}::regconfig, body)) WHERE collection = {collection}
"""
TEXT_INDEXES = "SELECT relname FROM pg_class WHERE starts_with(relname, %s) AND relkind = 'i'"

CREATE = """
CREATE INDEX CONCURRENTLY {index} ON {chunks}
USING hnsw (embedding {schema}.vector_cosine_ops) WITH (m = 16, ef_construction = 128)
WHERE collection = {collection}
"""


class Indexes:
    """Builds indexes, one after the other, of the table `chunks` that it is opened for.
    `exact_below`: chunks that make a collection large."""

    def __init__(self, database: Database, dimensions: int, exact_below: int) -> None:
        self._database = database
        self._enabled = dimensions <= MAX_DIMENSIONS
        self._exact_below = exact_below
        self._tasks: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()
        self._asked: set[tuple[int, str]] = set()
        self._warned = False
        self._chunks = sql.Identifier(schema.SCHEMA, "chunks")

    def open(self, chunks: sql.Identifier) -> None:
        """Set the table of chunks. Called before anything is indexed."""
        self._chunks = chunks

    def grown(self, tenant: str, collections: Iterable[int]) -> None:
        """Collections got documents: index those that are large now, in the background."""
        ids = sorted(collections)
        self._asked = {pair for pair in self._asked if pair[0] not in ids}
        if ids and self._enabled:
            self._begin(self._check(tenant, ids))

    def searched(self, tenant: str, collection: int, language: str) -> None:
        """Text without an index was searched: index it in the background, if it is large."""
        if (collection, language) not in self._asked:
            self._asked.add((collection, language))
            self._begin(self._check_text(tenant, collection, language))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="vectorstore-index")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until what is under way is done."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Stop building. What is unfinished is dropped and built again later."""
        for task in self._tasks:
            task.cancel()
        await self.settle()

    async def drop(self, tenant: str, collection: int) -> None:
        """Drop the indexes of a collection that was emptied."""
        await self._mark(tenant, collection, indexed=False)
        self._asked = {pair for pair in self._asked if pair[0] != collection}
        async with self._one, self._database.admin() as connection:
            await connection.execute(_drop(_name(collection)))
            of_text = await connection.execute(TEXT_INDEXES, (lexical.index_name(collection, ""),))
            for (name,) in await of_text.fetchall():
                await connection.execute(_drop(name))

    async def complete(self, tenant: str, collection: int) -> None:
        """Wait until the collection is indexed, if it is large. Where that fails it is searched
        exactly."""
        if self._enabled:
            await self._check(tenant, [collection])

    async def _check(self, tenant: str, collections: list[int]) -> None:
        try:
            async with self._one:
                async with self._database.transaction(tenant) as connection:
                    cursor = await connection.execute(LARGE, (collections, self._exact_below))
                    large = [collection async for (collection,) in cursor]
                for collection in large:
                    await self._build(tenant, collection)
        except (psycopg.Error, EngineUnavailable) as error:
            logger.warning("no index was built, searches stay exact: %s", error)

    async def _check_text(self, tenant: str, collection: int, language: str) -> None:
        try:
            async with self._one:
                async with self._database.transaction(tenant) as connection:
                    cursor = await connection.execute(LARGE_TEXT, (TEXT_FROM, collection))
                    large = await cursor.fetchone()
                if large is not None and large[0]:
                    await self._build_text(collection, language)
        except (psycopg.Error, EngineUnavailable) as error:
            self._asked.discard((collection, language))
            logger.warning("no index of text was built, searches read all of it: %s", error)

    async def _build_text(self, collection: int, language: str) -> None:
        async with self._database.admin() as connection:
            if not await lexical.usable(connection):
                self._warn_unusable()
                return
            name = lexical.index_name(collection, language)
            create = sql.SQL(CREATE_TEXT).format(
                index=sql.Identifier(name),
                chunks=self._chunks,
                language=sql.Literal(lexical.regconfig_name(language)),
                collection=sql.Literal(collection),
            )
            if not await _built(connection, name, create):
                self._asked.discard((collection, language))
                return
            # Until then the planner knows neither the collection nor its words, and reads all text.
            await connection.execute(sql.SQL("ANALYZE {}").format(self._chunks))

    def _warn_unusable(self) -> None:
        if not self._warned:
            logger.warning(
                "searches by words read all text of a collection: this PostgreSQL uses no index "
                "for them until a superuser runs, in this database, ALTER FUNCTION "
                "ts_match_vq(tsvector, tsquery) LEAKPROOF and ALTER FUNCTION "
                "to_tsvector(regconfig, text) LEAKPROOF"
            )
        self._warned = True

    async def _build(self, tenant: str, collection: int) -> None:
        async with self._database.admin() as connection:
            create = await _create(connection, self._chunks, collection)
            if not await _built(connection, _name(collection), create):
                return
        await self._mark(tenant, collection, indexed=True)

    async def _mark(self, tenant: str, collection: int, *, indexed: bool) -> None:
        async with self._database.transaction(tenant) as connection:
            await connection.execute(
                "UPDATE teola.collections SET indexed = %s WHERE id = %s", (indexed, collection)
            )


async def _built(connection: AsyncConnection[Any], name: str, create: sql.Composed) -> bool:
    """Build an index that is not there yet. False if another process builds one just now; growing
    or searching on asks again."""
    # Waiting for the lock would hold a snapshot, for whose end the other build waits.
    cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", (BUILD_LOCK,))
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return False
    if await lexical.complete(connection, name):
        return True  # by another process, meanwhile
    await connection.execute(_drop(name))  # an unfinished one
    await connection.execute("SET maintenance_work_mem = '256MB'")
    await connection.execute("SET max_parallel_maintenance_workers = 0")
    await connection.execute(create)
    return True


def _name(collection: int) -> str:
    return f"chunks_hnsw_{collection}"


def _drop(name: str) -> sql.Composed:
    index = sql.Identifier(schema.SCHEMA, name)
    return sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(index)


async def _create(
    connection: AsyncConnection[Any], chunks: sql.Identifier, collection: int
) -> sql.Composed:
    return sql.SQL(CREATE).format(
        chunks=chunks,
        index=sql.Identifier(_name(collection)),
        schema=await schema.extension_schema(connection),
        collection=sql.Literal(collection),
    )
