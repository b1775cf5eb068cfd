"""What requests to an OpenAI-compatible server are made of; without a server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from teola.engine import Call, TextPart, Usage
from teola.errors import InputError, UnknownName
from teola.graph import OfferedTools, Role
from teola_engines.llm import OpenAIServer
from teola_engines.llm.openai_server import estimated_usage
from teola_engines.openai import probe
from teola_engines.openai.wire import NoChatTemplate, NoTools, UnknownField
from tests.engines.llm.openai_calls import a_call

SYSTEM = TextPart(Role.INSTRUCTION, "Use WORDS or say no.")
QUESTION = TextPart(Role.QUESTION, "Why?")
SCHEMA = '{"type": "object"}'
HELD = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }
}
FUNCTIONS = [{"type": "function", "function": {"name": "f"}}]
TOOLS = OfferedTools(json.dumps(FUNCTIONS), "WORDS", "tools")
MESSAGES = [
    {"role": "system", "content": "Use WORDS or say no."},
    {"role": "user", "content": "Why?"},
]
BRIEFLY = [{"role": "system", "content": "Use tools or say no."}, MESSAGES[1]]
PLAIN = {
    "model": "m",
    "temperature": 0.0,
    "max_tokens": 9,
    "messages": MESSAGES,
    "extra_body": {},
}
LOCAL = "http://127.0.0.1:1"


def an_engine(url: str = LOCAL, kind: str = "", **options: Any) -> OpenAIServer:
    """One whose server has said that it is of this kind."""
    engine = OpenAIServer(url=url, model="m", **options)
    engine.served = probe.Served((), is_vllm=kind == "vllm", is_dynamo=kind == "dynamo")
    return engine


def asking(**more: Any) -> Call:
    return a_call([SYSTEM, QUESTION], **{"max_tokens": 9, **more})


@pytest.mark.parametrize(
    ("options", "decode", "request_of"),
    [
        ({}, {}, PLAIN),
        (
            {},
            {"stop": ("a", "b"), "seed": 0, "temperature": 0.5},
            PLAIN | {"stop": ["a", "b"], "seed": 0, "temperature": 0.5},
        ),
        ({}, {"schema": SCHEMA}, PLAIN | {"extra_body": HELD}),
        ({}, {"choices": ("a",), "ignore_eos": True, "priority": 3}, PLAIN),
        ({"send_priority": True}, {"priority": 3}, PLAIN),
        (
            {"api": "completions"},
            {"schema": SCHEMA, "tools": TOOLS},
            {key: PLAIN[key] for key in ("model", "temperature", "max_tokens", "extra_body")}
            | {"prompt": "Use WORDS or say no.Why?"},
        ),
        (
            {},
            {"tools": TOOLS, "schema": SCHEMA},
            PLAIN | {"messages": BRIEFLY, "tools": FUNCTIONS, "tool_choice": "auto"},
        ),
        (
            {},
            {"tools": replace(TOOLS, choice="required")},
            PLAIN | {"messages": BRIEFLY, "tools": FUNCTIONS, "tool_choice": "required"},
        ),
        (
            {},
            {"tools": replace(TOOLS, choice="f", parallel=False)},
            PLAIN
            | {"messages": BRIEFLY, "tools": FUNCTIONS, "parallel_tool_calls": False}
            | {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"body": {"top_p": 1}, "omit": ["temperature", "response_format"]},
            {"schema": SCHEMA},
            {key: value for key, value in PLAIN.items() if key != "temperature"}
            | {"extra_body": {"top_p": 1}},
        ),
        (
            {"limit_field": "max_completion_tokens", "omit": ["max_tokens"]},
            {},
            {("max_completion_tokens" if k == "max_tokens" else k): v for k, v in PLAIN.items()},
        ),
        (
            {"url": "https://api.openai.com/v1"},
            {},
            {("max_completion_tokens" if k == "max_tokens" else k): v for k, v in PLAIN.items()},
        ),
        ({"url": "https://api.openai.com/v1", "limit_field": "max_tokens"}, {}, PLAIN),
        (
            {"kind": "dynamo"},
            {"priority": 3},
            PLAIN | {"extra_body": {"nvext": {"agent_hints": {"priority": 0}}}},
        ),
        ({"kind": "dynamo", "agent_hints": False}, {"priority": 3}, PLAIN),
        (
            {"agent_hints": True},
            {},
            PLAIN | {"extra_body": {"nvext": {"agent_hints": {"priority": 0}}}},
        ),
    ],
)
def test_a_request_has_what_its_server_takes_and_no_more(
    options: dict[str, Any], decode: dict[str, Any], request_of: dict[str, Any]
) -> None:
    assert an_engine(**options)._body(asking(**decode), complete=True) == request_of


@pytest.mark.parametrize(
    ("options", "decode", "extra"),
    [
        ({}, {}, {}),
        ({}, {"ignore_eos": True, "priority": 3}, {"ignore_eos": True}),
        ({"send_priority": True}, {"priority": 3}, {"priority": -3}),
        ({}, {"choices": ("a", "b"), "pattern": "c"}, {"choice": ["a", "b"]}),
        ({}, {"pattern": "c"}, {"regex": "c"}),
        ({}, {"schema": SCHEMA, "choices": ("a",)}, HELD),
        ({"api": "completions"}, {"schema": SCHEMA}, HELD),
        ({}, {"tools": TOOLS, "schema": SCHEMA}, HELD),
    ],
)
def test_a_vllm_is_held_to_what_an_answer_has_to_be(
    options: dict[str, Any], decode: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Also of a call that offers tools: their words stay in its prompt."""
    engine, call = an_engine(kind="vllm", **options), asking(**decode)
    body = engine._body(call, complete=True)
    held = {"structured_outputs": extra} if extra.keys() & {"choice", "regex"} else extra
    assert body.pop("extra_body") == {"cache_salt": engine.salt(call.context), **held}
    prompt = (
        {"messages": MESSAGES}
        if options.get("api") != "completions"
        else {"prompt": "Use WORDS or say no.Why?"}
    )
    assert body == {"model": "m", "temperature": 0.0, "max_tokens": 9, **prompt}


