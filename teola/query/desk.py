"""Desk: all queries of a runtime that are under way, and what becomes of each: the one place where
queries begin, are answered, resumed, cancelled and ended. On the runtime's loop.

Long because a query is followed from its beginning to its end in one place.

A program is a desk with one visitor, a server a desk with many; they differ by DeskOptions only. So
what one of them has filed in the journal is answered, resumed and ended by the other. Long because
all that can happen to a query while it is under way has its place here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

from teola.errors import (
    CodeChanged,
    DeadlineExceeded,
    InputError,
    QueryCancelled,
    TeolaError,
    UnknownName,
)
from teola.graph import Inquiry
from teola.policies.ledger import BudgetAccount
from teola.profile import Profile
from teola.query.application import Application
from teola.query.job import Job
from teola.query.journal import durable
from teola.query.journal.journal import LOOK, Journal, journal_of
from teola.query.journal.lost import (
    AWAY,
    UNREADABLE,
    Answered,
    JournalLost,
    JournalUnreadable,
)
from teola.query.journal.query_rows import Asked, Body, Kept, Taken, ended
from teola.query.journal.resealing import seal_rest
from teola.query.query_files import QueryFiles
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.query.underway import DeskOptions, FiledWhen, Keeping, Underway
from teola.runtime.live.nesting import calling
from teola.runtime.live.steps import Steps
from teola.runtime.objectives import objective_left
from teola.runtime.runtime import Runtime

AGAIN_S: Final = 0.5
"""Before the connection that shows life is made anew."""
LOOK_S: Final = 2.0
"""How often it is looked at a query that another process runs, besides when there is news."""
DAYS: Final = 7.0
"""How long a program's journal remembers what has ended."""

_STATES: Final[Mapping[type[TeolaError], str]] = {
    QueryCancelled: "cancelled",
    DeadlineExceeded: "deadline",
}

U = TypeVar("U", bound=Underway)
Found = Mapping[str, str | None]
"""What was done of a query: its steps, by key; see Steps."""


