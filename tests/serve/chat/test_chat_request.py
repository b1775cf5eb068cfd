"""The body of a chat completion: what becomes of messages, calls, schemas and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from teola import App, Generate, component
from teola.errors import InputError, UnknownName
from teola.serve.chat.chat_request import (
    MESSAGES,
    SCHEMA_CHARACTERS,
    ChatRequest,
    check_chats,
    decoding,
    read_chat_request,
)
from teola.serve.chat.conversation import Conversation, Exchange, Turn
from teola.workflow.inputs import Input

USER = {"role": "user", "content": "Why?"}


def request(*messages: dict[str, Any], **more: Any) -> ChatRequest:
    return read_chat_request({"model": "a", "messages": [*messages] or [USER], **more})


def said(*messages: dict[str, Any]) -> Conversation:
    return request(*messages).conversation(lambda id: None)


def call(id: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*ids: str, content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": [call(id) for id in ids]}


def gave(id: str, text: str = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


# --- messages -------------------------------------------------------------------------------------


def test_the_last_message_is_asked_and_the_others_are_told() -> None:
    found = said(
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": " One? "},
        {"role": "developer", "content": [{"type": "text", "text": "In "},
                                          {"type": "text", "text": "verse."}]},
        {"role": "assistant", "content": "1"},
        {"role": "assistant", "content": " "},
        {"role": "system", "content": None},
        {"role": "user", "content": " Two? "},
    )  # fmt: skip
    assert found.question == " Two? "
    assert found.turns == (Turn("User", "One?"), Turn("Assistant", "1"))
    assert found.instructions == ("Be brief.", "In verse.")
    assert found.exchange == ()


def test_a_refusal_is_a_text_too_and_nothing_else_is() -> None:
    parts = [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": " Never."}]
    assert said({"role": "assistant", "content": parts}, USER).turns[0].text == "No. Never."
    for part, told in (
        ({"type": "image_url"}, r"messages.0.content.1: .* not 'image_url'"),
        ({"text": "x"}, "not 'None'"),
        ({"type": "text"}, r"messages.0.content.1: its text is missing"),
        ({"type": "text", "text": 1}, "its text is missing"),
    ):
        with pytest.raises(InputError, match=told):
            said({"role": "user", "content": [{"type": "text", "text": "a"}, part]})


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "assistant", "content": "a"}], "the last message must be the user's"),
        ([USER, {"role": "assistant", "content": "a"}], "the last message must be the user's"),
        ([{"role": "system", "content": "a"}], "the last message must be the user's"),
        ([USER, gave("1")], r"messages.1: a tool's message must answer a call"),
        ([USER, calls("1"), gave("2")], r"messages.2: a tool's message must answer a call"),
        ([USER, calls("1"), gave("1"), gave("1")], r"messages.3: a tool's message must answer"),
        ([USER, calls("1"), USER], r"messages.1: an assistant message with tool_calls .*'1'"),
        ([USER, calls("1"), USER, gave("1")], r"messages.1: an assistant message .*'1'"),
        ([USER, calls("1", "2"), gave("2"), USER], r"messages.1: .*'1' has none"),
        ([USER, calls("1"), gave("1"), calls("2"), USER], r"messages.3: .*'2' has none"),
        ([USER, calls("1", "1"), gave("1")], "two calls have the id '1'"),
        ([USER, calls("1"), gave("1"), calls("1"), gave("1")], r"messages.3: two calls"),
        ([{**USER, "tool_calls": [call("1")]}], r"messages.0: only the assistant's messages"),
    ],
)
def test_calls_and_their_answers_belong_together(messages: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        said(*messages)


def test_calls_since_the_question_are_an_exchange_and_earlier_ones_are_told() -> None:
    found = said(
        USER, calls("1", content="I look."), gave("1", "old"),
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "And now?"}, calls("2", "3"), gave("3", "c"), gave("2", "b"),
    )  # fmt: skip
    assert found.question == "And now?"
    assert found.exchange == (Exchange("look", {}, "b"), Exchange("look", {}, "c"))
    assert [str(turn) for turn in found.turns] == [
        "User: Why?",
        "Assistant: I look.",
        "Assistant: (calls look({}))",
        "Tool look: old",
        "Assistant: So.",
    ]


def test_only_calls_whose_question_was_not_answered_are_taken_up() -> None:
    asked = list[str]()

    def placed(id: str) -> None:
        asked.append(id)

    done = {"role": "assistant", "content": "Done."}
    messages = (
        USER, calls("1"), gave("1"), done,
        USER, calls("2"), gave("2"), calls("3"), gave("3"),
        USER, calls("4"), gave("4"), done,
        USER, calls("5"), gave("5"),
    )  # fmt: skip
    request(*messages).conversation(placed)
    assert asked == ["2", "3", "5"]


@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        ('{"a": 1}', {"a": 1}), ("", {}), ("[1]", {"arguments": "[1]"}),
        ("{", {"arguments": "{"}), ("[" * 100_000, {"arguments": "[" * 100_000}),
    ],
    ids=["object", "nothing", "list", "half", "deep"],
)  # fmt: skip
def test_arguments_that_are_no_object_are_a_text(typed: str, arguments: dict[str, Any]) -> None:
    message = {"role": "assistant", "tool_calls": [call("1", arguments=typed)]}
    (made,) = said(USER, message, gave("1")).exchange
    assert made == Exchange("look", arguments, "seen")


# --- parameters -----------------------------------------------------------------------------------


def test_what_would_change_nothing_is_passed_over_and_what_nobody_knows_refused() -> None:
    assert request(top_p=0.5, user="me", metadata={}).model == "a"
    with pytest.raises(UnknownName, match=r"'temprature'.*did you mean 'temperature'"):
        request(temprature=1)
    for wrong, told in (
        ({"n": 2}, "n: "), ({"logprobs": True}, "logprobs"), ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a"] * 5}, "stop"), ({"temperature": 2.1}, "temperature"),
        ({"functions": [{}]}, "send none"), ({"messages": []}, "messages"),
        ({"messages": [USER] * (MESSAGES + 1)}, "messages"), ({"seed": 2**63}, "seed"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=told):
            request(**wrong)
    fits = request(stop=["a"] * 4, temperature=2, n=None, functions=[], seed=-(2**63))
    assert fits.stop == ["a"] * 4


def test_a_session_has_our_name_or_openais() -> None:
    assert request().turn_of is None
    assert request(prompt_cache_key=" k ").turn_of == "k"
    assert request(prompt_cache_key=" ").turn_of is None
    assert request(prompt_cache_key="k", session="s").turn_of == "s"
    assert request(stream_options={"include_usage": True}).wants_usage
    assert not request(stream_options={}).wants_usage
    assert not request().wants_usage


def test_a_schema_may_be_wanted_in_openais_form() -> None:
    def wanted(form: Any) -> Any:
        return request(response_format=form).wanted_schema()

    schema = {"type": "object", "properties": {}}
    assert wanted(None) is wanted({"type": "text"}) is wanted({}) is None
    assert wanted({"type": "json_object"}) == {"type": "object"}
    assert wanted({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}) == schema
    for kind, wrapped in (
        ("json_schema", None), ("json_schema", {"name": "a"}), ("json_schema", []),
        ("json_schema", {"schema": True}), ("xml", {"schema": schema}),
    ):  # fmt: skip
        form: dict[str, Any] = {"type": kind, "json_schema": wrapped}
        with pytest.raises(InputError, match="its type is text, json_object, or json_schema"):
            wanted(form)
    room = SCHEMA_CHARACTERS - len('{"title": ""}')
    fits = {"type": "json_schema", "json_schema": {"schema": {"title": "x" * room}}}
    assert wanted(fits)["title"]
    fits["json_schema"]["schema"]["title"] += "x"  # type: ignore[index]
    with pytest.raises(InputError, match="a schema has up to 65536 characters"):
        wanted(fits)


@component(outputs="answer", name="echo")
def echo(question: str) -> str:
    return question


def app(template: Any, **inputs: Any) -> App:
    return App("a", template, inputs={"question": "text", **inputs}, outputs={"answer": "answer"})


def test_an_application_chats_if_a_question_is_all_that_it_needs() -> None:
    optional = {"history": "text", "documents": "documents", "more": Input("any", default=None)}
    check_chats(app(echo), "a")
    check_chats(app(echo, **optional), "a")
    with pytest.raises(
        InputError, match="takes more than a question; ask it at /v1/apps/m/queries"
    ):
        check_chats(app(echo, more="any"), "m")


def test_parameters_go_to_what_writes_the_answer() -> None:
    draft = Generate("draft", context_required=False, outputs={"answer": "history"})
    writer = app(draft >> Generate(context_required=False, temperature=0.5))
    full = request(max_tokens=5, max_completion_tokens=7, seed=3, stop="end")
    wanted = {"generate.max_tokens": 7, "generate.seed": 3, "generate.stop": ["end"]}
    assert decoding(writer, full, None) == wanted
    assert decoding(writer, request(max_tokens=5), None) == {"generate.max_tokens": 5}
    assert decoding(writer, request(), {"a": 1}) == {"generate.json_schema": {"a": 1}}
    assert decoding(writer, request(stop=[]), None) == {}
    cold = {"generate.temperature": 0.0}
    assert decoding(writer, request(temperature=0, seed=3), None) == cold, (
        "nothing is left to chance"
    )
    assert decoding(app(Generate(context_required=False)), request(seed=3), None) == {}
    warm = request(temperature=0.1, seed=3)
    assert decoding(app(Generate(context_required=False)), warm, None).keys() == {
        "generate.temperature",
        "generate.seed",
    }
    assert decoding(app(echo), full, {"a": 1}) == {}