@pytest.mark.parametrize("kind", ["", "vllm", "dynamo"])
def test_a_prefix_is_sent_with_one_token_and_nothing_that_shapes_answers(kind: str) -> None:
    engine = an_engine(kind=kind)
    call = asking(stop=("a",), seed=1, schema=SCHEMA, choices=("a",), pattern="b", tools=TOOLS)
    own = {"cache_salt": engine.salt(call.context)} if kind == "vllm" else {}
    assert engine._body(call, complete=False) == PLAIN | {"max_tokens": 1, "extra_body": own}


@pytest.mark.parametrize(
    ("limit_field", "first", "second", "names"),
    [
        (None, "max_tokens", None, ["max_tokens", "max_completion_tokens"]),
        (None, "max_tokens", "max_completion_tokens", ["max_tokens", "max_completion_tokens"]),
        ("max_completion_tokens", "max_completion_tokens", None, ["max_completion_tokens"] * 2),
        (None, "temperature", None, ["max_tokens"] * 2),
        (None, "max_completion_tokens", None, ["max_tokens"] * 2),
    ],
)
def test_the_longest_answer_is_renamed_once_and_only_if_it_was_refused(
    limit_field: str | None, first: str, second: str | None, names: list[str]
) -> None:
    engine = an_engine(limit_field=limit_field)
    sent = [engine._body(asking(), complete=True)]
    assert engine._renames(UnknownField("no", first), sent[0]) is (names[0] != names[1])
    sent.append(engine._body(asking(), complete=True))
    assert [next(key for key in body if key.startswith("max_")) for body in sent] == names
    if second is not None:
        assert not engine._renames(UnknownField("no", second), sent[1]), "it has no third name"
        assert engine._renames(UnknownField("no", first), sent[0]), "sent before it was renamed"