class Desk(Generic[U]):
    """See the module. journal: where queries are kept (None: nowhere).

    running: those that are here and have not ended, waiting ones among them, by id. on_start: is
    told of each when it may run. on_end: of each when it has ended, with its result. accounts_of:
    what a key may take in a day, by its name.
    """

    def __init__(self, options: DeskOptions, journal: Journal | None = None) -> None:
        self.options, self.journal = options, journal
        self.running: dict[str, U] = {}
        self.on_start: Callable[[U], None] = lambda query: None
        self.on_end: Callable[[U, Result], None] = lambda query, result: None
        self.accounts_of: Callable[[str], tuple[BudgetAccount, ...]] = lambda name: ()
        self._resuming = WeakValueDictionary[str, asyncio.Lock]()
        self._life: asyncio.Task[None] | None = None
        self._tried, self._reached = asyncio.Event(), False
        self._lost: TeolaError = JournalLost(AWAY)

    # --- beginning and ending -------------------------------------------------------------

    def job(
        self,
        app: Application,
        spec: QuerySpec,
        *,
        id: str | None = None,
        keeps: FiledWhen | None = None,
        found: Found | None = None,
        profile: Profile | None = None,
    ) -> Job:
        """A query, checked and not begun, with what keeps its steps. found: what was done of it
        before. From any thread. Raises InputError."""
        id, steps = id or uuid4().hex, None
        keeps = keeps or self.options.keeps
        if self.journal is not None and (keeps == "accept" or found is not None):
            assert spec.tenant is not None
            durably = durable.JournalSteps(self.journal, spec.tenant, id)
            steps = Steps(id, found, durably, app.on_unknown)
        elif self.journal is not None and keeps == "wait" and app.asks and calling.get() is None:
            steps = Steps(id, on_unknown=app.on_unknown)  # durable once it waits
        return Job(app, spec, id=id, profile=profile, steps=steps)

    def keeping(self, keeps: FiledWhen | None = None) -> Keeping:
        """How a query is to be kept."""
        return Keeping(self.options, self.journal, keeps or self.options.keeps, self.ready)

    def begin(self, query: U) -> U:
        """Let it run, once it is accepted if its row comes first."""
        self.running[query.id] = query
        query.begin(self._run(query))
        return query

    async def _run(self, query: U) -> None:
        job = query.job
        try:
            await query.may_run()
            self.on_start(query)
            result = await query.ran()
        except asyncio.CancelledError:
            query.interrupted = not query.unwanted
            result = _without(job, "cancelled", QueryCancelled("the query was cancelled"))
        except QueryCancelled as error:
            result = _without(job, "cancelled", error)
        except DeadlineExceeded as error:
            result = _without(job, "deadline", error)
        except TeolaError as error:
            result = _without(job, "failed", error)
        except Exception as error:  # noqa: BLE001 - the desk's edge: a bug ends one query only
            result = _without(job, "failed", _bug(error, ""))
        try:
            result = await query.end(result)
        except Exception as error:  # noqa: BLE001 - as above: whoever waits for it hears its end
            result = _without(job, "failed", _bug(error, "how it ended cannot be recorded: "))
        if self.running.get(query.id) is query:
            del self.running[query.id]
        query.over(result)
        try:
            query.cleanup()
        finally:  # whatever goes wrong here
            try:
                self.on_end(query, result)
            finally:
                query.tell("done" if result.state in ("ok", "partial") else "error", result)

    async def accept(self, query: U, asked: Asked) -> Kept | None:
        """Commit a query that is kept from its beginning, and let it run; None. Or the one that had
        its key before; then, and after an error, this one is gone. Raises as `Journal.accept`."""
        journal = await self.ready()
        try:
            known = await journal.accept(asked)
        except BaseException:
            await query.withdraw()
            raise
        if known is not None:
            await query.withdraw()
        else:
            query.accept()
        return known

    # --- people ---------------------------------------------------------------------------

    async def answer(self, id: str, tenant: str, ask: str | None, answer: Any) -> Taken | None:
        """Answer a question of a query, if nobody has (ask None: the only one that is open). It
        goes on where it is; its row, if this process is to run it and it is not here.

        Raises Answered, InputError, UnknownName, JournalLost, JournalUnreadable.
        """
        query = self.find(id, tenant)
        if query is not None:
            await query.parked()
        if query is not None and not query.kept:
            people = query.job.people
            if query.result is not None or not people.open:
                raise Answered(f"query {id} waits for no answer (any more)")
            people.answer(ask, answer)
            return None
        kept = await self.kept(id, tenant)
        if kept.ended:
            raise Answered(f"query {id} does not wait for this answer (any more)")
        journal, takes = await self.ready(), self.options.parks
        ask, row = await durable.answer(journal, tenant, id, ask, answer, takes=takes)
        if query is not None and ask in query.job.people.open and (row or not takes):
            query.job.people.answer(ask, answer)
            return None
        return row

    async def waiting(self, tenant: str, app: str) -> list[Inquiry]:
        """What queries of an application ask, here and in the journal, but for those whose rows
        cannot be opened."""
        jobs = (query.job for query in self.running.values() if query.waiting)
        asked = [
            inquiry
            for job in jobs  # what one inside another asks, that one asks
            if job.caller is None and (job.tenant, job.app.name) == (tenant, app)
            for inquiry in job.people.inquiries
        ]
        if self.journal is None:
            return asked
        filed = await durable.waiting_of(await self.ready(), tenant, app)
        known = {(one.query_id, one.id) for one in filed}
        return [*filed, *(one for one in asked if (one.query_id, one.id) not in known)]

    # --- queries that are elsewhere -------------------------------------------------------

    def find(self, id: str, tenant: str) -> U | None:
        """The tenant's query of that id that is under way here."""
        query = self.running.get(id)
        return query if query is not None and query.job.tenant == tenant else None

    async def kept(self, id: str, tenant: str) -> Kept:
        """What the journal has of a query. Raises UnknownName, JournalLost, JournalUnreadable."""
        kept = None
        if self.journal is not None:
            kept = await (await self.ready()).find(tenant, id)
        if kept is None:
            raise UnknownName("query that waits", id, self.running)
        if kept.unreadable:
            raise JournalUnreadable(UNREADABLE.format(id=id))
        return kept

    async def take(self, id: str, tenant: str) -> Taken | None:
        """Make a query this process's that nobody runs any more; None: somebody does, it waits, or
        it has ended."""
        await self.kept(id, tenant)
        return await (await self.ready()).take_one(tenant, id)

    def resuming(self, id: str) -> asyncio.Lock:
        """Held while a query is gone on with, so that two who ask for it here begin it once."""
        return self._resuming.setdefault(id, asyncio.Lock())

    async def resume(
        self,
        row: Taken,
        app: Application,
        begin: Callable[[QuerySpec, Found, Callable[[], None]], U],
    ) -> U:
        """Go on with a query that was taken. begin: begins one that asks this, of which that was
        done before, and calls what it is given once it has ended.

        Raises CodeChanged where `app` is not the application that began it, and what else forbids
        it; whoever has taken it then gives it back.
        """
        journal = await self.ready()
        steps = await durable.steps_of(journal, row.tenant, row.id)
        if steps and row.code not in (None, app.code):
            raise CodeChanged(
                f"query {row.id} was begun by application {row.app!r} as it was then: go on with "
                "that one"
            )
        body, files = Body.read(await journal.request(row)), QueryFiles()
        try:
            inputs, paths = body.unpacked(app, files.place)
            if paths:
                await journal.restore(row.tenant, row.id, paths)
            what = inputs, body.overrides, body.passes
            spec = QuerySpec(
                *what,
                row.left_s,
                row.tenant,
                session=body.session,
                asked=row.created,
                finish_by_s=objective_left(body.finish_by_s, row.created, time.time(), row.left_s),
                accounts=self.accounts_of(body.key) if body.key is not None else (),
                **body.bounds,
            )
            return begin(spec, steps, files.remove)
        except BaseException:
            files.remove()
            raise

    async def end_taken(self, row: Taken, error: TeolaError) -> Result:
        """End a query that was taken and is not to run. Raises JournalLost."""
        state = _STATES.get(type(error), "failed")
        result = Result(row.app, row.id, state, {}, 0.0, error=error)
        await (await self.ready()).end(ended(result, row.tenant))
        return result

    async def cancel(self, id: str, tenant: str) -> None:
        """Give up a query, wherever it is. Raises UnknownName, JournalLost, JournalUnreadable."""
        query = self.find(id, tenant)
        if query is not None:
            await query.parked()
        parked = query is not None and query.kept and query.waiting and self.options.parks
        if query is not None and not parked:
            query.cancel()
            await query.ended()
            return
        kept = None if self.journal is None else await (await self.ready()).find(tenant, id)
        if kept is None:
            raise UnknownName("query that waits", id, self.running)
        await self.give_up(kept)
        if query is not None:
            query.leave()
            await query.ended()

    async def give_up(self, kept: Kept) -> None:
        """End a query of the journal that waits and that nobody holds; have any other cancelled by
        whoever runs it, or takes it. Raises JournalLost."""
        journal = await self.ready()
        error = QueryCancelled("the query was cancelled")
        result = Result(kept.app, kept.id, "cancelled", {}, 0.0, error=error)
        if not kept.ended and not await journal.give_up(ended(result, kept.tenant)):
            await journal.cancel(kept.tenant, kept.id)

    async def elsewhere(self, id: str, tenant: str) -> Result | Taken:
        """How a query ended that another process runs, or what it waits for; its row, if that
        process has died, or given it back."""
        journal = await self.ready()
        with journal.hearing(id) as heard:
            while True:
                heard.clear()
                kept = await self.kept(id, tenant)
                if kept.ended:
                    return await asyncio.to_thread(kept.ending)
                asks = await durable.asks_of(journal, tenant, id)
                open = [durable.as_inquiry(id, one.told) for one in asks if not one.answered]
                if kept.state == "waiting" and open:
                    return Result(kept.app, id, "waiting", {}, 0.0, asks=tuple(open))
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await heard.wait()
                if (row := await journal.take_from_dead(tenant, id)) is not None:
                    return row

    # --- the journal ----------------------------------------------------------------------

    async def ready(self) -> Journal:
        """The journal, once it can be used and this process shows that it lives. Raises what keeps
        it from that, JournalLost above all."""
        assert self.journal is not None, "asked of a desk that keeps nothing"
        if self.options.holds and not self._reached:
            if self._life is None:
                self._life = asyncio.create_task(self._live(self.journal), name="desk")
            await self._tried.wait()
            if not self._reached:
                raise self._lost
        return self.journal

    async def _live(self, journal: Journal) -> None:
        """Show that this process lives, and hear news."""
        while True:
            try:
                await journal.open()
                async with journal.database.transaction(None) as connection:
                    await journal.look_at_note(connection)
                if journal.to_be_sealed:
                    await seal_rest(journal)
                async with journal.session() as session:
                    journal.away, self._reached = False, True
                    self._tried.set()
                    await journal.write_rest(session)
                    await self.note_rest()
                    async for news in session.notifies():
                        journal.wake(None if news.payload == LOOK else news.payload)
            except Exception as error:  # noqa: BLE001 - the task's edge: who waits for it is told
                self._lost = error if isinstance(error, TeolaError) else _bug(error, "")
                self._tried.set()
            await asyncio.sleep(AGAIN_S)

    async def note_rest(self) -> None:
        """Write down what queries wait for that began to wait while the journal was away."""
        for query in list(self.running.values()):
            if query.waiting and isinstance(query.unkept, JournalLost):
                await query.note_again()

    async def close(self) -> None:
        """Leave the journal. What waits there waits on."""
        if self._life is not None and self.journal is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
            await self.journal.close()


