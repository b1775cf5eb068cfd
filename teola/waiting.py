"""How a query is waited for: from plain code, from a running loop, in one piece or as a stream."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeVar

from teola.errors import InputError, TeolaError
from teola.job import Job
from teola.result import Result
from teola.runtime.live.query import Progress, Token, Watcher

Event = Token | Progress
T = TypeVar("T")

NOTICE_S: Final = 0.5
"""How often the main thread wakes while it waits: a signal that comes just before it blocks is
noticed only then."""


def wait(job: Job) -> Result:
    """Its result, in a thread that can be blocked; an interrupt cancels the query."""
    future = job.runtime.start(job.run())
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
            result = await job.run()
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


async def awaited(job: Job, watcher: Watcher | None = None) -> Result:
    """Its result, whatever it is, from any loop; cancelling this cancels the query."""
    if asyncio.get_running_loop() is job.runtime.loop:
        return await job.run(watcher)
    return await asyncio.wrap_future(job.runtime.start(job.run(watcher), blocks=False))


def follow(job: Job) -> Iterator[Event | Result]:
    """What it tells, and its result; leaving early cancels the query."""
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    future = job.runtime.start(job.run(events.put))
    future.add_done_callback(lambda _: events.put(None))
    try:
        while (event := _next(events)) is not None:
            yield event
        yield future.result().checked()
    finally:
        future.cancel()


async def follow_here(job: Job) -> AsyncIterator[Event | Result]:
    """`follow` for async code."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    here = asyncio.get_running_loop()

    def put(event: Event | None) -> None:
        with suppress(RuntimeError):  # the caller's loop is gone: nobody listens any more
            here.call_soon_threadsafe(events.put_nowait, event)

    task = asyncio.ensure_future(awaited(job, put))
    task.add_done_callback(lambda _: put(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield (await task).checked()
    finally:
        task.cancel()


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
