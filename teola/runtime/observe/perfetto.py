"""A trace for ui.perfetto.dev, in Chrome's trace-event JSON.

    process  = engine (and the query itself)    thread = instance; overlapping slices get threads of
    slice    = one try of a slice                        their own, because nested they would lie
    async    = its waiting before               flow   = an edge of the graph
    counters = of this query: primitives that wait, and the size of the batch that it is in

Times in the file are microseconds since the query was admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from teola.runtime.observe.recorded import Lane, Recorded
from teola.runtime.observe.trace import Span

TraceEvent = dict[str, Any]
LEAST_US: Final = 0.001
"""Slices are at least that long, so that a flow can begin and end inside."""
TRACKS: Final = 1000
"""Threads of one instance: more calls at once than a query has ever made there."""


def to_perfetto(trace: Recorded) -> dict[str, Any]:
    """The whole file, as JSON values."""
    lanes = trace.lanes()
    engines = list(dict.fromkeys(lane.engine for lane in lanes))
    events: list[TraceEvent] = []
    placed: dict[Span, tuple[int, int]] = {}
    for lane, spans in lanes.items():
        pid = engines.index(lane.engine) + 1
        for span, track in zip(spans, _tracks(spans), strict=True):
            placed[span] = (pid, (lane.instance + 1) * TRACKS + track)
        events += _names(lane, pid, {placed[span][1] for span in spans})
        events += (_slice(span, *placed[span]) for span in spans)
        events += (event for k, span in enumerate(spans) for event in _waiting(span, lane, pid, k))
    for pid, engine in enumerate(engines, 1):
        at_engine = [span for span in trace.spans if span.engine == engine]
        events += _counters(at_engine, pid)
    events += _flows(trace, placed)
    metadata = [event for event in events if event["ph"] == "M"]
    timed = sorted((e for e in events if e["ph"] != "M"), key=lambda event: event["ts"])
    about = {"query_id": trace.query_id, "app": trace.app, "state": trace.state}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": [*metadata, *timed]}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _lasting(span: Span) -> float:
    return max(LEAST_US, _us(span.end - span.start))


def _tracks(spans: Sequence[Span]) -> Iterator[int]:
    """For each span, the first track that is free when it begins."""
    until: list[float] = []
    for span in spans:
        start = _us(span.start)
        track = next((k for k, end in enumerate(until) if end <= start), len(until))
        if track == len(until):
            until.append(0.0)
        until[track] = start + _lasting(span)
        yield track


def _names(lane: Lane, pid: int, tids: Iterable[int]) -> Iterator[TraceEvent]:
    head = {"ph": "M", "pid": pid}
    yield {**head, "tid": 0, "name": "process_name", "args": {"name": lane.engine}}
    yield {**head, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid in sorted(tids):
        name = str(lane) if tid % TRACKS == 0 else f"{lane} · {tid % TRACKS + 1}"
        yield {**head, "tid": tid, "name": "thread_name", "args": {"name": name}}
        yield {**head, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slice(span: Span, pid: int, tid: int) -> TraceEvent:
    items = span.hi - span.lo
    args = {
        "component": span.component,
        "op": span.op,
        "state": span.state,
        "waited_ms": round(1e3 * max(0.0, span.start - span.queued), 3),
        "items": f"{span.lo}..{span.hi}" if items > 1 else items,
        "batch": span.batch,
        "batch_size": span.batch_size,
    }
    if span.why:
        args["why"] = span.why
    return {
        "ph": "X",
        "name": span.primitive,
        "cat": span.op,
        "ts": _us(span.start),
        "dur": _lasting(span),
        "pid": pid,
        "tid": tid,
        "args": args,
    }


def _waiting(span: Span, lane: Lane, pid: int, k: int) -> Iterator[TraceEvent]:
    """A slice of its own for the time in the queue."""
    if not span.engine or _us(span.start) <= _us(span.queued):
        return
    head = {"name": f"{span.primitive} waits", "cat": "queue", "id": f"{lane}/{k}", "pid": pid}
    yield {"ph": "b", **head, "tid": 0, "ts": _us(span.queued)}
    yield {"ph": "e", **head, "tid": 0, "ts": _us(span.start)}


def _counters(spans: Sequence[Span], pid: int) -> Iterator[TraceEvent]:
    """Steps of what waits and of the size of the batch that runs (0: none does)."""
    waits = [(_us(s.queued), 1) for s in spans if s.start > s.queued]
    waits += [(_us(s.start), -1) for s in spans if s.start > s.queued]
    for at, value in _running_sum(waits):
        yield _counter("waiting primitives", pid, at, value)
    edges = sorted({_us(s.start) for s in spans} | {_us(s.start) + _lasting(s) for s in spans})
    for at, after in pairwise([*edges, float("inf")]):
        inside = [s for s in spans if _us(s.start) <= at and _us(s.start) + _lasting(s) >= after]
        yield _counter("batch size", pid, at, max((s.batch_size for s in inside), default=0))


def _running_sum(steps: Iterable[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    changes: dict[float, int] = {}
    for at, change in steps:
        changes[at] = changes.get(at, 0) + change
    value = 0
    for at in sorted(changes):
        value += changes[at]
        yield at, value


def _counter(name: str, pid: int, at: float, value: int) -> TraceEvent:
    return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at, "args": {"value": value}}


def _flows(trace: Recorded, placed: dict[Span, tuple[int, int]]) -> Iterator[TraceEvent]:
    """An arrow from the last slice of what is read to each first slice of what reads it."""
    first: dict[str, Span] = {}
    last: dict[str, Span] = {}
    for span in trace.spans:
        first.setdefault(span.primitive, span)
        if span.primitive not in last or span.end >= last[span.primitive].end:
            last[span.primitive] = span
    for k, (source, target) in enumerate(trace.edges):
        if source not in last or target not in first:
            continue
        begin, end = last[source], first[target]
        left = _us(begin.start) + _lasting(begin) - LEAST_US / 2
        arrived = _us(end.start) + LEAST_US / 2
        if arrived < left:  # a stage that began before the last of what it reads: no arrow back
            continue
        head = {"name": f"{source} → {target}", "cat": "data", "id": k}
        yield {"ph": "s", **head, **_place(placed[begin]), "ts": round(left, 4)}
        yield {"ph": "f", "bp": "e", **head, **_place(placed[end]), "ts": round(arrived, 4)}


def _place(at: tuple[int, int]) -> dict[str, int]:
    return {"pid": at[0], "tid": at[1]}
