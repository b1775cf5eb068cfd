"""Connections of a journal to a database server: how many work at once, what is given up."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, LiteralString

import psycopg
import pytest

from teola.query.journal.database import POOL, JournalDatabase
from teola.query.journal.journal import Given
from tests.serve.journal.conftest import put, rows

DELETE: Final[LiteralString] = "DELETE FROM teola_journal.queries WHERE id = %s"
LOCK = "SELECT FROM teola_journal.queries WHERE id = %s FOR UPDATE"


async def test_work_that_takes_too_long_is_given_up_and_its_session_goes_on_as_it_was(
    made: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another session holds the row. What is done in time says how many rows it met."""
    id = put(made)
    async with (
        asyncio.timeout(30),
        await psycopg.AsyncConnection.connect(made, autocommit=True) as session,
    ):
        before = await (await session.execute("SHOW statement_timeout")).fetchone()
        with psycopg.connect(made) as other:
            other.execute(LOCK, (id,))
            assert await JournalDatabase.hurried(session, 0.05, DELETE, (id,)) == 0
        (record,) = caplog.records
        assert (record.levelno, record.getMessage()) == (
            logging.WARNING,
            "the journal's old queries cannot be deleted: it takes too long",
        )
        assert await (await session.execute("SHOW statement_timeout")).fetchone() == before
        assert len(rows(made, "SELECT id FROM teola_journal.queries")) == 1
        assert await JournalDatabase.hurried(session, 20.0, DELETE, (id,)) == 1
        assert await JournalDatabase.hurried(session, 20.0, DELETE, (id,)) == 0
    assert len(caplog.records) == 1


async def test_as_many_transactions_work_at_once_as_there_are_connections_and_others_wait(
    dsn: str,
) -> None:
    database = JournalDatabase(Given(dsn))
    await database.open()
    within, most, goes_on = 0, 0, asyncio.Event()

    async def work() -> None:
        nonlocal within, most
        async with database.transaction("alice"):
            within += 1
            most = max(most, within)
            await goes_on.wait()
            within -= 1

    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for _ in range(POOL + 1):
                group.create_task(work())
            pool = database._pool
            assert pool is not None
            while within < POOL or pool.get_stats().get("requests_waiting", 0) < 1:
                await asyncio.sleep(0.001)
            goes_on.set()
        assert (within, most) == (0, POOL)
    finally:
        await database.close()
