"""How a query is waited for: from plain code, from a running loop, in one piece or as a stream."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from teola.errors import CodeChanged, InputError, TeolaError, UnknownName
from teola.graph import Inquiry, ToolStep
from teola.job import Job
from teola.journal.rows import Body
from teola.query_spec import QuerySpec
from teola.result import Result
from teola.runtime.live.query import Progress, Token, Watcher
from teola.runtime.live.steps import Steps
from teola.runtime.runtime import Runtime
from teola.workflow.kinds import Kind

if TYPE_CHECKING:
    from teola.application import Application as App
    from teola.journal.filing import Filing

Event = Token | Progress | ToolStep
OnAsk = Callable[[Inquiry], Any]
"""Answers what a query asks; may be async."""
T = TypeVar("T")

NOTHING: Final = object()
"""No answer."""
DAYS: Final = 7.0
"""How long the journal remembers what has ended."""
UNFILED: Final = (
    "this query is not kept in the journal, because it came with documents: index them in a "
    "collection first"
)
_FILINGS: Final = WeakKeyDictionary[Runtime, "Filing"]()
_PARKED: Final = WeakKeyDictionary[Runtime, "dict[str, Underway]"]()
NOTICE_S: Final = 0.5
"""How often the main thread wakes while it waits: a signal that comes just before it blocks is
noticed only then."""


def wait(job: Job, on_ask: OnAsk | None = None) -> Result:
    """Its result, in a thread that can be blocked; an interrupt cancels the query."""
    future = job.runtime.start(until_it_waits(Underway(job, on_ask)))
    try:
        return _result(future).checked()
    except BaseException:
        future.cancel()
        raise


def wait_for_all(
    jobs: Sequence[Job], on_done: Callable[[int, Result], None] | None
) -> list[Result]:
    """The results of jobs that run side by side, in their order; an interrupt cancels them all."""
    if inspect.iscoroutinefunction(on_done):
        raise InputError("on_done is called and not awaited: give a plain function")
    if not jobs:
        return []

    async def one(position: int, job: Job) -> Result:
        try:
            result = await until_it_waits(Underway(job))
        except TeolaError as error:
            result = Result(job.app.name, job.id, "failed", {}, 0.0, error=error)
        if on_done:
            on_done(position, result)
        return result

    async def everything() -> list[Result]:
        return await asyncio.gather(*(one(i, job) for i, job in enumerate(jobs)))

    future = jobs[0].runtime.start(everything())
    try:
        return _result(future)
    except BaseException:
        future.cancel()
        raise


class Reply(NamedTuple):
    """An answer to what query `query_id` of a tenant's asks, in question `ask` (None: the only one
    that is open). secrets: for tools, where another process began the query."""

    query_id: str
    answer: Any
    ask: str | None
    tenant: str
    secrets: Mapping[str, str]


def resume(app: App, reply: Reply) -> Result:
    """Answer what a query waits for, and wait on."""
    runtime = app.home
    return _result(runtime.start(_resumed(app, runtime, reply))).checked()


async def resumed(app: App, reply: Reply) -> Result:
    """`resume` from any loop."""
    runtime = app.home
    return await _there(runtime, _resumed(app, runtime, reply))


async def _there(runtime: Runtime, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, which is done on the runtime's loop."""
    if asyncio.get_running_loop() is runtime.loop:
        return await work
    return await asyncio.wrap_future(runtime.start(work, blocks=False))


async def _resumed(app: App, runtime: Runtime, reply: Reply) -> Result:
    id, answer, ask, tenant, secrets = reply
    here, filing = parked_in(runtime).get(id), filing_of(runtime)
    if filing is None or await filing.find(tenant, id) is None:
        found = _parked(runtime, id)
        if answer is not NOTHING:
            found.job.people.answer(ask, answer)
        return await until_it_waits(found)
    if answer is not NOTHING:
        ask = await filing.answer(tenant, id, ask, answer)
    row = await filing.take(tenant, id)
    if row.app != app.name or row.code != app.code:
        await filing.journal.release(id)
        raise CodeChanged(
            f"query {id} was begun by application {row.app!r} as it was then: go on with that one"
        )
    if here is not None and ask in here.job.people.open:
        here.job.people.answer(ask, answer)
        return await until_it_waits(here)
    body = Body.model_validate_json(row.request or "{}")
    spec = QuerySpec(body.inputs, body.overrides, body.passes, row.left_s, tenant)
    spec = replace(spec, session=body.session, secrets=secrets, asked=row.created)
    job = Job(app, spec, id=id)
    job.steps = await filing.steps(tenant, id, app.on_unknown)
    return await until_it_waits(Underway(job))


