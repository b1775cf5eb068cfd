"""Journal: background queries in PostgreSQL, so that a server that ends does not take them along.

Long because each step in the life of a query is one method over the same state.

A query is committed before its client hears that it was accepted, and ended by one statement. In
between it belongs to the server whose token is its `holder`. That server shows that it lives by an
advisory lock on its token, which PostgreSQL itself frees when the connection goes, however it goes.

Two things free it while the server lives. After a restart of PostgreSQL nobody takes over from a
server without its lock before PostgreSQL has been up for LEASE_S, and a server that has been
without its lock for FENCE_S, which is less, stops what it runs (keeper.py): no query is run by two.
When a connection breaks, its server is back at once: so a lock has to be free for GRACE_S before
somebody takes over. A server that needs longer stops what others have taken as soon as it is back,
and its death does not count.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

from teola.engine import DatabaseServer, HasDatabase
from teola.errors import InputError
from teola.query.journal import statements
from teola.query.journal.lost import AWAY, UNREADABLE, JournalLost, JournalUnreadable
from teola.query.journal.patience import Patience
from teola.query.journal.query_rows import Asked, Ended, Kept, Taken
from teola.query.journal.sealing import QuerySeal, Seal, request_place
from teola.runtime.observe.noting import note
from teola.runtime.runtime import Runtime

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from teola.query.journal.database import JournalDatabase

    JournalSession = AsyncConnection[Any]
    FilePieces = AsyncGenerator[tuple[int, int, bytes], None]

LEASE_S: Final = 10.0
FENCE_S: Final = 8.0
GRACE_S: Final = 1.5
"""So a lock is found free twice, with a beat between (keeper.py)."""
PIECE: Final = 2**20
"""Bytes of a document in one row."""
PIECE_S: Final = 30.0
"""How long one may take."""
LOOK: Final = "look"
"""What servers are told when there may be something to take over or to cancel."""
FORGET_AT_ONCE: Final = 1000
"""Rows; the session that shows life has to answer soon again."""
FORGET_S: Final = 2.0
SEALING: Final = "begun"
"""What the settings say while what lies in plain is sealed."""
STORE: Final = "vectorstore"
DAY_S: Final = 86_400.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Given:
    """A DatabaseServer that somebody else runs."""

    dsn: str

    def start(self) -> str:
        """The DSN. Whether the server answers shows later."""
        return self.dsn

    def close(self) -> None:
        """Nothing to stop: somebody else runs it."""


class Journal:
    """See the module. server: the PostgreSQL that it is kept in. keep_s: how long queries that have
    ended are remembered. seal: of what they ask, compute, are asked and give.

    token: what this server is known by. away: it is known not to answer. closed: nothing is written
    any more. unwritten: how queries ended while it was away. unreadable: queries that this server
    could not go on with, because their rows cannot be opened.
    """

    def __init__(self, server: DatabaseServer, keep_s: float, seal: Seal | None = None) -> None:
        self.seal = seal or Seal()
        self.token = secrets.randbits(62)
        self.away, self.closed = True, False
        self.unwritten: dict[str, Ended] = {}
        self.unreadable: set[str] = set()
        self._sealed: str | None = None
        self._server, self._keep_s = server, keep_s
        self._opened: JournalDatabase | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._gone: dict[int, float] = {}

    async def open(self) -> None:
        """Reach the server, again if it was lost, and make the tables. Raises JournalLost."""
        if self._opened is None:
            self._opened = await asyncio.to_thread(_database, self._server)
        await self._opened.open()

    async def close(self) -> None:
        """Leave no connection and, as the last user of an embedded server, no process. What is
        still this server's is another's once its lock is free."""
        self.closed = True
        if self._opened is not None:
            await self._opened.close()
        await asyncio.to_thread(self._server.close)

    @property
    def database(self) -> JournalDatabase:
        """The database that the journal lies in. Raises JournalLost."""
        if self._opened is None:
            raise JournalLost(AWAY)
        return self._opened

    def session(self) -> AbstractAsyncContextManager[JournalSession]:
        """A connection that shows that this server lives, and hears news. Raises JournalLost."""
        self._gone.clear()  # others may have lost theirs when we did
        return self.database.session(self.token)

    # --- sealing --------------------------------------------------------------------------

    @property
    def to_be_sealed(self) -> bool:
        """Whether there is a key and the settings do not say that all is sealed."""
        return self.seal.has_key and not self.seal.required

    async def look_at_note(self, connection: JournalSession) -> None:
        """Read in the settings whether everything has been sealed; from then on nothing else is
        believed."""
        row = await (await connection.execute(statements.SEALED)).fetchone()
        sealed = row[0] if row else None
        if sealed == self._sealed:
            return
        self._sealed = sealed
        self.unreadable.clear()  # it may have been sealed again, with what could not be read
        if sealed in (None, SEALING) or self.seal.required:
            return
        self.seal.required = True
        if not self.seal.wrote(sealed):
            message = (
                "the journal was sealed with a server.journal_key that this server does not have: "
                "what queries have left there cannot be opened here"
            )
            note(log, logging.WARNING, "journal_other_key", message)

    def mark(self, tenant: str, id: str) -> str | None:
        """What the row of a query carries, to show with which key it is sealed."""
        return self.seal.of(tenant, id).close("query", "") if self.seal.has_key else None

    def lay_aside(self, id: str, error: JournalUnreadable) -> None:
        """Note a query that cannot go on here, once."""
        if id not in self.unreadable:
            self.unreadable.add(id)
            message = "query %(query_id)s is left as it is: %(error)s"
            note(log, logging.ERROR, "journal_unreadable", message, query_id=id, error=str(error))

    def _readable(self, kept: Kept) -> bool:
        """Whether a row opens with this key, as far as can be told without what it holds."""
        if kept.id in self.unreadable and not kept.ended:
            return False
        try:
            if kept.seal is not None:
                self.seal.of(kept.tenant, kept.id).open("query", kept.seal)
        except JournalUnreadable:
            return False
        return kept.seal is not None or not self.seal.required

    # --- for clients ----------------------------------------------------------------------

    async def accept(self, asked: Asked) -> Kept | None:
        """Commit a query; the one that had its key before, if there is one, instead.

        Raises JournalLost (then it may have been accepted: only a key can tell), and InputError
        for a key that was given to something else.
        """
        seal, digest = self.seal.of(asked.tenant, asked.id), asked.digest
        request = await seal.closed(request_place(asked.app, asked.code), asked.request)
        values = (
            *(asked.id, asked.tenant, asked.key, self.seal.digest(asked.tenant, digest)),
            *(asked.app, request, asked.created, asked.deadline_s, self.token, asked.code),
            self.mark(asked.tenant, asked.id),
        )
        patience = Patience(PIECE_S)
        async with self.database.transaction(asked.tenant, patience) as connection:
            cursor = await connection.execute(statements.INSERT, values)
            if await cursor.fetchone() is not None:
                for number, path in enumerate(asked.files):
                    place = asked.tenant, asked.id, number
                    await store(connection, seal, place, path, patience)
                return None
        return await self.known(asked.tenant, asked.key, asked.digest)

    async def known(self, tenant: str, key: str | None, digest: str | None) -> Kept | None:
        """The query that has this key. Raises JournalLost, JournalUnreadable, and InputError if it
        asked another thing."""
        kept = await self._one(tenant, statements.WITH_KEY, (tenant, key))
        if kept is None:
            return None
        if kept.unreadable:
            raise JournalUnreadable(UNREADABLE.format(id=kept.id))
        if kept.digest not in (digest, self.seal.digest(tenant, digest)):
            raise InputError(
                "this Idempotency-Key was given before, to another query: take a new one"
            )
        return kept

    async def find(self, tenant: str, id: str) -> Kept | None:
        """A query of the tenant's, which may be `unreadable`. Raises JournalLost."""
        return await self._one(tenant, statements.WITH_ID, (tenant, id))

    async def _one(
        self, tenant: str, statement: LiteralString, values: tuple[Any, ...]
    ) -> Kept | None:
        async with self.database.transaction(tenant) as connection:
            cursor = self.database.cursor(connection, Kept)
            kept = await (await cursor.execute(statement, values)).fetchone()
        return None if kept is None else await self._in_plain(kept)

    async def _in_plain(self, kept: Kept) -> Kept:
        """A row with how it ended in plain."""
        if not self._readable(kept):
            return replace(kept, result=None, problem=None, unreadable=True)
        seal, columns = self.seal.of(kept.tenant, kept.id), dict[str, str]()
        try:
            for name, value in (("result", kept.result), ("problem", kept.problem)):
                if value is not None:
                    columns[name] = await seal.opened(name, value)
        except JournalUnreadable:
            return replace(kept, result=None, problem=None, unreadable=True)
        return replace(kept, result=columns.get("result"), problem=columns.get("problem"))

    async def all(
        self, tenant: str, app: str | None, state: str | None, most: int, apart: Iterable[str]
    ) -> list[Kept]:
        """The tenant's queries but for some ids, the newest first. Raises JournalLost."""
        values = (tenant, list(apart), app, state, most)
        async with self.database.transaction(tenant) as connection:
            cursor = self.database.cursor(connection, Kept)
            rows = await (await cursor.execute(statements.LIST, values)).fetchall()
        return [kept if self._readable(kept) else replace(kept, unreadable=True) for kept in rows]

    async def cancel(self, tenant: str, id: str) -> None:
        """Ask whoever runs it, or may take it, to end it. Raises JournalLost."""
        async with self.database.transaction(tenant) as connection:
            await connection.execute(statements.CANCEL, (tenant, id))
            await connection.execute(statements.NOTIFY, (statements.JOURNAL_CHANNEL, LOOK))

    # --- for the server's own work ----------------------------------------------------------

    async def end(self, ended: Ended) -> bool:
        """Write how a query of ours ended, later if the journal is away; False if it is not ours
        any more."""
        ended = await self._closed(ended)
        if not self.away:
            with suppress(JournalLost):
                async with self.database.transaction(None) as connection:
                    return await self._end(connection, ended)
        self.unwritten[ended.id] = ended
        return True

    async def _closed(self, ended: Ended) -> Ended:
        """How a query ended, as it is written."""
        seal = self.seal.of(ended.tenant, ended.id)
        return replace(ended, result=await seal.closed("result", ended.result))

    async def _end(self, connection: JournalSession, ended: Ended) -> bool:
        how = (ended.state, ended.latency_s, ended.result)
        values = (*how, ended.id, self.token, statements.JOURNAL_CHANNEL)
        cursor = await connection.execute(statements.END, values)
        return cursor.rowcount == 1

    async def write_rest(self, session: JournalSession) -> None:
        """Write how queries ended while the journal was away."""
        for id, ended in list(self.unwritten.items()):
            await self._end(session, ended)
            del self.unwritten[id]

    async def held(self, session: JournalSession) -> dict[str, bool]:
        """Queries that are this server's -> whether somebody wants them cancelled."""
        cursor = await session.execute(statements.HELD, (self.token,))
        return {id: cancel async for id, cancel in cursor}

    async def alive(self, session: JournalSession, lost: Iterable[str]) -> None:
        """Say that this server has not died. lost: queries that others may have taken from it."""
        await session.execute(statements.ALIVE, (list(lost), self.token))

    async def look_for_dead(self, session: JournalSession) -> None:
        """Note which servers do not show that they live; take() needs to know since when."""
        now = asyncio.get_running_loop().time()
        cursor = await session.execute(statements.GONE, (self.token, LEASE_S))
        self._gone = {holder: self._gone.get(holder, now) async for (holder,) in cursor}

    async def take(
        self,
        session: JournalSession,
        apps: Mapping[str, str],
        mine: Iterable[str],
        apart: Iterable[str],
        most: int,
    ) -> list[Taken]:
        """Make this server's what nobody runs: of these apps (with their digests), or to be ended
        without running, the oldest first. mine: ours already, but not running. apart: not these.
        """
        values: dict[str, Any] = {"me": self.token, "gone": self._long_gone(), "most": most}
        values |= {
            "mine": list(mine),
            "apps": list(apps),
            "codes": list(apps.values()),
            "apart": list(apart),
            "unreadable": list(self.unreadable),
        }
        async with session.transaction(), self.database.cursor(session, Taken) as cursor:
            await cursor.execute(statements.TAKE, values)
            return sorted(await cursor.fetchall(), key=lambda row: row.created)

    def _long_gone(self) -> list[int]:
        """Processes that have not shown for GRACE_S that they live."""
        then = asyncio.get_running_loop().time() - GRACE_S
        return [holder for holder, since in self._gone.items() if since <= then]

    async def give_back(self, apart: Iterable[str]) -> None:
        """Write what could not be written, and let other servers have what is still this server's,
        but for some. Raises JournalLost: then whoever takes what has ended runs it again."""
        async with self.database.transaction(None) as connection:
            for ended in list(self.unwritten.values()):
                await self._end(connection, ended)
            values = (self.token, [*apart, *self.unwritten], statements.JOURNAL_CHANNEL, LOOK)
            await connection.execute(statements.GIVE_BACK, values)

    async def release(self, id: str) -> None:
        """Let another server have a query that was taken and cannot be begun here now. Raises
        JournalLost."""
        async with self.database.transaction(None) as connection:
            await connection.execute(statements.RELEASE, (id, self.token))

    async def gets_on(self, id: str) -> None:
        """A query of ours has done something that is kept elsewhere, so it is not what servers die
        of. Raises JournalLost."""
        async with self.database.transaction(None) as connection:
            await connection.execute(statements.GETS_ON, (id, self.token))

    async def request(self, row: Taken) -> str:
        """What a query that was taken asks, as JSON. Raises JournalUnreadable."""
        if row.request is None:
            return ""
        place = request_place(row.app, row.code)
        return await self.seal.of(row.tenant, row.id).opened(place, row.request)

    async def restore(self, tenant: str, id: str, paths: Sequence[Path]) -> None:
        """Write a query's documents into files. Raises JournalLost and JournalUnreadable."""
        seal = self.seal.of(tenant, id)
        for path in paths:
            await asyncio.to_thread(path.touch)
        patience = Patience(PIECE_S)
        async with self.database.transaction(None, patience) as connection:
            cursor = connection.cursor(binary=True)
            stream = cast("FilePieces", cursor.stream(statements.PIECES, (id,)))
            async with aclosing(stream) as pieces:
                async for number, piece, body in pieces:
                    place = piece_place(number, piece)
                    await asyncio.to_thread(_append, paths[number], seal, place, body)
                    patience.renew()

    async def give_up(self, ended: Ended) -> bool:
        """End a query that waits for people and runs nowhere; False if there is no such query any
        more. Raises JournalLost."""
        ended = await self._closed(ended)
        values = (ended.state, ended.result, ended.id, ended.tenant, self.token)
        async with self.database.transaction(ended.tenant) as connection:
            cursor = await connection.execute(
                statements.GIVE_UP, (*values, statements.JOURNAL_CHANNEL)
            )
            return cursor.rowcount == 1

    async def take_one(self, tenant: str, id: str) -> Taken | None:
        """Make a query this process's that nobody runs, if it does not wait. Raises JournalLost."""
        async with self.database.transaction(tenant) as connection:
            return await self.take_in(connection, tenant, id)

    async def take_from_dead(self, tenant: str, id: str) -> Taken | None:
        """`take_one`, but from a process only that has not shown for GRACE_S that it lives: to be
        called again and again by who waits for it. Raises JournalLost."""
        async with self.database.transaction(None) as connection:
            await self.look_for_dead(connection)
            return await self.take_in(connection, tenant, id, self._long_gone())

    async def take_in(
        self, connection: JournalSession, tenant: str, id: str, gone: list[int] | None = None
    ) -> Taken | None:
        """`take_one` in a transaction. gone: processes that may be taken from; None: any whose lock
        is free."""
        values: Mapping[str, Any] = {"me": self.token, "id": id, "tenant": tenant, "gone": gone}
        cursor = self.database.cursor(connection, Taken)
        return await (await cursor.execute(statements.TAKE_ONE, values)).fetchone()

    async def forget(self, session: JournalSession) -> bool:
        """Delete some of what ended long ago, in FORGET_S at most; whether there may be more."""
        values = (self._keep_s, FORGET_AT_ONCE)
        count = await self.database.hurried(session, FORGET_S, statements.FORGET, values)
        return count == FORGET_AT_ONCE

    # --- news -------------------------------------------------------------------------------

    @contextmanager
    def hearing(self, id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something may have happened to the query."""
        event = asyncio.Event()
        self._waiting.setdefault(id, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[id].discard(event)
            if not self._waiting[id]:
                del self._waiting[id]

    def wake(self, id: str | None = None) -> None:
        """Wake who waits for a query; None: everybody."""
        for waiting in [self._waiting.get(id, ())] if id else self._waiting.values():
            for event in waiting:
                event.set()


def _database(server: DatabaseServer) -> JournalDatabase:
    from teola.query.journal.database import JournalDatabase  # whose imports take their time

    return JournalDatabase(server)


async def store(
    connection: JournalSession,
    seal: QuerySeal,
    document: tuple[str, str, int],
    path: Path,
    patience: Patience,
) -> None:
    """Write a document of a query, piece by piece. document: tenant, query and number."""
    with await asyncio.to_thread(path.open, "rb") as file:
        piece = 0
        while body := await asyncio.to_thread(file.read, PIECE):
            place = piece_place(document[-1], piece)
            values = (*document, piece, await asyncio.to_thread(seal.close_piece, place, body))
            await connection.execute(statements.PIECE, values)
            patience.renew()
            piece += 1


def piece_place(number: int, piece: int) -> str:
    """Where a piece of a document stands."""
    return f"files/{number}/{piece}"


def _append(path: Path, seal: QuerySeal, place: str, body: bytes) -> None:
    opened = seal.open_piece(place, body)
    with path.open("r+b") as out:  # never makes it again: nobody may wait for it any more
        out.seek(0, os.SEEK_END)
        out.write(opened)


def journal_of(
    runtime: Runtime, where: bool | str, days: float, key: str | None = None
) -> Journal | None:
    """The journal that a configuration asks for. where: a DSN, or whether to keep one beside what
    the engine `vectorstore` stores. key: to seal it with. Raises InputError."""
    if where is False:
        return None
    if where is not True:
        return Journal(Given(where), days * DAY_S, Seal(key))
    engine = runtime.configs[STORE].make(STORE)
    if not isinstance(engine, HasDatabase):
        message = "engine %(engine)s has no PostgreSQL: background queries end with the server"
        note(log, logging.WARNING, "no_journal", message, engine=STORE)
        return None
    return Journal(engine.database(), days * DAY_S, Seal(key))
