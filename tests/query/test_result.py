"""Result: the answer, whether there is one, and how it is shown as JSON and in a notebook."""

from __future__ import annotations

from collections import OrderedDict
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import Hit
from teola.errors import (
    DeadlineExceeded,
    InputError,
    Overloaded,
    QueryCancelled,
    QueryFailed,
    TeolaError,
)
from teola.graph import Inquiry
from teola.query.result import LEVELS, Failure, Result, jsonable
from teola.runtime.observe.trace import Trace


def result(state: str = "ok", error: TeolaError | None = None, **outputs: Any) -> Result:
    return Result("app", "q", state, outputs, 1.25, error=error)


# --- the answer -------------------------------------------------------------------------------


def test_the_answer_is_the_output_of_that_name_or_the_only_one() -> None:
    assert result(answer="a", other="b").answer == "a"
    assert result(other="b").answer == "b"
    assert result(other="b", more="c").answer is None
    assert result().answer is None
    assert result(answer=None, other="b").answer is None
    assert result(other="b")["other"] == "b"
    with pytest.raises(KeyError):
        result()["other"]


@pytest.mark.parametrize("state", ["ok", "partial", "waiting"])
def test_what_has_an_answer_or_waits_for_one_is_no_error(state: str) -> None:
    ended = result(state, answer="a")
    assert ended.checked() is ended


@pytest.mark.parametrize(
    ("state", "error", "kind", "told"),
    [
        ("failed", None, QueryFailed, "query q ended failed"),
        ("deadline", None, QueryFailed, "query q ended deadline"),
        ("cancelled", None, QueryCancelled, "query q was cancelled"),
        ("failed", QueryFailed("it broke"), QueryFailed, "it broke"),
        ("cancelled", DeadlineExceeded("too late"), DeadlineExceeded, "too late"),
    ],
)
def test_what_kept_it_from_an_answer_is_raised_with_what_there_is(
    state: str, error: TeolaError | None, kind: type[TeolaError], told: str
) -> None:
    """Which has no error of its own: that would be a circle."""
    ended = result(state, error, answer=None)
    with pytest.raises(kind) as raised:
        ended.checked()
    assert str(raised.value) == told
    assert error is None or raised.value is error
    assert raised.value.result == result(state, answer=None)


def test_without_a_trace_nothing_is_known_of_how_it_ran() -> None:
    ended = result(answer="a", steps="none")
    assert (ended.objective, ended.met_objective) == (None, None)
    assert (ended.ran, ended.primitives, ended.steps, ended.finish_reasons) == ([], 0, [], {})
    assert (ended.usage.tokens, ended.usage.cost) == (0, None)
    assert "objective" not in ended.to_json()
    steps: list[Any] = [{"tool": "look"}]
    assert result(steps=steps).steps is steps
    trace = Trace("q", "app", None, 0.0)
    trace.steps = ({"tool": "before it was stopped"},)
    stopped = Result("app", "q", "failed", {"steps": None}, 0.0, trace=trace)
    assert stopped.steps == [*trace.steps]


# --- as JSON ----------------------------------------------------------------------------------