def waits(app: App, tenant: str) -> list[Inquiry]:
    """What queries of an application ask, here and in the journal."""
    runtime = app.home

    async def look() -> list[Inquiry]:
        mine = (u.job for u in parked_in(runtime).values() if u.job.app.name == app.name)
        here = [i for job in mine if job.tenant == tenant for i in job.people.inquiries]
        filing = filing_of(runtime)
        filed = await filing.waiting(tenant, app.name) if filing is not None else []
        known = {(one.query_id, one.id) for one in filed}
        return [*filed, *(one for one in here if (one.query_id, one.id) not in known)]

    return _result(runtime.start(look()))


def cancel(app: App, id: str, tenant: str) -> None:
    """Give up a query that waits. Raises UnknownName."""
    runtime = app.home

    async def give_up() -> None:
        here, filing = parked_in(runtime).get(id), filing_of(runtime)
        if filing is not None and await filing.find(tenant, id) is not None:
            await filing.give_up(tenant, id)
        elif here is None:
            raise UnknownName("query that waits", id, parked_in(runtime))
        if here is not None:
            here.task.cancel()

    _result(runtime.start(give_up()))


def filing_of(runtime: Runtime) -> Filing | None:
    """Where a runtime keeps what waits. On its loop. Raises InputError, MissingExtra."""
    if runtime.journal is False:
        return None
    found = _FILINGS.get(runtime)
    if found is None:
        from teola.journal.filing import Filing
        from teola.journal.journal import journal_of

        journal = journal_of(runtime, runtime.journal, DAYS, runtime.journal_key)
        if journal is None:
            raise InputError("journal=True: the engine vectorstore has no PostgreSQL; give a DSN")
        found = _FILINGS[runtime] = Filing(journal)
        runtime.closing.append(found.close)
    return found


def parked_in(runtime: Runtime) -> dict[str, Underway]:
    """Queries of a runtime that wait for people, by id."""
    return _PARKED.setdefault(runtime, {})


def _parked(runtime: Runtime, id: str) -> Underway:
    found = parked_in(runtime).get(id)
    if found is None:
        raise UnknownName("query that waits", id, parked_in(runtime))
    return found


class Underway:
    """A query that nobody has to wait for as long as it waits for people. on_ask: answers what it
    asks."""

    def __init__(
        self, job: Job, on_ask: OnAsk | None = None, watcher: Watcher | None = None
    ) -> None:
        self.job, self.waits = job, asyncio.Event()
        self._on_ask, self._watcher = on_ask, watcher
        self.task: asyncio.Task[Result]

    def start(self) -> None:
        """Begin it. On the runtime's loop."""
        people = self.job.people
        if self.job.caller is None:  # else whoever asks that one is told
            if self._on_ask is None:
                people.on_wait = self.waits.set
            else:
                people.on_ask = self._asked
        job = self.job
        if job.steps is None and job.runtime.journal and job.caller is None and job.app.asks:
            job.steps = Steps(job.id, on_unknown=job.app.on_unknown)
        self.task = job.runtime.task(self._run())

    async def _run(self) -> Result:
        result = await self.job.run(self._watcher)
        filing = filing_of(self.job.runtime) if self.job.steps is not None else None
        if filing is not None:
            await filing.end(result, self.job.tenant)
        return result

    def _asked(self, inquiry: Inquiry) -> None:
        work = self._answer(inquiry)
        self._answering = self.job.runtime.task(work)

    async def _answer(self, inquiry: Inquiry) -> None:
        assert self._on_ask is not None
        people = self.job.people
        try:
            if inspect.iscoroutinefunction(self._on_ask):
                answer = await self._on_ask(inquiry)
            else:
                answer = await asyncio.to_thread(self._on_ask, inquiry)
                if inspect.isawaitable(answer):
                    answer = await answer
            if inquiry.id in people.open:
                people.answer(inquiry.id, answer)
        except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
            people.give_up(inquiry.id, error)


