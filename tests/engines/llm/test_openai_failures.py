import asyncio
import logging
import socket
import time
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest
from httpcore._backends.anyio import AnyIOStream

from teola.engine import TextPart, Usage
from teola.errors import (
    EngineAway,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    InputError,
    UnknownName,
)
from teola.graph.prompt import Role
from teola_engines.llm import OpenAIServer
from teola_engines.openai import spare_connections
from teola_engines.openai.connection import DRAIN_LIMIT_S, Connection
from teola_engines.openai.spare_connections import SpareConnections
from teola_engines.openai.wire import BadRequest, TooLong
from tests.engines.llm.openai_calls import PROMPT, SECRET, a_call, answer, started
from tests.fake_openai import Fail, FakeOpenAI, Hang, Stream
from tests.planted import catches, edited

HANGS_S = 60.0
"""Whoever waits longer for a service that says nothing would wait for ever."""

# --- bad days: while running ------------------------------------------------------------------

LONG = Fail(
    400,
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    code=400,
)
WIDE = Fail(400, "The decoder prompt (length 9) is longer than the maximum model length of 7.")


@pytest.mark.parametrize(
    ("behaviour", "kind", "retryable", "says"),
    [
        (LONG, TooLong, False, "exceed the context of 4096 tokens .* fewer or smaller chunks"),
        (WIDE, TooLong, False, "exceed the context of 7 tokens"),
        (Fail(400, "x", code="context_length_exceeded"), TooLong, False, "exceed the context"),
        (Fail(400, SECRET, code="bad_thing"), BadRequest, False, r"invalid \(400.*bad_thing"),
        (Fail(401, SECRET), EngineError, False, r"refuses the API key \(401\)"),
        (Fail(403), EngineError, False, r"refuses the API key \(403\)"),
        (Fail(404), EngineError, False, r"has no model 'fake-model' \(404\): .*/v1/models"),
        (Fail(422, SECRET), BadRequest, False, "refuses the request"),
        (Fail(429), EngineBusy, True, r"takes no more calls now \(429\)"),
        (Fail(503, body=b"busy"), EngineBusy, True, r"takes no more calls now \(503\)"),
        (Fail(429, SECRET, code="insufficient_quota"), EngineError, False, r"is used up \(429"),
        (Fail(500, SECRET), EngineError, True, r"failed \(500"),
        (Fail(500, body=b"<html>" + SECRET.encode()), EngineError, True, r"failed \(500"),
        (Fail(502, body=b""), EngineAway, True, r"gateway \(502\)"),
        (Stream("reset", 0), EngineAway, True, "broke off"),
        (Stream("reset", 2), EngineUnavailable, True, "broke off"),
        (Stream("cut", 2), EngineUnavailable, True, "broke off"),
        (Stream("end", 2), EngineError, True, "ended its stream before the answer was complete"),
        (Stream("garbage", 2), EngineError, False, "no completion stream"),
        (Stream("binary", 2), EngineError, False, "no completion stream"),
        (Stream("error", 2), EngineError, True, r"failed \(500, InternalServerError"),
        (Fail(200, body=b"<html>welcome</html>"), EngineError, True, "ended its stream"),
        (Hang(), EngineError, True, r"was silent for 0\.5 s"),
        (Stream("stall", 2), EngineError, True, r"was silent for 0\.5 s"),
    ],
)
async def test_failures_are_told_in_one_line(behaviour, kind, retryable, says, caplog):
    caplog.set_level(logging.INFO)
    timeout_s = 0.5 if "silent" in says else 60.0
    with FakeOpenAI() as server:
        async with started(server, name="big", timeout_s=timeout_s) as engine:
            server.script(behaviour)
            texts = []
            with pytest.raises(kind, match=says) as caught:
                await collect(engine, texts)
            sent = behaviour.tokens if isinstance(behaviour, Stream) else 0
            assert texts == ["The", " answer"][:sent]
            _check(caught.value, kind, retryable, server)
            if not isinstance(behaviour, Stream) and getattr(behaviour, "status", 0) != 200:
                server.script(behaviour)
                with pytest.raises(kind, match=says) as caught:
                    await engine.prefill(a_call())
                _check(caught.value, kind, retryable, server)
            assert (await answer(engine, a_call()))[0] == "The answer is forty-two."
    assert SECRET not in caplog.text


async def collect(engine, texts):
    async for delta in engine.generate(a_call()):
        texts.append(delta.text)


def _check(error, kind, retryable, server):
    assert type(error) is kind
    assert error.retryable is retryable
    message = str(error)
    assert SECRET not in message
    assert error.__cause__ is None
    assert "\n" not in message
    assert len(message) < 200
    assert server.url in message


