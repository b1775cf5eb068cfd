"""A Dynamo is told how urgent a call is, how long its answer and what comes next."""

import json
from math import inf

import pytest

from teola import App, Generate, Runtime
from teola.engine import NextRead
from teola.habit import Habit
from teola.passes.estimate import ANSWER_TOKENS
from teola.profile import Profile
from teola.runtime.live.call import call_of
from teola.runtime.optimiser import Optimiser
from teola_engines.llm import OpenAIServer, VLLMServer
from teola_engines.llm.dynamo_hints import LARGEST, Hints
from tests.engines.llm.openai_calls import PROMPT, a_call, answer, started
from tests.fake_openai import FakeOpenAI
from tests.planted import catches, edited

WHOLE = len(PROMPT)


def dynamo(**options) -> FakeOpenAI:
    """One that answers as a Dynamo's frontend does, whose engines are vLLMs."""
    return FakeOpenAI(vllm=False, dynamo=True, **options)


def hints_of(seen):
    return seen.body.get("nvext", {}).get("agent_hints")


async def test_a_dynamo_is_known_by_its_models_and_its_workers():
    with dynamo() as server:
        async with started(server) as engine:
            assert engine.served.is_dynamo
            assert not engine.served.is_vllm
            await answer(engine, a_call())
    assert hints_of(server.calls[0]) == {"priority": 0}
    asked = [seen.path for seen in server.requests]
    assert asked == ["/v1/models", "/health", "/v1/chat/completions"]


@pytest.mark.parametrize("vllm", [True, False])
async def test_other_servers_are_told_nothing(vllm):
    with FakeOpenAI(vllm=vllm) as server:
        async with started(server) as engine:
            await answer(engine, a_call(priority=3))
    assert "nvext" not in server.calls[0].body


async def test_another_server_with_models_of_nvidia_s_is_no_dynamo():
    with FakeOpenAI(vllm=False) as server:
        server.models["data"][0]["owned_by"] = "nvidia"
        async with started(server) as engine:
            assert not engine.served.is_dynamo
            await answer(engine, a_call())
    assert "nvext" not in server.calls[0].body


async def test_one_can_say_that_it_is_one_and_that_it_is_not():
    with FakeOpenAI(vllm=False) as gateway, dynamo() as server:
        async with started(gateway, agent_hints=True) as engine:
            await answer(engine, a_call())
        async with started(server, agent_hints=False) as engine:
            await answer(engine, a_call())
    assert hints_of(gateway.calls[0]) == {"priority": 0}
    assert "nvext" not in server.calls[0].body


@catches(
    "upside-down",
    "what is urgent is told to be less so, as a vLLM is told it",
    edited(Hints.of, "self._priority(call.priority)", "-self._priority(call.priority)"),
)
async def test_what_is_more_urgent_has_the_larger_number_there_and_the_smaller_on_a_vllm():
    urgent, patient = a_call(priority=-1_000), a_call(priority=-5_000)
    told = {}
    for kind, server in (("dynamo", dynamo()), ("vllm", FakeOpenAI())):
        with server:
            async with started(server, send_priority=True) as engine:
                await answer(engine, patient)
                await answer(engine, urgent)
        told[kind] = [seen.body for seen in server.calls]
    first, second = (body["nvext"]["agent_hints"]["priority"] for body in told["dynamo"])
    assert (first, second) == (0, 4_000)
    assert all("priority" not in body for body in told["dynamo"])
    first, second = (body["priority"] for body in told["vllm"])
    assert (first, second) == (5_000, 1_000)


def test_priorities_fit_into_what_they_are_sent_in():
    hints, clock = Hints(), 40 * LARGEST
    sent = [
        hints.of(a_call(priority=clock - far))["nvext"]["agent_hints"]["priority"]
        for far in (0, 7, LARGEST, LARGEST + 1, LARGEST + 8)
    ]
    assert sent == [0, -7, -LARGEST, 0, -7]


