"""What an error of a model server stands for, whichever way it is written; without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola.errors import EngineAway, EngineBusy, EngineError, EngineUnavailable, InputError
from teola_engines.openai.connection import Connection
from teola_engines.openai.error_fields import MOST, MOST_SAID, ErrorFields, sentence
from teola_engines.openai.wire import (
    AnswerPiece,
    BadRequest,
    NoSchema,
    NoTools,
    TooLong,
    UnknownField,
    finish_reason,
    read_piece,
    refusal,
)


def kind_of(status: int) -> tuple[type[EngineError], bool]:
    """The error of a status whose body says nothing, and whether to try again."""
    table: dict[int, tuple[type[EngineError], bool]] = {
        **dict.fromkeys((400, 413, 422), (BadRequest, False)),
        **dict.fromkeys((429, 503, 529), (EngineBusy, True)),
        **dict.fromkeys((502, 504), (EngineAway, True)),
        408: (EngineUnavailable, True),
    }
    return table.get(status, (EngineError, status >= 500))


def test_every_status_has_its_error_also_within_a_stream() -> None:
    for status in range(400, 600):
        for body in ({}, {"error": "x"}, "x", {"error": {"code": status}}):
            error = refusal("s", "m", status, body, 7.0)
            assert (type(error), error.retryable) == kind_of(status), status
            assert not isinstance(error, EngineBusy) or error.after_s == 7.0
        event = json.dumps({"error": {"message": "x", "code": status}})
        with pytest.raises(EngineError) as caught:
            read_piece(event, "s", "m")
        assert (type(caught.value), caught.value.retryable) == kind_of(status), status
    for code in (399, 600, True, "529", None):
        error = refusal("s", "m", 500, {"error": {"code": code}})
        assert (type(error), error.retryable) == (EngineError, True)
        assert "failed (500" in str(error)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "API key not valid. Please pass another"}, EngineError),
        (400, {"message": "gpt-9 is not a valid model ID"}, EngineError),
        (400, {"message": "x", "code": "model_not_found"}, EngineError),
        (429, {"message": "x", "type": "insufficient_quota"}, EngineError),
        (429, {"message": "x", "details": [{"violations": "QuotaPerDay"}]}, EngineError),
        (400, {"message": "Your credit balance is too low"}, EngineError),
        (400, {"message": "prompt is too long: 9 tokens > 7 maximum"}, TooLong),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 7. Given: 9"}, TooLong),
        (400, {"message": "Unsupported parameter: 'seed' is not supported here"}, UnknownField),
        (400, {"message": "'seed' is not supported with this model"}, UnknownField),
        (400, {"message": "tools are not supported"}, NoTools),
        (501, {"message": "tool_choice is not supported"}, NoTools),
        (429, {"message": "tools are not supported"}, EngineBusy),
        (400, {"message": "x", "param": "response_format.json_schema"}, NoSchema),
        (500, {"message": "failed to compile grammar"}, NoSchema),
        (503, {"message": "failed to compile grammar"}, EngineBusy),
    ],
)
def test_words_say_more_than_a_status(
    status: int, error: dict[str, Any], kind: type[EngineError]
) -> None:
    told = refusal("s", "m", status, {"error": error})
    assert type(told) is kind, told
    assert told.retryable is (kind is EngineBusy)
    if isinstance(told, (NoTools, NoSchema)):
        assert told.instead.said == error["message"]
        assert told.instead.retryable is (status >= 500)
    else:
        assert told.said == error["message"]
    if isinstance(told, UnknownField):
        assert told.field == "seed"
    if isinstance(told, TooLong):
        assert "context of 7 tokens" in str(told)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ("words", ErrorFields("words")),
        ("x" * (MOST + 1), ErrorFields("x" * MOST)),
        ({"detail": "words"}, ErrorFields("words")),
        ({"detail": {"a": 1}}, ErrorFields('{"a": 1}')),
        ({"error": "words", "error_type": "overloaded"}, ErrorFields("words", "overloaded")),
        ({"object": "error", "message": "m", "code": "c"}, ErrorFields("m", code="c")),
        (
            {"error": {"message": "m", "type": "t", "param": "p", "code": 429}},
            ErrorFields("m", "t", param="p", status=429),
        ),
        ([{"error": {"message": "m", "code": 400}}], ErrorFields("m", status=400)),
        (
            {"error": {"message": "m", "type": "overloaded_error"}},
            ErrorFields("m", "overloaded_error", status=529),
        ),
        ({"error": {"message": "m", "type": "a sentence."}}, ErrorFields("m")),
        (
            {"message": "m", "details": [3, {"retryDelay": "later"}, {"retryDelay": "1.5s"}]},
            ErrorFields("m", after_s=1.5),
        ),
        (
            {"message": "m", "details": [{"violations": ["PerDay"]}]},
            ErrorFields("m", for_today=True),
        ),
        ([], ErrorFields()),
        (None, ErrorFields()),
        (5, ErrorFields()),
    ],
)
def test_errors_are_read_as_each_server_writes_them(body: Any, fields: ErrorFields) -> None:
    assert ErrorFields.of(body) == fields


def test_a_sentence_is_cut_where_it_is_too_long() -> None:
    for count in (MOST_SAID - 1, MOST_SAID, MOST_SAID + 1):
        text = ("word " * MOST_SAID)[:count].strip()
        said = sentence(text)
        assert said == (text if len(text) <= MOST_SAID else f"{text[: MOST_SAID - 3]}...")
    assert sentence(" a\n b \t") == "a b"
    assert sentence("key hunter2 is wrong", "hunter2") == "key *** is wrong"
    assert sentence("see https://me:pw@a.b/c?key=1#x now") == "see https://a.b/c now"
    assert sentence("sk-abcdef and abc") == "*** and abc"


def test_texts_come_as_deltas_messages_or_completions() -> None:
    def piece(choice: Any) -> AnswerPiece:
        return read_piece(json.dumps({"choices": [choice, {"text": "second"}]}), "s", "m")

    assert piece({"delta": {"content": "a"}}) == AnswerPiece("a")
    assert piece({"message": {"content": "a"}, "finish_reason": "stop"}) == AnswerPiece("a", "stop")
    assert piece({"text": "a", "finish_reason": ""}) == AnswerPiece("a")
    assert piece({"text": 5}) == AnswerPiece("")
    parts = [{"text": "a"}, 3, {"text": 4}, {"text": "b"}]
    assert piece({"delta": {"content": parts}}) == AnswerPiece("ab")
    assert piece({"delta": {"refusal": "no", "content": "b"}}) == AnswerPiece("bno", "refusal")
    assert piece({"delta": {"refusal": ""}, "finish_reason": "stop"}) == AnswerPiece("", "stop")
    for key in ("reasoning_content", "reasoning"):
        assert piece({"delta": {key: "hm"}}).thinks
        assert not piece({"delta": {key: ""}}).thinks
    assert finish_reason("MAX_TOKENS", "s") == "length"
    assert finish_reason("eos", "s") == "stop"


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute"])
def test_an_account_may_be_limited_to_one(name: str) -> None:
    connection = Connection("llm", "http://127.0.0.1:1/v1", "key", None, 1.0)
    other = "tokens_per_minute" if name.startswith("requests") else "requests_per_minute"
    found = connection.limits(**{name: 1, other: None})
    assert (getattr(found, name), getattr(found, other)) == (1, None)
    for wrong in (0, -1, True):
        with pytest.raises(InputError, match=f"{name} is {wrong}: give a whole number from 1"):
            connection.limits(**{name: wrong, other: 5})
    same = Connection("other", "http://127.0.0.1:1/v1", "key", 3.0, 2.0).limits(None, None)
    assert same.account == found.account
    another = Connection("llm", "http://127.0.0.1:1/v1", "key2", None, 1.0).limits(None, None)
    assert another.account != found.account