def test_its_json_has_what_is_told_and_nothing_of_what_is_not() -> None:
    bare = {"app": "app", "query_id": "q", "state": "ok", "outputs": {"answer": "a"}}
    told = result(answer="a").to_json()
    assert told == {**bare, "latency_s": 1.25, "primitives": 0, "usage": told["usage"]}
    asks = (Inquiry("mail/ask", "q", "ask", "mail", "Sure?", {"type": "boolean"}),)
    whole = Result(
        "app", "q", "waiting", {}, 0.12345678, ("part",), QueryFailed("it broke"),
        reasons={"part": "why"}, notices=("note",), asks=asks,
    ).to_json()  # fmt: skip
    assert whole["latency_s"] == 0.123457
    more: dict[str, Any] = {"missing": ["part"], "reasons": {"part": "why"}, "notices": ["note"]}
    more |= {"asks": [asks[0].to_json()], "error": "it broke"}
    assert {name: whole[name] for name in more} == more


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("aæ", "aæ"),
        ("a\ud800", "a?"),
        (nan, None),
        (inf, None),
        (0.5, 0.5),
        (True, True),
        (None, None),
        ((1, [2]), [1, [2]]),
        (OrderedDict({1: "\ud800", "a": nan}), {"1": "?", "a": None}),
        (SimpleNamespace(tolist=lambda: [1.0, inf]), [1.0, None]),
        (QueryFailed("it broke"), "it broke"),
        (Hit("1", "a.md", "text", 1 / 3), {
            "document": "a.md", "text": "text", "score": 0.333333}),
        (Hit("1", "a.md", "text", 0.5, {"year": 1901}), {
            "document": "a.md", "text": "text", "score": 0.5, "metadata": {"year": 1901}}),
        (Hit("1", "a.pdf", "text", 0.5, {"page": 12}), {
            "document": "a.pdf", "text": "text", "score": 0.5, "metadata": {"page": 12},
            "citation": "a.pdf, p. 12"}),
    ],
)  # fmt: skip
def test_a_value_is_told_as_json_or_as_a_text(value: Any, told: Any) -> None:
    assert jsonable(value) == told
    assert jsonable({"x": [value]}) == {"x": [told]}


@pytest.mark.parametrize("around", [list, tuple, dict])
def test_what_nests_too_deeply_is_left_out(around: type) -> None:
    """An empty one of them as well; texts and numbers at the bottom stay."""
    for depth, told in ((LEVELS, "at the bottom"), (LEVELS + 1, "...")):
        value: Any = "at the bottom"
        for _ in range(depth):
            value = {"x": value} if around is dict else around([value])
        found = jsonable(value)
        while not isinstance(found, str):
            found = found["x"] if isinstance(found, dict) else found[0]
        assert found == told
    assert (jsonable([], 0), jsonable({}, 0), jsonable(7, 0)) == ("...", "...", 7)


# --- in a notebook ----------------------------------------------------------------------------


def test_a_notebook_shows_the_answer_its_passages_and_what_to_know_and_runs_nothing() -> None:
    long = Hit("2", "b.md", "y" * 300, 0.126)
    hits = [Hit("1", "<a>.pdf", "<i>x</i>", 0.5, {"page": 2}), "no hit", long]
    ended = Result(
        "app", "q", "ok", {"answer": "<b>1</b>", "hits": hits, "text": "z"}, 0.126,
        notices=("<n>",),
    )  # fmt: skip
    assert ended._repr_html_() == (
        "<p>&lt;b&gt;1&lt;/b&gt;</p><ol>"
        "<li><b>&lt;a&gt;.pdf, p. 2</b> (0.50) &lt;i&gt;x&lt;/i&gt;</li>"
        f"<li><b>b.md</b> (0.13) {'y' * 200}</li></ol>"
        "<p><small>&lt;n&gt;<br>app, ok, 0.13 s, 0 primitives</small></p>"
    )


# --- errors that are told again ---------------------------------------------------------------


def test_a_failure_is_of_the_class_that_it_was_and_may_be_tried_again_where_it_could() -> None:
    busy = Overloaded("too many")
    busy.retry_after_s = 7.0
    failed = QueryFailed("it broke")
    failed.__cause__ = busy
    plain = QueryFailed("it broke")
    plain.__cause__ = ValueError("no digit")
    for error, failure in (
        (busy, Failure("Overloaded", "", busy.retryable, 7.0)),
        (failed, Failure("QueryFailed", "Overloaded", busy.retryable, 0.0)),
        (plain, Failure("QueryFailed")),
        (InputError("wrong"), Failure("InputError")),
    ):
        assert Failure.of(error) == failure == Failure(**failure.to_json())
        again = failure.error("told again")
        assert (type(again), str(again)) == (type(error), "told again")
        assert again.retryable == failure.retryable
        assert getattr(again, "retry_after_s", 0.0) == failure.retry_after_s
        cause = again.__cause__
        assert type(cause).__name__ == (failure.cause or "NoneType")
    unknown = Failure("OfAnotherVersion", "Strange", True).error("x")
    assert (type(unknown), type(unknown.__cause__)) == (QueryFailed, QueryFailed)
    assert unknown.retryable
    base = Failure("TeolaError").error("x")
    assert type(base) is TeolaError
