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
from typing import Any, Final, TypeVar

from teola.errors import DeadlineExceeded, InputError, QueryCancelled, TeolaError
from teola.graph import Inquiry, ToolStep
from teola.query.application import Application
from teola.query.desk import Desk, Found, desk_of
from teola.query.job import Job
from teola.query.journal.lost import JournalLost
from teola.query.journal.query_rows import Taken
from teola.query.parameters import NO_ANSWER, OnAsk, ResumeCall, RunCall
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.query.underway import Underway
from teola.runtime.live.query import Progress, Token, Watcher
from teola.runtime.runtime import Runtime
from teola.runtime.tasks import cancel_all

Heard = Token | Progress | ToolStep
"""What a stream brings before its Result."""
T = TypeVar("T")

OVERDUE: Final = "the deadline passed while no process ran the query"
NOTICE_S: Final = 0.5
"""How often the main thread wakes while it waits: a signal that comes just before it blocks is
noticed only then."""


def job_of(app: Application, spec: QuerySpec) -> Job:
    """A query of a program's, checked and not begun."""
    return desk_of(app.home).job(app, spec)


def wait(app: Application, asked: RunCall) -> Result:
    """Its result, in a thread that can be blocked; an interrupt cancels the query."""
    job = job_of(app, asked.spec)
    future = job.runtime.start(_until_it_waits(_query(job, asked.on_ask)))
    try:
        return _result(future).checked()
    except BaseException:
        future.cancel()
        raise


async def awaited(app: Application, asked: RunCall) -> Result:
    """`wait` from any loop; cancelling this cancels the query."""
    job = job_of(app, asked.spec)
    return (await _there(job.runtime, _until_it_waits(_query(job, asked.on_ask)))).checked()


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
            result = await _until_it_waits(_query(job))
        except TeolaError as error:
            result = Result(job.app.name, job.id, "failed", {}, 0.0, error=error)
        if on_done:
            on_done(position, result)
        return result

    async def everything() -> list[Result]:
        tasks = [asyncio.ensure_future(one(i, job)) for i, job in enumerate(jobs)]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:  # what `on_done` raised: nobody waits for the others
            await cancel_all(tasks)
            raise

    future = jobs[0].runtime.start(everything())
    try:
        return _result(future)
    except BaseException:
        future.cancel()
        raise


# --- answers --------------------------------------------------------------------------------


def resume(app: Application, reply: ResumeCall) -> Result:
    """Answer what a query waits for, and wait on."""
    runtime = app.home
    return _result(runtime.start(_resumed(app, runtime, reply))).checked()


async def resumed(app: Application, reply: ResumeCall) -> Result:
    """`resume` from any loop."""
    runtime = app.home
    return (await _there(runtime, _resumed(app, runtime, reply))).checked()


async def _there(runtime: Runtime, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, which is done on the runtime's loop."""
    if asyncio.get_running_loop() is runtime.loop:
        return await work
    return await asyncio.wrap_future(runtime.start(work, blocks=False))


async def _resumed(app: Application, runtime: Runtime, reply: ResumeCall) -> Result:
    desk, id, tenant = desk_of(runtime), reply.query_id, reply.tenant
    query = desk.find(id, tenant)
    row: Taken | None = None
    if reply.answer is not NO_ANSWER:
        row = await desk.answer(id, tenant, reply.ask, reply.answer)
    elif _goes_on_here(query) is None:
        row = await desk.take(id, tenant)
    if row is None and (here := _goes_on_here(query)) is not None:
        return await _until_it_waits(here)
    found: Taken | Underway | Result = row or await desk.elsewhere(id, tenant)
    if isinstance(found, Taken):
        found = await _taken(desk, found, app, reply.secrets)
    return found if isinstance(found, Result) else await _until_it_waits(found)


def _goes_on_here(query: Underway | None) -> Underway | None:
    """It, unless others may go on with it: one that waits in the journal, or is not here."""
    return None if query is None or (query.kept and query.waiting) else query


async def _taken(
    desk: Desk[Underway], row: Taken, app: Application, secrets: Mapping[str, str]
) -> Underway | Result:
    """Go on with a query that was taken; how it ended, if it is not to run any more. Raises what
    forbids it; another process may have it then."""

    def begin(spec: QuerySpec, found: Found, cleanup: Callable[[], None]) -> Underway:
        job = desk.job(app, replace(spec, secrets=secrets), id=row.id, found=found)
        keeping, created = desk.keeping(), row.created
        query = Underway(job, keeping, created=created, run=row.runs, cleanup=cleanup)
        return desk.begin(query)

    async with desk.resuming(row.id):
        here = desk.find(row.id, row.tenant)
        if here is not None and not here.waiting:  # somebody here was quicker
            return here
        if here is not None:  # it has waited here; the row knows more
            here.leave()
            await here.ended()
        if row.cancel:
            return await desk.end_taken(row, QueryCancelled("the query was cancelled"))
        if row.left_s <= 0:
            return await desk.end_taken(row, DeadlineExceeded(OVERDUE))
        try:
            return await desk.resume(row, app, begin)
        except BaseException:
            await _released(desk, row)
            raise


async def _released(desk: Desk[Underway], row: Taken) -> None:
    with suppress(JournalLost):
        await (await desk.ready()).release(row.id)


def waits(app: Application, tenant: str) -> list[Inquiry]:
    """What queries of an application ask, here and in the journal."""
    runtime = app.home
    return _result(runtime.start(desk_of(runtime).waiting(tenant, app.name)))


def cancel(app: Application, id: str, tenant: str) -> None:
    """Give up a query that waits. Raises UnknownName."""
    runtime = app.home
    _result(runtime.start(desk_of(runtime).cancel(id, tenant)))


# --- one query ------------------------------------------------------------------------------


def _query(job: Job, on_ask: OnAsk | None = None, watcher: Watcher | None = None) -> Underway:
    """One that is to begin. on_ask: answers what it asks, as it asks it."""
    keeping = desk_of(job.runtime).keeping()
    query = Underway(job, keeping, watcher=watcher, stops=on_ask is None)
    if on_ask is not None and job.caller is None:  # else whoever asks that one is told
        job.people.on_ask = _Answers(job, on_ask).ask
    return query


class _Answers:
    """Has somebody's function answer what a query asks, at once."""

    def __init__(self, job: Job, on_ask: OnAsk) -> None:
        self._job, self._on_ask = job, on_ask
        self._answering: set[asyncio.Task[None]] = set()

    def ask(self, inquiry: Inquiry) -> None:
        """Have it answered."""
        task = self._job.runtime.task(self._answer(inquiry))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, inquiry: Inquiry) -> None:
        people, on_ask = self._job.people, self._on_ask
        try:
            if inspect.iscoroutinefunction(on_ask):
                answer = await on_ask(inquiry)
            else:
                answer = await asyncio.to_thread(on_ask, inquiry)
                if inspect.isawaitable(answer):
                    answer = await answer
            if inquiry.id in people.open:
                people.answer(inquiry.id, answer)
        except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
            people.give_up(inquiry.id, error)


