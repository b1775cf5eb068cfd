"""Server-sent events of a query, and what happens when nobody reads them any more.

Whoever asked for a query and goes away cancels it; whoever only looked on does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from teola import plain_json
from teola.query.event_log import Event
from teola.query.result import Result
from teola.serve.board import Entry
from teola.serve.long_json import LongJson, ShortJson
from teola.serve.problems import TooLarge, TooSlow, problem_of

BUFFER: Final = 256
"""Events that may wait while earlier ones are being sent: a slower client is cut off."""
SILENCE_S: Final = 15.0
"""After so long without an event a comment is sent, so that nobody on the way hangs up."""
SILENCE: Final = ": still running\n\n"
QUICK_S: Final = 0.25
"""A query that has ended by then has not been watched for its client's leaving."""

LONG: Final = 256 * 2**10
"""Bytes; a longer answer is written off the event loop."""

T = TypeVar("T")
EventEncoder = Callable[[int, Event], Iterable[str]]
"""The number of an event (from 1) and the event -> text for the client."""


class Told(Protocol):
    """What one client is told of a query."""

    def pieces(self) -> AsyncGenerator[str, None]:
        """Text as it comes, until the last event; in silence comments."""
        ...

    async def too_slow(self) -> None:
        """Wait until more events wait to be taken from `pieces` than may."""
        ...


class Events:
    """Told: the events of a query that runs here, or ran. after: number of the last event that the
    client has already. last: kind of an event after which it is told nothing more."""

    def __init__(self, entry: Entry, encode: EventEncoder, after: int = 0, last: str = "") -> None:
        self._entry, self._encode, self._at, self._last = entry, encode, after, last

    async def pieces(self) -> AsyncGenerator[str, None]:
        """See Told."""
        entry = self._entry
        while not ((at := self._at) >= len(entry.events) and entry.result is not None):
            try:
                async with asyncio.timeout(SILENCE_S):
                    await entry.changed(at)
            except TimeoutError:
                yield SILENCE
                continue
            self._at = len(entry.events)
            over = False
            if self._last:
                last = (n for n, e in entry.events.after(at, self._at) if e.kind == self._last)
                if (n := next(last, None)) is not None:
                    self._at, over = n, True
            if piece := await written_off_loop(entry, partial(self._text, at, self._at)):
                yield piece
            if over:
                return

    def _text(self, at: int, until: int) -> str:
        events = self._entry.events.after(at, until)
        return "".join(piece for n, event in events for piece in self._encode(n, event))

    async def too_slow(self) -> None:
        """See Told; events that were there before do not count."""
        before = len(self._entry.events)
        while (most := max(self._at, before) + BUFFER) >= len(self._entry.events):
            await self._entry.changed(most)


class EventStream(Response):
    """Sends what is told. owned: the query that the client's leaving cancels."""

    def __init__(
        self, told: Told, *, owned: Entry | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._told, self._owned = told, owned
        named = {
            "content-type": "text/event-stream; charset=utf-8",
            "x-accel-buffering": "no",
            **(headers or {}),
        }
        self.status_code, self.background, self.media_type = 200, None, None
        self.init_headers(named)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        whole = await first(self._pump(send), gone(receive), self._told.too_slow())
        if not whole and self._owned is not None and not self._owned.waiting:
            self._owned.cancel()

    async def _pump(self, send: Send) -> bool:
        """Send until the last event; True then."""
        async with aclosing(self._told.pieces()) as pieces:
            async for piece in pieces:
                await send(_body(piece))
        await send({"type": "http.response.body", "body": b""})
        return True


def numbered_event(n: int, event: Event, base: int = 0) -> Iterable[str]:
    """Our own form: the number as the id, the kind as the event's name."""
    data = event.data
    if event.kind == "error" and isinstance(event.told, Result):
        data = plain_json.json_of(problem_of(event.told).body(), plain_json.SPACED)
    yield f"id: {base + n}\nevent: {event.kind}\ndata: {data}\n\n"


async def written_off_loop(entry: Entry, write: Callable[[], T]) -> T:
    """What `write` makes of a query that may have ended, off the event loop if that takes long."""
    return write() if entry.bytes <= LONG else await run_in_threadpool(write)


async def json_off_loop(
    entry: Entry, content: Callable[[], Any], headers: Mapping[str, str]
) -> Response:
    """An answer with the JSON values that `content` makes of a query that has ended, made off the
    event loop if it is long."""
    if entry.bytes <= LONG:
        return ShortJson(content(), headers=headers)
    return await run_in_threadpool(lambda: LongJson(content(), headers=headers))


async def result_for(entry: Entry, receive: Receive) -> Result | None:
    """The result of a query; None if it waits for people, or if the client leaves before, and the
    query is cancelled then."""
    if entry.task is not None:
        await asyncio.wait((entry.task,), timeout=QUICK_S)
    if entry.result is not None:
        return entry.result
    result = await first(entry.ended(), entry.stopped(), gone(receive))
    if result is None and not entry.waiting:
        entry.cancel()
    return result


async def gone(receive: Callable[[], Awaitable[Message]]) -> None:
    """Wait until the client has left, or sends what nobody asked for."""
    with suppress(TooLarge, TooSlow):
        while (await receive())["type"] != "http.disconnect":
            pass


async def first(work: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> T | None:
    """What `work` returns, or None if one of `others` ends before; the losers are cancelled."""
    mine = asyncio.ensure_future(work)
    every = [mine, *map(asyncio.ensure_future, others)]
    try:
        await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
        return mine.result() if mine.done() else None
    finally:
        for task in every:
            task.cancel()
        for task in reversed(every):  # what `work` raises must not leave the others running
            with suppress(asyncio.CancelledError, OSError):
                await task


def _body(text: str) -> Message:
    body = text.encode("utf-8", "replace")
    return {"type": "http.response.body", "body": body, "more_body": True}
