"""Rows as they are asked, counted and waited for."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from teola.engine import EngineKind, EngineSpec, Usage
from teola.errors import EngineError, InputError, QueryCancelled, UnknownName
from teola.graph import DecodeParams, Op
from teola.policies.asker import Asker
from teola.runtime.asked_rows import AskedRows
from teola.runtime.observe.trace import Trace
from teola.runtime.rows import RowsCall, RowsEnd, RowsHandle, check_rows
from teola.schedule.events import Cause, Finish, State
from teola.schedule.row_run import RowRun, RowSpecs

LLM = EngineSpec("llm", EngineKind.LLM, frozenset({Op.PREFILLING, Op.DECODING}))
CALL = RowsCall("Is it so?")


# --- what may be asked ------------------------------------------------------------------------


@pytest.mark.parametrize("deadline_s", [None, 0.001, 5])
@pytest.mark.parametrize("priority", ["rows", "interactive"])
@pytest.mark.parametrize("shared", [0, 0.5, 1])
def test_rows_are_asked_of_a_language_model(
    shared: float, priority: str, deadline_s: float | None
) -> None:
    check_rows(replace(CALL, shared=shared), LLM, priority, deadline_s)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"instruction": None}, "the instruction of rows must be a text, not None"),
        ({"decode": {}}, "decode must be DecodeParams, not {}"),
        ({"decode": DecodeParams(items=2, parser="lines")}, "a row has one answer: leave `items`"),
        ({"decode": DecodeParams(parser="lines")}, "a row has one answer: leave `items`"),
        ({"shared": 1.01}, "shared is a part of the prompts' tokens, from 0 to 1, not 1.01"),
        ({"shared": -0.01}, "shared is a part of the prompts' tokens, from 0 to 1, not -0.01"),
        ({"shared": float("nan")}, "shared is a part of the prompts' tokens"),
    ],
)
def test_what_is_asked_of_rows_is_a_text_with_one_answer(wrong: Any, told: str) -> None:
    with pytest.raises(InputError) as raised:
        check_rows(replace(CALL, **wrong), LLM, "rows", None)
    assert str(raised.value).startswith(told)


def test_rows_go_to_no_other_engine_and_as_somebody_knows() -> None:
    embedder = EngineSpec("embedding", EngineKind.EMBEDDING, frozenset({Op.EMBEDDING}))
    with pytest.raises(InputError, match="engine 'llm' is of the kind embedding: name another"):
        check_rows(CALL, embedder, "rows", None)
    with pytest.raises(UnknownName, match="urgent"):
        check_rows(CALL, LLM, "urgent", None)
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(InputError, match="deadline_s must be seconds above 0, got"):
            check_rows(CALL, LLM, "rows", wrong)


# --- a run that goes on -----------------------------------------------------------------------


def test_who_waits_hears_of_the_end_once_all_is_given() -> None:
    done: Future[RowsEnd] = Future()
    cancelled, heard = list[str](), list[str]()
    handle = RowsHandle(done, lambda: cancelled.append("cancelled"))
    handle.when_over(lambda: heard.append("over"))
    with pytest.raises(TimeoutError):
        handle.result(0.0)
    assert heard == []
    handle.cancel()
    assert (cancelled, done.cancelled()) == (["cancelled"], False)
    end = RowsEnd("cancelled", 1, 0, 1, 0, 0, 0, 0.5)
    done.set_result(end)
    assert handle.result() is end
    handle.when_over(lambda: heard.append("at once"))
    assert heard == ["over", "at once"]
    closed: Future[RowsEnd] = Future()
    closed.cancel()
    with pytest.raises(QueryCancelled, match="the runtime was closed before all rows had ended"):
        RowsHandle(closed, lambda: None).result(0.0)


# --- what is counted --------------------------------------------------------------------------


def asked(shared: float = 0.0, *, warm: bool = False) -> AskedRows[str]:
    specs = RowSpecs("llm", "rows", interactive=False, output=4)
    run = RowRun("r", specs, Asker("t", "app", "p", 0.0), began=2.0, most=3, warm=warm)
    return AskedRows(run, Trace("r", "app", None, 2.0), shared)


def test_a_row_counts_once_however_often_it_is_sent() -> None:
    rows = asked()
    for i, lo, hi in ((0, 0, 3), (0, 3, 5), (0, 1, 4), (1, 0, 2), (0, 4, 5), (1, 0, 2)):
        rows.sent(i, lo, hi)
    assert (rows.asked, rows.tries) == (7, 13)


def test_a_window_goes_with_its_last_row() -> None:
    rows = asked()
    rows.windows = {0: ["a", "b", "c"], 1: ["d"]}
    rows.sent(0, 0, 3)
    rows.sent(1, 0, 1)
    why = Cause(EngineError("no"))
    assert rows.over(0, 1, []) == []
    assert rows.over(0, 0, [(2, why)]) == ["c"]
    assert [*rows.windows] == [0, 1]
    assert rows.over(0, 1, []) == []
    assert [*rows.windows] == [1]
    assert rows.over(1, 0, [(0, why)]) == ["d"]
    assert (rows.answered, rows.failed, rows.windows) == (2, 2, {})
    rows.windows = {0: ["again"]}
    rows.sent(0, 0, 1)
    assert (rows.over(0, 1, []), rows.windows, rows.asked) == ([], {}, 5)


def test_what_is_found_of_a_prompt_is_expected_and_then_told() -> None:
    """Never all of it: the last token is computed."""
    assert [asked(shared).found_of(100) for shared in (0.0, 0.5, 1.0)] == [0, 50, 99]
    assert asked(0.5, warm=True).found_of(100) == 0
    rows = asked(1.0)
    rows.used(Usage(100, 7, 30))
    rows.used(Usage(100, 7, 31))
    rows.answered = 2
    assert [rows.found_of(tokens) for tokens in (100, 31, 30, 20)] == [30, 30, 29, 19]
    assert (rows.prompt_tokens, rows.completion_tokens, rows.cached_tokens) == (200, 14, 61)


@pytest.mark.parametrize(("state", "told"), [(State.OK, "done"), (State.FAILED, "failed")])
def test_its_trace_tells_its_counts_and_what_it_took(state: State, told: str) -> None:
    rows = asked()
    rows.windows = {0: ["a", "b"]}
    rows.sent(0, 0, 2)
    rows.sent(0, 1, 2)
    rows.over(0, 1, [])
    rows.used(Usage(10, 2, 3))
    finish = Finish("r", state, None, ())
    rows.finished(finish, 7.0)
    assert (rows.ended, rows.windows) == (finish, {})
    (span,) = rows.trace.raw[2]
    assert (span.primitive, span.start, span.end) == ("llm: 2 rows, 0 failed, 3 tries", 0.0, 5.0)
    assert span.state == told
    assert (rows.trace.state, rows.trace.finished) == (state.value, 7.0)
    counts = rows.trace.counts
    assert (counts.prompt, counts.generated, counts.cached) == (10, 2, 3)