@catches(
    "any-length",
    "an answer is said to be longer than it may be",
    edited(Hints.of, "min(call.expects, call.decode.max_tokens)", "call.expects"),
)
async def test_how_long_the_answer_will_be_is_what_was_learned():
    with dynamo() as server:
        async with started(server) as engine:
            for expects, most in ((70, 500), (700, 500), (0, 500)):
                call = a_call(max_tokens=most)
                await answer(
                    engine, type(call)(call.context, call.parts, call.decode, expects=expects)
                )
    assert [hints_of(seen).get("osl") for seen in server.calls] == [70, 500, None]


@pytest.mark.parametrize(
    ("reads", "told"),
    [
        ((NextRead(WHOLE, 0.5),), True),
        ((NextRead(1, 0.5), NextRead(WHOLE, 2.0)), True),
        ((NextRead(1, 0.5),), None),
        ((NextRead(WHOLE, None),), None),
        ((NextRead(1, 0.5), NextRead(WHOLE, inf)), None),
        ((), None),
    ],
)
def test_what_comes_next_is_told_where_it_is_known(reads, told):
    call = a_call()
    call = type(call)(call.context, call.parts, call.decode, reads=reads)
    assert Hints().of(call)["nvext"]["agent_hints"].get("speculative_prefill") is told


@catches(
    "length-not-passed-on",
    "engines are not told how long answers are",
    edited(call_of, "category, reads, expects)", "category, reads)"),
)
def test_what_is_known_of_calls_comes_from_their_plans():
    habits = {("telling", "write"): Habit(calls=9, output=0.5)}
    with (
        dynamo() as server,
        Runtime(
            {"llm": lambda: OpenAIServer(url=server.url)}, profile=Profile("x", {}, habits=habits)
        ) as runtime,
    ):
        template = Generate("write", outputs={"answer": "text"}, max_tokens=50)
        app = App(
            "telling",
            template,
            inputs={"question": "text"},
            outputs={"text": "text"},
            runtime=runtime,
        )
        app.run(question="why?")
    told = hints_of(server.calls[-1])
    assert told["osl"] == ANSWER_TOKENS // 2
    assert isinstance(told["priority"], int)


def test_lengths_are_those_of_a_component_s_habits():
    app = App(
        "telling",
        Generate("write", outputs={"answer": "text"}, max_tokens=1000),
        inputs={"question": "text"},
        outputs={"text": "text"},
    )
    before, after = (
        Optimiser(app.builder, Profile("x", {}, habits=habits)).plan({}, {}).specs[0]
        for habits in ({}, {("telling", "write"): Habit(calls=9, output=2.5)})
    )
    assert before.expected_output == 0
    assert after.expected_output == round(2.5 * before.planned_output) > 0


async def test_the_request_is_what_nvidia_documents():
    """nvext is a top-level object of the body; see its "NVIDIA request extensions"."""
    with dynamo() as server:
        async with started(server) as engine:
            call = a_call(PROMPT[1:2], max_tokens=64, priority=5)
            call = type(call)(
                call.context,
                call.parts,
                call.decode,
                priority=5,
                expects=20,
                reads=(NextRead(1, 0.5),),
            )
            await answer(engine, call)
    assert json.dumps(server.calls[0].body, sort_keys=True) == json.dumps(
        {
            "max_tokens": 64,
            "messages": [{"role": "user", "content": PROMPT[1].text}],
            "model": "fake-model",
            "nvext": {"agent_hints": {"osl": 20, "priority": 0, "speculative_prefill": True}},
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
        },
        sort_keys=True,
    )


async def test_the_engine_for_vllms_knows_one_too():
    with dynamo() as server:
        engine = VLLMServer(url=server.url, connect_timeout_s=30.0)
        try:
            await engine.start()
            await answer(engine, a_call())
            assert engine.spec.looks_ahead
        finally:
            await engine.close()
    assert hints_of(server.calls[-1]) == {"priority": 0}