async def test_a_stream_without_its_last_event_or_counts_is_complete():
    with FakeOpenAI("one two three") as server:
        server.script(Stream("no_done", 0), Stream("no_usage", 0))
        async with started(server) as engine:
            assert (await answer(engine, a_call()))[0] == "one two three"
            _, last = await answer(engine, a_call())
    prompt = sum(len(part.text) for part in PROMPT) // 4 + 1
    assert last.usage == Usage(prompt, len("one two three") // 4 + 1, 0)


@pytest.mark.parametrize("behaviour", [Hang(), Stream("stall", 2)])
async def test_the_deadline_of_the_query_holds(behaviour):
    with FakeOpenAI() as server:
        async with started(server, name="big") as engine:
            server.script(behaviour)
            begin = time.monotonic()
            with pytest.raises(
                EngineError, match=r"^big at .*before the query's deadline"
            ) as caught:
                async with asyncio.timeout(HANGS_S):
                    await answer(engine, a_call(deadline=begin + 0.3))
            assert not caught.value.retryable
            assert time.monotonic() - begin > 0.25, "it had as long as the query had"
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)
            with pytest.raises(EngineError, match=r"not sent .* deadline has passed"):
                await engine.prefill(a_call(deadline=begin))
    assert len(server.calls) == 1


async def test_a_server_that_died_is_unavailable():
    with FakeOpenAI() as server:
        engine = OpenAIServer(url=server.url)
        await engine.start()
    with pytest.raises(
        EngineUnavailable, match=r"no connection to llm at .*is it running"
    ) as caught:
        await answer(engine, a_call())
    assert caught.value.retryable
    await engine.close()


async def test_bad_calls_are_refused():
    with FakeOpenAI() as server:
        engine = OpenAIServer(url=server.url)
        with pytest.raises(EngineError, match="is not started"):
            await answer(engine, a_call())
        await engine.start()
        with pytest.raises(InputError, match="JSON schema of the answer is not JSON"):
            await answer(engine, a_call(schema="{"))
        with pytest.raises(EngineError, match="not valid Unicode"):
            await answer(engine, a_call([TextPart(Role.QUESTION, "\ud83d")]))
        await engine.close()
    assert server.calls == []


# --- bad days: at the start -------------------------------------------------------------------


@contextmanager
def silent_port():
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def refused_start(url, **options):
    engine = OpenAIServer(name="big", url=url, **options)
    begin = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"^big at http") as caught:
        await engine.start()
    await engine.close()
    assert time.monotonic() - begin < 10.0
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 160
    return str(caught.value), caught.value.retryable


async def test_a_start_that_cannot_succeed_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    message, retryable = await refused_start(f"http://user:{SECRET}@127.0.0.1:{port}")
    assert (
        f"big at http://127.0.0.1:{port}/v1 cannot be reached (ConnectError): start it" in message
    )
    assert retryable
    assert SECRET not in message
    with FakeOpenAI(api_key="right") as server:
        message, retryable = await refused_start(server.url, api_key=SECRET)
        assert "refuses the API key (401): set its api_key" in message
        assert not retryable
        assert SECRET not in message
        async with started(server, api_key="right") as engine:
            assert (await answer(engine, a_call()))[1].finish_reason == "stop"
    with FakeOpenAI() as server:
        message, _ = await refused_start(server.url.replace("/v1", "/api"))
        assert "has no /models (404): correct its url" in message
        for body in (b"<html>hello</html>", {"hello": 1}, {"data": [3]}, [1]):
            server.models = body
            message, retryable = await refused_start(server.url)
            assert "does not speak the OpenAI API: correct its url" in message
            assert not retryable
        server.models = {"data": []}
        message, _ = await refused_start(server.url)
        assert "lists no model: name one" in message
        async with started(server, model="fake-model") as engine:
            assert (await answer(engine, a_call()))[1].finish_reason == "stop"


async def test_a_silent_server_is_given_up_within_ten_seconds(monkeypatch):
    monkeypatch.setattr("teola_engines.openai.probe.START_LIMIT_S", 0.3)
    with silent_port() as port:
        message, retryable = await refused_start(f"http://127.0.0.1:{port}/v1")
    assert "accepts connections and answers nothing within 0.3 s: it hangs" in message
    assert retryable


async def test_an_unknown_model_is_named_when_called():
    with FakeOpenAI() as server:
        async with started(server, model="other") as engine:
            with pytest.raises(EngineError, match=r"has no model 'other' \(404\)"):
                await answer(engine, a_call())


