"""A trace as Perfetto, as a Gantt chart and as a timeline: well-formed, and true to the spans."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from teola import Runtime
from teola.cli.timeline import show_timeline
from teola.errors import InputError
from teola.graph import render
from teola.runtime.observe.gantt import to_mermaid
from teola.runtime.observe.perfetto import to_perfetto
from teola.runtime.observe.recorded import Lane, Recorded
from teola.runtime.observe.shares import TimeShare
from teola.runtime.observe.trace import Span, Trace


def span(primitive: str, queued: float, start: float, end: float, **more: Any) -> Span:
    rest = {"engine": "llm", "instance": 0, "batch": 1, **more}
    return Span(primitive, "decoding", "generate", queued=queued, start=start, end=end, **rest)


LOAD = Span("load", "load", "load", "", 0.0, 0.0, 0.1)
OVERLAPPING = Recorded(
    "q1",
    "an-app",
    "ok",
    1.0,
    (
        LOAD,
        span("a", 0.1, 0.2, 0.6, batch_size=2),
        span("b", 0.1, 0.3, 0.8, batch_size=2),
        span("c", 0.6, 0.7, 0.9),
        span("d", 0.8, 0.8, 0.8, instance=1),
    ),
    (("a", "c"), ("b", "d"), ("c", "missing"), ("b", "a")),
    (-1, -1, 0, 1, 2),
)


@pytest.fixture(scope="module")
def real(traced: Trace) -> Recorded:
    """A query of a real application on real engines."""
    return Recorded.of(traced)


@pytest.fixture(params=["overlapping", pytest.param("real", marks=pytest.mark.server)])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    if request.param == "overlapping":
        return OVERLAPPING
    found: Recorded = request.getfixturevalue("real")
    return found


# --- Perfetto ------------------------------------------------------------------------------------


def test_events_are_well_formed_and_in_order(recorded: Recorded) -> None:
    file = json.loads(json.dumps(to_perfetto(recorded)))
    events = file["traceEvents"]
    assert {event["ph"] for event in events} <= set("MXbesfC")
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] >= 0
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["name"]
        if event["ph"] == "X":
            assert event["dur"] > 0
    assert file["otherData"]["query_id"] == recorded.query_id


def test_every_span_is_a_slice_and_none_on_a_track_overlap(recorded: Recorded) -> None:
    slices = [e for e in to_perfetto(recorded)["traceEvents"] if e["ph"] == "X"]
    assert Counter(s["name"] for s in slices) == Counter(s.primitive for s in recorded.spans)
    tracks = defaultdict(list)
    for one in slices:
        tracks[one["pid"], one["tid"]].append(one)
    for on_track in tracks.values():
        for one, following in pairwise(on_track):
            assert one["ts"] + one["dur"] <= following["ts"] + 1e-6


def test_processes_are_engines_and_threads_instances(recorded: Recorded) -> None:
    events = to_perfetto(recorded)["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert set(named.values()) == {lane.engine for lane in recorded.lanes()}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert threads == {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    engines = {s.primitive: s.engine or "query" for s in recorded.spans}
    for event in events:
        if event["ph"] == "X":
            assert named[event["pid"]] == engines[event["name"]]


def test_a_crowd_on_one_instance_stays_there() -> None:
    crowd = [span(f"c{i}", 0.0, 0.1, 0.9) for i in range(250)]
    other = span("other", 0.0, 0.2, 0.8, instance=1)
    events = to_perfetto(Recorded("q", "app", "ok", 1.0, (*crowd, other)))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert len(names) == len(set(names)) == 251
    tracks = {e["name"]: (e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert len(set(tracks.values())) == 251


def test_waiting_is_an_asynchronous_slice(recorded: Recorded) -> None:
    events = to_perfetto(recorded)["traceEvents"]
    opened: dict[Any, float] = {}
    waited = []
    for event in events:
        key = (event["pid"], event.get("cat"), event.get("id"))
        if event["ph"] == "b":
            assert key not in opened
            opened[key] = event["ts"]
        elif event["ph"] == "e":
            waited.append((event["ts"] - opened.pop(key)) / 1e6)
    assert not opened
    expected = [s.start - s.queued for s in recorded.spans if s.engine and s.start > s.queued]
    assert sum(waited) == pytest.approx(sum(expected), abs=1e-6 * len(recorded.spans))


def test_flows_are_pairs_that_begin_and_end_inside_slices(recorded: Recorded) -> None:
    events = to_perfetto(recorded)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begins
    assert begins.keys() == ends.keys()
    for id, begin in begins.items():
        end = ends[id]
        assert begin["ts"] <= end["ts"]
        assert end["bp"] == "e"
        source, _, target = begin["name"].partition(" → ")
        assert (source, target) in recorded.edges
        assert inside(begin, slices) == source
        assert inside(end, slices) == target


def inside(event: dict[str, Any], slices: list[dict[str, Any]]) -> str:
    """Name of the slice that a flow's end is bound to."""
    found = [
        s["name"]
        for s in slices
        if (s["pid"], s["tid"]) == (event["pid"], event["tid"])
        and s["ts"] <= event["ts"] < s["ts"] + s["dur"]
    ]
    assert len(found) == 1
    name: str = found[0]
    return name


