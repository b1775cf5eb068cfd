"""What is read of a trace about its LLM calls."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from teola.cli.timeline import show_timeline
from teola.engine import Usage
from teola.policies.reason import Because, Hold, Reason
from teola.runtime.observe.perfetto import to_perfetto
from teola.runtime.observe.placements import FoundTokens, Hits, _of_scope, placements
from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.trace import Trace
from teola.serve.looking import timed
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

PLAN = plan(*call("a"), *call("b"))
A, B = (PLAN.index[f"{name}.prefill"] for name in "ab")
COST = Reason(Because.COST, "s", 0.1, 0.2, 0, 2, 30, 40)


def traced(app: str = "app") -> Trace:
    """`a` was tried on instance 1, then on 0; `b` on 1."""
    trace = Trace("q", app, PLAN, 10.0)
    trace.sent(A, 0, 1, 10.0, 10.5, 1, 1, 1)
    trace.explained(COST)
    trace.failed(A, 0, 11.0, ValueError("gone"))
    trace.sent(A, 0, 1, 10.0, 11.5, 0, 2, 1)
    trace.explained(Reason(Because.LOAD, "tokens", 0, 9, 1, 2, holds=(Hold(Because.GATE, 0.5),)))
    trace.sent(B, 0, 1, 10.0, 11.5, 1, 3, 1)
    trace.explained(COST)
    return trace


@catches(
    "tokens-of-another-try",
    "what a call found counts for each of its tries",
    edited(_of_scope, "if last[i] == k else None", "if True else None"),
)
def test_each_try_has_its_reason_and_the_last_one_what_it_found() -> None:
    trace = traced()
    trace.ended(A, 0, 12.0)
    trace.used(Usage(40, 5, 30), A)
    first, second, other = placements(trace)
    assert (first.instance, first.reason, first.usage) == (1, COST, None)
    assert (second.instance, second.usage) == (0, Usage(40, 5, 30))
    assert second.to_json() == {
        "primitive": PLAN.ids[A],
        "engine": "llm",
        "instance": 0,
        "why": "held 0.50 s: no room beside programs that come back; then instance 0 of 2: "
        "least loaded: 0 tokens, next 9 tokens (instance 1)",
        "prompt_tokens": 40,
        "found_tokens": 30,
        "answer_tokens": 5,
    }
    assert "prompt_tokens" not in other.to_json()


def test_spans_have_the_words() -> None:
    trace = traced()
    trace.ended(A, 0, 12.0)
    whys = {(span.primitive, span.instance): span.why for span in trace.spans}
    assert whys[PLAN.ids[A], 1] == COST.words(1)
    assert whys[PLAN.ids[A], 0].startswith("held 0.50 s")
    assert [("why" in span) for span in trace.to_json()["spans"]].count(True) == 3
    assert Trace("q", "app", PLAN, 0.0).to_json()["spans"] == []


@catches(
    "copy-shares",
    "the reasons of a copy are those of the trace that goes on",
    edited(Trace.copy, "copied._reasons = {**self._reasons}", "pass"),
)
def test_a_copy_keeps_its_reasons() -> None:
    trace = traced()
    copy = trace.copy()
    trace.sent(B, 0, 1, 10.0, 12.5, 0, 4, 1)
    trace.explained(COST)
    assert len(placements(copy)) == 3
    assert len(placements(trace)) == 4


def test_what_was_found_is_added_up_by_instance_and_by_application() -> None:
    inner, outer, other = traced("inner"), traced("outer"), traced("other")
    outer.inner = [inner]
    for trace in (inner, outer, other):
        trace.used(Usage(40, 5, 30), A)
        trace.used(Usage(100, 5, 0), B)
    assert len(list(placements(outer))) == 6
    assert outer.found_tokens == 60
    found = FoundTokens([outer, other])
    assert found.by_instance == {("llm", 0): Hits(120, 90), ("llm", 1): Hits(300, 0)}
    assert found.by_app == {("llm", "outer"): Hits(280, 60), ("llm", "other"): Hits(140, 30)}


def test_calls_of_which_nothing_was_counted_are_in_no_ratio() -> None:
    trace = traced()
    trace.used(Usage(0, 5, 0), B)
    assert FoundTokens([trace]).by_instance == {}
    assert placements(Trace("q", "app", None, 0.0)) == []


def shown(trace: Trace) -> str:
    """As `teola trace` prints it."""
    out = Console(file=(text := StringIO()), width=100, highlight=False, markup=False)
    show_timeline(Recorded.of(trace), out)
    return text.getvalue()


def test_the_timeline_says_why_calls_went_where_they_went() -> None:
    trace = traced()
    text = shown(trace)
    assert "why there" in text
    assert f"  {PLAN.ids[B]}: instance 1 of 2: finds 30 of 40 tokens; least cost 0.10 s" in text
    assert max(map(len, text.splitlines())) <= 100
    slices = [e for e in to_perfetto(Recorded.of(trace))["traceEvents"] if e["ph"] == "X"]
    assert [s["args"]["why"] for s in slices if s["name"] == PLAN.ids[B]] == [COST.words(1)]


def test_where_there_is_no_choice_nothing_is_explained() -> None:
    trace = Trace("q", "app", PLAN, 10.0)
    trace.sent(A, 0, 1, 10.0, 10.5, 0, 1, 1)
    trace.explained(Reason(Because.ONLY))
    assert "why there" not in shown(trace)


def test_a_timeline_that_a_server_told_has_the_words_too() -> None:
    trace = traced()
    told = Recorded.from_json(timed(trace, {}, 1.0), None)
    assert told.spans == Recorded.of(trace).spans
