"""VLLMServer against servers that can do less than a vLLM, or misbehave."""

import time
from contextlib import asynccontextmanager

import pytest

from teola.engine import SequenceHandle, TextPart
from teola.errors import EngineError, EngineUnavailable
from teola.graph.prompt import Role
from teola_engines.llm import VLLMServer, vllm_metrics
from tests.engines.llm.openai_calls import PROMPT, SECRET, a_call, answer
from tests.fake_openai import METRICS, Fail, FakeOpenAI, Hang, Stream

TEXT = "".join(part.text for part in PROMPT)


@asynccontextmanager
async def started(server, **options):
    engine = VLLMServer(url=server.url, **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


def ids_of(text):
    return [ord(letter) for letter in text]


async def test_parts_become_ids_that_begin_the_whole_prompt():
    with FakeOpenAI(tokenizes=True) as server:
        async with started(server) as engine:
            server.requests.clear()
            first = await engine.prefill(a_call(PROMPT[:1]))
            second = await engine.prefill(a_call(PROMPT[1:3], prefix=first))
            text, last = await answer(engine, a_call(PROMPT[3:], prefix=second, priority=4))
    assert text == "The answer is forty-two."
    sent = [seen.body["prompt"] for seen in server.calls]
    assert sent[1][: len(sent[0])] == sent[0]
    assert sent[2][: len(sent[1])] == sent[1] == list(second.token_ids)
    instruction, rest = PROMPT[0].text, "".join(part.text for part in PROMPT[1:])
    whole = f"<|system|>{instruction}<|end|><|user|>{rest}<|end|><|assistant|>"
    assert sent[2] == ids_of(whole)
    assert [seen.body["max_tokens"] for seen in server.calls] == [1, 1, 256]
    assert len({seen.body["cache_salt"] for seen in server.calls}) == 1
    assert server.calls[2].body["priority"] == -4
    assert last.usage.cached_tokens > 0


async def test_a_long_prompt_takes_the_loop_little_longer_to_send_than_a_short_one():
    """The SDK transforms what it knows item by item, on the loop: 6,000 ids took 50 ms."""
    took = {}
    with FakeOpenAI(tokenizes=True) as server:
        async with started(server) as engine:
            for count in (10, 6000) * 3:
                known = SequenceHandle("llm", 0, (PROMPT[0],), tuple(range(count)))
                began = time.thread_time()
                await engine.prefill(a_call(PROMPT[1:2], prefix=known))
                took[count] = min(time.thread_time() - began, took.get(count, 1.0))
    assert [len(seen.body["prompt"]) > 6000 for seen in server.calls[-2:]] == [False, True]
    assert took[6000] < took[10] + 0.015


async def test_a_base_model_gets_its_texts_after_one_beginning():
    with FakeOpenAI(tokenizes=True, chat_template=False) as server:
        async with started(server) as engine:
            await answer(engine, a_call())
        async with started(server, api="completions") as engine:
            await answer(engine, a_call())
        async with started(server, api="chat") as engine:
            with pytest.raises(EngineError, match="no chat template: set api='completions'"):
                await answer(engine, a_call())
    asked = [seen.body.get("prompt") for seen in server.calls]
    assert asked.count([1, *ids_of(TEXT)]) == 2


async def test_what_the_server_tells_is_declared():
    with FakeOpenAI(tokenizes=True) as server:
        async with started(server) as engine:
            assert (engine.spec.prefix_reuse, engine.spec.block_tokens) == (True, 32)
            assert engine.spec.max_batch == 3200
            assert await engine.capacity() == 2400
            assert engine.count_tokens("x" * 40) == 11
            await engine.prefill(a_call([TextPart(Role.CONTEXT, "x" * 40)]))
            assert engine.count_tokens("x" * 40) == 40
        async with started(server, prefix_reuse=False) as engine:
            server.requests.clear()
            assert (await engine.prefill(a_call())).token_ids
            assert server.calls == []


@pytest.mark.parametrize("vllm", [True, False])
async def test_a_server_that_does_not_tokenise_is_asked_in_text_and_for_nothing_else(vllm):
    with FakeOpenAI(vllm=vllm) as server:
        async with started(server) as engine:
            assert server.calls == []
            assert engine.spec.prefix_reuse is vllm
            assert (await answer(engine, a_call()))[0] == "The answer is forty-two."
            assert await engine.capacity() is None
    assert [seen.path for seen in server.calls] == ["/v1/chat/completions"]


async def test_priority_and_ids_are_given_up_where_they_are_refused():
    with FakeOpenAI(tokenizes=True) as server:
        server.script(Fail(400, "priority scheduling is not enabled"))
        async with started(server) as engine:
            assert (await answer(engine, a_call(priority=2)))[1].finish_reason == "stop"
        assert "priority" not in server.calls[-1].body
        assert isinstance(server.calls[-1].body["prompt"], list)
        server.script(Fail(400, "no ids"), Fail(400, "no ids"))
        async with started(server) as engine:
            assert (await answer(engine, a_call()))[1].finish_reason == "stop"
        assert "messages" in server.calls[-1].body


async def test_a_server_that_fails_at_its_first_token_does_not_start():
    with FakeOpenAI(tokenizes=True) as server:
        server.script(Fail(500, SECRET))
        with pytest.raises(EngineError, match=r"failed \(500.*see its log"):
            async with started(server):
                pass


async def test_prompts_that_cannot_be_are_refused_before_they_are_sent():
    with FakeOpenAI(tokenizes=True, chat_template=False) as server:
        server.models["data"][0]["max_model_len"] = 100
        async with started(server) as engine:
            server.requests.clear()
            long = [TextPart(Role.CONTEXT, "x" * 96)]
            with pytest.raises(EngineError, match=r"\(97 and 4\) exceed the context of 100 tokens"):
                await answer(engine, a_call(long, max_tokens=4))
            with pytest.raises(EngineError, match="not valid Unicode"):
                await answer(engine, a_call([TextPart(Role.QUESTION, "\ud83d")]))
            assert server.calls == []
            assert (await answer(engine, a_call(long, max_tokens=3)))[0] == "The answer is"


@pytest.mark.parametrize("tokenizes", [True, False])
async def test_an_empty_prompt_is_refused_before_it_is_sent(tokenizes):
    with FakeOpenAI(tokenizes=tokenizes) as server:
        async with started(server) as engine:
            server.requests.clear()
            for parts in ([], [TextPart(Role.QUESTION, " \n")]):
                with pytest.raises(EngineError, match=r"the prompt for llm at .* is empty"):
                    await answer(engine, a_call(parts))
            assert server.calls == []


@pytest.mark.parametrize(
    ("behaviour", "kind", "says"),
    [
        (Stream("reset", 2), EngineUnavailable, "broke off"),
        (Stream("end", 2), EngineError, "ended its stream before the answer was complete"),
        (Stream("garbage", 2), EngineError, "no completion stream"),
        (Stream("stall", 2), EngineError, r"was silent for 2 s"),
        (Hang(), EngineError, r"was silent for 2 s"),
        (Fail(500, SECRET), EngineError, r"failed \(500"),
    ],
)
async def test_failures_are_told_and_do_no_harm_to_others(behaviour, kind, says):
    with FakeOpenAI(tokenizes=True) as server:
        async with started(server, timeout_s=2.0) as engine:
            server.script(behaviour)
            with pytest.raises(kind, match=says) as caught:
                await answer(engine, a_call())
            assert SECRET not in str(caught.value)
            assert (await answer(engine, a_call()))[0] == "The answer is forty-two."


async def test_the_first_token_is_delivered_even_without_text():
    with FakeOpenAI("", tokenizes=True) as server:
        async with started(server) as engine:
            deltas = [delta async for delta in engine.generate(a_call())]
    assert [delta.text for delta in deltas] == ["", ""]
    assert deltas[-1].finish_reason == "stop"


def test_metrics_are_read():
    found = vllm_metrics.read(METRICS.decode())
    assert (found.kv_tokens, found.block_tokens, found.running) == (3200, 32, 3)
    assert found.free_tokens == 2400
    starved = METRICS.decode().replace('"capacity"} 0.0', '"capacity"} 2.0')
    assert vllm_metrics.read(starved).free_tokens == 0
    with pytest.raises(ValueError, match="no metrics of a vLLM"):
        vllm_metrics.read("# nothing\npython_info 1.0\n")