_DESKS: Final = WeakKeyDictionary[Runtime, Desk[Underway]]()


def desk_of(runtime: Runtime) -> Desk[Underway]:
    """The desk of the programs that use a runtime. From any thread. Raises InputError."""
    found = _DESKS.get(runtime)
    if found is None:
        found = _DESKS.setdefault(runtime, _desk(runtime))
    return found


def _desk(runtime: Runtime) -> Desk[Underway]:
    if runtime.journal is False:
        return Desk(DeskOptions())
    journal = journal_of(runtime, runtime.journal, DAYS, runtime.journal_key)
    if journal is None:
        raise InputError("journal=True: the engine vectorstore has no PostgreSQL; give a DSN")
    desk = Desk[Underway](DeskOptions(keeps="wait", parks=True, holds=True), journal)
    runtime.closing.append(desk.close)
    return desk


def _without(job: Job, state: str, error: TeolaError) -> Result:
    trace = job.trace
    if trace is not None and trace.finished is None:
        trace.finish(state, asyncio.get_running_loop().time())
    latency = trace.latency_s if trace else 0.0
    return Result(job.app.name, job.id, state, {}, latency, error=error, trace=trace)


def _bug(error: Exception, where: str) -> TeolaError:
    told = TeolaError(f"{where}{type(error).__name__}: {error}")
    told.__cause__ = error
    return told
