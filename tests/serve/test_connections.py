"""Connections that are too many, silent, half open, or never read."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from teola import App, EngineConfig, Generate, Runtime
from teola.engine import Call, Delta, Usage
from teola.serve import connections, streaming
from teola.serve.connections import (
    HEAD_BYTES,
    HEAD_FIELDS,
    RESERVE,
    give_up_the_dead,
    most_connections,
    protocol,
)
from teola.serve.problems import Problem
from tests.serve.conftest import Served, serving, soon
from tests.soak.engines import Flood

MOST = 3
GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nhost: here\r\n\r\n"

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
OPENED: list[asyncio.StreamWriter] = []
REFUSED: list[Problem] = []
WAITING: list[str] = []
"""Paths of requests that are not answered."""
ASKED: list[list[tuple[bytes, bytes]]] = []
"""Headers of those that are."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Clients that a test leaves open are gone before another test can be blamed for them."""
    yield
    OPENED.clear()
    WAITING.clear()
    ASKED.clear()
    REFUSED.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Says hello; at /wait once the client has left."""
    if scope["path"] == "/wait":
        WAITING.append(scope["path"])
    while scope["path"] == "/wait" and (await receive())["type"] != "http.disconnect":
        pass
    while (await receive()).get("more_body"):
        pass
    ASKED.append(scope["headers"])
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def listening(most: int = MOST, keep_alive_s: int = 5) -> Iterator[int]:
    """A server of `hello`; its port."""
    config = uvicorn.Config(
        hello,
        http=protocol(most, REFUSED.append),
        ws="none",
        log_config=None,
        lifespan="off",
        timeout_keep_alive=keep_alive_s,
    )
    server = uvicorn.Server(config)
    with Runtime() as runtime, socket.create_server(("127.0.0.1", 0)) as listener:
        serving = runtime.start(server.serve(sockets=[listener]))
        soon(lambda: server.started)
        yield listener.getsockname()[1]
        server.should_exit = server.force_exit = True
        serving.result(30)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    with listening() as port:
        yield port


async def connect(port: int, first: bytes) -> asyncio.StreamReader:
    """What the server says to a client that says `first`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    OPENED.append(writer)
    return reader


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes it without a word."""
    async with asyncio.timeout(20):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


async def said(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        return await reader.readuntil(b"hello")


async def test_each_new_one_takes_the_place_of_the_one_idle_for_longest(port: int) -> None:
    silent = [await connect(port, b"") for _ in range(MOST - 1)]
    answered = await connect(port, GET)
    await said(answered)
    await said(await connect(port, GET))
    assert await closed(silent[0])
    await said(await connect(port, GET))
    assert await closed(silent[1])
    await said(await connect(port, GET))
    assert await closed(answered)


async def test_one_that_is_being_answered_is_never_closed_for_another(port: int) -> None:
    busy = [await connect(port, WAIT) for _ in range(MOST)]
    await asyncio.to_thread(soon, lambda: len(WAITING) == MOST)
    told = await connect(port, b"")
    async with asyncio.timeout(20):
        answer = await told.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in answer
    assert b'"code": "overloaded"' in answer
    assert REFUSED == [connections.FULL]
    assert not any(reader.at_eof() for reader in busy)


@pytest.mark.parametrize("before", [False, True], ids=["at first", "after an answer"])
@pytest.mark.parametrize("half", [b"", b"GET / HTT", b"\r\n"])
async def test_a_head_must_come_soon(
    monkeypatch: pytest.MonkeyPatch, half: bytes, before: bool
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with listening(keep_alive_s=60 if half else 1) as port:
        reader = await connect(port, GET if before else half)
        if before:
            await said(reader)
            OPENED[-1].write(half)
        assert await closed(reader)


async def test_an_answer_may_take_longer_than_its_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    with listening() as port:
        reader = await connect(port, WAIT)
        await asyncio.sleep(0.5)
        assert not reader.at_eof()


# --- heads and trailers -----------------------------------------------------------------------

LINE = b"GET / HTTP/1.1\r\n"
CHUNKED = LINE + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


@pytest.mark.parametrize("begun", [LINE, CHUNKED], ids=["head", "trailers"])
@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize(
    ("most", "more"),
    [
        (b"x: y\r\n" * HEAD_FIELDS, b"x: y\r\n"),
        (b"x: " + b"y" * (HEAD_BYTES - 100) + b"\r\n", b"x: " + b"y" * 200 + b"\r\n"),
        (b"x" * (HEAD_BYTES - 100) + b": y\r\n", b"x" * 200 + b": y\r\n"),
    ],
    ids=["many", "long", "long name"],
)
async def test_heads_and_trailers_are_so_large_and_no_larger(
    port: int, begun: bytes, most: bytes, more: bytes, in_pieces: bool
) -> None:
    answers = []
    for sent in (begun + most + b"\r\n", begun + most + more + b"\r\n"):
        reader = await connect(port, b"")
        for start in range(0, len(sent), 1000 if in_pieces else len(sent)):
            OPENED[-1].write(sent[start : start + 1000 if in_pieces else None])
            await OPENED[-1].drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            answers.append(await reader.read(12))
    assert answers == [b"HTTP/1.1 200", b"HTTP/1.1 431"]
    assert REFUSED == [connections.LARGE]


async def test_a_head_that_never_ends_is_not_kept(port: int) -> None:
    reader = await connect(port, LINE + b"x: ")
    written = 0
    with suppress(ConnectionError):
        while not reader.at_eof() and written < 64 * 2**20:
            OPENED[-1].write(b"y" * 2**16)
            await OPENED[-1].drain()
            written += 2**16
    assert written < 64 * 2**20
    assert REFUSED == [connections.LARGE]


async def test_a_trailer_is_no_header(port: int) -> None:
    """Not even of a request that waits for the one before it."""
    first = await connect(port, GET + CHUNKED + b"authorization: Bearer x\r\n\r\n" + GET)
    for _ in range(3):
        await said(first)
    assert [[name for name, _ in asked] for asked in ASKED] == [
        [b"host"],
        [b"transfer-encoding"],
        [b"host"],
    ]


async def test_what_cannot_be_read_is_said_unless_an_answer_has_begun(port: int) -> None:
    reader = await connect(port, GET)
    await said(reader)
    OPENED[-1].write(b"NONSENSE\r\n\r\n")
    async with asyncio.timeout(20):
        told = await reader.read()
    assert told.startswith(b"HTTP/1.1 400 Bad Request")
    assert b'"code": "malformed"' in told
    assert REFUSED == [connections.MALFORMED]


async def test_an_upgrade_is_passed_over(port: int, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert (await said(await connect(port, LINE + upgrade))).startswith(b"HTTP/1.1 200")
    assert not caplog.records


def test_the_kernel_gives_up_who_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        give_up_the_dead(listener)
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                if hasattr(socket, "TCP_USER_TIMEOUT"):
                    stalled = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                    assert stalled == 1000 * connections.STALLED_S


@pytest.mark.parametrize(("allowed", "most"), [(256, 192), (1024, 768), (100, 36), (10, 1)])
def test_descriptors_are_left_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, allowed: int, most: int
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert most_connections() == most
    assert most + RESERVE <= allowed or most == 1


# --- streams that are not read ----------------------------------------------------------------


class Burst(Flood):
    """Writes many words without a pause in between: nobody else gets his turn."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        for i in range(10 * streaming.BUFFER):
            yield Delta(f"{i} ")
        yield Delta("", "stop", Usage(1, 1))


