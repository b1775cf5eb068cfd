import asyncio
import logging
import socket
import time
from contextlib import asynccontextmanager, contextmanager

import pytest

from teola.engine import Call, Delta, LanguageModel, QueryContext, TextPart, Usage
from teola.errors import EngineError, EngineUnavailable, InputError, UnknownName
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import OpenAIServer
from tests.fake_openai import Fail, FakeOpenAI, Hang, Stream

SECRET = "zebra-canary"
INSTRUCTION = TextPart(Role.INSTRUCTION, "Answer the question from the context. " * 10)
PROMPT = (
    INSTRUCTION,
    TextPart(Role.QUESTION, f"What does the {SECRET} eat?"),
    TextPart(Role.INSTRUCTION, "\n\nContext:\n"),
    TextPart(Role.CONTEXT, "Nothing. " * 40),
)


def a_call(
    parts=PROMPT, *, deadline=float("inf"), tenant="default", prefix=None, priority=0, **decode
):
    context = QueryContext("q1", tenant=tenant, deadline=deadline)
    return Call(context, tuple(parts), DecodeParams(**decode), prefix, priority)


@asynccontextmanager
async def started(server, **options):
    engine = OpenAIServer(url=server.url, **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


async def answer(engine, call):
    """(text, the last Delta)."""
    deltas = [delta async for delta in engine.generate(call)]
    assert all(delta.finish_reason is None for delta in deltas[:-1])
    return "".join(delta.text for delta in deltas), deltas[-1]


def prompt_of(seen):
    return "".join(message["content"] for message in seen.body["messages"])


# --- good days ------------------------------------------------------------------------------


async def test_an_answer_is_streamed_with_its_usage():
    with FakeOpenAI("One two three\u2028four 😀.") as server:
        async with started(server) as engine:
            assert isinstance(engine, LanguageModel)
            deltas = [delta async for delta in engine.generate(a_call(max_tokens=50))]
    assert deltas[:-1] == [Delta(t) for t in ("One", " two", " three", "\u2028four", " 😀.")]
    assert deltas[-1] == Delta("", "stop", Usage(deltas[-1].usage.prompt_tokens, 5, 0))
    assert deltas[-1].usage.prompt_tokens > 100
    (seen,) = server.calls
    assert seen.path == "/v1/chat/completions"
    assert [message["role"] for message in seen.body["messages"]] == ["system", "user"]
    assert seen.body["messages"][0]["content"] == INSTRUCTION.text
    assert seen.body["model"] == "fake-model"
    assert seen.body["temperature"] == 0.0
    assert not seen.disconnected


async def test_the_first_delta_comes_before_the_last_token():
    with FakeOpenAI("a b c d e f g h", token_delay_s=0.05) as server:
        async with started(server) as engine:
            async for delta in engine.generate(a_call()):
                assert delta.text == "a"
                assert server.calls[0].tokens_sent < 4
                break


async def test_decode_parameters_reach_the_server():
    with FakeOpenAI("one two STOP three") as server:
        async with started(server) as engine:
            text, _ = await answer(engine, a_call(stop=("STOP",), temperature=0.5))
            assert text == "one two "
            text, last = await answer(engine, a_call(max_tokens=2, schema='{"type": "object"}'))
    assert (text, last.finish_reason) == ("one two", "length")
    assert server.calls[0].body["temperature"] == 0.5
    assert server.calls[1].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }


async def test_only_a_vllm_gets_its_own_fields():
    call = a_call(ignore_eos=True, priority=3)
    own = {"ignore_eos", "priority", "cache_salt"}
    for vllm in (True, False):
        with FakeOpenAI(vllm=vllm) as server:
            async with started(server, send_priority=True) as engine, started(server) as plain:
                assert engine.spec.prefix_reuse is vllm
                await answer(engine, call)
                await answer(plain, call)
        first, second = (seen.body for seen in server.calls)
        assert own & set(first) == (own if vllm else set())
        assert own & set(second) == (own - {"priority"} if vllm else set())
        assert first.get("priority") == (-3 if vllm else None)


async def test_a_vllm_behind_a_gateway_is_known_by_its_version():
    with FakeOpenAI() as server:
        server.models = {"data": [{"id": "fake-model", "owned_by": "someone"}]}
        async with started(server) as engine:
            assert engine.spec.prefix_reuse
            assert engine.model == "fake-model"


