"""Connections of a journal to a database server: how many work at once, what is given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, LiteralString

import psycopg
import pytest

from teola.query.journal.database import POOL, JournalDatabase
from teola.query.journal.journal import Given
from teola.query.journal.lost import AWAY, JournalLost
from tests.serve.journal.conftest import put, rows

DELETE: Final[LiteralString] = "DELETE FROM teola_journal.queries WHERE id = %s"
EMPTY: Final[LiteralString] = """
INSERT INTO teola_journal.queries (id, tenant, app, deadline) VALUES (%s, '', 'secret', now())
"""
END_OTHERS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
IDS: Final = "SELECT id FROM teola_journal.queries"
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


SESSIONS: Final = """
SELECT application_name FROM pg_stat_activity WHERE backend_type = 'client backend'
    AND datname = current_database() AND pid <> pg_backend_pid()
"""
WHO: Final[LiteralString] = "SELECT current_user, current_setting(%s, true)"


async def test_connections_are_made_when_they_are_wanted_and_used_again(dsn: str) -> None:
    database = JournalDatabase(Given(dsn))
    with pytest.raises(JournalLost) as raised:
        await database.transaction("alice").__aenter__()
    assert str(raised.value) == AWAY
    for _ in range(2):
        await database.open()
    try:
        pool = database._pool
        assert pool is not None
        assert (pool.name, await asyncio.to_thread(rows, dsn, SESSIONS)) == ("journal", [])
        for _ in range(3):
            async with database.transaction("alice") as connection:
                assert connection.autocommit
            assert await asyncio.to_thread(rows, dsn, SESSIONS) == [("teola-journal",)]
    finally:
        await database.close()
    assert await asyncio.to_thread(rows, dsn, SESSIONS) == []


@pytest.mark.parametrize("tenant", [None, "alice"])
async def test_a_transaction_acts_for_its_tenant_or_as_the_server_and_the_next_one_does_not(
    made: str, tenant: str | None
) -> None:
    own, other = "teola.journal", "teola.tenant"
    database = JournalDatabase(Given(made))
    await database.open()
    try:
        for who in (tenant, "bob", tenant):
            async with database.transaction(who) as connection:
                said = {}
                for name in (own, other, "teola.form"):
                    row = await (await connection.execute(WHO, (name,))).fetchone()
                    assert row is not None
                    assert row[0] == "teola_journal"
                    said[name] = row[1] or ""
                assert said[other] == (who or "")
                assert said[own] == ("server" if who is None else "")
                assert said["teola.form"] == "2"
    finally:
        await database.close()


async def test_what_is_wrong_within_undoes_all_of_it_and_only_the_databases_own_errors_are_its(
    made: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a client has sent is not quoted in the log."""
    id = put(made)
    database = JournalDatabase(Given(made))
    await database.open()

    async def work(error: Exception | None, then: Callable[[], object]) -> None:
        async with database.transaction(None) as connection:
            assert (await connection.execute(DELETE, (id,))).rowcount == 1
            if error is not None:
                raise error
            await asyncio.to_thread(then)
            await connection.execute(EMPTY, (id,))

    def said() -> list[str]:
        own = [record for record in caplog.records if record.name.startswith("teola")]
        return [record.getMessage() for record in own]

    try:
        with pytest.raises(ZeroDivisionError):
            await work(ZeroDivisionError(), bool)
        assert (len(rows(made, IDS)), said()) == (1, [])
        with pytest.raises(JournalLost) as raised:
            await work(None, bool)
        assert str(raised.value) == AWAY
        refused = ["the journal's database refuses to work: CheckViolation"]
        assert (len(rows(made, IDS)), said()) == (1, refused)
        with pytest.raises(JournalLost) as raised:
            await work(None, lambda: rows(made, END_OTHERS))
        assert str(raised.value) == AWAY
        assert (len(rows(made, IDS)), said()) == (1, refused), "it is away"
    finally:
        await database.close()
