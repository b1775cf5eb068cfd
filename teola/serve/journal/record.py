"""JournalRecord: what ties a query on the board to its row in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from teola.result import Result
from teola.serve.board import Entry
from teola.serve.journal.journal import Journal
from teola.serve.journal.rows import ended
from teola.serve.problems import Postponed

T = TypeVar("T")


class JournalRecord:
    """See the module and board.Record. accepted: it is committed. decided: that is certain,
    or that it will not be."""

    def __init__(self, journal: Journal) -> None:
        self.accepted, self.decided = asyncio.Event(), asyncio.Event()
        self._journal = journal

    def accept(self) -> None:
        """It is committed."""
        self.accepted.set()
        self.decided.set()

    async def begin(self) -> None:
        """Wait until it is committed: what has not been accepted does not run."""
        await self.accepted.wait()

    async def end(self, entry: Entry, result: Result) -> Result:
        """Write how it ended before anybody hears of it. What nobody cancelled has not ended: it is
        left for the next server. One that is cancelled while it is committed waits for that: its
        row would be run by whoever finds it."""
        await _to_its_end(self.decided.wait())
        if not self.accepted.is_set():
            return result
        mine = result.state != "cancelled" or entry.unwanted
        if mine and not self._journal.closed:
            mine = await _to_its_end(self._journal.end(ended(result)))
        if mine and not self._journal.closed:
            return result
        entry.given_back = True
        told = "the query was interrupted here and goes on under the same id: ask for it again"
        return replace(result, state="cancelled", outputs={}, error=Postponed(told))


async def _to_its_end(work: Coroutine[None, None, T]) -> T:
    """Await work, however often the waiting is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
