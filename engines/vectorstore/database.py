"""Connections to the store's database: a pool for queries, single ones for what takes long.

Every connection for queries runs under the restricted role, so that row-level security binds it,
and every transaction names its tenant. Driver errors leave here as EngineUnavailable, one line,
without the password.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection, conninfo, sql
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from teola.errors import EngineUnavailable, InputError

from . import schema

CONNECT_TIMEOUT_S = 10
PATIENCE_S = 1.0
"""How long a transaction waits for a connection before it asks whether the server lives."""
TOO_MUCH = "54"
"""Class of the SQLSTATEs that say so. The driver takes them for errors of the connection."""
RECONNECT_S = 2.0
"""How long the pool by itself tries to replace a lost connection; the next use tries anew."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What a database is opened for. what: for messages. schema: its schema. migrate: makes or
    checks it, over a connection that may. session: run on each connection for queries, or ''.
    """

    what: str
    schema: str
    migrate: Callable[[AsyncConnection[Any]], Awaitable[None]]
    session: LiteralString = ""


class Database:
    """Connections to one database. `admin`: DSN that may make the schema; `query`: DSN of queries
    (None: the admin's, restricted by SET ROLE). `revive`: starts the server again, if it is ours.
    """

    def __init__(
        self,
        tables: Tables,
        admin: str,
        query: str | None,
        pool_size: int,
        revive: Callable[[], object] | None = None,
    ) -> None:
        self._tables = tables
        self._admin = admin
        self._revive = revive
        self._query = query or admin
        self._set_role = query is None
        self._pool_size = pool_size
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None

    async def open(self) -> None:
        """Check the server, make or check the schema, open the pool. Raises EngineUnavailable."""
        place(self._admin)
        try:
            await self._open()
        except psycopg.Error as error:
            raise EngineUnavailable(
                f"the database at {place(self._admin)} cannot hold the {self._tables.what}: "
                f"{_reason(error, self._admin)}; check the rights of the role that logs in",
                retryable=False,
            ) from error

    async def _open(self) -> None:
        async with self.admin() as connection:
            await self._tables.migrate(connection)
        async with self.dedicated() as connection:  # what the pool would only retry, fails here
            await self._check_barrier(connection)
        self._pool = AsyncConnectionPool(
            _completed(self._query),
            min_size=1,
            max_size=self._pool_size,
            open=False,
            name=self._tables.schema,
            kwargs=_options(),
            configure=self._configure,
            check=AsyncConnectionPool.check_connection,
            reconnect_timeout=RECONNECT_S,
        )
        with _unavailable(self._query):
            await self._pool.open(wait=True, timeout=CONNECT_TIMEOUT_S)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction that sees and writes only the tenant's rows."""
        with _unavailable(self._query):
            async with self._pooled() as connection, connection.transaction():
                await _setting(connection, "teola.tenant", tenant)
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction that only reads, for tables without tenants."""
        with _unavailable(self._query):
            async with self._pooled() as connection, connection.transaction():
                await connection.execute("SET TRANSACTION READ ONLY")
                yield connection

    @asynccontextmanager
    async def _pooled(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection of the pool. If none comes soon, find out why before waiting on."""
        if self._pool is None:
            raise EngineUnavailable(f"the {self._tables.what} is not started: call start() first")
        try:
            connection = await self._pool.getconn(timeout=PATIENCE_S)
        except PoolTimeout:
            async with self.dedicated():
                pass  # so the server lives: all connections are busy, or lost ones made again
            connection = await self._pool.getconn()
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)

    @asynccontextmanager
    async def sweeping(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction that sees only unfinished documents, of all tenants."""
        async with self.dedicated() as connection, connection.transaction():
            await _setting(connection, "teola.sweep", "on")
            yield connection

    @asynccontextmanager
    async def dedicated(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection of its own under the query role; closed at the end."""
        async with self._connected(self._query) as connection:
            await self._restrict(connection)
            yield connection

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection that may change the schema. Never used for queries."""
        async with self._connected(self._admin) as connection:
            yield connection

    @asynccontextmanager
    async def _connected(self, dsn: str) -> AsyncIterator[AsyncConnection[Any]]:
        with _unavailable(dsn):
            connection = await self._connect(dsn)
            try:
                yield connection
            finally:
                await connection.close()

    async def _connect(self, dsn: str) -> AsyncConnection[Any]:
        try:
            return await AsyncConnection.connect(_completed(dsn), **_options())
        except psycopg.OperationalError:
            if self._revive is None:
                raise
            await asyncio.to_thread(self._revive)
        return await AsyncConnection.connect(_completed(dsn), **_options())

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        await self._restrict(connection)
        where = await schema.extension_schema(connection)
        own = sql.Identifier(self._tables.schema)
        await connection.execute(sql.SQL("SET search_path TO {}, {}").format(own, where))
        await connection.execute("SET jit = off")
        await register_vector_async(connection)
        if self._tables.session:
            await connection.execute(self._tables.session)

    async def _restrict(self, connection: AsyncConnection[Any]) -> None:
        if not self._set_role:
            return
        cursor = await connection.execute(
            "SELECT coalesce(pg_has_role(current_user, to_regrole(%s), 'MEMBER'), false)",
            (schema.QUERY_ROLE,),
        )
        row = await cursor.fetchone()
        if row is not None and row[0]:
            role = sql.Identifier(schema.QUERY_ROLE)
            await connection.execute(sql.SQL("SET ROLE {}").format(role))

    async def _check_barrier(self, connection: AsyncConnection[Any]) -> None:
        cursor = await connection.execute(
            "SELECT rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
        )
        role, unbound = await cursor.fetchone() or ("", True)
        if unbound:
            raise EngineUnavailable(
                f"row-level security does not bind the role {role!r}: log in as one without "
                f"BYPASSRLS, or create the role {schema.QUERY_ROLE!r} and grant it to this one",
                retryable=False,
            )


async def _setting(connection: AsyncConnection[Any], name: str, value: str) -> None:
    await connection.execute("SELECT set_config(%s, %s, true)", (name, value))


def _options() -> dict[str, Any]:
    """No prepared statements: plans must know the collection to use its own index."""
    return {"autocommit": True, "prepare_threshold": None}


def _completed(dsn: str) -> str:
    """The DSN with our defaults, where it does not say otherwise."""
    settings = conninfo.conninfo_to_dict(dsn)
    settings.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
    settings.setdefault("application_name", "teola")
    return conninfo.make_conninfo("", **settings)


@contextmanager
def _unavailable(dsn: str) -> Iterator[None]:
    """Turn errors of the connection into EngineUnavailable, and values beyond PostgreSQL's limits
    into InputError. Errors of the data pass."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
        if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(TOO_MUCH):
            raise InputError(
                "PostgreSQL refused what it was given: it exceeds one of its limits; give shorter "
                "names and smaller values"
            ) from error
        raise EngineUnavailable(
            f"PostgreSQL at {place(dsn)} is unavailable: {_reason(error, dsn)}; "
            "check the dsn and that the server runs"
        ) from None


def place(dsn: str) -> str:
    """Host, port and database of a DSN, for messages. Raises EngineUnavailable if it is none."""
    try:
        parts = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise EngineUnavailable(
            "the dsn is not a connection string: write postgresql://user@host:5432/database",
            retryable=False,
        ) from None
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def _reason(error: Exception, dsn: str) -> str:
    password = conninfo.conninfo_to_dict(dsn).get("password")
    text = " ".join(str(error).split())
    return text.replace(str(password), "***") if password else text
