"""Answers of queries as OpenAI's clients read them: whole, in pieces, with calls and sources."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import Hit
from teola.errors import Overloaded
from teola.query.event_log import Event, EventLog
from teola.query.result import Result
from teola.runtime.live.query import Token
from teola.serve.chat.completions import (
    Chunks,
    answer_text,
    calls_of,
    completion,
    sources_of,
    usage,
)

HITS = [Hit("1", "a.md", "one", 0.9), Hit("2", "b.md", "two", 0.5)]
CALLS = [
    {"id": "c1", "tool": "look", "args": {"é": 1}},
    {"id": "c2", "tool": "send", "args": {}},
]
TOLD = [
    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"é": 1}'}},
    {"id": "c2", "type": "function", "function": {"name": "send", "arguments": "{}"}},
]


def entry_of(outputs: Any, *, cut: bool = False, traced: bool = True, **more: Any) -> Any:
    trace = SimpleNamespace(prompt_tokens=7, completion_tokens=2, cut=cut) if traced else None
    result = Result("a", "q1", more.pop("state", "ok"), outputs, 1.0, **more)
    return SimpleNamespace(
        id="q1", created=12.9, result=result, events=EventLog(), job=SimpleNamespace(trace=trace)
    )


def test_an_answer_that_comes_whole() -> None:
    body = completion(entry_of({"answer": "Yes."}), "m", "Yes.")
    (choice,) = body["choices"]
    assert choice == {
        "index": 0, "logprobs": None, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Yes.", "refusal": None},
    }  # fmt: skip
    assert (body["id"], body["object"], body["created"]) == ("chatcmpl-q1", "chat.completion", 12)
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert "x_teola" not in body
    assert usage(entry_of({}, traced=False))["total_tokens"] == 0
    cut = completion(entry_of({"answer": "Yes."}, cut=True), "m", "Yes.")
    assert cut["choices"][0]["finish_reason"] == "length"


def test_calls_that_a_client_is_to_make_come_in_place_of_an_answer() -> None:
    entry = entry_of({"answer": None, "tool_calls": CALLS}, cut=True)
    (choice,) = completion(entry, "m", "")["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert (choice["message"]["content"], choice["message"]["tool_calls"]) == (None, TOLD)
    assert calls_of(None) == calls_of(entry_of({"tool_calls": None}).result) == []


def test_sources_are_the_passages_beside_the_answer() -> None:
    def documents(outputs: Any) -> list[str]:
        found = sources_of(entry_of(outputs).result)
        return [one["document"] for one in found.get("sources", [])]

    assert documents({"answer": "x", "sources": HITS}) == ["a.md", "b.md"]
    assert documents({"answer": "x", "a": HITS[:1], "b": [1, HITS[1]]}) == ["a.md", "b.md"]
    assert documents({"answer": HITS}) == documents({"answer": "x", "b": []}) == []
    assert sources_of(None) == {}
    body = completion(entry_of({"answer": "x", "sources": HITS}), "m", "x")
    assert [one["text"] for one in body["x_teola"]["sources"]] == ["one", "two"]


def test_steps_are_told_once_they_have_ended() -> None:
    entry = entry_of({"answer": "x"})
    for state in ("started", "finished", "failed"):
        entry.events.add(Event("step", json.dumps({"state": state})))
    assert "x_teola" not in completion(entry, "m", "x")
    steps = completion(entry, "m", "x", steps=True)["x_teola"]["steps"]
    assert [step["state"] for step in steps] == ["finished", "failed"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Yes.", "Yes."),
        (None, ""),
        ("", ""),
        ({"é": [1]}, '{"é": [1]}'),
        (0, "0"),
        (False, "false"),
    ],
)
def test_any_answer_is_a_text(answer: Any, text: str) -> None:
    assert answer_text(entry_of({"answer": answer}).result) == text


# --- pieces ---------------------------------------------------------------------------------------


def pieces(entry: Any, *events: Event, wants_usage: bool = False, steps: bool = False) -> list[Any]:
    chunks = Chunks(entry, "m", wants_usage, steps)
    texts = [text for n, event in enumerate(events, 1) for text in chunks.encode(n, event)]
    assert all(text.startswith("data: ") and text.endswith("\n\n") for text in texts)
    told = [text.removeprefix("data: ").strip() for text in texts]
    return [one if one == "[DONE]" else json.loads(one) for one in told]


def deltas(told: list[Any]) -> list[Any]:
    return [one["choices"][0]["delta"] for one in told if one != "[DONE]" and one["choices"]]


def token(text: str) -> Event:
    return Event("token", Token(text))


DONE = Event("done", "{}")
BEGUN = {"role": "assistant", "content": ""}


def test_tokens_come_behind_a_piece_that_says_who_speaks() -> None:
    told = pieces(entry_of({"answer": 'a"b\n'}), token('a"'), token(""), token("b\n"), DONE)
    assert deltas(told) == [BEGUN, {"content": 'a"'}, {"content": "b\n"}, {}]
    assert [one["choices"][0]["finish_reason"] for one in told[:-1]] == [None, None, None, "stop"]
    assert told[-1] == "[DONE]"
    assert all("usage" not in one and one["object"] == "chat.completion.chunk" for one in told[:-1])


def test_what_was_not_streamed_comes_at_the_end() -> None:
    assert deltas(pieces(entry_of({"answer": {"a": 1}}), DONE)) == [
        BEGUN,
        {"content": '{"a": 1}'},
        {},
    ]
    assert deltas(pieces(entry_of({"answer": ""}), DONE)) == [BEGUN, {}]
    assert deltas(pieces(entry_of({"answer": "b"}), token("a"), DONE)) == [
        BEGUN,
        {"content": "a"},
        {},
    ]


def test_a_last_piece_tells_the_tokens_to_who_wants_them() -> None:
    *told, last, done = pieces(entry_of({"answer": "a"}), token("a"), DONE, wants_usage=True)
    assert (last["choices"], last["usage"]["total_tokens"], done) == ([], 9, "[DONE]")
    assert all(one["usage"] is None for one in told)


def test_calls_come_with_their_names_and_then_their_arguments() -> None:
    told = pieces(entry_of({"answer": None, "tool_calls": CALLS}), DONE)
    first, second, third, fourth, end = deltas(told)
    assert (first["role"], first["content"]) == ("assistant", None)
    assert first["tool_calls"] == [
        {"index": 0, **TOLD[0], "function": {"name": "look", "arguments": ""}}
    ]
    assert second == {"tool_calls": [{"index": 0, "function": {"arguments": '{"é": 1}'}}]}
    assert (third["tool_calls"][0]["index"], "role" in third) == (1, False)
    assert fourth["tool_calls"][0]["function"] == {"arguments": "{}"}
    assert (end, told[-2]["choices"][0]["finish_reason"]) == ({}, "tool_calls")
    spoke = deltas(pieces(entry_of({"answer": None, "tool_calls": CALLS}), token("a"), DONE))
    assert spoke[:2] == [BEGUN, {"content": "a"}]
    assert spoke[2].keys() == {"tool_calls"}, "who speaks is told once"


def test_steps_come_to_who_wants_them() -> None:
    step = Event("step", '{"tool": "look"}')
    assert deltas(pieces(entry_of({"answer": "a"}), step, token("a"))) == [BEGUN, {"content": "a"}]
    told = pieces(entry_of({"answer": "a"}), step, step, token("a"), steps=True)
    assert deltas(told) == [BEGUN, {}, {}, {"content": "a"}]
    assert told[1]["x_teola"] == {"step": {"tool": "look"}}


def test_sources_come_with_the_end() -> None:
    *_, end, done = pieces(entry_of({"answer": "a", "sources": HITS}), token("a"), DONE)
    assert ([one["text"] for one in end["x_teola"]["sources"]], done) == (["one", "two"], "[DONE]")


def test_an_end_without_an_answer_is_an_error() -> None:
    failed = entry_of({}, state="failed", error=Overloaded("later"))
    (told,) = pieces(failed, Event("error", "{}"))
    assert (told["error"]["code"], told["error"]["type"]) == ("overloaded", "rate_limit_error")
    (told,) = pieces(entry_of({}), Event("waiting", "{}"))
    assert (told["error"]["code"], "teola answer q1" in told["error"]["message"]) == (
        "waiting",
        True,
    )
    assert pieces(entry_of({}), Event("primitive", "{}"), Event("restarted", "{}")) == []
