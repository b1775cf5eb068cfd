"""A small web server on an address of its own, and ports that must stay untouched."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

Page = tuple[int, Mapping[str, str], bytes]
HANG = (200, {"content-type": "text/plain", "content-length": "9"}, b"so far")
"""The rest of it never comes."""


@dataclass
class Web:
    """pages: path -> status, headers and body. requests: path and headers of each that came."""

    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client went away before it had everything."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            path = first.split(" ")[1]
            named = (line.partition(": ") for line in lines)
            self.requests.append((path, {key.lower(): value for key, _, value in named}))
            page = self.pages.get(path, (404, {}, b"nothing"))
            status, headers, body = page
            told = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            writer.write(f"HTTP/1.1 {status} .\r\n{told}connection: close\r\n\r\n".encode() + body)
            await writer.drain()
            self.asked.set()
            if page is HANG:
                await reader.read()
                self.left.set()
        writer.close()


@asynccontextmanager
async def serving(
    host: str = "127.0.0.2", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Web]:
    """A server at `host`, one of the addresses of this machine itself."""
    web = Web()
    server = await asyncio.start_server(web.serve, host, port, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        await server.wait_closed()


class Canary:
    """Listens at 127.0.0.1 and ::1, on one port, and knows who came."""

    def __init__(self, port: int = 0) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", port), backlog=512)]
        self.port = self._sockets[0].getsockname()[1]
        with suppress(OSError):  # a machine without IPv6
            self._sockets.append(
                socket.create_server(("::1", self.port), family=socket.AF_INET6, backlog=512)
            )
        for one in self._sockets:
            one.setblocking(False)

    def connections(self) -> int:
        """How many came since this was asked last."""
        count = 0
        for one in self._sockets:
            with suppress(BlockingIOError):
                while True:
                    with closing(one.accept()[0]):
                        count += 1
        return count

    def close(self) -> None:
        for one in self._sockets:
            one.close()
