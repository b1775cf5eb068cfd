"""What lets a background query go on where it was: its steps and its questions, in the journal.

A step is written by the server that holds its query, and by no other: one that has lost it hears
so when it writes, and stops. Which of two answers counts is decided by the row of the question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teola.graph import Inquiry
from teola.journal import statements
from teola.journal.journal import PIECE_S, store
from teola.journal.lost import Answered, JournalLost
from teola.journal.patience import Patience
from teola.journal.statements import CHANNEL
from teola.runtime.live.steps import ASKED

if TYPE_CHECKING:
    from teola.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class KeptAsk:
    """A question. told: as clients see it."""

    id: str
    told: Mapping[str, Any]
    answered: bool


class JournalSteps:
    """Keeps: the steps of query `id`."""

    def __init__(self, journal: Journal, id: str) -> None:
        self._journal, self._id = journal, id

    async def begun(self, key: str) -> None:
        """See Keeps. Raises JournalLost."""
        await self._write(key, None)

    async def done(self, key: str, result: str) -> None:
        """See Keeps. Raises JournalLost."""
        await self._write(key, result)

    async def _write(self, key: str, value: str | None) -> None:
        journal = self._journal
        told = None if value is None else journal.seal.close(value)
        values = (self._id, journal.token, key, told)
        async with journal.database.transaction(None) as connection:
            cursor = await connection.execute(statements.STEP, values)
            if cursor.rowcount != 1:
                raise JournalLost("the query is not this server's any more")


async def steps_of(journal: Journal, id: str) -> dict[str, str | None]:
    """What was done of a query, with what people have answered. Raises JournalLost."""
    async with journal.database.transaction(None) as connection:
        rows = await (await connection.execute(statements.STEPS, (id,))).fetchall()
        asks = await (await connection.execute(statements.ASKS, (id,))).fetchall()
    opened = journal.seal.open
    found = {key: None if value is None else opened(value) for key, value in rows}
    for ask, told, answer in asks:
        if answer is not None and found.get(ask) is None:
            found[ask] = json.dumps({"answer": json.loads(opened(answer))})
        found[ask + ASKED] = json.dumps(json.loads(opened(told)).get("about"))
    return found


@dataclass(frozen=True, slots=True)
class Filed:
    """A query that waits for people and is not in the journal yet. request: JSON of what it asks.
    created: seconds since 1970. left_s: of its own time. wait_s: of people's. code: digest of its
    application. holder: whose it is, if anybody's. files: its documents."""

    id: str
    tenant: str
    app: str
    request: str
    created: float
    left_s: float
    wait_s: float
    code: str
    holder: int | None = None
    files: Sequence[Path] = ()


async def file(
    journal: Journal,
    filed: Filed,
    steps: Mapping[str, str | None],
    asks: Iterable[Inquiry],
) -> None:
    """Put a query into the journal, with what was done of it and what it asks. Raises
    JournalLost."""
    close, id, tenant = journal.seal.close, filed.id, filed.tenant
    row = (id, tenant, filed.app, filed.request, filed.created, filed.wait_s, filed.code)
    patience = Patience(PIECE_S)
    async with journal.database.transaction(tenant, patience) as connection:
        await connection.execute(statements.FILE, (*row, filed.left_s, filed.holder))
        for number, path in enumerate(filed.files):
            await store(connection, tenant, id, number, path, patience)
        for key, value in steps.items():
            told = None if value is None else close(value)
            await connection.execute(statements.FILE_STEP, (tenant, id, key, told))
        for one in asks:
            asked = close(json.dumps(one.to_json(), ensure_ascii=False, default=str))
            await connection.execute(statements.FILE_ASK, (tenant, id, one.id, asked))


async def wait(
    journal: Journal, id: str, asks: Iterable[Inquiry], left_s: float, wait_s: float
) -> None:
    """Write that a query waits, for answers to `asks`, with `left_s` of its own time left. Raises
    JournalLost."""
    asks = list(asks)
    async with journal.database.transaction(None) as connection:
        for one in asks:
            told = json.dumps(one.to_json(), ensure_ascii=False, default=str)
            values = (one.id, journal.seal.close(told), id, journal.token)
            await connection.execute(statements.ASK, values)
        waits = (left_s, wait_s, id, journal.token, [one.id for one in asks])
        await connection.execute(statements.WAIT, waits)
        await connection.execute(statements.NOTIFY, (CHANNEL, id))


async def asks_of(journal: Journal, tenant: str, id: str) -> list[KeptAsk]:
    """The questions of a query of the tenant's. Raises JournalLost."""
    async with journal.database.transaction(tenant) as connection:
        rows = await (await connection.execute(statements.ASKS, (id,))).fetchall()
    opened = journal.seal.open
    return [KeptAsk(id, json.loads(opened(told)), answer is not None) for id, told, answer in rows]


async def open_of(
    journal: Journal, tenant: str, ids: list[str]
) -> dict[str, list[Mapping[str, Any]]]:
    """What these queries of the tenant's ask that nobody has answered, by query, as clients see it.
    Raises JournalLost."""
    async with journal.database.transaction(tenant) as connection:
        rows = await (await connection.execute(statements.OPEN, (tenant, ids))).fetchall()
    found: dict[str, list[Mapping[str, Any]]] = {}
    for query, told in rows:
        found.setdefault(query, []).append(json.loads(journal.seal.open(told)))
    return found


async def answer(journal: Journal, tenant: str, id: str, ask: str, answer: Any, news: str) -> None:
    """Answer a question, if nobody has. Raises Answered, JournalLost."""
    told = journal.seal.close(json.dumps(answer, ensure_ascii=False))
    async with journal.database.transaction(tenant) as connection:
        cursor = await connection.execute(statements.ANSWER, (told, tenant, id, ask))
        if cursor.rowcount != 1:
            raise Answered(f"question {ask!r} has been answered, or its query has ended")
        await connection.execute(statements.NOTIFY, (CHANNEL, news))


async def answers_of(journal: Journal, ids: list[str]) -> list[tuple[str, str, Any]]:
    """Of these queries what people have answered: query, question, answer. Raises JournalLost."""
    async with journal.database.transaction(None) as connection:
        rows = await (await connection.execute(statements.ANSWERED, (ids,))).fetchall()
    opened = journal.seal.open
    return [(query, ask, json.loads(opened(answer))) for query, ask, answer in rows]