def test_flows_leave_out_what_did_not_run_and_never_go_back() -> None:
    events = to_perfetto(OVERLAPPING)["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "s"] == ["a → c", "b → d"]


def test_counters_return_to_zero(recorded: Recorded) -> None:
    last: dict[Any, int] = {}
    most: dict[str, int] = {}
    for event in to_perfetto(recorded)["traceEvents"]:
        if event["ph"] == "C":
            value = event["args"]["value"]
            assert value >= 0
            last[event["pid"], event["name"]] = value
            most[event["name"]] = max(value, most.get(event["name"], 0))
    assert last
    assert set(last.values()) == {0}
    assert most["batch size"] == max(s.batch_size for s in recorded.spans if s.engine)


def test_two_wait_at_once() -> None:
    events = to_perfetto(OVERLAPPING)["traceEvents"]
    waiting = [e for e in events if e["ph"] == "C" and e["name"] == "waiting primitives"]
    assert [(e["ts"], e["args"]["value"]) for e in waiting] == [
        (1e5, 2),
        (2e5, 1),
        (3e5, 0),
        (6e5, 1),
        (7e5, 0),
    ]


# --- where it comes from -------------------------------------------------------------------------


def test_what_a_server_tells_is_the_same(runtime: Runtime, real: Recorded) -> None:
    told = {
        "query_id": real.query_id,
        "app": real.app,
        "state": real.state,
        "end_s": real.latency_s,
        "spans": [
            {**asdict(s), "something": "newer", "waited_for": None if k < 0 else k}
            for s, k in zip(real.spans, real.before, strict=True)
        ],
        "shares": [asdict(share) for share in real.shares],
    }
    graph = {"edges": [{"from": a, "to": b, "kind": "data"} for a, b in real.edges]}
    assert Recorded.from_json(json.loads(json.dumps(told)), graph) == real
    assert "edges" in render.to_json.__doc__  # type: ignore[operator]


@pytest.mark.parametrize(
    "bad", [{}, {"spans": [1]}, {"spans": [{"state": "done"}]}, {"spans": None}]
)
def test_what_is_no_timeline_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no timeline"):
        Recorded.from_json(bad, None)


def timeline(*waits: tuple[str, Any]) -> dict[str, Any]:
    """A timeline as a server tells it: the state of each span, and for which one it waited."""
    spans = [
        {**asdict(span(f"x{k}", k, k, k + 1, state=state)), "waited_for": index}
        for k, (state, index) in enumerate(waits)
    ]
    ended = {"query_id": "q", "app": "a", "state": "ok", "end_s": 1.0 + len(spans)}
    return {**ended, "spans": spans, "shares": []}


@pytest.mark.parametrize("index", [-1, -2, 2, 3, True, 0.0, "0", [0]])
def test_a_span_waits_for_one_that_there_is(index: Any) -> None:
    for allowed in (None, 0, 1):
        Recorded.from_json(timeline(("done", None), ("done", allowed)), None)
    with pytest.raises(InputError, match="no timeline"):
        Recorded.from_json(timeline(("done", None), ("done", index)), None)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_server_tells_is_read_to_its_end(seed: int) -> None:
    """What did not run is passed over. A timeline in which that waits for itself is none."""
    draw = random.Random(seed)
    count = draw.randint(1, 5)
    told = [
        (draw.choice(["done", "skipped", "fused"]), draw.choice([None, *range(count)]))
        for _ in range(count)
    ]
    before: list[Any] = []
    for state, index in told:
        passed = set()
        while index is not None and told[index][0] != "done" and index not in passed:
            passed.add(index)
            index = told[index][1]
        if state == "done":
            before.append(index)
    ran = [k for k, (state, _) in enumerate(told) if state == "done"]
    if any(index is not None and index not in ran for index in before):
        with pytest.raises(InputError, match="no timeline"):
            Recorded.from_json(timeline(*told), None)
        return
    read = Recorded.from_json(timeline(*told), None)
    assert read.before == tuple(-1 if k is None else ran.index(k) for k in before)
    assert read.critical_path() <= frozenset(read.spans)


def test_lanes_begin_with_the_query_itself() -> None:
    assert list(OVERLAPPING.lanes()) == [Lane("query", -1), Lane("llm", 0), Lane("llm", 1)]


def test_where_the_time_went_is_said_in_words() -> None:
    shares = (TimeShare("decode", "decoding", 0.75), TimeShare("rank", "reranking", 0.25))
    lines = drawn(replace(OVERLAPPING, shares=shares))
    assert lines[lines.index("where the time went") + 1] == "  decoding 75 %, reranking 25 %"


# --- text ----------------------------------------------------------------------------------------


def drawn(recorded: Recorded, width: int = 10_000, terminal: bool = False) -> list[str]:
    out = StringIO()
    console = Console(
        file=out, width=width, highlight=False, force_terminal=terminal, color_system=None
    )
    show_timeline(recorded, console)
    return out.getvalue().splitlines()


def test_a_timeline_draws_what_waited_and_what_ran() -> None:
    lines = drawn(OVERLAPPING)
    assert lines[0].startswith("an-app  ok · 1.000 s · q1")
    assert lines[1].startswith("* critical path ")
    (row,) = [line for line in lines if line.startswith("* a ")]
    assert row.index("░") < row.index("█")
    assert "100.0ms" in row
    assert "400.0ms" in row
    assert row.endswith("batch 2")
    assert [line for line in lines if line in ("query", "llm 0", "llm 1")] == [
        "query",
        "llm 0",
        "llm 1",
    ]


def test_bars_of_later_spans_begin_further_right() -> None:
    lines = {line[2:].split()[0]: line for line in drawn(OVERLAPPING) if "█" in line}
    begins = [lines[name].index("█") for name in ("load", "a", "b", "c", "d")]
    assert begins == sorted(begins)
    width = lines["b"].count("█") / lines["a"].count("█")
    assert width == pytest.approx(5 / 4, rel=0.15)


def test_the_critical_path_is_marked(real: Recorded) -> None:
    marked = {line[2:].split()[0] for line in drawn(OVERLAPPING) if line.startswith("* ")}
    assert marked == {"critical", "a", "c"}, "b ended later than a, but c began before that"
    path = {span.primitive for span in real.critical_path()}
    rows = [line[2:].split()[0] for line in drawn(real, 200) if line.startswith("* ")]
    assert path >= {"load", "generate.3.decode"}
    assert len(rows) == len(path) + 1
    assert 3 < len(path) < len({span.primitive for span in real.spans})


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_of_a_timeline_is_folded(real: Recorded, width: int) -> None:
    if width >= 80:
        assert all(len(line) <= width for line in drawn(real, width, terminal=True))
    rows = [line for line in drawn(real) if "█" in line]
    assert len(rows) == len({(s.primitive, s.engine, s.instance) for s in real.spans})


def test_failures_are_named() -> None:
    tried = span("a", 0, 0.1, 0.2, state="failed")
    failed = Recorded("q", "app", "failed", 1.0, (tried,), before=(-1,))
    assert drawn(failed)[-1].endswith("failed")
    assert drawn(Recorded("q", "app", "running", 0.0, ()))[-1] == "nothing has run yet"


def test_what_was_never_sent_is_drawn_as_waiting_only() -> None:
    left = span("a", 0.2, 1.0, 1.0, state="cancelled")
    row = drawn(Recorded("q", "app", "deadline", 1.0, (left,), before=(-1,)))[-1]
    assert "░" in row
    assert "█" not in row


def test_of_a_path_that_is_too_long_the_end_is_shown() -> None:
    long = span("agent/12345678901234567890/generate.prefill", 0, 0.1, 0.2)
    row = drawn(Recorded("q", "app", "ok", 1.0, (long,), before=(-1,)))[-1]
    assert "…34567890/generate.prefill".removeprefix("…") in row
    assert "agent" not in row


def test_a_gantt_chart_has_a_section_an_instance() -> None:
    lines = to_mermaid(OVERLAPPING).splitlines()
    assert lines[0] == "gantt"
    assert [line for line in lines if "section" in line] == [
        "  section query",
        "  section llm 0",
        "  section llm 1",
    ]
    assert "  a :200, 600" in lines
    assert "  d :800, 801" in lines
    assert all(line.count(":") <= 1 for line in lines)