async def until_it_waits(going: Underway) -> Result:
    """The result of a query, or what it waits for; cancelling this cancels the query."""
    if not hasattr(going, "task"):
        going.start()
    job, parked = going.job, parked_in(going.job.runtime)
    going.waits.clear()
    parked.pop(job.id, None)
    waiting = asyncio.ensure_future(going.waits.wait())
    try:
        await asyncio.wait({going.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _given_up(going)
        raise
    finally:
        waiting.cancel()
    if going.task.done():
        return going.task.result()
    parked[job.id] = going
    going.task.add_done_callback(lambda _: parked.pop(job.id, None))
    result = job.waiting()
    return await _filed(job, result)


async def _filed(job: Job, result: Result) -> Result:
    """The result of a query that waits, after it has been put where it outlives the process."""
    filing = filing_of(job.runtime)
    if filing is None or job.steps is None:
        return result
    if Kind.DOCUMENTS in job.app.inputs.values():
        return replace(result, notices=(*result.notices, UNFILED))
    people = job.people
    await filing.park(result, job.tenant, job.request, job.app.code, people, job.steps)
    return result


async def awaited(job: Job, on_ask: OnAsk | None = None) -> Result:
    """Its result, whatever it is, from any loop; cancelling this cancels the query."""
    return await _there(job.runtime, until_it_waits(Underway(job, on_ask)))


def follow(job: Job, on_ask: OnAsk | None = None) -> Iterator[Event | Result]:
    """What it tells, and its result; leaving early cancels the query. on_ask: answers what it asks
    once nothing else can run, in the thread that follows it."""
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    going = Underway(job, watcher=events.put)
    work = until_it_waits(going)
    while True:
        future = job.runtime.start(work)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := _next(events)) is not None:
                yield event
            result = future.result().checked()
        finally:
            future.cancel()
        if on_ask is None or result.state != "waiting":
            yield result
            return
        try:
            answer = on_ask(result.asks[0])
        except BaseException:
            _result(job.runtime.start(_given_up(going)))
            raise
        work = _gone_on(going, result.asks[0], answer)


async def follow_here(job: Job, on_ask: OnAsk | None = None) -> AsyncIterator[Event | Result]:
    """`follow` for async code."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    here = asyncio.get_running_loop()

    def put(event: Event | None) -> None:
        with suppress(RuntimeError):  # the caller's loop is gone: nobody listens any more
            here.call_soon_threadsafe(events.put_nowait, event)

    going = Underway(job, watcher=put)
    work = until_it_waits(going)
    while True:
        task = asyncio.ensure_future(_there(job.runtime, work))
        task.add_done_callback(lambda _: put(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            result = (await task).checked()
        finally:
            task.cancel()
        if on_ask is None or result.state != "waiting":
            yield result
            return
        try:
            answer = on_ask(result.asks[0])
            if inspect.isawaitable(answer):
                answer = await answer
        except BaseException:
            await _there(job.runtime, _given_up(going))
            raise
        work = _gone_on(going, result.asks[0], answer)


async def _gone_on(going: Underway, inquiry: Inquiry, answer: Any) -> Result:
    """Its result after an answer, or what it waits for then; nobody may want to know any more.
    Raises InputError, and ends the query, for an answer that does not fit."""
    people = going.job.people
    if going.task.done():
        return going.task.result()
    if inquiry.id in people.open:
        try:
            people.answer(inquiry.id, answer)
        except BaseException:
            await _given_up(going)
            raise
    elif people.waits:
        return going.job.waiting()
    return await until_it_waits(going)


async def _given_up(going: Underway) -> None:
    going.task.cancel()
    with suppress(asyncio.CancelledError, TeolaError):
        await going.task


def _pause() -> float | None:
    return NOTICE_S if threading.current_thread() is threading.main_thread() else None


def _result(future: Future[T]) -> T:
    while True:
        try:
            return future.result(_pause())
        except TimeoutError:  # its own, or only the pause is over
            if future.done():
                return future.result()


def _next(events: queue.SimpleQueue[Event | None]) -> Event | None:
    while True:
        try:
            return events.get(timeout=_pause())
        except queue.Empty:
            continue
