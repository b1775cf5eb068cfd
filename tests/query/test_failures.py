"""What an error was is told again out of the journal: HTTP says the same of it everywhere."""

from __future__ import annotations

import json

import pytest

from teola.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    InputError,
    Overloaded,
    QueryCancelled,
    QueryFailed,
    TeolaError,
    UnknownName,
)
from teola.query.journal.query_rows import Kept, ended
from teola.query.result import Result
from teola.serve.problems import problem, problem_of


def caused(error: TeolaError, cause: Exception) -> TeolaError:
    error.__cause__ = cause
    return error


class Unheard(TeolaError):
    """A class that the process which reads the row may not have."""


def kept(result: Result, text: str | None) -> Kept:
    what = result.query_id, "default", result.app, result.state, 0.0, 1, 1.0
    return Kept(*what, digest=None, result=text, problem=None)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("deadline", DeadlineExceeded("the deadline passed")),
        ("cancelled", QueryCancelled("the query was cancelled")),
        ("failed", UnknownName("engine", "llm", ["llms"])),
        ("failed", Overloaded("too much", retry_after_s=7.2)),
        ("failed", EngineUnavailable("gone")),
        ("failed", caused(QueryFailed("component 'x': no"), InputError("no"))),
        ("failed", caused(QueryFailed("component 'x': gone"), EngineUnavailable("gone"))),
        ("failed", caused(QueryFailed("component 'x': bug"), ValueError("bug"))),
    ],
)
def test_a_problem_is_the_same_from_the_row(state: str, error: TeolaError) -> None:
    result = Result("app", "id", state, {}, 1.0, error=error)
    row = kept(result, ended(result, "default").result)
    assert problem_of(row.ending()) == problem(error, "id")
    assert row.shown()["result"] == result.to_json(), "clients are not shown what it is made of"


def test_an_error_that_nobody_knows_is_a_failure() -> None:
    result = Result("app", "id", "failed", {}, 1.0, error=Unheard("strange"))
    text = ended(result, "default").result.replace("Unheard", "NeverHeardOf")
    error = kept(result, text).ending().error
    assert type(error) is QueryFailed
    assert str(error) == "strange"


@pytest.mark.parametrize(
    ("state", "kind"),
    [("failed", QueryFailed), ("cancelled", QueryCancelled), ("deadline", DeadlineExceeded)],
)
def test_rows_that_do_not_say_it_go_by_their_state(state: str, kind: type) -> None:
    result = Result("app", "id", state, {}, 1.0)
    assert type(kept(result, None).ending().error) is kind
    whole = {**result.to_json(), "error": "it says why"}
    error = kept(result, json.dumps(whole)).ending().error
    assert (type(error), str(error)) == (kind, "it says why")
