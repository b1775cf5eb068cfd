"""What lets a background query go on where it was: its steps and its questions, in the journal.

A step is written by the server that holds its query, and by no other: one that has lost it hears
so when it writes, and stops. Which of two answers counts is decided by the row of the question.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teola.graph import Inquiry
from teola.query.journal import statements
from teola.query.journal.journal import LOOK, PIECE_S, store
from teola.query.journal.lost import Answered, JournalLost, JournalUnreadable
from teola.query.journal.patience import Patience
from teola.query.journal.query_rows import Taken
from teola.query.journal.sealing import QuerySeal, request_place
from teola.query.journal.statements import JOURNAL_CHANNEL
from teola.runtime.live.people import chosen
from teola.runtime.live.steps import ASKED

if TYPE_CHECKING:
    from teola.query.journal.journal import Journal

INQUIRY: Final = frozenset({"ask", "kind", "component", "question", "schema"})
"""What every question has."""


@dataclass(frozen=True, slots=True)
class KeptAsk:
    """A question. told: as clients see it."""

    id: str
    told: Mapping[str, Any]
    answered: bool


class JournalSteps:
    """Keeps: the steps of a tenant's query `id`."""

    def __init__(self, journal: Journal, tenant: str, id: str) -> None:
        self._journal, self._id = journal, id
        self._seal = journal.seal.of(tenant, id)

    async def begun(self, key: str) -> None:
        """See Keeps. Raises JournalLost."""
        await self._write(key, None)

    async def done(self, key: str, result: str) -> None:
        """See Keeps. Raises JournalLost."""
        await self._write(key, result)

    async def _write(self, key: str, value: str | None) -> None:
        journal = self._journal
        sealed = None if value is None else await self._seal.closed(f"step/{key}", value)
        values = (self._id, journal.token, key, sealed)
        async with journal.database.transaction(None) as connection:
            cursor = await connection.execute(statements.STEP, values)
            if cursor.rowcount != 1:
                raise JournalLost("the query is not this server's any more")


async def steps_of(journal: Journal, tenant: str, id: str) -> dict[str, str | None]:
    """Results of a query's steps by key, with what people have answered. Raises JournalLost and
    JournalUnreadable."""
    async with journal.database.transaction(None) as connection:
        rows = await (await connection.execute(statements.STEPS, (id,))).fetchall()
        asks = await (await connection.execute(statements.ASKS, (id,))).fetchall()
    seal, steps = journal.seal.of(tenant, id), dict[str, str | None]()
    for key, value in rows:
        steps[key] = None if value is None else await seal.opened(f"step/{key}", value)
    for ask, sealed, answer in asks:
        if answer is not None and steps.get(ask) is None:
            steps[ask] = json.dumps({"answer": _answered(seal, id, ask, answer)})
        steps[ask + ASKED] = json.dumps(inquiry_of(seal, id, ask, sealed).get("about"))
    return steps


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
    id, tenant = filed.id, filed.tenant
    seal, mark = journal.seal.of(tenant, id), journal.mark(tenant, id)
    request = await seal.closed(request_place(filed.app, filed.code), filed.request)
    row = (id, tenant, filed.app, request, filed.created, filed.wait_s, filed.code, filed.left_s)
    sealed = {
        key: None if value is None else await seal.closed(f"step/{key}", value)
        for key, value in steps.items()
    }
    sealed_asks = await asyncio.to_thread(_asked, seal, list(asks))
    patience = Patience(PIECE_S)
    async with journal.database.transaction(tenant, patience) as connection:
        await connection.execute(statements.FILE, (*row, filed.holder, mark))
        for number, path in enumerate(filed.files):
            await store(connection, seal, (tenant, id, number), path, patience)
        for key, value in sealed.items():
            await connection.execute(statements.FILE_STEP, (tenant, id, key, value))
        for ask, text in sealed_asks.items():
            await connection.execute(statements.FILE_ASK, (tenant, id, ask, text))


async def wait(
    journal: Journal, tenant: str, id: str, asks: Iterable[Inquiry], left_s: float, wait_s: float
) -> None:
    """Write that a query waits, for answers to `asks`, with `left_s` of its own time left. Raises
    JournalLost."""
    sealed_asks = await asyncio.to_thread(_asked, journal.seal.of(tenant, id), list(asks))
    async with journal.database.transaction(None) as connection:
        for ask, text in sealed_asks.items():
            await connection.execute(statements.ASK, (ask, text, id, journal.token))
        waits = (left_s, wait_s, id, journal.token, list(sealed_asks))
        await connection.execute(statements.WAIT, waits)
        await connection.execute(statements.NOTIFY, (JOURNAL_CHANNEL, id))


async def asks_of(journal: Journal, tenant: str, id: str) -> list[KeptAsk]:
    """The questions of a query of the tenant's. Raises JournalLost and JournalUnreadable."""
    async with journal.database.transaction(tenant) as connection:
        rows = await (await connection.execute(statements.ASKS, (id,))).fetchall()
    seal = journal.seal.of(tenant, id)
    return [
        KeptAsk(ask, inquiry_of(seal, id, ask, sealed), answer is not None)
        for ask, sealed, answer in rows
    ]


