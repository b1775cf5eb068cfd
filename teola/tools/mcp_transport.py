"""How a server of the Model Context Protocol is reached: as a process of ours by its standard
streams, or by URL (streamable HTTP)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from teola.errors import InputError

WRITTEN: Final = 2_000
"""Bytes that are kept of the end of what a process writes to standard error."""
READ_S: Final = 300.0
"""How long a server by URL may be silent within an answer; servers send signs of life."""
CLOSE_S: Final = 2.0
"""How long it may take to end a session."""


@dataclass(frozen=True, slots=True)
class ByCommand:
    """A process: started on first use, ended with the runtime. env: goes over the few variables
    (HOME, PATH, ...) that it inherits."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None

    def __post_init__(self) -> None:
        texts = all(isinstance(one, str) for one in self.command)
        if isinstance(self.command, str) or not self.command or not texts:
            raise InputError(f"command must be a list of texts, got {self.command!r}")

    @property
    def label(self) -> str:
        """A name for it."""
        return os.path.basename(self.command[0])

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Its streams."""
        return _streams_of(self)


@dataclass(frozen=True, slots=True)
class ByUrl:
    """A server that somebody else runs. headers: of each request."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith(("http://", "https://")):
            raise InputError(f"url must begin with http:// or https://, got {self.url!r}")

    @property
    def label(self) -> str:
        """A name for it."""
        return self.url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Its streams."""
        return _requests_to(self)


@asynccontextmanager
async def _streams_of(server: ByCommand) -> AsyncIterator[Any]:
    from mcp import StdioServerParameters, stdio_client

    program, *arguments = server.command
    parameters = StdioServerParameters(
        command=program, args=arguments, env=dict(server.env), cwd=server.cwd
    )
    async with AsyncExitStack() as stack:
        tail, sink = await stack.enter_async_context(_standard_error())
        try:
            with sink:  # the process has it by now
                streams = await stack.enter_async_context(stdio_client(parameters, errlog=sink))
            yield streams
        except Exception as error:
            if said := tail.text:
                error.add_note(f"it wrote: {said}")
            raise


@asynccontextmanager
async def _requests_to(server: ByUrl) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(30.0, read=READ_S)
    async with (
        httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout) as http,
        streamable_http_client(server.url, http_client=http) as streams,
    ):
        try:
            yield streams
        finally:
            http.timeout = httpx2.Timeout(CLOSE_S)


class _Tail(asyncio.Protocol):
    """The end of what is written."""

    def __init__(self) -> None:
        self._last = b""

    def data_received(self, data: bytes) -> None:
        self._last = (self._last + data)[-WRITTEN:]

    @property
    def text(self) -> str:
        return self._last.decode(errors="replace").strip()


@asynccontextmanager
async def _standard_error() -> AsyncIterator[tuple[_Tail, TextIO]]:
    """What is written to the file, of which the end is kept."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as source, open(writing, "w") as sink:
        loop = asyncio.get_running_loop()
        transport, tail = await loop.connect_read_pipe(_Tail, source)
        try:
            yield tail, sink
        finally:
            transport.close()
