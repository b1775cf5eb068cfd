"""What models behind one API differ in: fields, empty answers, and what a server says in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from typing import Any

import pytest

from experiments.common.scripted.kinds import KINDS, manners
from teola import App, EngineConfig, Generate, Runtime
from teola.errors import EngineError, InputError, QueryFailed, UnknownName
from teola.runtime.engines import queue_for
from teola_engines.llm import OpenAIServer
from teola_engines.openai.error_fields import MOST_SAID, sentence
from teola_engines.openai.probe import Served, _read_listed
from teola_engines.openai.wire import UnknownField
from tests.engines.llm.openai_calls import a_call, answer, started
from tests.fake_openai import Fail, FakeOpenAI, Says, Seen
from tests.planted import catches, edited

KEY = "sk-proj-0123456789abcdef"
EMPTY = Says([{"content": ""}])
UNSUPPORTED = Fail(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    code="unsupported_parameter",
)
NO_TEMPERATURE = Fail(
    400,
    "Unsupported value: 'temperature' does not support 0.0 with this model.",
    code="unsupported_value",
)
NO_SCHEMA = Fail(400, "This server does not support response_format.", code="unsupported")


async def test_fields_are_added_replaced_and_left_out() -> None:
    options = {"body": {"reasoning_effort": "low", "seed": 7}, "omit": ["temperature"]}
    with FakeOpenAI(vllm=False) as server:
        async with started(server, limit_field="max_completion_tokens", **options) as engine:
            await answer(engine, a_call(max_tokens=9, seed=1))
    body = server.calls[0].body
    assert (body["reasoning_effort"], body["seed"], body["max_completion_tokens"]) == ("low", 7, 9)
    assert not {"temperature", "max_tokens"} & body.keys()


@catches(
    "ollama-as-an-api",
    "servers on a machine of their user's are taken for an API of many machines",
    edited(Served.independent.fget, "*_OWN_MACHINE, ", ""),
)
async def test_calls_hold_one_another_up_on_machines_of_ones_own() -> None:
    own = {"vLLM", "SGLang", "Ollama", "llama.cpp", "LM Studio", "TGI"}
    for kind in KINDS:
        model = manners(kind)
        one = _read_listed({"id": "meta-llama/Llama-3.1-8B-Instruct", **model.listed})
        assert Served((one,)).independent is (kind not in own), kind
    assert not Served(()).independent, "nobody has said anything yet"
    with FakeOpenAI(vllm=False) as server:
        async with started(server) as engine:
            assert engine.spec.independent
    for option in (False, True):
        engine = OpenAIServer(url="http://127.0.0.1:1", independent=option)
        (instance,) = queue_for("e", [engine], EngineConfig("openai")).instances
        assert instance.limits.independent is option


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({}, ("", "", "", None)),
        (dict.fromkeys(("owned_by", "root", "parent", "max_model_len")), ("", "", "", None)),
        ({"owned_by": "vllm", "root": "/m", "parent": "b"}, ("vllm", "/m", "b", None)),
        ({"owned_by": 7, "root": "", "max_model_len": 0}, ("7", "", "", 0)),
        ({"max_model_len": "4096"}, ("", "", "", None)),
        ({"max_model_len": True}, ("", "", "", None)),
    ],
)
def test_what_a_server_does_not_say_of_a_model_is_empty(
    told: dict[str, Any], read: tuple[Any, ...]
) -> None:
    assert astuple(_read_listed({"id": "m", **told})) == ("m", *read)


async def test_what_a_server_calls_the_longest_answer_is_found_out_once() -> None:
    with FakeOpenAI(vllm=False) as server:
        server.script(UNSUPPORTED)
        async with started(server) as engine:
            await answer(engine, a_call(max_tokens=9))
            await answer(engine, a_call(max_tokens=9))
    names = [name for seen in server.calls for name in seen.body if name.startswith("max_")]
    assert names == ["max_tokens", "max_completion_tokens", "max_completion_tokens"]


async def test_a_server_that_takes_neither_name_is_asked_once_by_each() -> None:
    said = UNSUPPORTED.message
    first, second = "'max_tokens'", "'max_completion_tokens'"
    swapped = said.replace(first, "'x'").replace(second, first).replace("'x'", second)
    with FakeOpenAI(vllm=False) as server:
        server.script(*[UNSUPPORTED, Fail(400, swapped, code="unsupported_parameter")] * 2)
        async with started(server) as engine:
            with pytest.raises(EngineError, match="max_completion_tokens"):
                await answer(engine, a_call(max_tokens=9))
    assert len(server.calls) == 2


class TakesNot(FakeOpenAI):
    """A server that does not take requests with a certain field."""

    def __init__(self, field: str, fail: Fail) -> None:
        super().__init__(vllm=False)
        self.field, self.fail = field, fail

    def refusal(self, seen: Seen) -> Fail | None:
        return self.fail if self.field in seen.body else super().refusal(seen)


@pytest.mark.parametrize(
    ("served", "options", "call"),
    [
        (partial(TakesNot, "max_tokens", UNSUPPORTED), {}, {"max_tokens": 9}),
        (partial(TakesNot, "response_format", NO_SCHEMA), {}, {"schema": '{"type": "object"}'}),
        (partial(FakeOpenAI, vllm=False, chat_template=False), {"api": "auto"}, {}),
    ],
    ids=["limit", "schema", "chat"],
)
@catches(
    "first-refusal-alone",
    "of calls in flight together only the first that is refused is asked anew",
    edited(OpenAIServer._renames, "(None, other)", "(None,)"),
    edited(OpenAIServer.generate, "or not held", "or schema in self._schemas"),
    edited(OpenAIServer._give_up_chat, '"messages" not in body', "not self._chats"),
)
async def test_calls_that_are_refused_together_are_all_asked_anew(
    served: Callable[[], FakeOpenAI], options: dict[str, Any], call: dict[str, Any]
) -> None:
    with served() as server:
        async with started(server, **options) as engine:
            await asyncio.gather(*[answer(engine, a_call(**call)) for _ in range(3)])
    assert len(server.calls) == 6


async def test_a_field_that_changes_answers_is_not_left_out_in_silence() -> None:
    with FakeOpenAI(vllm=False) as server:
        server.script(NO_TEMPERATURE)
        async with started(server) as engine:
            with pytest.raises(UnknownField, match=r'omit = \["temperature"\]') as told:
                await answer(engine, a_call())
    assert told.value.said.startswith("Unsupported value: 'temperature'")
    assert len(server.calls) == 1


def test_what_requests_are_made_of_stays() -> None:
    for options in ({"omit": ["messages"]}, {"body": {"stream": False}}, {"omit": "temperature"}):
        with pytest.raises(InputError, match="engine 'llm': "):
            OpenAIServer(url="http://h", **options)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="unknown empty 'again'"):
        OpenAIServer(url="http://h", empty="again")


# --- empty answers, and how answers end -----------------------------------------------------------


def asked(runtime: Runtime) -> App:
    return App(
        "asked",
        Generate(instruction="Answer."),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        runtime=runtime,
    )


@pytest.mark.parametrize(
    ("empty", "replies", "text", "calls"),
    [("retry", 1, "a b", 2), ("retry", 2, "", 2), ("keep", 1, "", 1)],
)
def test_an_empty_answer_is_asked_for_once_more_if_that_is_wanted(
    empty: str, replies: int, text: str, calls: int
) -> None:
    with FakeOpenAI("a b", vllm=False) as server:
        server.script(*[EMPTY] * replies)
        with Runtime({"llm": EngineConfig("openai", {"url": server.url, "empty": empty})}) as home:
            result = asked(home).run(question="?")
            assert (result.answer, result.finish_reasons) == (text, {"answer": "stop"})
            assert home.live.core.queues["llm"].retries == calls - 1
    assert len(server.calls) == calls


# --- what the server says -------------------------------------------------------------------------


def test_a_sentence_has_no_keys_and_no_queries_of_urls() -> None:
    said = sentence(
        f"Incorrect API key provided: {KEY}. See https://u:p@a.example/keys?token=zebra#x, or\n"
        "https://b.example/limits. Bearer abc.def zebra-canary-secret",
        "zebra-canary-secret",
    )
    assert said == (
        "Incorrect API key provided: ***. See https://a.example/keys or https://b.example/limits. "
        "*** ***"
    )
    assert len(sentence("word " * 1000)) == MOST_SAID


def test_whoever_asked_is_told_what_the_server_says_and_no_log_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = f"The model does not know the word zebra, nor {KEY}."
    with FakeOpenAI("a b", vllm=False) as server:
        server.script(Fail(400, told))
        config = EngineConfig("openai", {"url": server.url, "api_key": KEY})
        with Runtime({"llm": config}) as runtime, pytest.raises(QueryFailed) as failed:
            asked(runtime).run(question="?")
    assert "it says: The model does not know the word zebra, nor ***." in str(failed.value)
    cause = failed.value.__cause__
    assert isinstance(cause, EngineError)
    assert "zebra" not in str(cause), "which may come into logs"
    assert "zebra" not in caplog.text
