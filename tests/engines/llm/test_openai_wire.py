import json
from datetime import UTC, datetime

import pytest

from teola.engine import LeftOfMinute, Usage
from teola_engines.openai import budget_headers, wire
from teola_engines.openai.calls import CallsText
from teola_engines.openai.wire import AnswerPiece


async def pieces(*chunks):
    for chunk in chunks:
        yield chunk


async def test_events_survive_every_cut():
    whole = 'data: {"t": "é\u2028\x85"}\r\n: ping\n\ndata:2\nevent: x\ndata: [DONE]\n\n'.encode()
    for size in (1, 2, 3, 7, len(whole)):
        chunks = [whole[i : i + size] for i in range(0, len(whole), size)]
        found = [data async for data in wire.events(pieces(*chunks))]
        assert found == ['{"t": "é\u2028\x85"}', wire.ALIVE, "2", "[DONE]"]


async def test_a_line_without_end_is_given_up():
    with pytest.raises(ValueError, match="without end"):
        async for _ in wire.events(pieces(*[b"x" * 100_000] * 20)):
            pass


def listed(*choices):
    return json.dumps({"choices": [*choices]})


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("3", "not an object"),
        ("[]", "not an object"),
        ("[[]]", "not an object"),
        ("{}", "no choices"),
        ('{"choices": 3}', "no choices"),
        ('{"choices": null}', "no choices"),
        (listed(3), "a choice is not an object"),
        (listed({"delta": {}, "finish_reason": 5}), "a finish_reason is a text"),
        (listed({"delta": {}, "finish_reason": ["stop"]}), "a finish_reason is a text"),
        (listed({"delta": {"tool_calls": 3}}), "tool_calls is no list"),
        (listed({"delta": {"tool_calls": [3]}}), "a tool call without a function"),
        (listed({"delta": {"tool_calls": [{"function": 3}]}}), "a tool call without a function"),
        ("[" * 99_999 + listed({}) + "]" * 99_999, "more levels than any event has"),
    ],
)
def test_events_of_another_kind_are_no_pieces(event, told):
    with pytest.raises(ValueError, match=f"^{told}$"):
        wire.read_piece(event, "s", "m")
    assert wire.read_piece(json.dumps({"choices": [], "usage": None}), "s", "m") == AnswerPiece()


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, (5, 2, 0)),
        ({"prompt_tokens": 5.0, "prompt_tokens_details": {"cached_tokens": 9}}, (5, 0, 5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": [2]}}, None),
        ({"prompt_tokens": -5}, None),
        ({"completion_tokens": 1e999}, None),
        ({"completion_tokens": float("nan")}, None),
        ({"prompt_tokens": [1]}, None),
        ({"prompt_tokens": "many"}, None),
        ([5], None),
    ],
)
def test_counts_that_are_none_are_left_to_be_estimated(told, found):
    event = {"choices": [{"delta": {"content": "a"}}], "usage": told}
    usage = wire.read_piece(json.dumps(event), "s", "m").usage
    assert usage == (None if found is None else Usage(*found))


@pytest.mark.parametrize("details", [5, True, "x", {"a": 1}, [5, None, []], None])
def test_an_error_with_wrong_details_is_told(details):
    body = {"error": {"message": "out of memory", "code": "oom", "details": details}}
    error = wire.refusal("s", "m", 500, body)
    assert error.said == "out of memory"


def test_an_answer_of_many_levels_is_an_answer():
    deep = "[" * 99_999
    written = CallsText("s", typed=True)
    written.feed(deep, ())
    assert json.loads(written.end()) == {"answer": deep}


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch):
    """It is NOW."""
    monkeypatch.setattr(budget_headers.time, "time", NOW.timestamp)


@pytest.mark.parametrize(
    ("left", "reset", "found"),
    [
        ("0", "0", (0, 0)),
        ("7", "59.7", (7, 59.7)),
        ("7", "1s", (7, 1)),
        ("7", "120ms", (7, 0.12)),
        ("7", "6m0s", (7, 360)),
        ("7", "1h2m3.5s", (7, 3723.5)),
        ("7", "2m120ms", (7, 120.12)),
        ("7", "1h5s3ms", (7, 3605.003)),
        ("7", "2026-05-01T12:01:30Z", (7, 90)),
        ("7", "2026-05-01T14:01:30+02:00", (7, 90)),
        ("7", "1999-12-31T23:59:59Z", (7, 0)),
        ("7", None, None),
        ("7", "", None),
        ("7", "soon", None),
        ("7", "-1s", None),
        ("7", "9" * 400, None),
        ("-1", "1s", None),
        ("nan", "1s", None),
        ("many", "1s", None),
    ],
)
@pytest.mark.parametrize("dialect", ["x-ratelimit-{}-{}", "anthropic-ratelimit-{1}-{0}"])
@pytest.mark.parametrize("name", ["requests", "tokens"])
@pytest.mark.usefixtures("clock")
def test_what_servers_say_is_left(name, dialect, left, reset, found):
    said = {"remaining": left, "reset": reset}
    told = budget_headers.left_of_minute(
        {dialect.format(what, name): text for what, text in said.items() if text is not None}
    )
    amount, reset_s = found or (None, None)
    expected = {"requests": None, "tokens": None, name: amount, f"{name}_reset_s": reset_s}
    assert told == (LeftOfMinute(**expected) if found else None)


@pytest.mark.parametrize(
    ("limit", "known"), [("60", 60), ("0", None), ("-1", None), ("many", None), (None, None)]
)
@pytest.mark.parametrize("dialect", ["x-ratelimit-{}-{}", "anthropic-ratelimit-{1}-{0}"])
@pytest.mark.parametrize("name", ["requests", "tokens"])
def test_of_how_much_it_is_left_is_said_beside_it(name, dialect, limit, known):
    said = {"remaining": "7", "reset": "1s", "limit": limit}
    told = budget_headers.left_of_minute(
        {dialect.format(what, name): text for what, text in said.items() if text is not None}
    )
    other = "tokens" if name == "requests" else "requests"
    assert getattr(told, name) == 7
    assert getattr(told, f"{name}_limit") == known
    assert getattr(told, f"{other}_limit") is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "Fri, 01 May 2026 12:01:30 GMT"}, 90),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 +99999999999999"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "200", "retry-after": "60"}, 0.2),
        ({"retry-after-ms": "-200"}, 0),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after-ms": "inf"}, None),
    ],
)
@pytest.mark.usefixtures("clock")
def test_when_servers_want_to_be_asked_again(headers, seconds):
    assert budget_headers.retry_after(headers) == seconds
