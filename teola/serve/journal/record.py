"""JournalRecord: what ties a query on the board to its row in the journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from teola.journal import durable
from teola.journal.journal import Journal
from teola.journal.lost import JournalLost
from teola.journal.rows import Body, Ended
from teola.plain_json import SPACED, written
from teola.result import Result
from teola.serve.board import Entry
from teola.serve.problems import Postponed, problem_of
from teola.tools.loop_life import here

T = TypeVar("T")


class JournalRecord:
    """See the module and board.Record. late: it gets its row when it waits for people, and none
    before. accepted: it is committed. decided: that is certain, or that it will not be."""

    def __init__(self, journal: Journal, *, late: bool = False) -> None:
        self._late = late
        self.accepted, self.decided = asyncio.Event(), asyncio.Event()
        self._journal = journal
        self.noted = False
        """Whether the journal has what it waits for."""

    def accept(self) -> None:
        """It is committed."""
        self.accepted.set()
        self.decided.set()

    async def begin(self) -> None:
        """Wait until it is committed: what has not been accepted does not run."""
        if not self._late:
            await self.accepted.wait()

    @property
    def kept(self) -> bool:
        """Whether it is in the journal."""
        return self.accepted.is_set()

    async def waits(self, entry: Entry) -> None:
        """Write what it waits for; later (keeper.py) if the journal is away."""
        people, self.noted = entry.job.people, False
        with suppress(JournalLost):
            if not self.kept:
                await self._file(entry)
                return
            left = people.left_s, people.wait_s
            tenant = entry.job.tenant
            await durable.wait(self._journal, tenant, entry.id, people.inquiries, *left)
            self.noted = True

    async def _file(self, entry: Entry) -> None:
        """Give it a row, with all that was done of it."""
        job, journal = entry.job, self._journal
        assert job.steps is not None
        passes = ",".join(one.name for one in job.passes) or "none"
        body = Body(
            inputs=dict(job.given),
            overrides=dict(job.overrides),
            passes=passes,
            session=job.session,
        )
        request, files = await asyncio.to_thread(body.packed)
        times = entry.created, job.people.left_s, job.people.wait_s
        filed = durable.Filed(
            *(job.id, job.tenant, job.app.name, request, *times, job.app.code, journal.token, files)
        )
        await durable.file(journal, filed, job.steps.found, job.people.inquiries)
        job.steps.keeps = durable.JournalSteps(journal, job.tenant, job.id)
        self.noted = True
        self.accept()

    async def end(self, entry: Entry, result: Result) -> Result:
        """Write how it ended before anybody hears of it. What nobody cancelled has not ended: it is
        left for the next server. One that is cancelled while it is committed waits for that: its
        row would be run by whoever finds it."""
        if not self._late:
            await _to_its_end(self.decided.wait())
        if not self.accepted.is_set():
            return result
        lost = result.error is not None and isinstance(result.error.__cause__, JournalLost)
        mine = (result.state != "cancelled" or entry.unwanted) and not lost
        if mine and not self._journal.closed:
            mine = await _to_its_end(self._write(entry, result))
        if mine and not self._journal.closed:
            return result
        entry.given_back = True
        told = "the query was interrupted here and goes on under the same id: ask for it again"
        return replace(result, state="cancelled", outputs={}, error=Postponed(told))

    async def _write(self, entry: Entry, result: Result) -> bool:
        """False if the query is not ours any more."""
        row = await here().aside(partial(ended, result, entry.job.tenant), result.outputs)
        return await self._journal.end(row)


def ended(result: Result, tenant: str) -> Ended:
    """The row that says how a query of the tenant's ended."""
    ok = result.state in ("ok", "partial")
    problem = None if ok else json.dumps(problem_of(result).body())
    told = written(result.to_json(), SPACED)
    how = result.state, round(result.latency_s, 6), told, problem
    return Ended(result.query_id, *how, tenant)


async def _to_its_end(work: Coroutine[None, None, T]) -> T:
    """Await work, however often the waiting is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