async def _until_it_waits(query: Underway) -> Result:
    """The result of a query, which begins if it has not, or what it waits for; cancelling this
    cancels the query."""
    if query.task is None:
        desk_of(query.job.runtime).begin(query)
    try:
        await query.stopped()
    except asyncio.CancelledError:
        await _given_up(query)
        raise
    if query.interrupted:
        raise asyncio.CancelledError
    if query.result is not None:
        return query.result
    result, lost = query.job.waiting(), query.unkept
    if lost is None:
        return result
    if not isinstance(lost, JournalLost):
        raise lost
    told = f"this query is not in the journal yet, which cannot be reached: {lost}"
    return replace(result, notices=(*result.notices, told))


async def _given_up(query: Underway) -> None:
    query.leave()
    with suppress(asyncio.CancelledError):
        await query.ended()


# --- streams --------------------------------------------------------------------------------


def follow(job: Job, on_ask: OnAsk | None = None) -> Iterator[Heard | Result]:
    """What it tells, and its result; leaving early cancels the query. on_ask: answers what it asks
    once nothing else can run, in the thread that follows it."""
    events: queue.SimpleQueue[Heard | None] = queue.SimpleQueue()
    going = _query(job, watcher=events.put)
    work = _until_it_waits(going)
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


async def follow_here(job: Job, on_ask: OnAsk | None = None) -> AsyncIterator[Heard | Result]:
    """`follow` for async code."""
    events: asyncio.Queue[Heard | None] = asyncio.Queue()
    here = asyncio.get_running_loop()

    def put(event: Heard | None) -> None:
        with suppress(RuntimeError):  # the caller's loop is gone: nobody listens any more
            here.call_soon_threadsafe(events.put_nowait, event)

    going = _query(job, watcher=put)
    work = _until_it_waits(going)
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


async def _gone_on(query: Underway, inquiry: Inquiry, answer: Any) -> Result:
    """Its result after an answer, or what it waits for then; nobody may want to know any more.
    Raises InputError, and ends the query, for an answer that does not fit."""
    if query.result is not None:
        return query.result
    if inquiry.id in query.job.people.open:
        try:
            await desk_of(query.job.runtime).answer(query.id, query.job.tenant, inquiry.id, answer)
        except BaseException:
            query.cancel()
            with suppress(asyncio.CancelledError):
                await query.ended()
            raise
    return await _until_it_waits(query)


def _pause() -> float | None:
    return NOTICE_S if threading.current_thread() is threading.main_thread() else None


def _result(future: Future[T]) -> T:
    while True:
        try:
            return future.result(_pause())
        except TimeoutError:  # its own, or only the pause is over
            if future.done():
                return future.result()


def _next(events: queue.SimpleQueue[Heard | None]) -> Heard | None:
    while True:
        try:
            return events.get(timeout=_pause())
        except queue.Empty:
            continue