async def test_prefix_reuse_can_be_declared_before_the_start():
    options = {"url": "http://127.0.0.1:9", "name": "big", "max_batch": 99, "max_sequences": 3}
    spec = OpenAIServer(**options, prefix_reuse=True).spec
    assert (spec.name, spec.max_batch, spec.max_sequences, spec.prefix_reuse) == (
        "big",
        99,
        3,
        True,
    )
    assert not OpenAIServer(**options).spec.prefix_reuse


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_a_warmed_prefix_is_found_in_the_cache(api):
    with FakeOpenAI() as server:
        async with started(server, api=api) as engine:
            handle = await engine.prefill(a_call(PROMPT[:1]))
            handle = await engine.prefill(a_call(PROMPT[1:3], prefix=handle))
            assert handle.parts == PROMPT[:3]
            assert handle.engine == "llm"
            _, last = await answer(engine, a_call(PROMPT[3:], prefix=handle))
    first, second, whole = server.calls
    assert first.body["max_tokens"] == second.body["max_tokens"] == 1
    assert not first.body.get("stream")
    if api == "chat":
        assert prompt_of(whole).startswith(prompt_of(second))
        assert prompt_of(second).startswith(prompt_of(first))
        assert prompt_of(whole) == "".join(part.text for part in PROMPT)
    else:
        assert whole.body["prompt"].startswith(second.body["prompt"])
    prefix_tokens = sum(len(part.text) for part in PROMPT[:3]) // 4
    assert prefix_tokens - 16 < last.usage.cached_tokens < prefix_tokens + 16


async def test_tenants_share_no_prefix_cache():
    with FakeOpenAI() as server:
        async with started(server, salt_key="k") as engine, started(server) as other:
            await engine.prefill(a_call(tenant="a"))
            _, stranger = await answer(engine, a_call(tenant="b"))
            _, otherkey = await answer(other, a_call(tenant="a"))
            _, same = await answer(engine, a_call(tenant="a"))
    assert stranger.usage.cached_tokens == otherkey.usage.cached_tokens == 0
    assert same.usage.cached_tokens > 0
    assert all(len(seen.body["cache_salt"]) <= 128 for seen in server.calls)


async def test_nothing_is_warmed_where_it_gains_nothing():
    with FakeOpenAI(vllm=False) as server:
        async with started(server) as engine:
            handle = await engine.prefill(a_call())
    assert handle.parts == PROMPT
    assert server.calls == []


async def test_a_lone_instruction_is_what_is_asked():
    with FakeOpenAI(lambda messages: f"{messages[-1]['role']} {len(messages)}") as server:
        async with started(server) as engine:
            assert (await answer(engine, a_call([INSTRUCTION])))[0] == "user 1"
            assert (await answer(engine, a_call(PROMPT[1:])))[0] == "user 1"
            assert (await answer(engine, a_call(PROMPT)))[0] == "user 2"


async def test_twenty_calls_get_their_own_answers():
    with FakeOpenAI(lambda messages: messages[-1]["content"], token_delay_s=0.02) as server:
        async with started(server) as engine:
            calls = [a_call([TextPart(Role.QUESTION, f"call number {i} here")]) for i in range(20)]
            answers = await asyncio.gather(*(answer(engine, call) for call in calls))
    assert [text for text, _ in answers] == [f"call number {i} here" for i in range(20)]
    assert not any(seen.disconnected for seen in server.calls)


async def test_twenty_calls_run_at_once_and_end_when_cancelled():
    with FakeOpenAI() as server:
        server.script(*[Hang()] * 20)
        async with started(server) as engine:
            tasks = [asyncio.create_task(answer(engine, a_call())) for _ in range(20)]
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 20)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)
            assert (await answer(engine, a_call()))[1].finish_reason == "stop"


async def test_connections_are_used_again():
    with FakeOpenAI() as server:
        async with started(server) as engine:
            for _ in range(10):
                await answer(engine, a_call())
    assert server.connections <= 2


# --- base models ----------------------------------------------------------------------------


async def test_auto_turns_to_completions_where_no_chat_template_is():
    with FakeOpenAI(chat_template=False) as server:
        async with started(server, api="auto") as engine:
            for _ in range(2):
                text, last = await answer(engine, a_call())
                assert text == "The answer is forty-two."
                assert last.finish_reason == "stop"
        paths = [seen.path for seen in server.calls]
        assert paths == ["/v1/chat/completions", "/v1/completions", "/v1/completions"]
        assert server.calls[1].body["prompt"] == "".join(part.text for part in PROMPT)
        async with started(server, api="chat") as engine:
            with pytest.raises(EngineError, match=r"no chat template: set api='completions'"):
                await answer(engine, a_call())


