"""Board: the queries of a server, those that run and the last that ended, with what they tell.

Everything happens on the runtime's loop, on which the server runs as well, so nothing is locked and
no query changes threads on its way. Long because a query's life, from its admission to the last
that is known of it, is told in one place.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from teola.app import App
from teola.errors import DeadlineExceeded, Overloaded, QueryCancelled, TeolaError
from teola.graph import ToolStep
from teola.job import Job
from teola.query_spec import QuerySpec
from teola.result import Result
from teola.runtime.live.query import Progress, Token
from teola.runtime.live.steps import Steps
from teola.runtime.observe.demand import demand
from teola.runtime.values import bytes_of
from teola.serve.admission.admission import Admission, Ticket
from teola.serve.admission.expecting import characters_of
from teola.serve.client_event import Event
from teola.serve.intake.limits import QueryLimits
from teola.serve.problems import Draining, Problem, problem_of
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


class Record(Protocol):
    """A query's place in a journal, which outlives the server."""

    @property
    def kept(self) -> bool:
        """Whether the query is there (yet)."""
        ...

    async def begin(self) -> None:
        """Wait until the query may run."""
        ...

    async def waits(self, entry: Entry) -> None:
        """Write down what the query waits for, before anybody hears of it."""
        ...

    async def end(self, entry: Entry, result: Result) -> Result:
        """Write down how the query ended, before anybody hears of it. Returns what they hear."""
        ...


@dataclass(slots=True, eq=False)
class Entry:
    """One query.

    mode: sync, stream or background.
    created: when it was asked, in seconds since 1970.
    events: all so far, numbered from 1.
    result: None until it has ended.
    first_token_s: seconds from its request to the first token of its answer.
    bytes: size of its answer and of what is kept of its inputs and of what its primitives read and
        gave, about, once it has ended.
    ticket: its place in admission.
    question: what it asked, as far as that is kept.
    record: its place in the journal, if it has one.
    run: how often it was begun, on any server.
    unwanted: somebody cancelled it.
    given_back: it has not ended, but goes on elsewhere or later.
    """

    job: Job
    mode: str
    created: float
    events: list[Event] = field(default_factory=list)
    result: Result | None = None
    task: asyncio.Task[None] | None = None
    first_token_s: float | None = None
    bytes: int = 0
    ticket: Ticket | None = None
    question: Question | None = None
    record: Record | None = None
    run: int = 1
    unwanted: bool = False
    given_back: bool = False
    _waiting: dict[asyncio.Future[None], int] = field(default_factory=dict)
    _telling: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def base(self) -> int:
        """Clients are told larger numbers than this: earlier runs have had these."""
        return (self.run - 1) * RUN

    @property
    def state(self) -> str:
        """running, waiting (for people), or how it ended."""
        if self.result:
            return self.result.state
        return "waiting" if self.waiting else "running"

    @property
    def asks(self) -> list[dict[str, Any]]:
        """What it waits for."""
        return [one.to_json() for one in self.job.people.inquiries] if self.waiting else []

    @property
    def waiting(self) -> bool:
        """Whether nothing of it can go on before people answer."""
        return self.result is None and self.job.people.waits

    def waits(self) -> None:
        """Nothing of it can go on any more: tell clients what it asks."""
        self._telling = asyncio.get_running_loop().create_task(self._tell_asks())

    async def _tell_asks(self) -> None:
        if self.record is not None:
            await self.record.waits(self)
        if self.waiting:
            self.tell("waiting", {"asks": self.asks})

    async def noted(self) -> None:
        """Wait until its record has what it waits for."""
        if self._telling is not None:
            await asyncio.wait({self._telling})

    def tell(
        self, kind: str, told: Mapping[str, Any] | Token | Progress | ToolStep | Result
    ) -> None:
        """Add an event and wake whoever waits for it."""
        self.events.append(Event(kind, told))
        known = len(self.events)
        for waiter, after in self._waiting.items():
            if known > after and not waiter.done():
                waiter.set_result(None)

    def watch(self, event: Token | Progress | ToolStep) -> None:
        """Tell clients of an event; this is the query's watcher."""
        if isinstance(event, Token):
            if self.first_token_s is None:
                self.first_token_s = time.time() - self.created
            self.tell("token", event)
        elif isinstance(event, ToolStep):
            self.tell("step", event)
        else:
            self.tell("primitive", event)

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

    async def asked(self) -> None:
        """Wait until it waits for people."""
        while not self.waiting:
            await self.changed(len(self.events))

    def cancel(self) -> None:
        """Ask it to end."""
        self.unwanted = True
        if self.task is not None:  # in the next turn: before its first step it would end unheard
            asyncio.get_running_loop().call_soon(self.task.cancel)

    async def ended(self) -> Result:
        """Its result, whatever it is; leaving off waiting does not cancel it."""
        assert self.task is not None
        with suppress(asyncio.CancelledError):
            await asyncio.shield(self.task)
        if self.result is None:  # it was the caller who was cancelled
            raise asyncio.CancelledError
        return self.result

    def summary(self) -> dict[str, Any]:
        """Its line in a list of queries, without its question."""
        job = self.job
        found = {
            "query_id": self.id,
            "app": job.app.name,
            "mode": self.mode,
            "state": self.state,
            "created": round(self.created, 3),
        }
        if self.result:
            found["latency_s"] = round(self.result.latency_s, 6)
        else:
            found["running_s"] = round(time.time() - self.created, 3)
        if self.waiting:
            found["asks"] = self.asks
        return found

    def forget(self) -> None:
        """Drop what is kept of what it asked, and of what its primitives read and gave."""
        self.question = None
        if self.job.trace is not None:
            self.job.trace.forget_values()


