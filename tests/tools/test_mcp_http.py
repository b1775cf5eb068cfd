"""A server of tools by URL, made with the SDK, which others may stop and start."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from teola.errors import EngineUnavailable
from teola.tools import Toolbox, ToolServer, mcp_tools
from teola.tools import mcp_connection as connections
from teola.tools.loop_life import close_here
from tests.tools.old_server import OldServer

pytestmark = pytest.mark.slow


class Shop:
    """The server in tests/tools/http_server.py, in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.tools.http_server", str(self.port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(self.url)
                return
            time.sleep(0.05)
        raise TimeoutError("the server did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    found = Shop()
    found.start()
    yield found
    found.stop()


@pytest.fixture(autouse=True)
async def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(connections, "PAUSE_S", 0.05)
    yield
    await close_here()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def test_its_tools_are_called(shop: Shop) -> None:
    box = await Toolbox.of(mcp_tools(name="shop", url=shop.url))
    assert {"price", "refuse", "sleep", "key"} <= set(box.names)
    assert not box["price"].pure, "it only says so"
    result = await box["price"].call({"article": "pen", "pieces": 3})
    assert not result.failed, result.text
    assert result.value == {"article": "pen", "cents": 750}
    assert '"cents": 750' in result.text
    assert (await box["price"].call({"article": 3})).text == (
        "price was not called: argument 'article' must be a text, got 3"
    )
    refused = await box["refuse"].call({})
    assert refused.failed
    assert "the shop is closed" in refused.text


async def test_headers_go_along_and_are_not_shown(shop: Shop) -> None:
    server = mcp_tools(name="shop", url=shop.url, headers={"x-key": "hush"})
    assert "hush" not in repr(server)
    assert (await (await Toolbox.of(server))["key"].call({})).text == "hush"


async def test_calls_run_side_by_side_and_end_in_time(shop: Shop) -> None:
    server = mcp_tools(name="shop", url=shop.url, timeout_s=1.5)
    box = await Toolbox.of(server)
    began = time.monotonic()
    results = await asyncio.gather(
        *(box["sleep"].call({"seconds": seconds}) for seconds in (0.3, 0.4, 0.5, 60))
    )
    assert [one.failed for one in results] == [False, False, False, True]
    assert "took longer than 1.5 s" in results[3].text
    assert time.monotonic() - began < 10
    assert not (await box["price"].call({"article": "pen"})).failed


async def test_no_more_calls_run_than_may(shop: Shop) -> None:
    box = await Toolbox.of(mcp_tools(name="shop", url=shop.url, at_once=1))
    began = time.monotonic()
    await asyncio.gather(*(box["sleep"].call({"seconds": 0.2}) for _ in range(3)))
    assert time.monotonic() - began >= 0.6


async def test_a_list_that_has_changed_is_read_anew(shop: Shop) -> None:
    server = mcp_tools(name="shop", url=shop.url)
    box = await Toolbox.of(server)
    assert "lamp" not in box
    await asyncio.sleep(0.3)  # it listens by now
    assert (await box["stock"].call({"name": "lamp"})).text == "stocked"
    async with asyncio.timeout(20):
        while "lamp" not in (box := await Toolbox.of(server)):
            await asyncio.sleep(0.02)
    assert (await box["lamp"].call({})).text == "lamp"


async def test_one_that_leaves_is_found_again() -> None:
    own = Shop()
    own.start()
    try:
        server = mcp_tools(name="shop", url=own.url, timeout_s=20)
        box = await Toolbox.of(server)
        left = await box["leave"].call({})
        assert left.failed
        assert left.unknown
        own.stop()
        missing = await box["price"].call({"article": "pen"})
        assert missing.failed
        assert "'shop'" in missing.text
        own.start()
        async with asyncio.timeout(30):
            while (found := await box["price"].call({"article": "pen"})).failed:
                await asyncio.sleep(0.1)
        assert found.value["cents"] == 250
    finally:
        await close_here()
        own.stop()


async def test_sessions_are_ended_and_forgotten_ones_begun_anew() -> None:
    with OldServer() as old:
        server = mcp_tools(name="old", url=old.url)
        box = await Toolbox.of(server)
        assert (await box["hello"].call({})).text == "hello"
        old.forget()
        first = await box["hello"].call({})
        assert first.text == "hello failed: the tool server 'old' began anew"
        assert not first.unknown
        async with asyncio.timeout(20):
            while (found := await box["hello"].call({})).failed:
                await asyncio.sleep(0.05)
        assert found.text == "hello"
        assert old.sessions == 2
        await server.close()
        assert old.ended >= 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "did not start"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "did not start"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi", "did not"),
        (b"nonsense\r\n\r\n", "did not start"),
        (b"", "did not start"),
        (None, "did not start: it was not ready in 1 s"),
    ],
)
async def test_what_is_no_server_is_told(body: bytes | None, told: str) -> None:
    waiting: list[asyncio.Event] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        if body is None:
            waiting.append(asyncio.Event())
            await waiting[-1].wait()
        writer.write(body or b"")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    server = unreachable(port, start_s=1)
    with pytest.raises(EngineUnavailable, match=told):
        await server.tools()
    await server.close()
    for event in waiting:
        event.set()
    listening.close()
    await asyncio.sleep(0.05)


async def test_a_message_that_is_too_long_is_refused_and_told(shop: Shop) -> None:
    server = mcp_tools(name="shop", url=shop.url, most_message_bytes=100_000)
    box = await Toolbox.of(server)
    assert (await box["long"].call({"characters": 10_000})).text == "x" * 10_000
    refused = await box["long"].call({"characters": 1_000_000})
    assert "it wrote a message of more than 100000 bytes (most_message_bytes)" in refused.text
    assert not (await box["price"].call({"article": "pen"})).failed, "the others go on"


@pytest.mark.parametrize(
    ("kind", "start", "told"),
    [
        ("application/json", b"x", r"more than 8388608 bytes \(most_message_bytes\)"),
        ("text/event-stream", b"data: x", r"more than 8388608 bytes \(most_message_bytes\)"),
        ("text/event-stream", b":", r"more than 8388608 bytes \(most_message_bytes\)"),
        ("application/json", b"[],", r"more than 262144 values, .* \(most_message_bytes\)"),
        ("text/event-stream", b':"\ndata: [],', "more than 262144 values"),
        ("application/json\r\ncontent-encoding: gzip", b"x", "compresses its answers"),
    ],
)
async def test_an_answer_without_end_is_not_collected(kind: str, start: bytes, told: str) -> None:
    written = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readline()
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n".encode() + start)
        piece = start[-3:] * 20_000
        pieces = 100 if b"[]" in start else 20_000
        with contextlib.suppress(OSError):
            for _ in range(pieces):
                writer.write(piece)
                written += len(piece)
                await writer.drain()
            writer.write(b"\n\n")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    server = unreachable(listening.sockets[0].getsockname()[1], start_s=30)
    try:
        with pytest.raises(EngineUnavailable, match=told):
            await server.tools()
    finally:
        await server.close()
        listening.close()
        await listening.wait_closed()
    assert written < 64 * 2**20


async def test_nobody_there_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = unreachable(free.getsockname()[1])
        with pytest.raises(EngineUnavailable, match=r"'shop' did not start: .*connect"):
            await server.tools()


def unreachable(port: int, start_s: float = 10) -> ToolServer:
    return mcp_tools(name="shop", url=f"http://127.0.0.1:{port}/mcp", start_s=start_s)