@pytest.fixture(scope="module")
def fast() -> Iterator[Served]:
    engines = {"flood": Flood, "burst": Burst}
    apps = {
        name: App(
            name,
            template=Generate(engine=name),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
        )
        for name in engines
    }
    configs = {name: EngineConfig(factory) for name, factory in engines.items()}
    with Runtime(configs) as runtime, serving(runtime, apps) as found:
        yield found


def test_who_never_reads_is_cut_off(fast: Served) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        url = httpx.URL(fast.url)
        client.connect((url.host, url.port))
        body = b'{"inputs": {"question": "go"}, "mode": "stream"}'
        head = f"POST /v1/apps/flood/queries HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        soon(lambda: bool(fast.board.past), 60)
        (entry,) = fast.board.past.values()
        assert entry.state == "cancelled"
        assert not fast.runtime.live.queries
    fast.board.past.clear()


def test_who_reads_gets_everything_however_much_comes_at_once(fast: Served) -> None:
    body = {"inputs": {"question": "go"}, "mode": "stream"}
    with httpx.Client(base_url=fast.url, timeout=60) as client:
        text = client.post("/v1/apps/burst/queries", json=body).text
    assert text.count("event: token") == 10 * streaming.BUFFER
    assert text.rstrip().rpartition("\n\n")[2].splitlines()[1] == "event: done"
