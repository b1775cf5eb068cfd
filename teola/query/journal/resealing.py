"""Sealing what a journal has in plain or in the first form, a query at a time.

    settings say `begun` ──▶ each query, in its own transaction ──▶ settings say when it was done

It may be stopped and run again, by many at once and beside servers that run: what is sealed is left
as it is, and a row that somebody else works on is come back to. A query that
another key has sealed in the first form stays as it is, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString

from teola.query.journal import statements
from teola.query.journal.journal import PIECE_S, SEALING, Journal, piece_place
from teola.query.journal.lost import JournalUnreadable
from teola.query.journal.patience import Patience
from teola.query.journal.sealing import BYTES_MARK, DIGEST_MARK, MARK, Seal, request_place
from teola.runtime.observe.noting import note

if TYPE_CHECKING:
    from teola.query.journal.journal import JournalSession

AT_ONCE: Final = 100
"""Ids that are looked up together."""
AGAIN_S: Final = 0.2
"""Before rows are tried again that somebody else worked on."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Sealing:
    """What was done. queries, values: that were sealed. unreadable: queries that were left as they
    are, because another key has sealed part of them."""

    queries: int = 0
    values: int = 0
    unreadable: int = 0


async def seal_rest(
    journal: Journal, again: bool = False, on_query: Callable[[str], None] | None = None
) -> Sealing:
    """Seal what is not, and say so in the settings; from then on nothing else is believed. again:
    also in queries that were sealed before. on_query: hears of each that is done. Raises
    JournalLost."""
    assert journal.seal.has_key
    await journal.database.note(statements.BEGIN_SEALING, SEALING)
    done = Sealing()
    last, busy = "", list[str]()
    while ids := await _ids(journal, last, again) or busy:
        if ids is busy:
            await asyncio.sleep(AGAIN_S)
            busy = []
        else:
            last = ids[-1]
        for id in ids:
            if not await _seal_query(journal, id, done):
                busy.append(id)
            elif on_query is not None:
                on_query(id)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    await journal.database.note(statements.NOTE_SEALED, journal.seal.note(now))
    async with journal.database.transaction(None) as connection:
        await journal.look_at_note(connection)
    if done.queries:
        message = "sealed %(values)s values of %(queries)s queries that lay in the journal unsealed"
        counts = {"values": done.values, "queries": done.queries}
        note(log, logging.WARNING, "journal_sealed", message, **counts)
    return done


async def _ids(journal: Journal, last: str, again: bool) -> list[str]:
    async with journal.database.transaction(None) as connection:
        cursor = await connection.execute(statements.TO_SEAL, (last, again, AT_ONCE))
        return [id for (id,) in await cursor.fetchall()]


async def _seal_query(journal: Journal, id: str, done: Sealing) -> bool:
    """Seal what a query has, all of it or nothing; False if somebody else works on it."""
    patience = Patience(PIECE_S)
    try:
        async with journal.database.transaction(None, patience) as connection:
            row = await _first(connection, statements.UNSEALED_QUERY, id)
            if row is None:  # locked, or it has been forgotten
                return await _first(connection, statements.IS_THERE, id) is None
            work = _Work(connection, journal.seal, row[0], id, patience)
            if not await work.asks():
                return False
            await work.steps()
            await work.files()
            await work.query(row, journal.mark(row[0], id))
    except JournalUnreadable:
        done.unreadable += 1
        return True
    done.queries += work.count > 0
    done.values += work.count
    return True


async def _first(
    connection: JournalSession, statement: LiteralString, id: str
) -> tuple[Any, ...] | None:
    return await (await connection.execute(statement, (id,))).fetchone()


class _Work:
    """What is done of one query, whose row is locked. count: values that were sealed. Its methods
    raise JournalUnreadable for what another key has sealed in the first form."""

    def __init__(
        self, connection: JournalSession, seal: Seal, tenant: str, id: str, patience: Patience
    ) -> None:
        self._connection, self._seal, self._id, self._patience = connection, seal, id, patience
        self._own = seal.of(tenant, id)
        self.count = 0

    async def asks(self) -> bool:
        """Seal questions and answers; False if one is just being answered. Who answers locks the
        question first and then the query, so to wait for it here could be for ever."""
        rows = await self._rows(statements.UNSEALED_ASKS)
        if await _first(self._connection, statements.COUNT_ASKS, self._id) != (len(rows),):
            return False
        for ask, question, answer in rows:
            values = (
                await self._text(f"ask/{ask}", question),
                await self._text(f"answer/{ask}", answer),
            )
            if values != (question, answer):
                await self._connection.execute(statements.SEAL_ASK, (*values, self._id, ask))
        return True

    async def steps(self) -> None:
        """Seal what was done."""
        for key, value in await self._rows(statements.STEPS):
            sealed = await self._text(f"step/{key}", value)
            if sealed != value:
                await self._connection.execute(statements.SEAL_STEP, (sealed, self._id, key))
            self._patience.renew()

    async def files(self) -> None:
        """Seal the documents, piece by piece."""
        for place in await self._rows(statements.PLACES):
            where = (self._id, *place)
            cursor = await self._connection.execute(statements.ONE_PIECE, where)
            ((body,),) = await cursor.fetchall()
            if not body.startswith(BYTES_MARK):
                named = piece_place(*place)
                sealed = await asyncio.to_thread(self._own.close_piece, named, body)
                await self._connection.execute(statements.SEAL_PIECE, (sealed, *where))
                self.count += 1
            self._patience.renew()

    async def query(self, row: tuple[Any, ...], mark: str | None) -> None:
        """Seal the row itself. row: see UNSEALED_QUERY."""
        tenant, app, code, digest, request, result, problem, before = row
        if digest is not None and not digest.startswith(DIGEST_MARK):
            digest = self._seal.digest(tenant, digest)
        request = await self._text(request_place(app, code), request)
        texts = request, await self._text("result", result), await self._text("problem", problem)
        values = (digest, *texts, before or mark, self._id)
        await self._connection.execute(statements.SEAL_QUERY, values)

    async def _rows(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(statement, (self._id,))).fetchall()

    async def _text(self, place: str, text: str | None) -> str | None:
        if text is None or text.startswith(MARK):
            return text
        self.count += 1
        opened = await asyncio.to_thread(self._seal.opened_first, text, self._id)
        return await self._own.closed(place, opened)
