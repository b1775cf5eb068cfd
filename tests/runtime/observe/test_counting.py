"""What is counted of a query, its tries and its parts, and how that is told."""

from __future__ import annotations

import pytest

from teola.engine import Usage
from teola.errors import EngineError
from teola.runtime.observe.demand import Timing, covered, steps_of, timings, usage_of
from teola.runtime.observe.parts import grown_primitives
from teola.runtime.observe.perfetto import LEAST_US, _tracks, to_perfetto
from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.shares import TimeShare, in_lines, shares_in_words
from teola.runtime.observe.stretches import waits
from teola.runtime.observe.trace import MOST_NOTICES, Parent, Span, Trace, engine_seconds
from teola.runtime.observe.usage import CallCounts, QueryUsage
from tests.schedule.plans import call, plan, tool


def traced(id: str = "q") -> Trace:
    return Trace(id, "app", plan(tool("a"), *call("m")), 0.0)


def span(name: str, start: float, end: float, **more: object) -> Span:
    given = {"queued": start, "start": start, "end": end, "instance": 0, **more}
    return Span(name, "tool_call", name, "python", **given)  # type: ignore[arg-type]


def test_each_try_waited_and_ran_for_its_own_time() -> None:
    trace = traced()
    trace.sent(0, 0, 1, 0.0, 1.0, 0, 1, 1)
    trace.sent(0, 0, 1, 3.0, 5.0, 1, 2, 2)
    trace.failed(0, 0, 3.0, EngineError("no"))
    trace.ended(0, 0, 9.0)
    assert list(timings(trace)) == [
        Timing("python", "tool_call", 1.0, 2.0, 1),
        Timing("python", "tool_call", 2.0, 4.0, 2),
    ]
    # the first try's place lasts until the end, with the time between them, and counts once
    assert engine_seconds(trace) == {"python": 8.0}


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0),
        ([(0, 10), (2, 5), (4, 12)], 12),
        ([(4, 12), (0, 3), (20, 20), (11, 13)], 12),
        ([(0, 1), (1, 2)], 2),
    ],
)
def test_what_lies_in_several_intervals_counts_once(
    intervals: list[tuple[float, float]], seconds: float
) -> None:
    assert covered(intervals) == seconds


def test_counts_of_all_parts_are_added_up_and_one_unknown_price_makes_all_unknown() -> None:
    counts = CallCounts(1, 2, 3, 4, 5, 0, 0.5)
    counts.join(CallCounts(10, 20, 30, 40, 50, 0, 0.25))
    assert counts == CallCounts(11, 22, 33, 44, 55, 0, 0.75)
    trace, part, left = traced(), traced("q/a/1"), traced("q/a/2")
    trace.inner.append(part)
    trace.used(Usage(1, 2, 0), 1, 0.5)
    part.used(Usage(10, 20, 5), 1, 0.25)
    assert usage_of(trace).cost == 0.75
    left.used(Usage(100, 200, 50), 1)
    left.shares(1)
    left.more, left.more_failed, left.state = 3, 1, "failed"
    trace.leave_out(left)
    assert (trace.more, trace.more_failed) == (4, 2)
    found = usage_of(trace)
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (111, 222, 55)
    assert (found.calls, found.shared, found.cost) == (3, 1, None)


def test_money_is_told_as_finely_as_a_token_costs() -> None:
    told = QueryUsage(cost=1.23456789012e-6, seconds={"llm": 1 / 3}).to_json()
    assert (told["cost"], told["seconds"]) == (1.2346e-6, {"llm": 0.333333})
    assert QueryUsage().to_json()["cost"] is None


def test_a_copy_stays_as_it_was() -> None:
    trace, part = traced(), traced("q/a/1")
    trace.inner.append(part)
    trace.used(Usage(1, 2, 0), 1)
    copied = trace.copy()
    for one in (trace, part):
        one.used(Usage(10, 20, 0), 1)
        one.sent(0, 0, 1, 0.0, 1.0)
        one.ended(0, 0, 2.0)
    assert (copied.prompt_tokens, copied.completion_tokens, copied.spans) == (1, 2, [])
    assert (trace.prompt_tokens, copied.inner[0].spans) == (21, [])


def test_each_notice_is_told_once_and_no_more_than_are_read() -> None:
    trace = traced()
    for k in range(MOST_NOTICES + 2):
        trace.add_notice(f"note {k}")
        trace.add_notice("note 0")
    assert trace.notices == [f"note {k}" for k in range(MOST_NOTICES)]


def test_what_grew_in_parts_of_parts_counts_too() -> None:
    trace, part, deep = (traced(id) for id in ("q", "q/a/1", "q/a/1/a/1"))
    trace.inner.append(part)
    part.inner.append(deep)
    deep.parent = Parent("q/a/1", "a")
    for k, one in enumerate((trace, part, deep)):
        one.steps = ({"tool": str(k)},)
    assert grown_primitives(trace) == 2 * len(deep.plan or ())
    assert [step["tool"] for step in steps_of(trace)] == ["0", "1", "2"]


# --- in words ---------------------------------------------------------------------------------


def test_a_small_part_of_the_time_is_not_worth_a_word() -> None:
    shares = [TimeShare("a", "most", 0.99), TimeShare("b", "half a hundredth", 0.005)]
    rest = TimeShare("c", "less", 0.005 - 1e-9)
    told = shares_in_words([*shares, rest])
    assert told.startswith("most 99 %, half a hundredth ")
    assert "less" not in told
    assert shares_in_words([TimeShare("a", "none", 0.0)]) == ""


def test_lines_are_as_wide_as_they_may_be() -> None:
    shares = [TimeShare("a", "aaaa", 0.5), TimeShare("b", "bbbb", 0.3), TimeShare("c", "c", 0.2)]
    whole = len("aaaa 50 %, bbbb 30 %,")
    assert in_lines(shares, whole) == ["aaaa 50 %, bbbb 30 %,", "c 20 %"]
    assert in_lines(shares, whole - 1) == ["aaaa 50 %,", "bbbb 30 %, c 20 %"]
    assert in_lines(shares, 100) == ["aaaa 50 %, bbbb 30 %, c 20 %"]
    assert in_lines([], 10) == []


def test_of_a_wait_a_limit_caused_no_more_than_nothing_else_did() -> None:
    """Its instance did other work of the query first."""
    first = span("a", 0.0, 4.0)
    for limited_s, limits, others in ((0.0, 0.0, 2.0), (1.5, 1.5, 0.5), (5.0, 2.0, 0.0)):
        waited = waits([first, span("b", 6.0, 7.0, queued=0.0, limited_s=limited_s)])[1]
        assert waited is not None
        assert (waited.own_s, waited.limits_s, waited.others_s) == (4.0, limits, others)
        assert waited.behind == (0,)


def test_spans_that_touch_share_a_track_and_an_arrow_begins_at_the_last_end() -> None:
    spans = span("a", 0.0, 3.0), span("a", 1.0, 2.0, lo=1, hi=2), span("b", 3.0, 4.0)
    assert list(_tracks(spans)) == [0, 1, 0]
    told = to_perfetto(Recorded("q", "app", "ok", 4.0, spans, (("a", "b"),)))
    begins = [event["ts"] for event in told["traceEvents"] if event["ph"] == "s"]
    assert begins == [round(3e6 - LEAST_US / 2, 4)]
