"""What goes over one connection and comes back, byte by byte, from a server of a few lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from teola.engine import Delta, QueryContext, Usage
from teola.errors import EngineAway, EngineBusy, EngineError, EngineUnavailable
from teola_engines.openai import connection as connections
from teola_engines.openai.calls import CallsText
from teola_engines.openai.connection import FIRST_S, SILENCE_S, Connection, _drain, _lost
from teola_engines.openai.wire import DONE, events, whole

QUERY = QueryContext("q")
STREAM, JSON, PAGE = "text/event-stream", "application/json; charset=utf-8", "text/html"


class Server:
    """Answers each request with `kind` and `body`, and keeps what was asked: (path, fields)."""

    def __init__(self, body: bytes, kind: str = STREAM) -> None:
        self.body, self.kind = body, kind
        self.asked: list[tuple[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        fields = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
        self.asked.append((head.split()[1].decode(), fields))
        answer = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {self.kind}\r\n\r\n"
        writer.write(answer.encode() + self.body)
        writer.close()


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[Connection]:
    async with await asyncio.start_server(server.serve, "127.0.0.1") as listening:
        port = listening.sockets[0].getsockname()[1]
        connection = Connection("llm", f"http://127.0.0.1:{port}", "key", None, 30.0)
        connection.model = "m"
        for name, value in options.items():
            setattr(connection, name, value)
        await connection.open()
        try:
            yield connection
        finally:
            await connection.close()


def said(*choices: Any, done: bool = True) -> bytes:
    """A stream of these choices; a dict with `usage` is an event of its own."""
    listed = [one if "usage" in one else {"choices": [one]} for one in choices]
    lines = [json.dumps(one) for one in listed] + [DONE] * done
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def text(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"delta": {"content": content, **more}, "finish_reason": finish}


async def streamed(connection: Connection, **options: Any) -> list[Delta]:
    body = options.pop("body", {"messages": []})
    stream = connection.stream(QUERY, body, lambda written: Usage(1, written), **options)
    return [delta async for delta in stream]


@pytest.mark.parametrize(
    ("body", "options", "deltas"),
    [
        (
            said(text("a"), text("b", "stop")),
            {},
            [Delta("a"), Delta("b"), Delta("", "stop", Usage(1, 2))],
        ),
        (said(text("ab", "length"), text("")), {}, [Delta("ab"), Delta("", "length", Usage(1, 2))]),
        (
            said(text("a"), {"usage": {"prompt_tokens": 5}, "choices": []}, text("b", "stop")),
            {},
            [Delta("a"), Delta("b"), Delta("", "stop", Usage(5, 0))],
        ),
        (
            said(text("", refusal="no"), text("", "stop")),
            {},
            [Delta("no"), Delta("", "refusal", Usage(1, 2))],
        ),
        (
            said(text(""), text(""), text("a", "stop")),
            {"empty": True},
            [Delta(""), Delta("a"), Delta("", "stop", Usage(1, 1))],
        ),
        (
            said(text("", reasoning="x"), text("", reasoning="y"), text("a", "stop")),
            {},
            [Delta(""), Delta("a"), Delta("", "stop", Usage(1, 1))],
        ),
        (
            said(text("a"), text("", reasoning="x"), text("b", "stop")),
            {},
            [Delta("a"), Delta(""), Delta("b"), Delta("", "stop", Usage(1, 2))],
        ),
        (
            said(text("", "stop"), done=False).rstrip(b"\n"),
            {},
            [Delta("", "stop", Usage(1, 0))],
        ),
        (
            said(text("a", "stop")) + b"data: \xff\n\ndata: {}\n",
            {},
            [Delta("a"), Delta("", "stop", Usage(1, 1))],
        ),
        (
            said(text("yes", "stop")),
            {"calls": CallsText("llm", typed=False)},
            [Delta('{"answer": "yes"}'), Delta("", "stop", Usage(1, 0))],
        ),
    ],
    ids=[
        "text", "reason before the end", "usage in between", "refused", "empty", "two thoughts",
        "a thought late", "no end", "garbage behind the end", "calls",
    ],
)  # fmt: skip
async def test_an_answer_comes_as_it_is_written(
    body: bytes, options: dict[str, Any], deltas: list[Delta]
) -> None:
    async with connected(Server(body)) as connection:
        assert await streamed(connection, **options) == deltas


async def test_an_answer_that_is_no_stream_is_read_whole() -> None:
    body = json.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})
    async with connected(Server(f" {body}".encode(), JSON)) as connection:
        assert await streamed(connection) == [Delta("a"), Delta("", "stop", Usage(1, 1))]


async def test_a_web_page_is_no_answer() -> None:
    async with connected(Server(b"<html>", PAGE)) as connection:
        with pytest.raises(EngineError) as caught:
            await streamed(connection)
    assert str(caught.value) == (
        f"{connection.server} sent a web page in place of an answer: check its url, and what "
        "stands before it"
    )
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("body", "omit", "path", "fields"),
    [
        (
            {"messages": [], "extra_body": {"a": 1}},
            [],
            "/v1/chat/completions",
            {"messages": [], "a": 1, "stream": True, "stream_options": {"include_usage": True}},
        ),
        (
            {"prompt": "x", "a": 2, "extra_body": {"a": 1}},
            ["temperature", "stream_options"],
            "/v1/completions",
            {"prompt": "x", "a": 1, "stream": True},
        ),
    ],
)
async def test_requests_go_where_they_belong_with_all_their_fields(
    body: dict[str, Any], omit: list[str], path: str, fields: dict[str, Any]
) -> None:
    server, before = Server(said(text("", "stop"))), json.loads(json.dumps(body))
    async with connected(server, omit=omit) as connection:
        await streamed(connection, body=body)
        await connection.send(QUERY, body)
        assert await connection.post(QUERY, "/other", {"b": 1}) == server.body
    sent = {key: value for key, value in fields.items() if not key.startswith("stream")}
    assert server.asked == [(path, fields), (path, sent), ("/v1/other", {"b": 1})]
    assert body == before


@pytest.mark.parametrize("error", [ValueError("no"), httpx.ReadError("gone"), None])
async def test_what_follows_an_answer_neither_fails_nor_is_waited_for(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "DRAIN_LIMIT_S", 0.01)
    read: list[int] = []

    async def rest() -> AsyncGenerator[str, None]:
        for k in range(3):
            read.append(k)
            yield ""
        if error is None:
            await asyncio.Event().wait()
        else:
            raise error

    await asyncio.wait_for(_drain(rest()), 30.0)
    assert read == [0, 1, 2]


@pytest.mark.parametrize(
    ("timeout_s", "first_s", "silence_s"),
    [(None, FIRST_S, SILENCE_S), (0.0, 0.0, 0.0), (7.0, 7.0, 7.0)],
)
def test_silence_may_be_as_long_as_is_said_and_else_longer_before_an_answer(
    timeout_s: float | None, first_s: float, silence_s: float
) -> None:
    made = Connection("llm", "http://h", None, timeout_s, 1.0)
    assert (made._timeout_s, made._silence_s) == (first_s, silence_s)
    assert made.server == "llm at http://h/v1"
    with pytest.raises(EngineError) as caught:
        made._check_deadline(QueryContext("q", deadline=0.0))
    assert str(caught.value) == f"not sent to {made.server}: the query's deadline has passed"


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("status", "kind"), [(502, EngineAway), (429, EngineBusy)])
def test_a_server_that_refuses_in_mid_answer_has_lost_it(
    begun: bool, status: int, kind: type[EngineError]
) -> None:
    """Which is another thing than not to take it."""
    made = Connection("llm", "http://h", None, None, 1.0)
    event = json.dumps({"error": {"message": "words", "code": status}})
    with pytest.raises(EngineError) as caught:
        made._piece(event, begun=begun)
    assert type(caught.value) is (EngineUnavailable if begun else kind)
    assert (caught.value.said, caught.value.retryable) == ("words", True)
    assert str(_lost(caught.value)) == str(caught.value)


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("read", "chunk", "told"),
    [(events, b"x" * 1024, "a line without end"), (whole, b"{" * 1024, "an answer without end")],
)
async def test_as_much_as_an_event_may_have_is_read_and_no_more(
    read: Callable[[AsyncIterator[bytes]], AsyncGenerator[str, None]], chunk: bytes, told: str
) -> None:
    exact = [chunk] * 1024
    found = [data async for data in read(pieces(*exact))]
    assert found == ([] if read is events else ["{" * 2**20])
    with pytest.raises(ValueError, match=f"^{told}$"):
        async for _ in read(pieces(*exact, b"x")):
            pass


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (b"data: 1\r\ndata:2\n", ["1", "2"]),
        (b"error: {}\n", ['{"error": {}}']),
        (b": still here\n\nevent: x\nid: 3\n", [""]),
        (b"data: [DONE]", ["[DONE]"]),
        (b'data: {"a": 1}', ['{"a": 1}']),
        (b'data: {"a": ', []),
        (b"data: ", []),
        (b"error: {}", ['{"error": {}}']),
        (b'error: {"a": ', []),
    ],
)
async def test_events_are_fields_each_on_its_line(written: bytes, found: list[str]) -> None:
    """Of the last line, which lacks its end, nothing may be missing but that."""
    for size in (1, 3, 1000):
        cut = [written[at : at + size] for at in range(0, len(written), size)]
        assert [data async for data in events(pieces(*cut))] == found


@pytest.mark.parametrize(
    ("body", "found"),
    [(b' {"a": 1}', [' {"a": 1}']), (b"[1]", ["[1]"]), (b"<html>", []), (b"", [])],
)
async def test_only_json_is_an_answer_by_itself(body: bytes, found: list[str]) -> None:
    assert [data async for data in whole(pieces(body[:2], body[2:]))] == found
