"""Clients of an HTTP server, cheap enough to share two cores with it.

Closed: each client sends its next request when it has the answer to the last. Open: requests come
when they come, at random times of a given rate, whatever has become of earlier ones; a latency
counts from when its request was due, so nothing that holds up the clients themselves is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import httptools

from experiments.common.arrivals import arrivals
from teola.runtime.live import loops

T = TypeVar("T")
Done = Callable[[int, float], None]
"""Status of the answer, and when it was there (`perf_counter`)."""
LOST: Final = 0
"""Status of a request whose connection was lost."""
LINGER_S: Final = 60.0
"""How long the last answers may take."""
LOOK_EVERY_S: Final = 0.05
NETSTAT: Final = Path("/proc/net/netstat")


@dataclass(slots=True)
class Answers:
    """What came back. latencies: seconds, by status. late: seconds between when a request was due
    and when it was sent. seconds: from the first request to the last answer."""

    latencies: dict[int, list[float]] = field(default_factory=dict)
    late: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, status: int, latency_s: float) -> None:
        self.latencies.setdefault(status, []).append(latency_s)

    def of(self, *statuses: int) -> list[float]:
        """Latencies of answers with these statuses, in order."""
        return sorted(x for status in statuses for x in self.latencies.get(status, []))

    @property
    def count(self) -> int:
        return sum(map(len, self.latencies.values()))


def post(url: str, body: Any) -> bytes:
    """A request that asks to keep its connection."""
    parts, text = urlsplit(url), json.dumps(body).encode()
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run clients on a loop of their own."""
    with asyncio.Runner(loop_factory=loops.quick) as runner:
        return runner.run(work)


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def send(self, request: bytes, done: Done) -> None:
        """Send a request; `done` is called with its answer."""
        assert self._transport is not None
        self._done = done
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """For the parser: an answer is whole."""
        status, keeps = self._parser.get_status_code(), self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        if not keeps:
            self.close()
        self._end(status)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._end(LOST)

    def _end(self, status: int) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, perf_counter())

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def connect(url: str) -> Connection:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(Connection, parts.hostname, parts.port))[1]


async def one(connection: Connection, request: bytes) -> tuple[int, float]:
    """Status and latency of one request."""
    answered: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()
    began = perf_counter()

    def done(status: int, at: float) -> None:
        if not answered.done():  # whoever waited has been cancelled
            answered.set_result((status, at - began))

    connection.send(request, done)
    return await answered


async def closed(url: str, request: bytes, clients: int, seconds: float) -> Answers:
    """`clients` of them, each with a connection of its own, for so long."""
    connections = [await connect(url) for _ in range(clients)]
    answers, began = Answers(), perf_counter()
    over = asyncio.get_running_loop().create_future()
    left = clients

    def ask(connection: Connection) -> None:
        nonlocal left
        sent = perf_counter()
        if sent - began >= seconds or connection.closed:
            left -= 1
            if not left:
                over.set_result(None)
            return

        def done(status: int, at: float) -> None:
            answers.add(status, at - sent)
            ask(connection)

        connection.send(request, done)

    for connection in connections:
        ask(connection)
    await asyncio.wait_for(over, seconds + LINGER_S)
    answers.seconds = perf_counter() - began
    for connection in connections:
        connection.close()
    return answers


async def opened(
    url: str, request: bytes, rate: float, seconds: float, seed: int, *, keep: bool = True
) -> Answers:
    """Poisson arrivals, `rate` a second, as many as come in so long on average. Connections are
    opened as needed, and kept, or each closed after its answer."""
    due = arrivals(rate, max(1, round(rate * seconds)), seed=seed)
    clients = _Open(url, request, len(due), keep)
    began = perf_counter()
    for at in due:
        pause = began + at - perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        clients.ask(began + at)
    await clients.finish()
    clients.answers.seconds = perf_counter() - began
    return clients.answers


async def watched(url: str, load: Coroutine[Any, Any, T]) -> tuple[T, list[float]]:
    """What the load gives, and the latencies of `/healthz` meanwhile, in order, asked every
    `LOOK_EVERY_S` on a connection of its own, and counted from when each was due."""
    latencies: list[float] = []
    looking = asyncio.get_running_loop().create_task(_look(url, latencies))
    try:
        return await load, sorted(latencies)
    finally:
        looking.cancel()


async def _look(url: str, latencies: list[float]) -> None:
    request = f"GET /healthz HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode()
    connection = await connect(url)
    due = perf_counter()
    try:
        while True:
            status, _ = await one(connection, request)
            if status != 200:
                raise AssertionError(f"/healthz was answered with {status}")
            latencies.append(perf_counter() - due)
            due += LOOK_EVERY_S
            await asyncio.sleep(max(0.0, due - perf_counter()))
    finally:
        connection.close()


def overflows() -> int | None:
    """Connections that this machine's listeners had no room for so far; None where the system does
    not tell."""
    if not NETSTAT.exists():
        return None
    names, values = [
        line.split() for line in NETSTAT.read_text().splitlines() if line.startswith("TcpExt:")
    ]
    return int(values[names.index("ListenOverflows")])


class _Open:
    """Idle connections, and answers to `most` requests. keep: use a connection again."""

    def __init__(self, url: str, request: bytes, most: int, keep: bool) -> None:
        self._url, self._request, self._left, self._keep = url, request, most, keep
        self._idle: deque[Connection] = deque()
        self._connecting: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answers = Answers()

    def ask(self, due: float) -> None:
        """Send one request, which was due then."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                self._send(connection, due)
                return
        task = asyncio.get_running_loop().create_task(self._ask_anew(due))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _ask_anew(self, due: float) -> None:
        try:
            connection = await connect(self._url)
        except OSError:
            self._done(LOST, due)
            return
        self._send(connection, due)

    def _send(self, connection: Connection, due: float) -> None:
        def done(status: int, at: float) -> None:
            self._done(status, due, at)
            if self._keep:
                self._idle.append(connection)
            else:
                connection.close()

        self.answers.late.append(perf_counter() - due)
        connection.send(self._request, done)

    def _done(self, status: int, due: float, at: float | None = None) -> None:
        self.answers.add(status, (at or perf_counter()) - due)
        self._left -= 1
        if not self._left:
            self._over.set_result(None)

    async def finish(self) -> None:
        """Wait for the last answers."""
        if self._left:
            await asyncio.wait_for(self._over, LINGER_S)
        for connection in self._idle:
            connection.close()
