"""A trace that is looked at while its query goes on."""

from __future__ import annotations

from typing import Any

import pytest

from teola.engine import Usage
from teola.errors import EngineError, QueryCancelled
from teola.profile import paper
from teola.runtime.observe.trace import NO_PRIMITIVE, GraphScope, Trace
from teola.runtime.optimiser import Optimiser
from teola_apps.naive_rag import app
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

PLAN = plan(*call("a"))
HEAD, DECODING = PLAN.index["a.prefill"], PLAN.index["a"]


def called(*, prefilled: bool = True) -> Trace:
    """A call that was sent after a second, and may have its first token after two."""
    trace = Trace("q", "app", PLAN, 10.0)
    trace.sent(HEAD, 0, 1, 10.5, 11.0, 0, 1, 1)
    if prefilled:
        trace.ended(HEAD, 0, 12.0)
    return trace


def told(trace: Trace) -> list[tuple[Any, ...]]:
    return [(s.primitive, s.state, s.queued, s.start, s.end) for s in trace.spans]


def test_steps_before_a_graph_are_known_by_their_names_as_its_primitives_are() -> None:
    trace = called()
    trace.step("load", 10.0, 10.5)
    for path, ids in (("", ("a", "load", "b")), ("outer/1", ("outer/1/a", "outer/1/load", "a"))):
        scope = GraphScope(trace, path, 0.0)
        assert [*scope.known] == [*PLAN.ids, "load"]
        assert [scope.index(id) for id in ids] == [DECODING, NO_PRIMITIVE, None]


def test_a_copy_stays_as_it_was() -> None:
    plan = Optimiser(app.builder, paper("13b")).plan({}, {"chunks": 4})
    trace = Trace("q", "naive-rag", plan, 10.0)
    trace.step("load", 10.0, 11.0)
    trace.sent(0, 0, 4, 11.0, 11.5, 0, 1, 1)
    copy = trace.copy()
    before = copy.to_json()
    assert before == trace.to_json()
    assert [batch.at for batch in copy.batches()] == [11.5]
    trace.step("more", 11.0, 12.0)
    trace.ended(0, 0, 12.0)
    trace.sent(1, 0, 1, 12.0, 12.5, 0, 2, 1)
    trace.used(Usage(3, 4), 1)
    trace.finish("ok", 13.0)
    assert copy.to_json() == before
    assert len(list(copy.batches())) == 1
    assert (copy.state, copy.calls) == ("running", {})


@catches(
    "decoding-vanishes",
    "what a call was writing when its query ended is in no trace",
    edited(Trace._written, "if begun is None:", "if True:"),
)
@pytest.mark.parametrize("state", ["cancelled", "deadline"])
def test_what_was_being_written_when_a_query_ended_is_cancelled_then(state: str) -> None:
    trace = called()
    assert told(trace)[1] == ("a", "running", 2.0, 2.0, 2.0)
    trace.finish(state, 15.0)
    assert told(trace) == [
        ("a.prefill", "done", 0.5, 1.0, 2.0),
        ("a", "cancelled", 2.0, 2.0, 5.0),
    ]
    assert trace.spans[1].instance == 0


def test_a_call_that_fails_while_it_writes_fails_in_its_decoding() -> None:
    trace = called()
    trace.failed(HEAD, 0, 14.0, EngineError("out of memory"))
    assert told(trace)[1] == ("a", "failed", 2.0, 2.0, 4.0)
    assert "out of memory" in trace.spans[1].error
    trace.sent(HEAD, 0, 1, 14.0, 14.5, 0, 2, 1)
    trace.ended(HEAD, 0, 15.0)
    trace.ended(DECODING, 0, 16.0)
    trace.finish("ok", 17.0)
    assert told(trace) == [
        ("a.prefill", "done", 0.5, 1.0, 2.0),
        ("a", "failed", 2.0, 2.0, 4.0),
        ("a.prefill", "done", 4.0, 4.5, 5.0),
        ("a", "done", 5.0, 5.0, 6.0),
    ]


def test_what_nobody_wants_any_more_did_not_fail() -> None:
    trace = called(prefilled=False)
    trace.failed(HEAD, 0, 11.5, QueryCancelled("aborted"))
    trace.finish("ok", 12.0)
    assert [(one.state, one.error) for one in trace.spans] == [("cancelled", "")]


def test_what_waited_when_a_query_ended_waited_until_then() -> None:
    trace = Trace("q", "app", PLAN, 10.0)
    trace.unsent(HEAD, 0, 1, 10.5)
    assert told(trace) == [], "the driver tells what waits as long as it does"
    copy = trace.copy()
    copy.finish("deadline", 13.0)
    assert told(copy) == [("a.prefill", "cancelled", 0.5, 3.0, 3.0)]


def test_members_of_a_batch_are_told_as_far_as_they_are_known() -> None:
    mine, beside, other = called(), called(), called()
    beside.query_id = "beside"
    other.query_id = "other"
    for trace, batch in ((mine, 5), (beside, 5), (beside, 5), (other, 6)):
        trace.sent(HEAD, 0, 1, 12.0, 13.0, 0, batch, 4)
    found = mine.primitive("a.prefill", beside=[beside, other])["batches"]
    assert found == [
        {"batch": 1, "instance": 0, "size": 1, "queries": ["q", "beside", "other"], "others": 0},
        {"batch": 5, "instance": 0, "size": 4, "queries": ["q", "beside"], "others": 1},
    ]
    assert mine.primitive("a.prefill")["batches"][1]["others"] == 3
    assert mine.primitive("a")["batches"] == []
