"""Underway: one query, from its beginning to its end. On the loop of its runtime.

     begin ──▶ RUNNING ──nothing else can run──▶ WAITING ──answered here──▶ RUNNING ──▶ ENDED
       ▲                                            │ its row is in the journal
       └────── Desk.resume(row), anywhere ◀─────────┴── answered elsewhere, or its process died

Whatever others are to hear is in the journal before: what it waits for, and how it ended. While the
journal is away, a query waits here all the same, and is written down later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from teola.errors import DocumentError, TeolaError
from teola.graph import ToolStep
from teola.query.event_log import NOT_TOLD, Event, EventLog
from teola.query.job import Job
from teola.query.journal import durable
from teola.query.journal.journal import Journal
from teola.query.journal.lost import JournalLost, Postponed
from teola.query.journal.query_rows import Body, ended
from teola.query.result import Result
from teola.runtime.documents import collected
from teola.runtime.live.query import Progress, Token, Watcher
from teola.tools.loop_life import here
from teola.workflow.kinds import Kind

T = TypeVar("T")
FiledWhen = Literal["never", "wait", "accept"]
"""When a query gets its row: never, when it first waits for people, or before it runs."""
INTERRUPTED: Final = (
    "the query was interrupted here and goes on under the same id: ask for it again"
)


@dataclass(frozen=True, slots=True)
class DeskOptions:
    """How a desk treats its queries, which is all that a program's and a server's differ by.

    keeps: when a query gets its row, if it is not said with it.
    parks: a query that waits is held by nobody, so that any process may go on with it; else it
        stays its process's as long as that lives.
    events: most events of a query that are held, tokens apart; 0: none at all.
    holds: the desk shows in the journal that its process lives; else somebody else does.
    """

    keeps: FiledWhen = "never"
    parks: bool = False
    events: int = 0
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Keeping:
    """How one query is kept. journal: None: nowhere. keeps: see FiledWhen. ready: waits until the
    journal can be used; raises JournalLost."""

    options: DeskOptions
    journal: Journal | None
    keeps: FiledWhen
    ready: Callable[[], Awaitable[Journal]]


class Underway:
    """See the module.

    job: what runs.
    created: when it was asked, in seconds since 1970.
    run: how often it was begun, in any process.
    events: what clients were told.
    result: None until it has ended.
    task: what it runs in, once it has begun.
    kept: the journal has a row of it.
    noted: that row has what it waits for.
    unkept: why it has not, if it waits.
    unwanted: somebody cancelled it.
    interrupted: what it ran in was cancelled: by what is around it, or by the end of its runtime.
    given_back: it has not ended, but goes on elsewhere or later.

    watcher: is told what happens in it. stops: once nothing else can run, it waits for people;
    else whoever began it answers at once, and it stops for nobody. cleanup: called when it has
    ended.
    """

    def __init__(
        self,
        job: Job,
        keeping: Keeping,
        *,
        watcher: Watcher | None = None,
        stops: bool = True,
        created: float | None = None,
        run: int = 1,
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        self.job, self.keeping, self.run, self.cleanup = job, keeping, run, cleanup
        self.created = time.time() if created is None else created
        events = keeping.options.events
        self.events = EventLog(events) if events else NOT_TOLD
        self.result: Result | None = None
        self.task: asyncio.Task[None] | None = None
        self.kept = run > 1
        self.noted = self.unwanted = self.interrupted = self.given_back = False
        self.unkept: TeolaError | None = None
        self._watcher, self._stops = watcher, stops
        self._accepted: asyncio.Event | None = None
        if keeping.keeps == "accept" and not self.kept:
            self._accepted = asyncio.Event()
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._stopping: list[asyncio.Future[None]] = []
        self._parking: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.job.id

    # --- how it stands --------------------------------------------------------------------

    @property
    def state(self) -> str:
        """running, waiting (for people), or how it ended."""
        if self.result:
            return self.result.state
        return "waiting" if self.waiting else "running"

    @property
    def waiting(self) -> bool:
        """Whether nothing of it can go on before people answer."""
        return self.result is None and self.job.people.waits

    @property
    def asks(self) -> list[dict[str, Any]]:
        """What it waits for."""
        return [one.to_json() for one in self.job.people.inquiries] if self.waiting else []

    # --- running --------------------------------------------------------------------------

    def begin(self, run: Coroutine[Any, Any, None]) -> None:
        """Run it: `run` is all that is done from its beginning to its end."""
        if self._stops and self.job.caller is None:  # else whoever asks that one is told
            self.job.people.on_wait = self.on_wait
        self.task = self.job.runtime.task(run)

    async def ran(self) -> Result:
        """Its result. Raises what ends it without one."""
        return await self.job.run(self._watcher)

    def over(self, result: Result) -> None:
        """It has ended, and lets go of what it was given."""
        self.result = result
        self.job.forget()
        if self.job.caller is None:  # else they are those of the query around it
            self.job.people.on_wait = _nobody  # or it would hold this, which holds it
        self._wake_stopped()

    def cancel(self) -> None:
        """Ask it to end."""
        self.unwanted = True
        self.leave()

    def leave(self) -> None:
        """Stop it here. If the journal has it, it has not ended."""
        if self.task is not None:  # in the next turn: before its first step it would end unheard
            asyncio.get_running_loop().call_soon(self.task.cancel)

    # --- who follows it -------------------------------------------------------------------

    def tell(
        self,
        kind: str,
        told: Mapping[str, Any] | Token | Progress | ToolStep | Result,
        *,
        shared: bool = False,
    ) -> None:
        """Add an event and wake whoever waits for it. shared: see EventLog."""
        if not self.keeping.options.events:
            return
        self.events.add(Event(kind, told), shared=shared)
        if not self._waiting:
            return
        known = len(self.events)
        for waiter, after in self._waiting.items():
            if known > after and not waiter.done():
                waiter.set_result(None)

    async def changed(self, after: int) -> None:
        """Wait until there are more than `after` events."""
        if len(self.events) > after:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = after
        try:
            await waiter
        finally:
            del self._waiting[waiter]

    async def stopped(self) -> None:
        """Wait until it waits for people, which is written down as far as it can be, or has
        ended."""
        while self.result is None and not (self.waiting and (self.noted or self.unkept)):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._stopping.append(waiter)
            try:
                await waiter
            finally:
                self._stopping.remove(waiter)

    def _wake_stopped(self) -> None:
        for waiter in self._stopping:
            if not waiter.done():
                waiter.set_result(None)

    async def ended(self) -> Result:
        """Its result, whatever it is; leaving off waiting does not cancel it."""
        assert self.task is not None
        with suppress(asyncio.CancelledError):
            await asyncio.shield(self.task)
        if self.result is None:  # it was the caller who was cancelled
            raise asyncio.CancelledError
        return self.result

    # --- its row in the journal -----------------------------------------------------------

    def accept(self) -> None:
        """Its row is there: it may run."""
        self.kept = True
        if self._accepted is not None:
            self._accepted.set()

    async def withdraw(self) -> None:
        """It was not accepted: it has done nothing, and nobody knows it."""
        self.given_back = True
        self.cancel()
        if self._accepted is not None:
            self._accepted.set()
        await self.ended()

    async def may_run(self) -> None:
        """Wait until it is accepted: what has not been does not run."""
        if self._accepted is not None:
            await self._accepted.wait()

    def on_wait(self, waits: bool) -> None:
        """Nothing of it can go on any more, or something can again."""
        if waits:
            self.noted, self.unkept = False, None
            self._begin_parking(self._parks())

    def _begin_parking(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what parks it, and hold that no longer than it takes: it may wait for days."""
        parking = self._parking = asyncio.get_running_loop().create_task(work)
        parking.add_done_callback(self._end_parking)

    def _end_parking(self, parking: asyncio.Task[None]) -> None:
        if self._parking is parking:
            self._parking = None

    async def _parks(self) -> None:
        await self.note()
        if self.waiting:
            self.tell("waiting", {"asks": self.asks})
            self._wake_stopped()

    async def parked(self) -> None:
        """Wait until what it waits for is written down, if it waits."""
        if self._parking is not None:
            await asyncio.wait({self._parking})

    async def note_again(self) -> None:
        """Write what it waits for, which could not be written before. An answer waits for that: one
        that came in between would be in no row."""
        self._begin_parking(self.note())
        await self.parked()

    async def note(self) -> None:
        """Write what it waits for; where that cannot be, say why in `unkept`."""
        self.unkept = None
        try:
            if self.keeping.journal is not None and self.job.steps is not None:
                await self._note(await self.keeping.ready())
            self.noted = True
        except TeolaError as error:
            self.unkept = error
        except OSError as error:
            self.unkept = DocumentError(f"a document cannot be kept: {error}")
        except Exception as error:  # noqa: BLE001 - the task's edge: else who waits waits for ever
            told = f"what it waits for cannot be written down: {type(error).__name__}: {error}"
            self.unkept = TeolaError(told)

    async def _note(self, journal: Journal) -> None:
        people, tenant = self.job.people, self.job.tenant
        if not self.kept:
            await self._file(journal)
            return
        left = people.left_s, people.wait_s
        await durable.wait(journal, tenant, self.id, people.inquiries, *left)
        if self.keeping.options.parks:
            await journal.release(self.id)

    async def _file(self, journal: Journal) -> None:
        """Give it a row, with all that was done of it."""
        job = self.job
        assert job.steps is not None
        request, files = await asyncio.to_thread(_packed, job)
        holder = None if self.keeping.options.parks else journal.token
        times = self.created, job.people.left_s, job.people.wait_s
        what = job.id, job.tenant, job.app.name, request, *times, job.app.code
        filed = durable.Filed(*what, holder, files)
        await durable.file(journal, filed, job.steps.found, job.people.inquiries)
        job.steps.keeps = durable.JournalSteps(journal, job.tenant, job.id)
        self.kept = True

    async def end(self, result: Result) -> Result:
        """Write how it ended, before anybody hears of it; what they hear. What nobody cancelled has
        not ended: it is left for another process. One that is cancelled while it is committed waits
        for that: its row would be run by whoever finds it."""
        journal = self.keeping.journal
        if self._accepted is not None:
            await _to_its_end(self.may_run())
        if self._parking is not None and not self._parking.done():
            await _to_its_end(self.parked())
        if not self.kept or journal is None:
            return result
        lost = result.error is not None and isinstance(result.error.__cause__, JournalLost)
        mine = (result.state != "cancelled" or self.unwanted) and not lost
        if mine and not journal.closed:
            mine = await _to_its_end(self._write(journal, result))
        if mine and not journal.closed:
            return result
        self.given_back = True
        return replace(result, state="cancelled", outputs={}, error=Postponed(INTERRUPTED))

    async def _write(self, journal: Journal, result: Result) -> bool:
        """False if the query is not ours any more."""
        row = await here().aside(partial(ended, result, self.job.tenant), result.outputs)
        return await journal.end(row)


def _nobody(waits: bool) -> None:
    """Whoever is told when a query has ended."""


def _packed(job: Job) -> tuple[str, list[Path]]:
    """What a query asks, as the journal keeps it, and its files."""
    inputs = {
        name: collected(value).sources
        if job.app.inputs.get(name) is Kind.DOCUMENTS and value is not None
        else value
        for name, value in job.given.items()
    }
    passes = ",".join(one.name for one in job.passes) or "none"
    return Body(
        inputs=inputs,
        overrides=dict(job.overrides),
        passes=passes,
        session=job.session,
        finish_by_s=job.finish_by_s,
        most_tokens=job.most_tokens,
        most_cost=job.most_cost,
    ).packed()


async def _to_its_end(work: Coroutine[None, None, T]) -> T:
    """Await work, however often the waiting is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
