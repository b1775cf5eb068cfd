"""Errors as HTTP says them: a status, a code for programs, a line for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from starlette.responses import JSONResponse

from teola.errors import (
    CodeChanged,
    DeadlineExceeded,
    DocumentError,
    EngineUnavailable,
    InputError,
    Overloaded,
    QueryCancelled,
    TeolaError,
    UnknownName,
)
from teola.query.journal.lost import (
    UNREADABLE_CODE,
    Answered,
    JournalLost,
    JournalUnreadable,
    Postponed,
)
from teola.query.result import Result

OPENAI: Final = ("/v1/chat", "/v1/models", "/v1/embeddings", "/v1/rerank")
"""Paths whose clients are OpenAI's."""
UNREAD: Final = (408, 413)
"""Answers to requests of which the rest will not be read."""
LONGEST_MESSAGE: Final = 1000
"""Characters."""


class Draining(TeolaError):
    """Refused because the server is about to stop."""


class NotFound(TeolaError):
    """What a path names does not exist, or is another tenant's."""


class CallsGone(TeolaError):
    """What an agent did beside a client's call is not kept any more."""


class TooLarge(InputError):
    """More was sent than is taken."""


class TooSlow(TeolaError, TimeoutError):
    """A request came in more slowly than is waited for."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error response. retry_after_s: when it makes sense to try again."""

    status: int
    code: str
    message: str
    retryable: bool = False
    query_id: str | None = None
    retry_after_s: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return {**headers, "Connection": "close"} if self.status in UNREAD else headers

    def body(self) -> dict[str, Any]:
        """{"error": {"code", "message", "retryable", "query_id"}}."""
        fields = {"code": self.code, "message": self.line, "retryable": self.retryable}
        return {"error": {**fields, "query_id": self.query_id}}

    @property
    def openai_status(self) -> int:
        """The status as OpenAI has it: whatever is wrong with a request is one kind of error
        there."""
        return 400 if self.status == 422 else self.status

    def openai_body(self) -> dict[str, Any]:
        """{"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it."""
        if self.status == 429:
            kind = "rate_limit_error"
        else:
            kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.line, "type": kind, "param": None, "code": self.code}}

    @property
    def line(self) -> str:
        """The message as it is sent: it may repeat what a client or a component wrote."""
        text = self.message
        if len(text) > LONGEST_MESSAGE:
            text = f"{text[:LONGEST_MESSAGE]}..."
        return text.encode("utf-8", "replace").decode()


_KNOWN: Final[tuple[tuple[type[TeolaError], int, str, int | None], ...]] = (
    (NotFound, 404, "not_found", None),
    (TooLarge, 413, "too_large", None),
    (TooSlow, 408, "too_slow", None),
    (DocumentError, 422, "unreadable_document", None),
    (UnknownName, 422, "unknown_name", None),
    (InputError, 422, "invalid_input", None),
    (Overloaded, 429, "overloaded", 1),
    (Draining, 503, "draining", 1),
    (JournalLost, 503, "journal_unavailable", 2),
    (Postponed, 503, "postponed", 2),
    (JournalUnreadable, 409, UNREADABLE_CODE, None),
    (Answered, 409, "answered", None),
    (QueryCancelled, 409, "cancelled", None),
    (CodeChanged, 409, "code_changed", None),
    (CallsGone, 409, "calls_gone", None),
    (DeadlineExceeded, 504, "deadline", None),
    (EngineUnavailable, 503, "engine_unavailable", 5),
)
"""The first that fits counts."""


def problem(error: TeolaError, query_id: str | None = None) -> Problem:
    """What a client is told of `error`; a failed query's cause says what kind of failure it was."""
    for kind, status, code, after in _KNOWN:
        if isinstance(error, kind):
            if isinstance(error, Overloaded):
                after = max(1, ceil(error.retry_after_s))
            return Problem(status, code, str(error), after is not None, query_id, after)
    cause = error.__cause__
    if isinstance(cause, InputError):  # only an engine could see what is wrong with it
        return Problem(422, "invalid_input", str(error), False, query_id)
    retryable = error.retryable or (isinstance(cause, TeolaError) and cause.retryable)
    return Problem(502, "failed", str(error), retryable, query_id)


def answer(path: str, refusal: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response, in the form that clients of `path` read."""
    all_headers = {**refusal.headers, **(headers or {})}
    if not path.startswith(OPENAI):
        return JSONResponse(refusal.body(), refusal.status, all_headers)
    all_headers["x-should-retry"] = str(
        refusal.retryable
    ).lower()  # or its clients guess by the status
    return JSONResponse(refusal.openai_body(), refusal.openai_status, all_headers)


def waits_for_people(id: str) -> Problem:
    """What a client is told that can only be given an answer, of a query that asks people."""
    message = (
        f"query {id} waits for people and goes on when they answer: at /ui/#/queries/{id}, by "
        f"`teola answer {id}` or POST /v1/queries/{id}/answers; GET /v1/queries/{id} then has "
        "its result, and DELETE gives it up"
    )
    return Problem(409, "waiting", message, query_id=id)


def problem_of(result: Result) -> Problem:
    """Why a query ended without an answer, for its client."""
    error = result.error or TeolaError(f"the query ended {result.state}")
    return problem(error, result.query_id)
