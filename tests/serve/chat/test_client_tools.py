"""Tools that clients of the OpenAI API bring along and call themselves."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest

from teola import Agent, App, Generate, Runtime
from teola.errors import InputError
from teola.serve.chat.chat_request import ChatRequest
from teola.serve.intake.limits import QueryLimits
from teola.tools import tool
from teola.workflow.components.acting import Acting
from tests.longest_turn import MOST_S, longest_turn
from tests.planted import catches, edited
from tests.serve.chat.talking import user
from tests.serve.conftest import Served, serving
from tests.workflow.test_agent import Writes, add, answer, calls


def spec(name: str, **properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": f"The {name}.", "parameters": schema}
    return {"type": "function", "function": function}


TEXT = {"type": "string"}
WEATHER, CLOCK = spec("weather", city=TEXT), spec("clock")
ADDING = spec("add", city=TEXT)
CHOSEN, CHOSEN_OTHER = ({"function": {"name": name}} for name in ("weather", "wether"))


@tool(pure=True)
def look() -> str:
    """Look around."""
    return "a lamp"


@contextmanager
def asking(*replies: str, **agent: Any) -> Iterator[tuple[openai.OpenAI, Writes, Served]]:
    model = Writes(*replies)
    question, out = {"question": "text"}, {"answer": "answer"}
    with Runtime({"llm": lambda: model}) as runtime:
        apps = {
            "agent": App("agent", Agent([add, look], **agent), inputs=question, outputs=out),
            "plain": App("plain", Generate(), inputs=question, outputs=out),
        }
        with (
            serving(runtime, apps) as served,
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
        ):
            yield client, model, served


def talk(*messages: Any) -> list[Any]:
    return [user("What is the weather?"), *messages]


def made(id: str, name: str, **args: Any) -> Any:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}


# --- the client calls ---------------------------------------------------------------------------


@catches(
    "calls-it-here",
    "a client's tool is called here",
    edited(Acting._read, "not call.problem and self._elsewhere(call.tool)", "False"),
)
def test_a_client_calls_its_tools_itself() -> None:
    first = calls(("weather", {"city": "Oslo"}), ("clock", {}))
    with asking(first, answer("Rain at noon.")) as (client, model, _):
        messages = talk()
        found = client.chat.completions.create(
            model="agent", messages=messages, tools=[WEATHER, CLOCK]
        )
        (choice,) = found.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        asked = choice.message.tool_calls or []
        told = [(c.function.name, c.function.arguments) for c in asked if c.type == "function"]
        assert told == [("weather", '{"city": "Oslo"}'), ("clock", "{}")]
        assert len({c.id for c in asked}) == 2
        messages.append(choice.message)
        for call, text in zip(asked, ("rain", "12:00"), strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        found = client.chat.completions.create(
            model="agent", messages=messages, tools=[WEATHER, CLOCK]
        )
    assert found.choices[0].message.content == "Rain at noon."
    assert found.choices[0].finish_reason == "stop"
    assert '1. weather({"city": "Oslo"}):\n> rain\n2. clock({}):\n> 12:00' in model.prompt(1)
    assert model.prompt(1).startswith(model.prompt(0).removesuffix("\n\nReply: "))


def test_a_stream_is_as_openai_has_it() -> None:
    with asking(calls(("weather", {"city": "Oslo"}))) as (_, _, served):
        body = {"model": "agent", "messages": talk(), "tools": [WEATHER], "stream": True}
        text = httpx.post(f"{served.url}/v1/chat/completions", json=body).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    id = chunks[0]["choices"][0]["delta"]["tool_calls"][0]["id"]
    head = {"index": 0, "id": id, "type": "function"}
    named = {**head, "function": {"name": "weather", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        for delta, reason in (
            ({"role": "assistant", "content": None, "tool_calls": [named]}, None),
            ({"tool_calls": [rest]}, None),
            ({}, "tool_calls"),
        )
    ]


def test_openais_client_reads_the_stream() -> None:
    with (
        asking(calls(("weather", {"city": "Oslo"}), ("clock", {}))) as (client, _, _),
        client.chat.completions.stream(
            model="agent", messages=talk(), tools=[WEATHER, CLOCK]
        ) as stream,
    ):
        found = stream.get_final_completion()
    asked = found.choices[0].message.tool_calls or []
    assert [(c.function.name, c.function.arguments) for c in asked] == [
        ("weather", '{"city": "Oslo"}'),
        ("clock", "{}"),
    ]


def test_the_applications_tools_are_called_here_first() -> None:
    plan = calls(("add", {"a": 1, "b": 2}), ("weather", {"city": "number ${1}"}))
    with asking(plan) as (client, _, _):
        found = client.chat.completions.create(model="agent", messages=talk(), tools=[WEATHER])
    (call,) = found.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.arguments == '{"city": "number 3.0"}'


def test_a_tool_that_is_called_like_an_own_one_is_refused() -> None:
    with (
        asking(calls(("add", {"city": "Oslo"}))) as (client, _, _),
        pytest.raises(openai.BadRequestError, match="has a tool called 'add' itself"),
    ):
        client.chat.completions.create(model="agent", messages=talk(), tools=[ADDING])


def test_what_references_put_into_a_clients_call_has_to_fit_it() -> None:
    plan = calls(("add", {"a": 1, "b": 2}), ("weather", {"city": "$1"}))
    with asking(plan, answer("so")) as (client, model, _):
        found = client.chat.completions.create(model="agent", messages=talk(), tools=[WEATHER])
    assert not found.choices[0].message.tool_calls
    assert "argument 'city' must be a text, got 3.0" in model.prompt(1)


# --- how many, and which ------------------------------------------------------------------------


def test_one_at_a_time_where_that_is_wanted() -> None:
    with asking(calls(("weather", {"city": "a"}), ("clock", {}))) as (client, _, _):
        found = client.chat.completions.create(
            model="agent", messages=talk(), tools=[WEATHER, CLOCK], parallel_tool_calls=False
        )
    assert len(found.choices[0].message.tool_calls or []) == 1


@pytest.mark.parametrize(
    ("choice", "names", "may_answer"),
    [
        ("auto", {"weather", "clock", "look"}, True),
        ("none", {"look"}, True),
        ("required", {"weather", "clock"}, False),
        ({"type": "function", "function": {"name": "clock"}}, {"clock"}, False),
    ],
)
def test_the_client_chooses(choice: Any, names: set[str], may_answer: bool) -> None:
    with asking(calls(("clock", {})) if not may_answer else answer("x")) as (client, model, _):
        client.chat.completions.create(
            model="agent", messages=talk(), tools=[WEATHER, CLOCK], tool_choice=choice
        )
    schema = model.calls[0].decode.schema or ""
    assert {name for name in ("weather", "clock", "look") if f'"{name}"' in schema} == names
    assert ('"answer"' in schema) == may_answer


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [None, [], [WEATHER]])
@pytest.mark.parametrize("choice", [None, "none", "auto", "required", CHOSEN, CHOSEN_OTHER])
def test_what_may_be_chosen_of_so_many_tools(tools: Any, choice: Any) -> None:
    """Without tools, whatever wants none: libraries say "none" or "auto" of their own accord."""
    told = {"model": "agent", "messages": talk(), "tools": tools, "tool_choice": choice}
    request = ChatRequest.model_validate(told)
    if choice == CHOSEN_OTHER if tools else choice not in (None, "none", "auto"):
        with pytest.raises(InputError, match="did you mean" if tools else "when tools are speci"):
            asyncio.run(request.check_tools(QueryLimits()))
    else:
        asyncio.run(request.check_tools(QueryLimits()))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"model": "plain", "tools": [WEATHER]}, "brings its own tools"),
        ({"tools": [{"type": "function"}]}, 'must be {"type": "function"'),
        ({"tools": [WEATHER, WEATHER]}, "two tools are called 'weather'"),
        ({"tools": [spec("a b")]}, "1 to 64 letters"),
        ({"tools": [spec("x", y={"type": "string", "pattern": "(a+)+"})]}, "no pattern"),
        ({"tools": [spec("x", y={"$ref": "http://localhost:1/x"})]}, "which is not in it"),
        ({"tools": [WEATHER], "tool_choice": {"function": {"name": "wether"}}}, "did you mean"),
        ({"tool_choice": "required"}, "only allowed when tools are specified"),
        (
            {"messages": talk({"role": "tool", "tool_call_id": "1", "content": "x"})},
            "must answer a call",
        ),
        (
            {
                "messages": talk(
                    {"role": "assistant", "tool_calls": [made("1", "weather"), made("2", "b")]},
                    {"role": "tool", "tool_call_id": "1", "content": "x"},
                )
            },
            "must be followed by a message of a tool",
        ),
        ({"messages": talk({"role": "assistant", "content": "x"})}, "must be the user's"),
    ],
)
def test_what_cannot_be_is_refused(
    body: Any, told: str, refusing: tuple[openai.OpenAI, Served]
) -> None:
    given = {"model": "agent", "messages": talk(), **body}
    with pytest.raises(openai.BadRequestError, match=re.escape(told)):
        refusing[0].chat.completions.create(**given)


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[openai.OpenAI, Served]]:
    with asking(answer("x")) as (client, _, served):
        yield client, served


@pytest.mark.parametrize(
    ("tools", "properties", "told"),
    [
        (12, 100, ""),
        (128, 4, ""),
        (128, 100, "more than the 65536 characters of JSON of `max_client_tool_characters`"),
        (200, 1, "there are 200 tools, more than the 128 of `max_client_tools`"),
    ],
)
def test_many_tools_hold_nobody_up(
    tools: int, properties: int, told: str, refusing: tuple[openai.OpenAI, Served]
) -> None:
    _, served = refusing
    many = [spec(f"t{i}", **{f"p{j}": TEXT for j in range(properties)}) for i in range(tools)]
    body = {"model": "agent", "messages": talk()}
    url = f"{served.url}/v1/chat/completions"
    assert httpx.post(url, json=body, timeout=60).status_code == 200
    with longest_turn(served.runtime.loop) as turn:
        found = httpx.post(url, json={**body, "tools": many}, timeout=60)
        assert httpx.get(f"{served.url}/healthz").status_code == 200
    assert found.status_code == (400 if told else 200)
    assert told in found.text
    assert turn.seconds < MOST_S


# --- in conversations, and steps ----------------------------------------------------------------


def test_earlier_calls_are_part_of_the_conversation() -> None:
    before: Sequence[Any] = (
        {"role": "assistant", "content": None, "tool_calls": [made("1", "weather", city="Oslo")]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "rain"}]},
        {"role": "assistant", "content": "It rains."},
        user("And tomorrow?"),
    )
    for app in ("agent", "plain"):
        with asking(answer("x")) as (client, model, _):
            client.chat.completions.create(model=app, messages=talk(*before))
        assert (
            'Assistant: (calls weather({"city": "Oslo"}))\nTool weather: rain\n'
            "Assistant: It rains." in model.prompt(0)
        )


def test_steps_are_shown_to_who_wants_them() -> None:
    replies = calls(("add", {"a": 1, "b": 2})), answer("three")
    with asking(*replies) as (client, _, _):
        found = client.chat.completions.create(
            model="agent", messages=talk(), extra_body={"steps": True}
        )
        assert found.model_extra is not None
        (step,) = found.model_extra["x_teola"]["steps"]
        assert (step["tool"], step["result"], step["state"]) == ("add", "3.0", "finished")
        plain = client.chat.completions.create(model="agent", messages=talk())
        assert "x_teola" not in (plain.model_extra or {})
    with asking(*replies) as (client, _, _):
        stream = client.chat.completions.create(
            model="agent", messages=talk(), stream=True, extra_body={"steps": True}
        )
        chunks = list(stream)
    told = [c.model_extra["x_teola"]["step"]["state"] for c in chunks if c.model_extra]
    assert told == ["started", "finished"]
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "three"
