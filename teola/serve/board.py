"""Board: the queries of a server: who is let in, within which limits, and the last that ended.

What becomes of a query in between is its desk's business (teola/query/desk.py). Everything happens
on the runtime's loop, on which the server runs as well, so nothing is locked and no query changes
threads on its way.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from teola.app import App
from teola.errors import Overloaded
from teola.graph import ToolStep
from teola.query.desk import Desk, Found
from teola.query.event_log import MOST_EVENTS
from teola.query.job import Job
from teola.query.journal.query_rows import Taken
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.query.underway import DeskOptions, FiledWhen, Keeping, Underway
from teola.runtime.live.query import Progress, Token
from teola.runtime.observe.demand import demand
from teola.runtime.values import bytes_of
from teola.serve.admission.admission import Admission, Ticket
from teola.serve.admission.expecting import characters_of
from teola.serve.intake.limits import QueryLimits
from teola.serve.intake.named_databases import NamedDatabases
from teola.serve.problems import Draining, Problem
from teola.serve.question import Question, question_of
from teola.tools.loop_life import here

CANCELLED_S: Final = 15.0
"""How long the end of a drain waits for what it has cancelled."""
KEPT: Final = 512
"""Queries that have ended and can still be looked at."""
KEPT_BYTES: Final = 64 * 2**20
"""Most bytes of the answers and inputs of these queries together; the last query is kept even if it
has more."""
RUN: Final = 10_000_000
"""Between the numbers of the first events of two runs of a query."""


class Entry(Underway):
    """A query that a client has asked.

    mode: sync, stream or background.
    first_token_s: seconds from its request to the first token of its answer.
    bytes: size of its answer and of what is kept of its inputs, of what clients were told and of
        what its primitives read and gave, about, once it has ended.
    ticket: its place in admission. paused: which it does not take, for it waits for people.
    on_pause: is told when it waits for people, and when it goes on.
    question: what it asked, as far as that is kept.
    settle: what becomes of its result before anybody hears of it.
    """

    def __init__(
        self,
        job: Job,
        keeping: Keeping,
        mode: str,
        *,
        on_pause: Callable[[Entry, bool], None] = lambda entry, waits: None,
        question: Question | None = None,
        ticket: Ticket | None = None,
        settle: Settle | None = None,
        created: float | None = None,
        run: int = 1,
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(job, keeping, created=created, run=run, cleanup=cleanup)
        self.mode, self.question, self.ticket, self._settle = mode, question, ticket, settle
        self._on_pause = on_pause
        self.first_token_s: float | None = None
        self.bytes = 0
        self.paused = False

    @property
    def base(self) -> int:
        """Clients are told larger numbers than this: earlier runs have had these."""
        return (self.run - 1) * RUN

    def on_wait(self, waits: bool) -> None:
        """See Underway."""
        self._on_pause(self, waits)
        super().on_wait(waits)

    async def ran(self) -> Result:
        """See Underway; the start of engines counts as its time."""
        await self.job.wait_for_engines()
        result = await self.job.run(self.watch, streams=self.mode == "stream")
        if self._settle is not None:
            result = await self._settle(self, result)
        outputs = result.outputs
        self.bytes = await here().aside(partial(_bytes_of_all, outputs), outputs)
        return result

    def watch(self, event: Token | Progress | ToolStep) -> None:
        """Tell clients of an event; this is the query's watcher."""
        if isinstance(event, Token):
            if self.first_token_s is None:
                self.first_token_s = time.time() - self.created
            self.tell("token", event, shared=self.mode != "stream")
        elif isinstance(event, ToolStep):
            self.tell("step", event)
        else:
            self.tell("primitive", event)

    def summary(self) -> dict[str, Any]:
        """Its line in a list of queries, without its question."""
        job = self.job
        line = {
            "query_id": self.id,
            "app": job.app.name,
            "mode": self.mode,
            "state": self.state,
            "created": round(self.created, 3),
        }
        if self.result:
            line["latency_s"] = round(self.result.latency_s, 6)
        else:
            line["running_s"] = round(time.time() - self.created, 3)
        if self.waiting:
            line["asks"] = self.asks
        return line

    def forget(self) -> None:
        """Drop what is kept of what it asked, and of what its primitives read and gave."""
        self.question = None
        if self.job.trace is not None:
            self.job.trace.forget_values()


