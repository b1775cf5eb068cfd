"""How a server of the Model Context Protocol is reached: as a process of ours by its standard
streams, or by URL (streamable HTTP).

Both ways bound a message before the SDK sees it. The standard streams are read here and not by the
SDK's `stdio_client`, which collects a line without a bound and in quadratic time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from teola.errors import InputError
from teola.loopback import without_proxy
from teola.threads import Threads
from teola.tools.mcp_messages import (
    LINE,
    MESSAGE_BYTES,
    Frames,
    MessageRefused,
    message_of,
)
from teola.tools.mcp_process import PIECE_BYTES, ServerProcess, started

READ_S: Final = 300.0
"""How long a server by URL may be silent within an answer; servers send signs of life."""
CLOSE_S: Final = 2.0
"""How long it may take to end a session."""
FLUSH_S: Final = 0.5
"""How long a process may take to read what is still on its way to it, before it is ended."""
UNREAD: Final = 1_000
"""Requests of a process that reads no answers, before it is lost."""
LEAST_MESSAGE_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class ByCommand:
    """A process: started on first use, ended with the runtime. env: goes over the few variables
    (HOME, PATH, ...) that it inherits. most_message_bytes: of one message that it writes."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    most_message_bytes: int = MESSAGE_BYTES

    def __post_init__(self) -> None:
        texts = all(isinstance(word, str) for word in self.command)
        if isinstance(self.command, str) or not self.command or not texts:
            raise InputError(f"command must be a list of texts, got {self.command!r}")
        _check_bytes(self.most_message_bytes)

    @property
    def label(self) -> str:
        """A name for it."""
        return os.path.basename(self.command[0])

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Its streams."""
        return _streams_of(self)


@dataclass(frozen=True, slots=True)
class ByUrl:
    """A server that somebody else runs. headers: of each request. most_message_bytes: of one
    message that it answers or tells."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    most_message_bytes: int = MESSAGE_BYTES

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith(("http://", "https://")):
            raise InputError(f"url must begin with http:// or https://, got {self.url!r}")
        _check_bytes(self.most_message_bytes)

    @property
    def label(self) -> str:
        """A name for it."""
        return self.url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Its streams."""
        return _requests_to(self)


def _check_bytes(most: object) -> None:
    if not isinstance(most, int) or isinstance(most, bool) or most < LEAST_MESSAGE_BYTES:
        raise InputError(
            f"most_message_bytes must be a whole number from {LEAST_MESSAGE_BYTES}, got {most!r}"
        )


# --- by standard streams ----------------------------------------------------------------------


@asynccontextmanager
async def _streams_of(server: ByCommand) -> AsyncIterator[Any]:
    from mcp.client.stdio import get_default_environment

    threads = Threads("teola-tool-server")
    environment = {**get_default_environment(), **server.env}
    try:
        async with started(server.command, environment, server.cwd, threads) as process:
            streams = _Streams(process, server.most_message_bytes, threads)
            try:
                async with streams.open() as ours:
                    yield ours
            except Exception as error:
                if written := process.tail.text:
                    error.add_note(f"it wrote: {written}")
                raise
    finally:
        threads.close()


class _Streams:
    """The streams of messages that the SDK's sessions read and write, at a process's pipes."""

    def __init__(self, process: ServerProcess, most_bytes: int, threads: Threads) -> None:
        import anyio

        self._process, self._most_bytes, self._threads = process, most_bytes, threads
        # nothing is read ahead, so a process that writes too much waits for us
        self._heard, self._incoming = anyio.create_memory_object_stream[Any](0)
        self._outgoing, self._told = anyio.create_memory_object_stream[Any](0)
        self._all_told = anyio.Event()
        self._telling = self._refused = self._closing = False
        self._unread = 0
        """Requests that came while the process read nothing."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        """Both, until the process has ended."""
        from anyio import CancelScope, create_task_group

        async with create_task_group() as tasks:
            tasks.start_soon(self._read)
            tasks.start_soon(self._write)
            try:
                yield self._incoming, self._outgoing
            finally:
                with CancelScope(shield=True):
                    await self._close()
                tasks.cancel_scope.cancel()

    async def _close(self) -> None:
        from anyio import move_on_after

        # the reader goes on, and keeps nothing: a process that cannot write may read nothing
        self._closing = True
        self._incoming.close()
        self._outgoing.close()
        if not self._refused:
            with move_on_after(FLUSH_S):
                await self._all_told.wait()
        await self._process.end(at_once=self._refused)
        for stream in (self._heard, self._told):
            stream.close()

    async def _read(self) -> None:
        from anyio import BrokenResourceError, ClosedResourceError

        stdout = self._process.stdout
        async with self._heard:
            try:
                await self._hear(stdout)
            except MessageRefused as error:
                self._refused = True
                with suppress(BrokenResourceError, ClosedResourceError):
                    await self._heard.send(error)
                return  # what it goes on to write stays in its pipe
            except (BrokenResourceError, ClosedResourceError, OSError):
                pass
        with suppress(OSError):
            while await stdout.read(PIECE_BYTES):
                pass

    async def _hear(self, stdout: asyncio.StreamReader) -> None:
        lines = Frames(LINE, self._most_bytes)
        while not self._closing and (piece := await stdout.read(PIECE_BYTES)):
            for line in lines.feed(piece):
                await self._hear_line(line)
        if last := lines.rest():
            await self._hear_line(last)

    async def _hear_line(self, line: bytes) -> None:
        from mcp.types import JSONRPCRequest

        item = await message_of(line, self._most_bytes, self._threads)
        if self._telling and isinstance(getattr(item, "message", None), JSONRPCRequest):
            self._unread += 1
            if self._unread > UNREAD:
                raise MessageRefused("it asks, and does not read what it is answered")
        await self._heard.send(item)

    async def _write(self) -> None:
        stdin = self._process.stdin
        try:
            async with self._told:
                async for sent in self._told:
                    text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    self._telling = True
                    await stdin.drain()
                    self._telling, self._unread = False, 0
        except OSError:
            await self._heard.aclose()  # else calls would wait for a process that hears nothing
        finally:
            self._all_told.set()


# --- by URL -----------------------------------------------------------------------------------


@asynccontextmanager
async def _requests_to(server: ByUrl) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from teola.tools.mcp_http import bound_response

    threads = Threads("teola-tool-server")
    timeout = httpx2.Timeout(30.0, read=READ_S)
    # what is compressed could be any size once it is read
    headers = {"accept-encoding": "identity", **server.headers}
    hooks: dict[str, list[Callable[..., Any]]] = {
        "response": [partial(bound_response, most_bytes=server.most_message_bytes, threads=threads)]
    }
    try:
        async with (
            httpx2.AsyncClient(
                headers=headers,
                timeout=timeout,
                event_hooks=hooks,
                mounts=without_proxy(server.url),
            ) as http,
            # its own bound would come first, and name no option of ours
            streamable_http_client(
                server.url, http_client=http, max_sse_event_size=None
            ) as streams,
        ):
            try:
                yield streams
            finally:
                http.timeout = httpx2.Timeout(CLOSE_S)
    finally:
        threads.close()
