"""A database server for all tests, an empty database for each, and servers on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from teola import App, Runtime
from teola.query.journal import journal as journals
from teola.query.journal import tables
from teola.query.journal.journal import Given, Journal
from teola.query.journal.sealing import Seal
from teola.serve.access.auth import KeyFile
from teola.serve.journal import keeper
from teola.serve.table_queries.registered_tables import RegisteredTables
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.serve.conftest import Served, applications, serving
from tests.serve.databases import new_database, rows

ECHO = "/v1/apps/echo/queries"
Serve = Callable[..., AbstractContextManager[tuple[Served, httpx.Client]]]


@pytest.fixture(scope="session")
def postgres(servers: None) -> Iterator[EmbeddedPostgres]:
    with temporary_folder() as folder:
        embedded = EmbeddedPostgres(folder)
        embedded.start()
        try:
            yield embedded
        finally:
            embedded.close()


@pytest.fixture
def dsn(postgres: EmbeddedPostgres) -> Iterator[str]:
    """Of an empty database, as a superuser."""
    with new_database(postgres.start()[0]) as found:
        yield found


@pytest.fixture
def serve(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Starts a server on the journal, and a client of it; leaving it is its end. where: the DSN, if
    another one leads there. key: that seals the journal. engines: over the defaults."""
    monkeypatch.setattr(journals, "LEASE_S", 0.0)  # this database server was just started
    monkeypatch.setattr(journals, "GRACE_S", 0.2)
    monkeypatch.setattr(keeper, "BEAT_S", 0.2)

    @contextmanager
    def serve(
        apps: dict[str, App] | None = None,
        keys: KeyFile | None = None,
        most: int = 1024,
        where: str | None = None,
        key: str | None = None,
        engines: dict[str, Any] | None = None,
        tables: RegisteredTables | None = None,
    ) -> Iterator[tuple[Served, httpx.Client]]:
        journal = Journal(Given(where or dsn), 7 * journals.DAY_S, Seal(key))
        chosen = applications() if apps is None else apps
        with (
            Runtime(engines, max_queries=most) as runtime,
            serving(runtime, chosen, keys, journal, tables=tables) as served,
            httpx.Client(base_url=served.url, timeout=30) as client,
        ):
            yield served, client

    return serve


def ask(client: httpx.Client, question: str, key: str | None = None, **more: Any) -> httpx.Response:
    body = {"inputs": {"question": question}, "mode": "background", **more}
    return client.post(ECHO, json=body, headers={"Idempotency-Key": key} if key else {})


def ended(client: httpx.Client, id: str) -> dict[str, Any]:
    """What is told of a query when it has ended."""
    client.get(f"/v1/queries/{id}/events")
    found: dict[str, Any] = client.get(f"/v1/queries/{id}").json()
    return found


def put(dsn: str, **columns: Any) -> str:
    """A row as a server that has died has left it."""
    id = uuid4().hex
    body = {"inputs": {"question": "left over"}, "overrides": {}, "passes": None}
    known = {"id": id, "tenant": "default", "app": "echo", "request": json.dumps(body)}
    known |= {"deadline": "2100-01-01", "holder": 4711, **columns}
    names, places = ", ".join(known), ", ".join(["%s"] * len(known))
    statement = f"INSERT INTO teola_journal.queries ({names}) VALUES ({places})"
    rows(dsn, statement, *known.values())
    return id


@pytest.fixture
def made(dsn: str) -> str:
    """A database with the tables in it."""

    async def make() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await tables.migrate(connection)

    asyncio.run(make())
    return dsn


def shut(postgres: EmbeddedPostgres, dsn: str, shut: bool) -> None:
    """Let nobody into a database, and put those out who are there."""
    name = conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(postgres.start()[0], autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {not shut}")
        if shut:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )


@asynccontextmanager
async def reached(
    dsn: str, key: str | None = None, keep_s: float = 3600.0
) -> AsyncIterator[Journal]:
    """The journal of another server."""
    journal = Journal(Given(dsn), keep_s, Seal(key))
    await journal.open()
    journal.away = False
    try:
        yield journal
    finally:
        await journal.close()