async def open_of(
    journal: Journal, tenant: str, ids: list[str]
) -> dict[str, list[Mapping[str, Any]] | None]:
    """What these queries of the tenant's ask that nobody has answered, by query, as clients see it;
    None for a query of which that cannot be read. Raises JournalLost."""
    async with journal.database.transaction(tenant) as connection:
        rows = await (await connection.execute(statements.OPEN, (tenant, ids))).fetchall()
    by_query: dict[str, list[Mapping[str, Any]] | None] = {}
    for query, ask, sealed in rows:
        asks = by_query.setdefault(query, [])
        if asks is None:
            continue
        try:
            asks.append(inquiry_of(journal.seal.of(tenant, query), query, ask, sealed))
        except JournalUnreadable:
            by_query[query] = None
    return by_query


async def answer(
    journal: Journal, tenant: str, id: str, ask: str | None, answer: Any, *, takes: bool
) -> tuple[str, Taken | None]:
    """Answer a question, if nobody has, and with `takes` make its query this process's, if nobody
    runs it. The question's id, and the query if it was taken.

    Raises Answered, InputError for an answer that does not fit, UnknownName for a question that is
    not open, JournalLost and JournalUnreadable.
    """
    asks = await asks_of(journal, tenant, id)
    schemas = {question.id: question.told["schema"] for question in asks if not question.answered}
    if not schemas or any(question.id == ask and question.answered for question in asks):
        raise Answered(f"query {id} does not wait for this answer (any more)")
    ask = chosen(schemas, ask, answer)
    seal, text = journal.seal.of(tenant, id), json.dumps(answer, ensure_ascii=False)
    sealed_answer = await seal.closed(f"answer/{ask}", text)
    async with journal.database.transaction(tenant) as connection:
        cursor = await connection.execute(statements.ANSWER, (sealed_answer, tenant, id, ask))
        if cursor.rowcount != 1:
            raise Answered(f"question {ask!r} has been answered, or its query has ended")
        taken = await journal.take_in(connection, tenant, id) if takes else None
        # whoever may run it looks around; if it was taken, only who follows it wants to know
        news = LOOK if taken is None else id
        await connection.execute(statements.NOTIFY, (JOURNAL_CHANNEL, news))
    return ask, taken


async def waiting_of(journal: Journal, tenant: str, app: str) -> list[Inquiry]:
    """What queries of an application ask, but for those whose rows cannot be opened. Raises
    JournalLost."""
    async with journal.database.transaction(tenant) as connection:
        rows = await (await connection.execute(statements.WAITING, (tenant, app))).fetchall()
    inquiries = []
    for id, ask, text in rows:
        try:
            inquiry = inquiry_of(journal.seal.of(tenant, id), id, ask, text)
        except JournalUnreadable as error:
            journal.lay_aside(id, error)
        else:
            inquiries.append(as_inquiry(id, inquiry))
    return inquiries


def as_inquiry(id: str, inquiry: Mapping[str, Any]) -> Inquiry:
    """A question of query `id`, from what clients see of it."""
    what = inquiry["kind"], inquiry["component"], inquiry["question"], inquiry["schema"]
    return Inquiry(inquiry["ask"], id, *what, inquiry.get("about"))


async def answers_of(journal: Journal, tenants: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """What people have answered these queries: query, question, answer. tenants: by query. Answers
    that cannot be read are noted and left out. Raises JournalLost."""
    async with journal.database.transaction(None) as connection:
        rows = await (await connection.execute(statements.ANSWERED, ([*tenants],))).fetchall()
    answers = []
    for query, ask, text in rows:
        try:
            answer = _answered(journal.seal.of(tenants[query], query), query, ask, text)
        except JournalUnreadable as error:
            journal.lay_aside(query, error)
        else:
            answers.append((query, ask, answer))
    return answers


def inquiry_of(seal: QuerySeal, query: str, ask: str, sealed: str) -> dict[str, Any]:
    """A question as clients see it, out of its row. Raises JournalUnreadable."""
    inquiry = _json(query, seal.open(f"ask/{ask}", sealed))
    if not isinstance(inquiry, dict) or inquiry.get("ask") != ask or not inquiry.keys() >= INQUIRY:
        raise JournalUnreadable(f"a question of query {query} in the journal is none")
    return inquiry


def _answered(seal: QuerySeal, query: str, ask: str, text: str) -> Any:
    return _json(query, seal.open(f"answer/{ask}", text))


def _json(query: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise JournalUnreadable(f"what the journal has of query {query} is not JSON") from None


def _asked(seal: QuerySeal, asks: Iterable[Inquiry]) -> dict[str, str]:
    """Questions as they are written, by their ids."""
    texts = {
        inquiry.id: json.dumps(inquiry.to_json(), ensure_ascii=False, default=str)
        for inquiry in asks
    }
    return {ask: seal.close(f"ask/{ask}", text) for ask, text in texts.items()}
