"""Connections to the journal's database: a small pool for queries, one session that shows life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString, TypeVar

from psycopg import (
    AsyncConnection,
    AsyncCursor,
    Error,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    conninfo,
)
from psycopg.errors import QueryCanceled
from psycopg.rows import class_row
from psycopg_pool import AsyncConnectionPool

from teola.engine import DatabaseServer
from teola.errors import EngineUnavailable
from teola.query.journal.lost import AWAY, JournalLost
from teola.query.journal.patience import Patience
from teola.query.journal.statements import JOURNAL_CHANNEL
from teola.query.journal.tables import TAKE_ROLE, migrate

log = logging.getLogger(__name__)
T = TypeVar("T")

POOL: Final = 4
PATIENCE_S: Final = 5.0
"""How long a connection of the pool is waited for."""
CONNECT_TIMEOUT_S: Final = 5
CHECK_S: Final = 2.0
"""How long a connection of the pool may take to answer that it is well."""
WORK_S: Final = 5.0
"""How long a transaction without documents may take."""
MIGRATE_S: Final = 60.0
_DEFAULTS: Final[dict[str, int | str]] = {
    "application_name": "teola-journal",
    "connect_timeout": CONNECT_TIMEOUT_S,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""The last four, which are not of local sockets, give up a machine that is gone (ms, s, s)."""
_ONLY_ONE: Final[LiteralString] = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted
    AND (classid::bigint << 32 | objid::bigint) = %s AND pid <> pg_backend_pid()
"""
"""Ends a session of our own that we have lost, but PostgreSQL has not noticed."""
_ACT_AS: Final[LiteralString] = """
SELECT set_config(%s, %s, true), set_config('teola.form', '2', true)
"""
_SHOW_LIFE: Final[LiteralString] = """
SELECT set_config('teola.journal', 'server', false), set_config('teola.form', '2', false),
    set_config('tcp_keepalives_idle', '5', false),
    set_config('tcp_keepalives_interval', '2', false),
    set_config('tcp_keepalives_count', '3', false), pg_advisory_lock(%s)
"""
"""A machine that is gone is noticed after 11 seconds, which is more than FENCE_S (journal.py)."""


class JournalDatabase:
    """The database that `server` tells."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._dsn = ""
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None

    async def open(self) -> None:
        """Reach the server, again if it was lost, and make the tables. Raises JournalLost."""
        try:
            self._dsn = _completed(await asyncio.to_thread(self._server.start))
            async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                with Patience(MIGRATE_S).watching(connection):
                    await migrate(connection)
        except EngineUnavailable as error:
            raise JournalLost(str(error)) from error
        except (Error, TimeoutError) as error:
            raise JournalLost(self._reason(error)) from error
        if self._pool is None:
            self._pool = _pool(self._dsn)
            await self._pool.open()

    async def close(self) -> None:
        """Leave no connection."""
        if self._pool is not None:
            await self._pool.close(timeout=CHECK_S)

    @asynccontextmanager
    async def session(self, token: int) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection that holds the lock on `token`, hears news and sees all rows.

        Raises JournalLost, also while it is used.
        """
        try:
            async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                with Patience(CONNECT_TIMEOUT_S).watching(connection):
                    await connection.execute(_ONLY_ONE, (token,))
                    await _configure(connection)
                    await connection.execute(_SHOW_LIFE, (token,))
                    await connection.execute(f"LISTEN {JOURNAL_CHANNEL}")
                yield connection
        except (Error, TimeoutError) as error:
            raise JournalLost(self._reason(error)) from error

    @asynccontextmanager
    async def transaction(
        self, tenant: str | None, patience: Patience | None = None
    ) -> AsyncIterator[AsyncConnection[Any]]:
        """One that sees this tenant's rows; None: the server's own work, which sees all.
        patience: how long it may take, else WORK_S.

        Raises JournalLost.
        """
        name, value = ("teola.journal", "server") if tenant is None else ("teola.tenant", tenant)
        if self._pool is None:
            raise JournalLost(AWAY)
        try:
            async with (
                self._pool.connection(timeout=PATIENCE_S) as connection,
                _watched(connection, patience or Patience(WORK_S)),
                connection.transaction(),
            ):
                await connection.execute(_ACT_AS, (name, value))
                yield connection
        except (Error, TimeoutError) as error:
            if not isinstance(error, (OperationalError, InterfaceError, TimeoutError)):
                # its text may quote what a client sent
                log.warning("the journal's database refuses to work: %s", type(error).__name__)
            raise JournalLost(AWAY) from error

    async def note(self, statement: LiteralString, note: str) -> None:
        """Write a note into the settings, as the role that logs in: the one at work may not. Raises
        JournalLost."""
        try:
            async with await AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                with Patience(WORK_S).watching(connection):
                    await connection.execute(statement, (note,))
        except (Error, TimeoutError) as error:
            raise JournalLost(self._reason(error)) from error

    @staticmethod
    async def hurried(
        session: AsyncConnection[Any],
        limit_s: float,
        statement: LiteralString,
        values: tuple[Any, ...],
    ) -> int:
        """How many rows a statement has met; 0 if PostgreSQL had to end it after `limit_s`, which
        leaves the session as it is."""
        limit = f"{limit_s * 1000:.0f}ms"
        try:
            async with session.transaction():
                await session.execute("SELECT set_config('statement_timeout', %s, true)", (limit,))
                return (await session.execute(statement, values)).rowcount
        except QueryCanceled:
            log.warning("the journal's old queries cannot be deleted: it takes too long")
            return 0

    @staticmethod
    def cursor(connection: AsyncConnection[Any], kind: type[T]) -> AsyncCursor[T]:
        """A cursor whose rows are of this kind."""
        return connection.cursor(row_factory=class_row(kind))

    def _reason(self, error: Exception) -> str:
        """One line, without the password."""
        password = conninfo.conninfo_to_dict(self._dsn).get("password")
        text = " ".join(str(error).split())
        return text.replace(str(password), "***") if password else text


def _pool(dsn: str) -> AsyncConnectionPool[AsyncConnection[Any]]:
    """Connections that are made when they are wanted, each looked at before it is lent."""
    return AsyncConnectionPool(
        dsn,
        min_size=0,
        max_size=POOL,
        open=False,
        name="journal",
        kwargs={"autocommit": True},
        configure=_configure,
        check=_check,
        reconnect_timeout=PATIENCE_S,
    )


@asynccontextmanager
async def _watched(connection: AsyncConnection[Any], patience: Patience) -> AsyncIterator[None]:
    with patience.watching(connection):
        yield


async def _configure(connection: AsyncConnection[Any]) -> None:
    with Patience(CONNECT_TIMEOUT_S).watching(connection):
        await connection.execute(TAKE_ROLE)


async def _check(connection: AsyncConnection[Any]) -> None:
    with Patience(CHECK_S).watching(connection):
        await AsyncConnectionPool.check_connection(connection)


def _completed(dsn: str) -> str:
    """The DSN with our defaults, where it does not say otherwise. Raises EngineUnavailable."""
    try:
        settings = conninfo.conninfo_to_dict(dsn)
    except ProgrammingError:
        raise EngineUnavailable(
            "the dsn of the journal is not a connection string: write "
            "postgresql://user@host:5432/database",
            retryable=False,
        ) from None
    return conninfo.make_conninfo("", **{**_DEFAULTS, **settings})
