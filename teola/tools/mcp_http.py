"""Answers of a server of tools by URL, bounded before the SDK reads them; needs the extra `mcp`.

The SDK collects a body of JSON whole, and reads any message on the event loop. So an answer passes
on only what is complete and within the bounds: a body, or one event of a stream after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import httpx2

from teola.threads import Threads
from teola.tools.mcp_messages import (
    EVENT,
    INLINE_BYTES,
    WHOLE,
    Frames,
    MessageRefused,
    check_values,
)


async def bound_response(response: httpx2.Response, most_bytes: int, threads: Threads) -> None:
    """Let a response give only messages that are within the bounds."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise httpx2.DecodingError("the server compresses its answers, which it was asked not to")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    response.stream = _Bounded(response.stream, events, most_bytes, threads)


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of an answer, message by message."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, events: bool, most_bytes: int, threads: Threads
    ) -> None:
        self._stream, self._events = stream, events
        self._most_bytes, self._threads = most_bytes, threads

    async def __aiter__(self) -> AsyncIterator[bytes]:
        frames = Frames(EVENT if self._events else WHOLE, self._most_bytes)
        try:
            async for piece in self._stream:
                for event in frames.feed(piece):
                    async for part in self._checked(event + b"\n\n"):
                        yield part
            async for part in self._checked(frames.rest()):
                yield part
        except MessageRefused as error:
            # the SDK tells these, each where it reads such an answer, to the call that waits
            kind = httpx2.SSEError if self._events else httpx2.StreamError
            raise kind(str(error)) from None

    async def _checked(self, message: bytes) -> AsyncIterator[bytes]:
        check = partial(check_values, message, self._most_bytes)
        if len(message) <= INLINE_BYTES:
            check()
            yield message
            return
        await self._threads.run(check)
        for start in range(0, len(message), INLINE_BYTES):
            await asyncio.sleep(0)  # a stream's lines are read one by one
            yield message[start : start + INLINE_BYTES]

    async def aclose(self) -> None:
        await self._stream.aclose()
