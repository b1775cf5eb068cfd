"""Tool calls of a server, as our own lists have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola.errors import EngineError
from teola_engines.llm.openai_calls import CallPiece, CallsText, pieces_of
from teola_engines.llm.openai_wire import NoTools, read_piece, refusal
from tests.planted import catches, edited


def written(*fed: tuple[str, tuple[CallPiece, ...]], typed: bool = False) -> list[str]:
    text = CallsText("fake", typed)
    return [*(text.feed(*one) for one in fed), text.end()]


def began(index: int, name: str, arguments: str = "") -> tuple[str, tuple[CallPiece, ...]]:
    return "", (CallPiece(index, name, arguments),)


def more(index: int, arguments: str) -> tuple[str, tuple[CallPiece, ...]]:
    return "", (CallPiece(index, "", arguments),)


def test_calls_become_a_list_with_what_was_thought() -> None:
    pieces = written(
        ("I need ", ()),
        ('"both".', ()),
        began(0, "weather"),
        more(0, '{"city": "Os'),
        more(0, 'lo"}'),
        began(1, "now"),
        began(2, "add", '{"a": {"b": 1}}'),
    )
    assert json.loads("".join(pieces)) == {
        "thought": 'I need "both".',
        "calls": [
            {"tool": "weather", "args": {"city": "Oslo"}},
            {"tool": "now", "args": {}},
            {"tool": "add", "args": {"a": {"b": 1}}},
        ],
    }


@catches(
    "late-call",
    "a call is complete only when the next one begins",
    edited(CallsText._add, "if self._complete():", "if False:"),
)
def test_a_call_is_complete_with_its_last_argument() -> None:
    pieces = written(began(0, "f", '{"a": "}'), more(0, '"}'), began(1, "g", "{}"))
    assert pieces[1] == '"}}'
    assert json.loads("".join(pieces))["calls"][0] == {"tool": "f", "args": {"a": "}"}}


def test_arguments_that_are_no_json_are_no_list() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        json.loads("".join(written(began(0, "f", '{"a": '))))


def test_calls_that_are_mixed_up_are_an_error() -> None:
    with pytest.raises(EngineError, match="goes back to a call"):
        written(began(0, "f"), began(1, "g"), more(0, "{}"))


@pytest.mark.parametrize(
    ("content", "typed", "answer"),
    [
        ("It rains.", False, "It rains."),
        ("42", False, "42"),
        ("42", True, 42),
        ('```json\n{"n": 3}\n```', True, {"n": 3}),
        ('{"answer": "as told"}', False, "as told"),
        ('{"n": 3}', False, '{"n": 3}'),
    ],
)
def test_without_calls_it_is_an_answer(content: str, typed: bool, answer: Any) -> None:
    assert json.loads("".join(written((content, ()), typed=typed))) == {"answer": answer}


def test_a_list_in_words_stays_one() -> None:
    listed = '{"thought": "x", "calls": [{"tool": "f", "args": {}}]}'
    assert "".join(written((listed, ()))) == listed


def test_pieces_are_read_as_servers_send_them() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    assert pieces_of({"tool_calls": [{"function": function}]}) == (CallPiece(0, "f", '{"a": 1}'),)
    assert pieces_of({"content": "x", "tool_calls": None}) == ()
    with pytest.raises(ValueError, match="without a function"):
        pieces_of({"tool_calls": [{"index": 0}]})
    delta = {"tool_calls": [{"index": 1, "function": {"arguments": "x"}}]}
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    piece = read_piece(json.dumps(event), "fake", "m")
    assert (piece.calls, piece.finish_reason) == ((CallPiece(1, "", "x"),), "tool_calls")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry/llama2 does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice'),
        (500, "tools param requires --jinja flag"),
    ],
)
def test_servers_without_tools_say_so(status: int, message: str) -> None:
    assert isinstance(refusal("fake", "m", status, {"message": message}), NoTools)
    assert not isinstance(refusal("fake", "m", status, {"message": "too warm"}), NoTools)