Settle = Callable[[Entry, Result], Awaitable[Result]]


class Board:
    """See the module.

    desk: where its queries are under way.
    most: queries that run at once; more are refused with Overloaded.
    most_of_tenant: the same for one tenant.
    on_start, on_end: called with every query that was accepted, and that has ended.
    on_refused: called with the reason why something was refused before it became a request.
    waiting: queries that wait for people, and take no room.
    events: most events of a query that are held, its tokens apart.
    """

    def __init__(
        self, most: int, most_of_tenant: int | None = None, events: int = MOST_EVENTS
    ) -> None:
        self.desk = Desk[Entry](DeskOptions(keeps="wait", events=events))
        self.desk.on_start = lambda entry: self.on_start(entry)
        self.desk.on_end = self._ended
        self.most, self.most_of_tenant, self.draining = most, most_of_tenant, False
        self.of_tenant: Counter[str] = Counter()
        self.limits = QueryLimits()
        self.databases = NamedDatabases({})
        self.logs_said = False
        """Whether logs have what model servers say in words."""
        self.admission: Admission | None = None
        self.on_start: Callable[[Entry], None] = lambda entry: None
        self.on_end: Callable[[Entry], None] = lambda entry: None
        self.on_refused: Callable[[Problem], None] = lambda problem: None
        self.past: OrderedDict[str, Entry] = OrderedDict()
        self.past_bytes = self.waiting = 0
        self._on_pause = self._pause  # one for all queries, which each hold it

    @property
    def running(self) -> dict[str, Entry]:
        """Queries that have not ended, by id."""
        return self.desk.running

    def start(
        self,
        app: App,
        ask: QuerySpec,
        *,
        mode: str,
        cleanup: Callable[[], None] = lambda: None,
        keeps: FiledWhen | None = None,
        settle: Settle | None = None,
    ) -> Entry:
        """Begin a query within the limits. mode: sync, stream or background. cleanup: called when
        it has ended. keeps: when it gets a row in the journal. settle: what becomes of its result
        before anybody hears of it.

        Raises InputError, Overloaded, Draining.
        """
        self._check_room(ask.tenant)
        job = self._job(app, ask, keeps)
        self._check_inputs(app, ask)
        ticket = None
        if self.admission is not None:
            ticket = self.admission.admit(*self._load(app, ask), ask.deadline_s)
        more: dict[str, Any] = {"settle": settle, "cleanup": cleanup, "on_pause": self._on_pause}
        keeping, question = self.desk.keeping(keeps), question_of(ask)
        return self._begin(Entry(job, keeping, mode, question=question, ticket=ticket, **more))

    async def resume(self, row: Taken, app: App) -> Entry:
        """Go on with a query that was taken. Raises as `start` and `Desk.resume`."""

        def begin(ask: QuerySpec, found: Found, cleanup: Callable[[], None]) -> Entry:
            self._check_room(ask.tenant)
            job = self._job(app, ask, None, row.id, found)
            self._check_inputs(app, ask)
            ticket = None
            if self.admission is not None:
                ticket = self.admission.take(*self._load(app, ask))
            more: dict[str, Any] = {"created": row.created, "run": row.runs, "cleanup": cleanup}
            more["on_pause"] = self._on_pause
            keeping, question = self.desk.keeping(), question_of(ask)
            again = Entry(job, keeping, "background", question=question, ticket=ticket, **more)
            return self._begin(again)

        entry = await self.desk.resume(row, app, begin)
        entry.tell("restarted", {"run": row.runs})
        return entry

    def _check_inputs(self, app: App, ask: QuerySpec) -> None:
        self.limits.check(app, ask.inputs, ask.overrides)
        self.databases.check(app, ask.inputs, ask.tenant)

    def _job(
        self,
        app: App,
        ask: QuerySpec,
        keeps: FiledWhen | None,
        id: str | None = None,
        found: Found | None = None,
    ) -> Job:
        bounded = replace(ask, bounds=self.limits.bounds)
        return self.desk.job(app, bounded, id=id, keeps=keeps, found=found)

    @staticmethod
    def _load(app: App, ask: QuerySpec) -> tuple[str, int, str, float]:
        """What admission goes by: application, characters, tenant, and the time."""
        assert ask.tenant is not None
        now = asyncio.get_running_loop().time()
        return app.name, characters_of(ask.inputs), ask.tenant, now

    def _begin(self, entry: Entry) -> Entry:
        self.of_tenant[entry.job.tenant] += 1
        return self.desk.begin(entry)

    def check(self, app: App, characters: int, tenant: str) -> None:
        """Raise Draining or Overloaded if a query of about that size would be refused now."""
        self._check_room(tenant)
        if self.admission is not None:
            now = asyncio.get_running_loop().time()
            self.admission.check(app.name, characters, tenant, now)

    def _pause(self, entry: Entry, waits: bool) -> None:
        """A query waits for people, and brings no work before it is answered, or goes on."""
        if entry.paused is waits:
            return
        entry.paused = waits
        self.waiting += 1 if waits else -1
        if self.admission is None or entry.ticket is None:
            return
        if waits:
            self.admission.pauses(entry.ticket)
        else:
            self.admission.goes_on(entry.ticket, asyncio.get_running_loop().time())

    def _check_room(self, tenant: str | None) -> None:
        assert tenant is not None, "whoever asks a server has been let in as somebody"
        if self.draining:
            raise Draining("this server is about to stop; ask another")
        if len(self.running) - self.waiting >= self.most:
            raise Overloaded(f"{self.most} queries are already running; try again in a moment")
        if self.most_of_tenant is not None and self.of_tenant[tenant] >= self.most_of_tenant:
            raise Overloaded(
                f"{self.most_of_tenant} of your queries are already running; try again in a moment"
            )

    def _ended(self, entry: Entry, result: Result) -> None:
        """Learn from a query that has ended, and keep it for a while."""
        tenant = entry.job.tenant
        self.of_tenant[tenant] -= 1
        if not self.of_tenant[tenant]:
            del self.of_tenant[tenant]
        entry.bytes += entry.events.nbytes
        entry.bytes += entry.question.bytes if entry.question else 0
        entry.bytes += result.trace.kept_bytes if result.trace else 0
        self._pause(entry, False)  # as one that is cancelled while it waits
        if self.admission is not None and entry.ticket is not None:
            whole = result.trace if result.state in ("ok", "partial") else None
            self.admission.ended(entry.ticket, demand(whole) if whole else None)
        if not entry.given_back:
            self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        """Put a query that has ended among the past ones, and drop the oldest that are too many."""
        self.past[entry.id] = entry
        self.past_bytes += entry.bytes
        while len(self.past) > KEPT or (self.past_bytes > KEPT_BYTES and len(self.past) > 1):
            _, oldest = self.past.popitem(last=False)
            self.past_bytes -= oldest.bytes
        self.on_end(entry)

    def find(self, id: str, tenant: str) -> Entry | None:
        """The query `id` if it is this tenant's."""
        entry = self.running.get(id) or self.past.get(id)
        return entry if entry and entry.job.tenant == tenant else None

    def all(self, tenant: str) -> list[Entry]:
        """This tenant's queries, the newest first."""
        every = [*self.past.values(), *self.running.values()]
        mine = [entry for entry in every if entry.job.tenant == tenant]
        return sorted(mine, key=lambda entry: entry.created, reverse=True)

    async def drain(self, limit_s: float) -> None:
        """Take nothing more, let what runs end for `limit_s`, then cancel it. What then does not
        end within CANCELLED_S is left as it is; if it is in a journal, another server takes it."""
        self.draining = True
        for entry in self.running.values():
            if entry.waiting and entry.kept:
                entry.leave()  # it waits on in the journal
        tasks = {entry.task for entry in self.running.values() if entry.task}
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCELLED_S)


def _bytes_of_all(outputs: Mapping[str, Any]) -> int:
    return sum(map(bytes_of, outputs.values()))
