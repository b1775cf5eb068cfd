"""Errors as HTTP says them, in our form and in OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola.errors import (
    DeadlineExceeded,
    DocumentError,
    EngineError,
    EngineUnavailable,
    InputError,
    Overloaded,
    QueryCancelled,
    QueryFailed,
    TeolaError,
    UnknownName,
)
from teola.query.journal.lost import Answered, JournalLost, Postponed
from teola.query.result import Result
from teola.serve.problems import (
    LONGEST_MESSAGE,
    CallsGone,
    Draining,
    NotFound,
    Problem,
    TooLarge,
    TooSlow,
    answer,
    problem,
    problem_of,
    waits_for_people,
)


@pytest.mark.parametrize(
    ("error", "status", "code", "after"),
    [
        (NotFound("x"), 404, "not_found", None),
        (TooLarge("x"), 413, "too_large", None),
        (TooSlow("x"), 408, "too_slow", None),
        (DocumentError("x"), 422, "unreadable_document", None),
        (UnknownName("app", "a", ["b"]), 422, "unknown_name", None),
        (InputError("x"), 422, "invalid_input", None),
        (Overloaded("x", retry_after_s=0.2), 429, "overloaded", 1),
        (Overloaded("x", retry_after_s=2.1), 429, "overloaded", 3),
        (Draining("x"), 503, "draining", 1),
        (JournalLost("x"), 503, "journal_unavailable", 2),
        (Postponed("x"), 503, "postponed", 2),
        (Answered("x"), 409, "answered", None),
        (QueryCancelled("x"), 409, "cancelled", None),
        (CallsGone("x"), 409, "calls_gone", None),
        (DeadlineExceeded("x"), 504, "deadline", None),
        (EngineUnavailable("x"), 503, "engine_unavailable", 5),
        (QueryFailed("x"), 502, "failed", None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TeolaError) else None,
)
def test_each_error_has_a_status_and_says_when_to_try_again(
    error: TeolaError, status: int, code: str, after: int | None
) -> None:
    told = problem(error, "q1")
    assert (told.status, told.code, told.retry_after_s) == (status, code, after)
    assert (told.retryable, told.query_id) == (after is not None, "q1")
    assert told.headers.get("Retry-After") == (None if after is None else str(after))
    assert ("Connection" in told.headers) is (status in (408, 413)), "its body is not read"


def failed(cause: Exception | None) -> QueryFailed:
    error = QueryFailed("component 'a' failed")
    error.__cause__ = cause
    return error


def test_what_kind_of_failure_a_query_had_is_its_causes() -> None:
    retryable, not_so = EngineError("away"), EngineError("broken")
    retryable.retryable, not_so.retryable = True, False
    own = failed(None)
    own.retryable = True
    for error, status, again in (
        (failed(InputError("too long")), 422, False),
        (failed(retryable), 502, True),
        (failed(not_so), 502, False),
        (failed(ValueError("no")), 502, False),
        (own, 502, True),
    ):
        told = problem(error)
        assert (told.status, told.retryable) == (status, again)
        assert told.message == "component 'a' failed"
    ended = problem_of(Result("a", "q1", "failed", {}, 1.0, error=failed(retryable)))
    assert (ended.query_id, ended.retryable) == ("q1", True)
    silent = problem_of(Result("a", "q1", "failed", {}, 1.0))
    assert (silent.status, silent.message) == (502, "the query ended failed")


def sent(path: str, refusal: Problem) -> tuple[int, Any, dict[str, str]]:
    response = answer(path, refusal, {"x-query-id": "q1"})
    return response.status_code, json.loads(bytes(response.body)), dict(response.headers)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models/x", "/v1/rerank"])
@pytest.mark.parametrize(
    ("status", "kind", "openai"),
    [
        (422, "invalid_request_error", 400),
        (404, "invalid_request_error", 404),
        (429, "rate_limit_error", 429),
        (499, "invalid_request_error", 499),
        (500, "server_error", 500),
        (503, "server_error", 503),
    ],
)
def test_openais_clients_are_told_in_their_form(
    path: str, status: int, kind: str, openai: int
) -> None:
    for retryable in (False, True):
        refusal = Problem(status, "a_code", "Why.", retryable, None, 3 if retryable else None)
        got, body, headers = sent(path, refusal)
        error = {"message": "Why.", "type": kind, "param": None, "code": "a_code"}
        assert (got, body) == (openai, {"error": error})
        assert headers["x-should-retry"] == ("true" if retryable else "false")
        assert headers.get("retry-after") == ("3" if retryable else None)
        assert headers["x-query-id"] == "q1"
        got, body, headers = sent("/v1/apps/x/queries", refusal)
        ours = {"code": "a_code", "message": "Why.", "retryable": retryable, "query_id": None}
        assert (got, body) == (status, {"error": ours})
        assert "x-should-retry" not in headers


def test_a_message_is_cut_and_can_be_sent() -> None:
    fits = "x" * LONGEST_MESSAGE
    assert Problem(500, "a", fits).line == fits
    assert Problem(500, "a", fits + "y").line == f"{fits}..."
    assert Problem(500, "a", "half \ud83d").line == "half ?"


def test_who_can_only_be_given_an_answer_is_told_where_people_answer() -> None:
    told = waits_for_people("q1")
    assert (told.status, told.code, told.retryable, told.query_id) == (409, "waiting", False, "q1")
    for place in ("/ui/#/queries/q1", "`teola answer q1`", "POST /v1/queries/q1/answers"):
        assert place in told.message
