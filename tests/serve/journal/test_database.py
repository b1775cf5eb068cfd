"""The tables and the database server: made once, guarded, lost and found again."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from uuid import uuid4

import httpx
import psutil
import psycopg
import pytest

from teola import Runtime
from teola.errors import EngineUnavailable
from teola.query.journal import database, tables
from teola.query.journal.database import JournalDatabase
from teola.query.journal.journal import Given, Journal, journal_of
from teola.query.journal.lost import JournalLost
from teola.query.journal.patience import Patience
from teola.serve.journal import keeper
from teola_engines.vectorstore import EmbeddedPostgres, PgVector
from tests.engines.vectorstore.conftest import temporary_folder
from tests.serve.conftest import applications, serving, soon
from tests.serve.journal.conftest import Serve, ask, ended, put, rows

FORCED = """
SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
WHERE c.relnamespace = 'teola_journal'::regnamespace AND c.relkind = 'r' ORDER BY c.relname
"""


def test_the_role_at_work_sees_one_tenants_rows_and_no_other_tables(made: str) -> None:
    """Without any condition in the statement: the barrier itself is tried."""
    assert rows(made, FORCED) == [(table, True) for table in ("asks", "files", "queries", "steps")]
    for tenant in ("alice", "bob"):
        put(made, tenant=tenant)
    seen = "SELECT tenant FROM teola_journal.queries"
    with psycopg.connect(made) as connection:
        connection.execute("CREATE TABLE other AS SELECT 1")
        connection.execute(tables.TAKE_ROLE)
        assert connection.execute("SELECT current_user").fetchone() == ("teola_journal",)
        assert connection.execute(seen).fetchall() == []
        connection.execute("SELECT set_config('teola.tenant', 'alice', true)")
        assert connection.execute(seen).fetchall() == [("alice",)]
        for refused in (
            "UPDATE teola_journal.queries SET tenant = 'bob'",
            "SELECT * FROM other",
            "CREATE TABLE teola_journal.mine ()",
            "INSERT INTO teola_journal.settings VALUES (7)",
        ):
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege),
                connection.transaction(),
            ):
                connection.execute(refused)


# --- the database ---------------------------------------------------------------------------


async def test_a_transaction_may_take_as_long_as_its_own_patience(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalDatabase(Given(dsn))
    await journal.open()
    try:
        for patience, usual_s, sleeps_s in (
            (Patience(60.0), 0.05, 0.5),
            (None, 60.0, 0.5),
            (Patience(0.05), 60.0, 30.0),
            (None, 0.05, 30.0),
        ):
            monkeypatch.setattr(database, "WORK_S", usual_s)
            with pytest.raises(JournalLost) if sleeps_s > 1 else nullcontext():
                async with journal.transaction(None, patience) as connection:
                    await connection.execute("SELECT pg_sleep(%s)", (sleeps_s,))
    finally:
        await journal.close()


def test_tables_are_made_once_by_many(dsn: str) -> None:
    async def make() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await tables.migrate(connection)

    async def all_at_once() -> None:
        await asyncio.gather(*(make() for _ in range(6)))

    asyncio.run(all_at_once())
    versions = len(tables.MIGRATIONS)
    found = rows(dsn, "SELECT version FROM teola_journal.settings ORDER BY version")
    assert found == [(n,) for n in range(1, versions + 1)]
    rows(dsn, "INSERT INTO teola_journal.settings VALUES (99)")
    with pytest.raises(EngineUnavailable, match=r"has version 99.*update Teola"):
        asyncio.run(make())


@pytest.mark.parametrize("dsn", ["postgresql://u:hunter2@127.0.0.1:1/db", "nonsense://hunter2"])
def test_without_its_database_only_background_queries_are_refused(dsn: str) -> None:
    journal = Journal(Given(dsn), 1.0)
    with (
        Runtime() as runtime,
        serving(runtime, applications(), journal=journal) as served,
        httpx.Client(base_url=served.url, timeout=30) as client,
    ):
        for response in (ask(client, "hello"), client.get(f"/v1/queries/{uuid4().hex}")):
            assert response.status_code == 503
            error = response.json()["error"]
            assert error["code"] == "journal_unavailable"
            assert error["retryable"] is True
            assert "hunter2" not in response.text
            assert response.headers["retry-after"]
        assert ask(client, "hello", mode="sync").status_code == 200
        assert len(client.get("/v1/queries").json()["queries"]) == 1


@pytest.mark.server
def test_a_database_that_comes_back_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "FENCE_S", 3600.0)
    with temporary_folder() as folder:
        embedded = EmbeddedPostgres(folder)
        with (
            Runtime() as runtime,
            serving(
                runtime, applications(), journal=Journal(Given(embedded.start()[0]), 1e6)
            ) as served,
            httpx.Client(base_url=served.url, timeout=30) as client,
        ):
            ended(client, ask(client, "hello").json()["query_id"])
            slow = ask(client, "please wait").json()["query_id"]
            postmaster = psutil.Process(embedded.pid())
            family = [*postmaster.children(recursive=True), postmaster]
            postmaster.kill()
            psutil.wait_procs(family, 20)
            soon(lambda: ask(client, "hello").status_code == 503)
            assert ask(client, "hello", mode="sync").status_code == 200
            assert client.delete(f"/v1/queries/{slow}").json()["state"] == "cancelled"
            dsn = embedded.start()[0]
            soon(lambda: ask(client, "hello").status_code == 202)
            ended_while_away = "SELECT state FROM teola_journal.queries WHERE id = %s"
            soon(lambda: rows(dsn, ended_while_away, slow) == [("cancelled",)])
        embedded.close()


async def test_one_that_is_reached_again_and_again_leaves_nothing_behind(dsn: str) -> None:
    """Whether its connections were lost or not: what watches them is there once, and then gone."""
    journal, before = Journal(Given(dsn), 1.0), asyncio.all_tasks()
    others = """
        SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'teola-journal'
    """
    held = list[int]()
    for lost in (False, True, False, True):
        await journal.open()
        for tenant in ("alice", None):
            async with journal.database.transaction(tenant) as connection:
                await connection.execute("SELECT 1")
        held.append(len(asyncio.all_tasks()))
        if lost:
            rows(dsn, others)
    assert held == held[:1] * 4
    await journal.close()
    assert asyncio.all_tasks() == before


def test_it_is_kept_where_the_vector_store_is(postgres: EmbeddedPostgres) -> None:
    home = PgVector(data_dir=postgres.data_dir).database()
    assert home.start() == postgres.start()[0]
    home.close()
    home.close()
    assert postgres.pid() is not None, "others still use it"
    assert PgVector(dsn="host=there").database().start() == "host=there"
    with Runtime() as runtime:
        assert journal_of(runtime, False, 7) is None
        assert journal_of(runtime, True, 7) is not None
        assert journal_of(runtime, "host=there", 7) is not None


def test_a_restored_database_gets_its_role_anew(
    made: str, serve: Serve, postgres: EmbeddedPostgres
) -> None:
    """Roles belong to the server and are in no dump."""
    admin = postgres.start()[0]
    rows(admin, "ALTER ROLE teola_journal RENAME TO set_aside")
    try:
        with serve() as (_, client):
            assert ended(client, ask(client, "hello").json()["query_id"])["state"] == "ok"
        allowed = "SELECT has_table_privilege('teola_journal', 'teola_journal.queries', 'SELECT')"
        assert rows(made, allowed) == [(True,)]
    finally:
        rows(made, "DROP OWNED BY teola_journal")
        rows(admin, "DROP ROLE teola_journal")
        rows(admin, "ALTER ROLE set_aside RENAME TO teola_journal")
