"""Server-sent events of a query, and what happens when nobody reads them any more.

Whoever asked for a query and goes away cancels it; whoever only looked on does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from teola.result import Result
from teola.serve.board import Entry, Event
from teola.serve.problems import TooLarge, TooSlow

BUFFER: Final = 256
"""Events that may wait while earlier ones are being sent: a slower client is cut off."""
SILENCE_S: Final = 15.0
"""After so long without an event a comment is sent, so that nobody on the way hangs up."""
QUICK_S: Final = 0.25
"""A query that has ended by then has not been watched for its client's leaving."""

T = TypeVar("T")
Encode = Callable[[int, Event], Iterable[str]]
"""The number of an event (from 1) and the event -> text for the client."""


class EventStream(Response):
    """after: number of the last event that the client has already. owned: the
    client's leaving cancels the query."""

    def __init__(
        self,
        entry: Entry,
        encode: Encode,
        *,
        after: int = 0,
        owned: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._entry, self._encode = entry, encode
        self._owned, self._at = owned, after
        named = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **(headers or {}),
        }
        self.status_code, self.background, self.media_type = 200, None, None
        self.init_headers(named)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        whole = await first(self._pump(send), gone(receive), self._too_slow())
        if not whole and self._owned:
            self._entry.cancel()

    async def _pump(self, send: Send) -> bool:
        """Send until the last event; True then."""
        entry = self._entry
        while not ((at := self._at) >= len(entry.events) and entry.result is not None):
            try:
                async with asyncio.timeout(SILENCE_S):
                    await entry.changed(at)
            except TimeoutError:
                await send(_body(": still running\n\n"))
                continue
            pieces: list[str] = []
            for n, event in enumerate(entry.events[at:], at + 1):
                pieces += self._encode(n, event)
            self._at = len(entry.events)
            if pieces:
                await send(_body("".join(pieces)))
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _too_slow(self) -> None:
        """Wait until more events wait than may, besides those that were there before."""
        known = len(self._entry.events)
        while (most := max(self._at, known) + BUFFER) >= len(self._entry.events):
            await self._entry.changed(most)


def numbered(n: int, event: Event, base: int = 0) -> Iterable[str]:
    """Our own form: the number as the id, the kind as the event's name."""
    yield f"id: {base + n}\nevent: {event.kind}\ndata: {event.data}\n\n"


async def result_for(entry: Entry, receive: Receive) -> Result | None:
    """The result of a query; None, and the query is cancelled, if the client leaves before."""
    if entry.task is not None:
        await asyncio.wait((entry.task,), timeout=QUICK_S)
    if entry.result is not None:
        return entry.result
    result = await first(entry.ended(), gone(receive))
    if result is None:
        entry.cancel()
    return result


async def gone(receive: Callable[[], Awaitable[Message]]) -> None:
    """Wait until the client has left, or sends what nobody asked for."""
    with suppress(TooLarge, TooSlow):
        while (await receive())["type"] != "http.disconnect":
            pass


async def first(wanted: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> T | None:
    """What `wanted` returns, or None if one of `others` ends before; the losers are cancelled."""
    mine = asyncio.ensure_future(wanted)
    every = [mine, *map(asyncio.ensure_future, others)]
    try:
        await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
        return mine.result() if mine.done() else None
    finally:
        for task in every:
            task.cancel()
        for task in every:
            with suppress(asyncio.CancelledError, OSError):
                await task


def _body(text: str) -> Message:
    body = text.encode("utf-8", "replace")
    return {"type": "http.response.body", "body": body, "more_body": True}
