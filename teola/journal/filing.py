"""Filing: queries of a program that wait for people, in the journal, so that the program may end.

    runs ──nothing else can run──▶ filed, held by nobody ──answered──▶ taken by who answered
                                          ▲                                │
                                          └────────── waits again ─────────┘

Before it waits for the first time nothing is written. From then on its steps are, as they are done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from teola.graph import Inquiry
from teola.journal import durable, statements
from teola.journal.journal import Journal
from teola.journal.lost import Answered, JournalLost, JournalUnreadable
from teola.journal.resealing import seal_rest
from teola.journal.rows import Ended, Kept, Taken
from teola.plain_json import SPACED, written
from teola.result import Result
from teola.runtime.live.people import People, chosen
from teola.runtime.live.steps import Steps
from teola.tools.loop_life import here

AGAIN_S: Final = 0.5
"""Before the connection that shows life is made anew."""


class Filing:
    """See the module. Its methods raise JournalLost, and JournalUnreadable for a query whose row
    cannot be opened. On one event loop."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._filed: set[str] = set()
        self._life: asyncio.Task[None] | None = None
        self._alive = asyncio.Event()

    async def open(self) -> None:
        """Reach the journal, and show from now on that this process lives."""
        if self._life is None:
            await self.journal.open()
            self.journal.away = False
            async with self.journal.database.transaction(None) as connection:
                await self.journal.look_at_note(connection)
            if self.journal.to_be_sealed:
                await seal_rest(self.journal)
            self._life = asyncio.create_task(self._show_life(), name="filing")
        await self._alive.wait()

    async def close(self) -> None:
        """Leave the journal. What waits there waits on."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
            await self.journal.close()

    async def _show_life(self) -> None:
        while True:
            with suppress(JournalLost):
                async with self.journal.session() as session:
                    self._alive.set()
                    async for _ in session.notifies():
                        pass
            await asyncio.sleep(AGAIN_S)
            with suppress(JournalLost):
                await self.journal.open()

    async def park(
        self, result: Result, tenant: str, request: str, code: str, people: People, steps: Steps
    ) -> None:
        """A query waits. request: what it asks, as JSON. code: digest of its application."""
        await self.open()
        id, left_s, wait_s = result.query_id, people.left_s, people.wait_s
        if id in self._filed:
            await durable.wait(self.journal, tenant, id, people.inquiries, left_s, wait_s)
            await self.journal.release(id)
            return
        created = time.time() - result.latency_s
        row = durable.Filed(id, tenant, result.app, request, created, left_s, wait_s, code)
        await durable.file(self.journal, row, steps.found, people.inquiries)
        self._filed.add(id)
        steps.keeps = durable.JournalSteps(self.journal, tenant, id)

    async def find(self, tenant: str, id: str) -> Kept | None:
        """A query that was filed, by any process."""
        await self.open()
        return await self.journal.find(tenant, id)

    async def answer(self, tenant: str, id: str, ask: str | None, answer: Any) -> str:
        """Answer a question, if nobody has; its id. Raises Answered, InputError, UnknownName."""
        asks = await durable.asks_of(self.journal, tenant, id)
        open = {one.id: one.told["schema"] for one in asks if not one.answered}
        if not open or any(one.id == ask and one.answered for one in asks):
            raise Answered(f"query {id} does not wait for this answer (any more)")
        ask = chosen(open, ask, answer)
        await durable.answer(self.journal, tenant, id, ask, answer, id)
        return ask

    async def take(self, tenant: str, id: str) -> Taken:
        """Make it this process's, its request opened. Raises Answered where another has it, or it
        waits on."""
        values: Mapping[str, Any] = {"me": self.journal.token, "id": id, "tenant": tenant}
        async with self.journal.database.transaction(None) as connection:
            cursor = self.journal.database.cursor(connection, Taken)
            found = await (await cursor.execute(statements.TAKE_ONE, values)).fetchone()
        if found is None:
            raise Answered(f"query {id} goes on elsewhere, waits for another answer, or has ended")
        try:
            request = await self.journal.request(found)
        except JournalUnreadable:
            await self.journal.release(id)
            raise
        self._filed.add(id)
        return replace(found, request=request)

    async def steps(self, tenant: str, id: str, on_unknown: str) -> Steps:
        """What was done of a query that was taken."""
        try:
            found = await durable.steps_of(self.journal, tenant, id)
        except JournalUnreadable:
            self._filed.discard(id)
            await self.journal.release(id)
            raise
        return Steps(id, found, durable.JournalSteps(self.journal, tenant, id), on_unknown)

    async def give_up(self, tenant: str, id: str) -> None:
        """End a query that waits."""
        async with self.journal.database.transaction(tenant) as connection:
            await connection.execute(statements.GIVE_UP, (id, tenant))

    async def end(self, result: Result, tenant: str) -> None:
        """A query of this process has ended."""
        if result.query_id in self._filed:
            self._filed.discard(result.query_id)
            write = partial(_written, result)
            told = await here().aside(write, result.outputs)
            latency = round(result.latency_s, 6)
            how = Ended(result.query_id, result.state, latency, told, None, tenant)
            await self.journal.end(how)

    async def waiting(self, tenant: str, app: str) -> list[Inquiry]:
        """What queries of an application ask, but for those whose rows cannot be opened."""
        await self.open()
        async with self.journal.database.transaction(tenant) as connection:
            cursor = await connection.execute(statements.WAITING, (tenant, app))
            rows = await cursor.fetchall()
        found = []
        for id, ask, told in rows:
            seal = self.journal.seal.of(tenant, id)
            try:
                found.append(_inquiry(id, durable.inquiry_of(seal, id, ask, told)))
            except JournalUnreadable as error:
                self.journal.lay_aside(id, error)
        return found


def _written(result: Result) -> str:
    return written(result.to_json(), SPACED)


def _inquiry(id: str, told: Mapping[str, Any]) -> Inquiry:
    return Inquiry(
        told["ask"],
        id,
        told["kind"],
        told["component"],
        told["question"],
        told["schema"],
        told.get("about"),
    )