def test_chat_is_given_up_where_that_is_wanted_and_only_of_a_chat() -> None:
    refused = NoChatTemplate("no")
    engine = an_engine(api="auto")
    chat = engine._body(asking(), complete=True)
    engine._give_up_chat(refused, chat)
    text = engine._body(asking(), complete=True)
    assert "messages" in chat
    assert "prompt" in text
    engine._give_up_chat(refused, chat)  # another call, which was sent before
    with pytest.raises(NoChatTemplate):
        engine._give_up_chat(refused, text)
    with pytest.raises(NoChatTemplate):
        an_engine(api="chat")._give_up_chat(refused, chat)


def test_tools_that_a_server_refused_are_asked_for_in_words() -> None:
    engine = an_engine()
    engine._refused.add(TOOLS, NoTools("no", any_tools=False, instead=UnknownField("x", "y")), "s")
    assert engine._body(asking(tools=TOOLS), complete=True) == PLAIN
    assert "tools" in engine._body(asking(tools=replace(TOOLS, functions="[]")), complete=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"omit": "temperature"}, 'omit must be a list of names, such as ["temperature"]'),
        ({"omit": ["temperature", 3]}, 'omit must be a list of names, such as ["temperature"]'),
        *(
            (
                options,
                "what requests are made of cannot be left out or replaced: "
                "messages, model, prompt, stream, stream_options, tools",
            )
            for options in ({"omit": ["top_p", "model"]}, {"body": {"tools": []}})
        ),
    ],
)
def test_options_that_no_request_could_follow_are_refused(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as caught:
        OpenAIServer(name="big", url=LOCAL, **options)
    assert str(caught.value) == f"engine 'big': {told}"


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        ("api", "chats", "auto, chat, completions"),
        ("empty", "again", "keep, retry"),
        ("limit_field", "tokens", "max_completion_tokens, max_tokens"),
    ],
)
def test_unknown_options_are_refused_with_those_that_are_known(
    option: str, value: str, valid: str
) -> None:
    with pytest.raises(UnknownName) as caught:
        OpenAIServer(name="big", url=LOCAL, **{option: value})
    assert f"unknown {option} {value!r} in engine 'big'" in str(caught.value)
    assert str(caught.value).endswith(f"(valid: {valid})")


def test_a_schema_that_is_no_json_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        an_engine()._body(asking(schema="{"), complete=True)
    assert str(caught.value) == "the JSON schema of the answer is not JSON"


@pytest.mark.parametrize(
    ("characters", "written", "usage"),
    [(1, 0, (1, 1)), (3, 3, (1, 1)), (4, 4, (2, 2)), (7, 8, (2, 3))],
)
def test_where_no_server_counts_four_characters_are_a_token(
    characters: int, written: int, usage: tuple[int, int]
) -> None:
    parts = [TextPart(Role.QUESTION, "x" * k) for k in (1, characters - 1)]
    assert estimated_usage(a_call(parts), written) == Usage(*usage, 0)
    assert an_engine().count_tokens("x" * written) == usage[1]


@pytest.mark.parametrize(("kind", "salted"), [("vllm", True), ("", False)])
def test_tenants_have_blocks_of_their_own_where_the_server_keeps_them_apart(
    kind: str, salted: bool
) -> None:
    engine = an_engine(kind=kind, salt_key="k", block_tokens=1)
    mine, theirs = (engine.keys(asking(tenant=name)) for name in ("a", "b"))
    assert (mine == theirs) is not salted
    assert mine == engine.keys(asking(tenant="a"), complete=False)
    assert mine != an_engine(kind=kind, salt_key="k", block_tokens=2).keys(asking(tenant="a"))
    assert (mine == an_engine(kind=kind, block_tokens=1).keys(asking(tenant="a"))) is not salted
