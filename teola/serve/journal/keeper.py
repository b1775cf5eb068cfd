"""Keeper: sees to it that every journaled query ends, here or on another server. Long because one
look around does all of it, on one connection.

    accepted ──▶ running here ──ended──▶ its result in the journal
                   │    ▲
       drain, or   │    │ taken: nobody runs it
       journal away│    │ (given back, or its server has died)
                   ▼    │
                 waiting ──▶ cancelled, deadline, failed: ended without running

One task looks around every BEAT_S, and at once when the journal has news; another begins what was
taken, which may be long when there are documents. What has taken TRIES servers down with it is
failed. While the journal is away for longer than FENCE_S, nothing that is journaled runs here:
another server may have taken it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from teola.app import App
from teola.errors import (
    CodeChanged,
    DeadlineExceeded,
    Overloaded,
    QueryCancelled,
    QueryFailed,
    TeolaError,
)
from teola.query.journal import durable
from teola.query.journal.journal import FENCE_S, LOOK, Journal
from teola.query.journal.lost import AWAY, JournalLost, JournalUnreadable
from teola.query.journal.patience import Patience
from teola.query.journal.query_rows import Taken
from teola.query.journal.resealing import seal_rest
from teola.runtime.observe.noting import note
from teola.serve.board import Board, Entry
from teola.serve.problems import Draining
from teola.serve.streaming import first

if TYPE_CHECKING:
    from teola.query.journal.journal import JournalSession

BEAT_S: Final = 2.0
"""Well below FENCE_S: a beat or two may fail."""
ANSWER_S: Final = 3.0
"""A journal that takes longer to answer counts as lost."""
LEFT_S: Final = FENCE_S + 1.0
"""It is left when it takes as long: before, the lock would be free and queries still run here."""
AGAIN_S: Final = 0.5
"""Between tries to reach it."""
OPEN_S: Final = 10.0
"""How long a query waits for a journal that is being opened for the first time."""
CLOSE_S: Final = 2.0
FORGET_EVERY_S: Final = 600.0
TRIES: Final = 3
MOST_AT_ONCE: Final = 8
"""Most queries that one look at the journal takes. They are begun one after another, so the rest is
left to other servers."""
OPENING: Final = (
    "background queries cannot be taken or looked up yet: the database of the journal is starting; "
    "try again soon, or ask with mode sync or stream"
)

log = logging.getLogger(__name__)


class Keeper:
    """See the module. apps: that are served here. opened: the journal can be used."""

    def __init__(self, journal: Journal, board: Board, apps: Mapping[str, App]) -> None:
        self.journal, self.opened, self._tried = journal, asyncio.Event(), asyncio.Event()
        board.desk.journal = journal
        self._board, self._apps = board, dict(apps)
        self._task: asyncio.Task[None] | None = None
        self._engines = asyncio.Event()
        self._beginning: asyncio.Task[None] | None = None
        self._sealing: asyncio.Task[None] | None = None
        self._fence: asyncio.TimerHandle | None = None
        self._forgot = float("-inf")
        self._lost, self._closing = "", False
        self._patience = Patience(LEFT_S)
        self._held: set[str] = set()
        self._refused: set[str] = set()

    def add(self, app: App) -> None:
        """Keep queries of another application, under its name."""
        self._apps[app.name] = app

    def open(self) -> None:
        """Reach the journal, so that queries can be accepted and looked up; none is taken yet."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="journal")

    def start(self) -> None:
        """The engines are there: take what nobody runs from now on."""
        self._engines.set()
        self.open()

    async def close(self) -> None:
        """Give back what is left. The engines are still there."""
        self._board.draining = True
        tasks = self._suspend()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        if self.opened.is_set() or self.journal.unwritten:
            with suppress(JournalLost):
                await self.journal.give_back([entry.id for entry in self._journaled()])
        if self._sealing is not None:
            self._sealing.cancel()
            await asyncio.wait({self._sealing}, timeout=CLOSE_S)
        if self._task is not None:
            self._closing = True
            if self.journal.away:  # a cancelled statement would have to be answered, too
                self._patience.leave()
                await asyncio.wait({self._task}, timeout=AGAIN_S)
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.wait({self._beginning}, timeout=CLOSE_S)
        if self._fence is not None:
            self._fence.cancel()
        await self.journal.close()

    async def ready(self) -> None:
        """Wait for a journal that is being opened. Raises JournalLost if it is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_S):
                await self._tried.wait()
        if not self.opened.is_set():
            raise JournalLost(AWAY if self._tried.is_set() else OPENING)

    # --- looking around ---------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self.journal.open()
                await self._watch()
            except Exception as error:  # noqa: BLE001 - the task's edge: without it none would end
                if self._closing:
                    return
                ours = isinstance(error, TeolaError)  # others may quote a query
                self._lose(" ".join(str(error).split()) if ours else type(error).__name__)
            await asyncio.sleep(AGAIN_S)

    def _lose(self, why: str) -> None:
        """The journal cannot be used."""
        self.opened.clear()
        self.journal.away = True
        if why != self._lost:
            message = "the journal is away, background queries are refused: %(reason)s"
            note(log, logging.WARNING, "journal_lost", message, reason=why)
        self._lost = why
        self._tried.set()

    @contextmanager
    def _waiting_for(self, session: JournalSession) -> Iterator[None]:
        """Refuse queries while an answer of `session` is late."""
        loop, reason = asyncio.get_running_loop(), f"PostgreSQL takes more than {ANSWER_S:g} s"
        late = loop.call_later(ANSWER_S, self._lose, reason)
        try:
            self._patience = Patience(LEFT_S)
            with self._patience.watching(session):
                yield
        finally:
            late.cancel()

    async def _watch(self) -> None:
        """Look around until the journal is lost. Raises JournalLost."""
        loop = asyncio.get_running_loop()
        async with self.journal.session() as session:
            await self._rejoin(session)
            while True:
                began = loop.time()
                with self._waiting_for(session):
                    taken = await self._look(session)
                self._beat(began)
                self._reached()
                if self.journal.to_be_sealed and self._sealing is None:
                    self._sealing = asyncio.create_task(self._seal(), name="sealing")
                if taken:
                    self._beginning = asyncio.create_task(self._resume(taken), name="resume")
                await self._pause(session)

    def _reached(self) -> None:
        """The journal can be used (again)."""
        if self._lost:
            message = "the journal is back, background queries are accepted"
            note(log, logging.INFO, "journal_recovered", message)
        self._lost = ""
        self.opened.set()
        self.journal.away = False
        self._tried.set()

    async def _seal(self) -> None:
        """Seal what lies there in plain, beside all else; what the journal's loss interrupts is
        gone on with once it is back."""
        try:
            with suppress(JournalLost):
                await seal_rest(self.journal)
        finally:
            self._sealing = None

    async def _pause(self, session: JournalSession) -> None:
        """Wait until there may be something to look at, a beat at most."""
        begun = self._beginning
        if begun is not None:
            await first(self._news(session), asyncio.wait({begun}))
            if begun.done():
                self._beginning = None
                if not begun.cancelled():
                    begun.result()
        elif not self._engines.is_set():
            await first(self._news(session), self._engines.wait())
        else:
            self._refused.clear()
            await self._news(session)

    async def _rejoin(self, session: JournalSession) -> None:
        """After a time without the journal: stop what others have taken, and do not go on beginning
        what they may have."""
        if self._beginning is not None:
            self._beginning.cancel()
        with self._waiting_for(session):
            before = self._journaled()
            ours = await self.journal.held(session)
            believed = self._held | {entry.id for entry in before}
            await self.journal.alive(session, believed - ours.keys())
        for entry in before:
            if entry.id not in ours and entry.task is not None:
                entry.task.cancel()
        self.journal.wake()

    async def _look(self, session: JournalSession) -> list[Taken]:
        """Write what could not be written, cancel what somebody wants cancelled, take what nobody
        runs."""
        await self.journal.look_at_note(session)
        await self.journal.write_rest(session)
        running = self._board.running
        busy = set(running)
        ours = await self.journal.held(session)
        self._held = set(ours)
        await self.journal.look_for_dead(session)
        for id, cancel in ours.items():
            entry = running.get(id)
            if cancel and entry is not None and not entry.unwanted:
                entry.cancel()
        await self._deliver()
        now = asyncio.get_running_loop().time()
        if now - self._forgot > FORGET_EVERY_S:
            self._forgot = now  # first: what takes too long must not be tried with every look
            if await self.journal.forget(session):
                self._forgot = float("-inf")
        if self._board.draining or self._beginning is not None or not self._engines.is_set():
            return []
        busy |= running.keys() | self.journal.unwritten.keys()
        room = self._board.most - len(running) + self._board.waiting
        apps = {name: app.code for name, app in self._apps.items()} if room > 0 else {}
        most = min(max(room, 1), MOST_AT_ONCE)
        mine = ours.keys() - busy
        return await self.journal.take(session, apps, mine, self._refused, most)

    async def _deliver(self) -> None:
        """Tell queries that wait here what people have answered, anywhere."""
        await self._board.desk.note_rest()
        waiting = {entry.id: entry for entry in self._journaled() if entry.waiting}
        if not waiting:
            return
        tenants = {id: entry.job.tenant for id, entry in waiting.items()}
        for id, ask, answer in await durable.answers_of(self.journal, tenants):
            people = waiting[id].job.people
            if ask in people.open:
                people.answer(ask, answer)

    def _beat(self, began: float) -> None:
        """The journal was there at `began`: the fence is that much further away."""
        if self._fence is not None:
            self._fence.cancel()
        loop = asyncio.get_running_loop()
        self._fence = loop.call_at(began + FENCE_S, self._suspend)

    def _suspend(self) -> set[asyncio.Task[None]]:
        """Stop what is journaled; the rows stay, and who holds them then runs them anew."""
        loop = asyncio.get_running_loop()
        tasks = {entry.task for entry in self._journaled() if entry.task is not None}
        if self._beginning is not None:
            tasks.add(self._beginning)
        for task in tasks:  # in the next turn: before its first step it would end unheard
            loop.call_soon(task.cancel)
        return tasks

    def _journaled(self) -> list[Entry]:
        """Queries that run here and are in the journal."""
        return [entry for entry in self._board.running.values() if entry.kept]

    async def _news(self, session: JournalSession) -> None:
        """Wait until there is something to look at; tell who waits for a query."""
        async with aclosing(session.notifies(timeout=BEAT_S)) as notifications:
            async for notification in notifications:
                if notification.payload == LOOK:
                    self.journal.wake()  # what came along with it is not heard any more
                    return
                self.journal.wake(notification.payload)

    # --- what was taken ---------------------------------------------------------------------

    async def _resume(self, rows: Sequence[Taken]) -> None:
        """Run each query, or end it if it cannot run."""
        for row in rows:
            error = self._hopeless(row)
            if error is None:
                error = await self._begin(row)
            if error is not None:
                await self._give_up(row, error)
            self.journal.wake(row.id)

    async def _give_up(self, row: Taken, error: TeolaError) -> None:
        result = await self._board.desk.end_taken(row, error)
        fields = {"query_id": row.id, "app": row.app, "state": result.state}
        message = "query %(query_id)s of %(app)s cannot go on and ended %(state)s"
        note(log, logging.WARNING, "query_given_up", message, **fields)

    def _hopeless(self, row: Taken) -> TeolaError | None:
        """Why the query is not to be run; None if it may."""
        if row.cancel:
            return QueryCancelled("the query was cancelled")
        if row.app not in self._apps:
            return QueryFailed(
                f"application {row.app!r} is not served any more: no server that has it came "
                "before the query's deadline"
            )
        code = self._apps[row.app].code
        if row.left_s <= 0 and row.code is not None and row.code != code:
            return CodeChanged(
                f"application {row.app!r} is not what it was when the query was begun, and no "
                "server that has the old one came before the query's deadline"
            )
        if row.left_s <= 0:
            return DeadlineExceeded("the deadline passed while no server ran the query")
        if row.deaths >= TRIES:
            return QueryFailed(
                f"the query was begun {row.deaths} times, and each time its server died"
            )
        return None

    async def _begin(self, row: Taken) -> TeolaError | None:
        """Put the query on the board; why that cannot be, if so."""
        try:
            await self._board.resume(row, self._apps[row.app])
        except (Draining, JournalLost, Overloaded):  # not now, or not here
            self._refused.add(row.id)
            with suppress(JournalLost):
                await self.journal.release(row.id)
        except JournalUnreadable as error:
            self.journal.lay_aside(row.id, error)
            with suppress(JournalLost):
                await self.journal.release(row.id)
        except Exception as wrong:  # noqa: BLE001 - a row's edge: what is wrong in one ends that one
            reason = str(wrong) if isinstance(wrong, TeolaError) else type(wrong).__name__
            return QueryFailed(f"the query cannot go on: {reason}")
        return None
