import asyncio

import pytest

from teola.engine import Delta, LanguageModel, TextPart, Usage
from teola.errors import EngineError
from teola.graph.prompt import Role
from teola_engines.llm import OpenAIServer
from tests.engines.llm.openai_calls import INSTRUCTION, PROMPT, a_call, answer, started
from tests.fake_openai import FakeOpenAI, Hang, Stream


def prompt_of(seen):
    return "".join(message["content"] for message in seen.body["messages"])


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
                assert engine.spec.prefix_reuse is engine.spec.keeps_prefixes is vllm
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
            assert engine.spec.window is None


async def test_the_window_is_what_the_server_lists_of_the_model():
    with FakeOpenAI() as server:
        listed = [{"id": "other", "max_model_len": 9}, {"id": "fake-model", "max_model_len": 4096}]
        server.models = {"data": listed}
        async with started(server, model="fake-model") as engine:
            assert engine.spec.window == 4096


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
        assert [message["role"] for message in first.body["messages"]] == ["system", "user"]
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