Settle = Callable[[Entry, Result], Awaitable[Result]]


class Board:
    """See the module.

    most: queries that run at once; more are refused with Overloaded.
    most_of_tenant: the same for one tenant.
    on_start, on_end: called with every query that was accepted, and that has ended.
    on_refused: called with the reason why something was refused before it became a request.
    """

    def __init__(self, most: int, most_of_tenant: int | None = None) -> None:
        self.most, self.most_of_tenant, self.draining = most, most_of_tenant, False
        self.of_tenant: Counter[str] = Counter()
        self.limits = QueryLimits()
        self.admission: Admission | None = None
        self.on_start: Callable[[Entry], None] = lambda entry: None
        self.on_end: Callable[[Entry], None] = lambda entry: None
        self.on_refused: Callable[[Problem], None] = lambda found: None
        self.running: dict[str, Entry] = {}
        self.past: OrderedDict[str, Entry] = OrderedDict()
        self.past_bytes = 0

    def start(
        self,
        app: App,
        ask: QuerySpec,
        *,
        mode: str,
        cleanup: Callable[[], None] = lambda: None,
        id: str | None = None,
        record: Record | None = None,
        settle: Settle | None = None,
    ) -> Entry:
        """Begin a query within the limits. mode: sync, stream or background. cleanup: called when
        it has ended. id: of one that was begun before. record: its journal. settle: what becomes of
        its result before anybody hears of it.

        Raises InputError, Overloaded, Draining.
        """
        tenant = ask.tenant
        assert tenant is not None, "whoever asks a server has been let in as somebody"
        self._check_room(tenant)
        job = app.job(replace(ask, bounds=self.limits.bounds), id=id)
        self.limits.check(app, ask.inputs, ask.overrides)
        entry = Entry(job, mode, time.time(), record=record, question=question_of(ask))
        job.people.on_wait = entry.waits
        if record is not None and job.steps is None:
            job.steps = Steps(job.id, on_unknown=app.on_unknown)
        if self.admission is not None:
            now, size = asyncio.get_running_loop().time(), characters_of(ask.inputs)
            if id is None:
                entry.ticket = self.admission.admit(app.name, size, tenant, now, ask.deadline_s)
            else:
                entry.ticket = self.admission.take(app.name, size, tenant, now)
        self.running[job.id] = entry
        self.of_tenant[tenant] += 1
        entry.task = asyncio.get_running_loop().create_task(self._run(entry, cleanup, settle))
        return entry

    def check(self, app: App, characters: int, tenant: str) -> None:
        """Raise Draining or Overloaded if a query of about that size would be refused now."""
        self._check_room(tenant)
        if self.admission is not None:
            now = asyncio.get_running_loop().time()
            self.admission.check(app.name, characters, tenant, now)

    @property
    def waiting(self) -> int:
        """Queries that wait for people, and take no room."""
        return sum(entry.waiting for entry in self.running.values() if entry.job.people.open)

    def _check_room(self, tenant: str) -> None:
        if self.draining:
            raise Draining("this server is about to stop; ask another")
        if len(self.running) - self.waiting >= self.most:
            raise Overloaded(f"{self.most} queries are already running; try again in a moment")
        if self.most_of_tenant is not None and self.of_tenant[tenant] >= self.most_of_tenant:
            raise Overloaded(
                f"{self.most_of_tenant} of your queries are already running; try again in a moment"
            )

    async def _run(self, entry: Entry, cleanup: Callable[[], None], settle: Settle | None) -> None:
        job = entry.job
        try:
            if entry.record is not None:
                await entry.record.begin()
            self.on_start(entry)
            await job.wait_for_engines()
            result = await job.run(entry.watch, streams=entry.mode == "stream")
            if settle is not None:
                result = await settle(entry, result)
            outputs = result.outputs
            entry.bytes = await here().aside(partial(_bytes_of_all, outputs), outputs)
        except asyncio.CancelledError:
            result = self._without(job, "cancelled", QueryCancelled("the query was cancelled"))
        except DeadlineExceeded as error:
            result = self._without(job, "deadline", error)
        except TeolaError as error:
            result = self._without(job, "failed", error)
        except Exception as error:  # noqa: BLE001 - the server's edge: a bug ends one query only
            result = self._without(job, "failed", TeolaError(f"{type(error).__name__}: {error}"))
        if entry.record is not None:
            result = await self._recorded(entry, entry.record, result)
        job.forget()
        job.people.on_wait = lambda: None  # or it would hold its entry, which holds it
        del self.running[job.id]
        self.of_tenant[job.tenant] -= 1
        if not self.of_tenant[job.tenant]:
            del self.of_tenant[job.tenant]
        entry.result = result
        try:
            cleanup()
            self._settle(entry, result)
        finally:  # whoever waits for it hears its end, whatever goes wrong here
            if result.state in ("ok", "partial"):
                entry.tell("done", result)
            else:
                entry.tell("error", problem_of(result).body())

    def _settle(self, entry: Entry, result: Result) -> None:
        """Learn from a query that has ended, and keep it for a while."""
        entry.bytes += entry.question.bytes if entry.question else 0
        entry.bytes += result.trace.kept_bytes if result.trace else 0
        if self.admission is not None and entry.ticket is not None:
            whole = result.trace if result.state in ("ok", "partial") else None
            self.admission.ended(entry.ticket, demand(whole) if whole else None)
        if not entry.given_back:
            self._keep(entry)

    async def _recorded(self, entry: Entry, record: Record, result: Result) -> Result:
        """The result after its record has it: a failure where the record has a bug."""
        try:
            return await record.end(entry, result)
        except Exception as error:  # noqa: BLE001 - the server's edge, as in `_run`
            told = f"how it ended cannot be recorded: {type(error).__name__}: {error}"
            return self._without(entry.job, "failed", TeolaError(told))

    def _keep(self, entry: Entry) -> None:
        """Put a query that has ended among the past ones, and drop the oldest that are too many."""
        self.past[entry.id] = entry
        self.past_bytes += entry.bytes
        while len(self.past) > KEPT or (self.past_bytes > KEPT_BYTES and len(self.past) > 1):
            _, oldest = self.past.popitem(last=False)
            self.past_bytes -= oldest.bytes
        self.on_end(entry)

    def _without(self, job: Job, state: str, error: TeolaError) -> Result:
        trace = job.trace
        if trace is not None and trace.finished is None:
            trace.finish(state, asyncio.get_running_loop().time())
        latency = trace.latency_s if trace else 0.0
        return Result(job.app.name, job.id, state, {}, latency, error=error, trace=trace)

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
            kept = entry.record is not None and entry.record.kept
            if entry.waiting and kept and entry.task is not None:
                entry.task.cancel()  # it waits on in the journal
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
