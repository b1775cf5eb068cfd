"""An HNSW index for each large collection, made in the background.

The index covers only its collection (a partial index): other collections neither pay for it when
they grow nor dilute its results, and small ones have none. Until it is there, the collection is
searched exactly. It is built without blocking writers, by the role that owns the tables.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from teola.errors import EngineUnavailable

from . import schema
from .database import Database

logger = logging.getLogger(__name__)
BUILD_LOCK = 0x7E01A1
MAX_DIMENSIONS = 2000
"""More than this pgvector does not index; such stores are searched exactly."""

LARGE = """
SELECT c.id FROM teola.collections c WHERE c.id = ANY(%s) AND NOT c.indexed AND %s <= (
    SELECT coalesce(sum(stored), 0) FROM teola.documents WHERE collection = c.id AND ready)
"""
CREATE = """
CREATE INDEX CONCURRENTLY {index} ON teola.chunks
USING hnsw (embedding {schema}.vector_cosine_ops) WITH (m = 16, ef_construction = 128)
WHERE collection = {collection}
"""


class Indexes:
    """Builds indexes, one after the other. `exact_below`: chunks that make a collection large."""

    def __init__(self, database: Database, dimensions: int, exact_below: int) -> None:
        self._database = database
        self._enabled = dimensions <= MAX_DIMENSIONS
        self._exact_below = exact_below
        self._tasks: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()

    def grown(self, tenant: str, collections: Iterable[int]) -> None:
        """Collections got documents: index those that are large now, in the background."""
        wanted = sorted(collections)
        if wanted and self._enabled:
            task = asyncio.create_task(self._check(tenant, wanted), name="vectorstore-index")
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
        """Drop the index of a collection that was emptied."""
        await self._mark(tenant, collection, indexed=False)
        async with self._one, self._database.admin() as connection:
            await connection.execute(_drop(collection))

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

    async def _build(self, tenant: str, collection: int) -> None:
        async with self._database.admin() as connection:
            # Waiting for the lock would hold a snapshot, for whose end the other build waits.
            cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", (BUILD_LOCK,))
            row = await cursor.fetchone()
            if row is None or not row[0]:
                return  # another process builds; growing on asks again
            await connection.execute(_drop(collection))  # an unfinished one
            await connection.execute("SET maintenance_work_mem = '256MB'")
            await connection.execute("SET max_parallel_maintenance_workers = 0")
            await connection.execute(await _create(connection, collection))
        await self._mark(tenant, collection, indexed=True)

    async def _mark(self, tenant: str, collection: int, *, indexed: bool) -> None:
        async with self._database.transaction(tenant) as connection:
            await connection.execute(
                "UPDATE teola.collections SET indexed = %s WHERE id = %s", (indexed, collection)
            )


def _name(collection: int) -> str:
    return f"chunks_hnsw_{collection}"


def _drop(collection: int) -> sql.Composed:
    name = sql.Identifier(schema.SCHEMA, _name(collection))
    return sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name)


async def _create(connection: AsyncConnection[Any], collection: int) -> sql.Composed:
    return sql.SQL(CREATE).format(
        index=sql.Identifier(_name(collection)),
        schema=await schema.extension_schema(connection),
        collection=sql.Literal(collection),
    )