def test_options_are_checked_at_once():
    for url in ("localhost:8000", "ftp://x/v1", "http://", ""):
        with pytest.raises(InputError, match="must look like http://host:port/v1"):
            OpenAIServer(url=url)
    with pytest.raises(
        UnknownName, match="unknown api 'chats' in engine 'llm'; did you mean 'chat'"
    ):
        OpenAIServer(url="http://h", api="chats")
    for option in ("requests_per_minute", "tokens_per_minute"):
        for value in (0, -1, True):
            with pytest.raises(InputError, match=f"{option} is {value}: give a whole number from"):
                OpenAIServer(url="http://h", **{option: value})
    with pytest.raises(TypeError):
        OpenAIServer("llm")
    assert OpenAIServer(url="http://h").count_tokens("x" * 40) == 11


@catches(
    "connection-half-closed",
    "closing is given up with whoever waits for it",
    edited(Connection.close, "asyncio.shield(client.close())", "client.close()"),
)
async def test_closing_that_is_given_up_leaves_no_connection_open():
    """As when a runtime ends while another instance is being started."""
    with FakeOpenAI() as server:
        async with six_connections(server) as (connection, open_ones):
            closing = asyncio.create_task(connection.close())
            while not any(one.is_closed() for one in open_ones):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            await until_none_is_open(server)


@catches(
    "old-connections-half-closed",
    "the end of an answer gives up closing what is too old",
    edited(
        "teola_engines.openai.connection:_drain",
        "with suppress(ValueError, httpx.TransportError), move_on_after(DRAIN_LIMIT_S):",
        "with suppress(TimeoutError): # as asyncio ends it\n"
        "      async with asyncio.timeout(DRAIN_LIMIT_S):",
    ),
)
async def test_an_answer_that_ends_leaves_no_old_connection_open(monkeypatch):
    """The client closes what is too old when an answer ends, which may take longer than its end is
    waited for."""
    close = AnyIOStream.aclose

    async def close_slowly(stream):
        await asyncio.sleep(2 * DRAIN_LIMIT_S)
        await close(stream)

    with FakeOpenAI() as server:
        async with six_connections(server) as (connection, open_ones):
            monkeypatch.setattr(AnyIOStream, "aclose", close_slowly)
            monkeypatch.setattr(spare_connections, "SPARE_S", 0.0)
            await ask(connection, server)
            assert sum(one.is_closed() for one in open_ones) == 5
            assert len(connection.client._client._transport._pools) == 1, "others are forgotten"
            monkeypatch.undo()
            await connection.close()
            await until_none_is_open(server)


async def test_calls_share_no_connection_and_each_is_used_again():
    with FakeOpenAI() as server:
        async with six_connections(server) as (connection, open_ones):
            await asyncio.gather(*(ask(connection, server) for _ in range(4)))
            await ask(connection, server)
            assert connections_of(connection) == open_ones
            # A call at once looks at no connection but its own, however many there are.
            pools = connection.client._client._transport._pools
            assert [len(pool._pool.connections) for pool in pools] == [1] * 6
            assert sorted(one._connection._request_count for one in open_ones) == [1, 1, 2, 2, 2, 3]
            await connection.close()
            await until_none_is_open(server)


@catches(
    "a-pool-for-each-failure",
    "who could not connect leaves a pool behind that nobody uses again",
    edited(
        SpareConnections.handle_async_request,
        "self._spare.append((time.monotonic(), pool))",
        "pass",
    ),
)
async def test_calls_that_cannot_connect_leave_nothing_behind():
    transport = SpareConnections()
    with socket.socket() as taken:  # it listens to nobody
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                await transport.handle_async_request(httpx.Request("GET", url))
    assert len(transport._pools) == 1
    await transport.aclose()


async def ask(connection, server):
    body = {"model": server.model, "prompt": "The", "max_tokens": 2}
    async for _ in connection.stream(a_call().context, body, lambda n: Usage(1, n)):
        pass


@asynccontextmanager
async def six_connections(server):
    """A connection to the server that has six open ones of TCP, and those."""
    connection = Connection("big", server.url, None, 60.0, 30.0)
    await connection.open()
    client = connection.client
    body = {"model": server.model, "prompt": "The", "max_tokens": 2}
    await asyncio.gather(*(client.completions.create(**body) for _ in range(6)))
    open_ones = connections_of(connection)
    assert len(open_ones) == 6
    try:
        yield connection, open_ones
    finally:
        for one in open_ones:
            await one.aclose()


def connections_of(connection):
    """Of TCP, each in a pool of its own."""
    pools = connection.client._client._transport._pools
    return [one for pool in pools for one in pool._pool.connections]


async def until_none_is_open(server):
    async with asyncio.timeout(2.0):
        while server.connected:
            await asyncio.sleep(0.01)