# --- cancellation ---------------------------------------------------------------------------


async def test_closing_the_generator_stops_the_server():
    with FakeOpenAI("word " * 500, token_delay_s=0.01) as server:
        async with started(server) as engine:
            stream = engine.generate(a_call(max_tokens=500))
            assert (await anext(stream)).text == "word"
            await stream.aclose()
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)
    (seen,) = server.calls
    assert seen.disconnected
    assert seen.tokens_sent < 100


@pytest.mark.parametrize(
    ("behaviour", "work"),
    [
        (Hang(), lambda engine: answer(engine, a_call())),
        (Stream("stall", 2), lambda engine: answer(engine, a_call())),
        (Hang(), lambda engine: engine.prefill(a_call())),
    ],
)
async def test_cancelling_the_task_stops_the_server(behaviour, work):
    with FakeOpenAI() as server:
        server.script(behaviour)
        async with started(server) as engine:
            task = asyncio.create_task(work(engine))
            begun = 2 if isinstance(behaviour, Stream) else 0
            assert await asyncio.to_thread(
                server.wait, lambda: server.calls and server.calls[0].tokens_sent >= begun
            )
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)
    assert server.calls[0].disconnected


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
        (LONG, EngineError, False, "exceed the context of 4096 tokens .* fewer or smaller chunks"),
        (WIDE, EngineError, False, "exceed the context of 7 tokens"),
        (Fail(400, "x", code="context_length_exceeded"), EngineError, False, "exceed the context"),
        (Fail(400, SECRET, code="bad_thing"), EngineError, False, r"invalid \(400.*bad_thing"),
        (Fail(401, SECRET), EngineError, False, r"refuses the API key \(401\)"),
        (Fail(403), EngineError, False, r"refuses the API key \(403\)"),
        (Fail(404), EngineError, False, r"has no model 'fake-model' \(404\): .*/v1/models"),
        (Fail(422, SECRET), EngineError, False, "refuses the request"),
        (Fail(429), EngineError, False, r"overloaded \(429\)"),
        (Fail(503, body=b"busy"), EngineError, False, r"overloaded \(503\)"),
        (Fail(500, SECRET), EngineError, True, r"failed \(500"),
        (Fail(500, body=b"<html>" + SECRET.encode()), EngineError, True, r"failed \(500"),
        (Fail(502, body=b""), EngineUnavailable, True, r"gateway \(502\)"),
        (Stream("reset", 2), EngineUnavailable, True, "broke off"),
        (Stream("cut", 2), EngineUnavailable, True, "broke off"),
        (Stream("end", 2), EngineError, True, "ended its stream before the answer was complete"),
        (Stream("garbage", 2), EngineError, False, "no completion stream"),
        (Stream("binary", 2), EngineError, False, "no completion stream"),
        (Stream("error", 2), EngineError, True, r"failed \(500, InternalServerError"),
        (Fail(200, body=b"<html>welcome</html>"), EngineError, True, "ended its stream"),
        (Hang(), EngineError, True, r"was silent for 0\.3 s"),
        (Stream("stall", 2), EngineError, True, r"was silent for 0\.3 s"),
    ],
)
async def test_failures_are_told_in_one_line(behaviour, kind, retryable, says, caplog):
    caplog.set_level(logging.INFO)
    with FakeOpenAI() as server:
        async with started(server, name="big", timeout_s=0.3) as engine:
            server.script(behaviour)
            texts = []
            with pytest.raises(kind, match=says) as caught:
                await collect(engine, texts)
            assert texts == (["The", " answer"] if isinstance(behaviour, Stream) else [])
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
                await answer(engine, a_call(deadline=begin + 0.3))
            assert not caught.value.retryable
            assert 0.25 < time.monotonic() - begin < 2.0
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
    monkeypatch.setattr("teola_engines.llm.openai_probe.START_LIMIT_S", 0.3)
    with silent_port() as port:
        message, retryable = await refused_start(f"http://127.0.0.1:{port}/v1")
    assert "does not answer within" in message
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
    with pytest.raises(TypeError):
        OpenAIServer("llm")
    assert OpenAIServer(url="http://h").count_tokens("x" * 40) == 11
