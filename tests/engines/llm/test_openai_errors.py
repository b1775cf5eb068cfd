"""What an error of a model server stands for, whichever way it is written; without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from teola.errors import EngineAway, EngineBusy, EngineError, EngineUnavailable, InputError
from teola_engines.llm import VLLMServer
from teola_engines.openai import wire
from teola_engines.openai.connection import Connection
from teola_engines.openai.error_fields import MOST, MOST_SAID, ErrorFields, sentence
from teola_engines.openai.wire import (
    AnswerPiece,
    BadRequest,
    NoChatTemplate,
    NoSchema,
    NoTools,
    TooLong,
    UnknownField,
    finish_reason,
    read_piece,
    refusal,
    too_long,
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


NO_KEY = "s refuses the API key ({}): give one that may use 'm'"
NO_MODEL = "s has no model 'm' ({}): name one of its /v1/models"
USED_UP = (
    "the quota of the API key at s is used up ({}, insufficient_quota): "
    "look at its account there, or give another key"
)
LONGER = (
    "the prompt and its answer exceed the context{} of 'm' (s): "
    "use fewer or smaller chunks, or a smaller max_tokens"
)
NO_SEED = "s does not take the field 'seed' ({}): leave it out with the option omit = [\"seed\"]"
NO_TOOLS, THESE_TOOLS = "s takes no tools ({})", "s refuses the tools of a request ({})"
SCHEMALESS = "s holds answers to no such schema ({})"
INVALID = "s refuses the request as invalid ({}): see its log"
NO_TEMPLATE = "model 'm' (s) has no chat template: set api='completions' or 'auto'"
FULL = "s takes no more calls now ({})"


@pytest.mark.parametrize(
    ("status", "error", "kind", "told"),
    [
        (401, {"message": "x"}, EngineError, NO_KEY),
        (403, {"message": "x"}, EngineError, NO_KEY),
        (400, {"message": "API key not valid. Please pass another"}, EngineError, NO_KEY),
        (429, {"message": "Invalid API key"}, EngineBusy, FULL),
        (400, {"message": "gpt-9 is not a valid model ID"}, EngineError, NO_MODEL),
        (422, {"message": "gpt-9 is not a valid model ID"}, BadRequest, INVALID),
        (400, {"message": "x", "code": "model_not_found"}, EngineError, NO_MODEL),
        (400, {"message": "x", "type": "invalid_model"}, EngineError, NO_MODEL),
        (404, {"message": "x"}, EngineError, NO_MODEL),
        (402, {"message": "x"}, EngineError, USED_UP),
        (429, {"message": "x", "type": "insufficient_quota"}, EngineError, USED_UP),
        (429, {"message": "x", "code": "billing_hard_limit_reached"}, EngineError, USED_UP),
        (429, {"message": "x", "details": [{"violations": "QuotaPerDay"}]}, EngineError, USED_UP),
        (400, {"message": "Your credit balance is too low"}, EngineError, USED_UP),
        (400, {"message": "prompt is too long: 9 tokens > 7 maximum"}, TooLong, LONGER),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 7."}, TooLong, LONGER),
        (413, {"message": "beyond the context size"}, TooLong, LONGER),
        (400, {"message": "x", "code": "context_length_exceeded"}, TooLong, LONGER),
        (400, {"message": "Unsupported parameter: 'seed' is not known"}, UnknownField, NO_SEED),
        (422, {"message": "'seed' is not supported with this model"}, UnknownField, NO_SEED),
        (400, {"message": "the tokenizer has no chat_template"}, NoChatTemplate, NO_TEMPLATE),
        (400, {"message": "m has no chat template for tools"}, NoChatTemplate, NO_TEMPLATE),
        (400, {"message": "tools are not supported"}, NoTools, NO_TOOLS),
        (501, {"message": "tool_choice is not supported"}, NoTools, NO_TOOLS),
        (422, {"message": "tools.0 is unknown"}, NoTools, THESE_TOOLS),
        (429, {"message": "tools are not supported"}, EngineBusy, FULL),
        (400, {"message": "x", "param": "response_format.json_schema"}, NoSchema, SCHEMALESS),
        (500, {"message": "failed to compile grammar"}, NoSchema, SCHEMALESS),
        (503, {"message": "failed to compile grammar"}, EngineBusy, FULL),
        (413, {"message": "x"}, BadRequest, INVALID),
        (502, {"message": "x"}, EngineAway, "s is out of reach behind its gateway ({})"),
        (408, {"message": "x"}, EngineUnavailable, "s waited too long for the request ({})"),
        (418, {"message": "x"}, EngineError, "s failed ({}): see its log"),
    ],
)
def test_words_say_more_than_a_status(
    status: int, error: dict[str, Any], kind: type[EngineError], told: str
) -> None:
    found = refusal("s", "m", status, {"error": error})
    assert type(found) is kind, found
    of_seven = " of 7 tokens" if "7" in error["message"] else ""
    assert str(found) == told.format(of_seven if kind is TooLong else status)
    assert found.retryable is (kind in (EngineBusy, EngineAway, EngineUnavailable))
    if isinstance(found, (NoTools, NoSchema)):
        assert found.instead.said == error["message"]
        assert found.instead.retryable is (status >= 500)
    else:
        assert found.said == error["message"]
    if isinstance(found, UnknownField):
        assert found.field == "seed"


def test_what_a_server_calls_an_error_is_told_beside_its_status() -> None:
    named = {"message": "words", "type": "t", "code": "c", "param": "p"}
    told = str(refusal("s", "m", 500, {"error": named}))
    assert told == "s failed (500, t, c, p): see its log"
    for status in (400, 413, 422):
        told = str(refusal("s", "m", status, {"error": named}))
        assert told == f"s refuses the request as invalid ({status}, t, c, p): see its log"
        said = str(refusal("s", "m", status, {"error": named | {"message": "unknown 'seed'"}}))
        assert said == NO_SEED.format(f"{status}, t, c, p")


@pytest.mark.parametrize(
    ("limit", "counts", "told"),
    [
        (None, (), "the prompt and its answer exceed the context of 'm' (s): "),
        (1, (), "the prompt and its answer exceed the context of 1 tokens of 'm' (s): "),
        (7, (3, 5), "the prompt and its answer (3 and 5) exceed the context of 7 tokens of"),
        (7, (1, 0), "the prompt and its answer (1 and 0) exceed the context of 7 tokens of"),
    ],
)
def test_what_is_known_of_a_prompt_that_is_too_long_is_told(
    limit: int | None, counts: tuple[int, ...], told: str
) -> None:
    assert str(too_long("s", "m", limit, *counts)).startswith(told)


def test_when_to_ask_again_is_what_headers_say_and_else_the_body() -> None:
    waits = {"error": {"message": "x", "details": [{"retryDelay": "9s"}]}}
    for body, after_s, found in ((waits, None, 9.0), (waits, 0.0, 0.0), ({}, None, None)):
        error = refusal("s", "m", 429, body, after_s)
        assert isinstance(error, EngineBusy)
        assert error.after_s == found


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (None, "s ended its stream before the answer was complete"),
        ("content_filter", "s withheld the answer (content filter)"),
        ("SAFETY", "s withheld the answer (content filter)"),
        ("abort", "s gave the answer up (abort)"),
        ("Error", "s gave the answer up (Error)"),
    ],
)
def test_an_answer_that_is_none_says_why(reason: str | None, told: str) -> None:
    with pytest.raises(EngineError) as caught:
        finish_reason(reason, "s")
    assert str(caught.value) == told
    assert caught.value.retryable is ("withheld" not in told)


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


@pytest.mark.parametrize(
    "error",
    [
        lambda why: why,
        lambda why: NoTools("no", any_tools=True, instead=why),
        lambda why: NoTools("no", any_tools=False, instead=why),
        lambda why: NoSchema("no", why),
    ],
)
def test_a_key_is_taken_out_of_what_a_server_said_also_where_it_stands_for_another_error(
    error: Callable[[EngineError], EngineError],
) -> None:
    """Where it is asked once more without tools, the other one is what is told."""
    why = EngineError("why")
    made = error(why)
    for one in (made, why):
        one.said = "the key zebra-canary may not"
    with (
        pytest.raises(EngineError) as caught,
        wire.as_engine_errors("s", "m", lambda headers: None, "zebra-canary"),
    ):
        raise made
    assert caught.value is made
    assert {made.said, why.said} == {"the key *** may not"}


@pytest.mark.parametrize("window", [None, 7, 8, 9])
def test_a_prompt_that_is_too_long_for_its_model_is_refused_before_it_is_sent(
    window: int | None,
) -> None:
    server = VLLMServer(url="http://127.0.0.1:1/v1", model="small")
    server.capabilities = replace(server.capabilities, window=window)
    if window != 7:
        server._check([1, 2, 3], 5)
        return
    with pytest.raises(TooLong) as caught:
        server._check([1, 2, 3], 5)
    where = server._connection.server
    assert str(caught.value) == str(too_long(where, "small", 7, 3, 5))
    assert "(3 and 5) exceed the context of 7 tokens of 'small' (" in str(caught.value)
