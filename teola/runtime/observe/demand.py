"""Counting what a query took, straight from the tuples that its trace recorded.

A server does this for every query; spans, which are for looking at, would cost ten times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from teola.graph import Primitive
from teola.runtime.observe.trace import NOT_RUN, Trace, engine_seconds, scopes
from teola.runtime.observe.usage import QueryUsage


class Demand(NamedTuple):
    """What a query asks of the engines.

    own_s: seconds in which something of it runs: its latency if it waits for no other. work: engine
    -> seconds in which it has a place there (a batch's time is shared evenly among its slices).
    """

    own_s: float
    work: Mapping[str, float]


class Timing(NamedTuple):
    """A slice that came back, or a decoding that was delivered; see `Span`."""

    engine: str
    op: str
    wait_s: float
    execution_s: float
    batch_size: int


def demand(trace: Trace) -> Demand:
    """What a query that has ended took. An LLM call has its place until its last decoding ends."""
    plan, (sent, ended, steps) = trace.plan, trace.raw
    busy = [(step.start, step.end) for step in steps]
    if plan is None:
        return Demand(covered(busy), {})
    ends: dict[tuple[int, int], float] = {}
    for i, lo, at, state in ended:
        if state not in NOT_RUN:
            head = plan.head[i]
            place = (i, lo) if head == i else (head, 0)
            ends[place] = max(at, ends.get(place, at))
    work: dict[str, float] = {}
    later: dict[tuple[int, int], float] = {}
    for i, lo, _, _, start, _, _, size in reversed(sent):
        if (i, lo) in later:  # this try was not the last
            end = _failed(trace, i, lo, start, later[i, lo])
        else:
            end = max(start, ends.get((i, lo), start))
        later[i, lo] = start
        busy.append((start - trace.admitted, end - trace.admitted))
        if engine := plan.primitives[i].engine:
            work[engine] = work.get(engine, 0.0) + (end - start) / size
    return Demand(covered(busy), work)


def _failed(trace: Trace, i: int, lo: int, start: float, until: float) -> float:
    """When a try failed. The next one began at `until`, which is the answer where a lost instance
    told of the failure later, or never."""
    told = (at for k, low, at, state in trace.raw[1] if (k, low, state) == (i, lo, "failed"))
    return max((at for at in told if start <= at <= until), default=until)


def usage_of(trace: Trace) -> QueryUsage:
    """What a query took that has ended, with its parts and the queries inside it."""
    counts = trace.counts
    return QueryUsage(
        counts.prompt,
        counts.cached,
        counts.generated,
        counts.calls,
        counts.shared,
        engine_seconds(trace),
        None if counts.unpriced else counts.cost,
    )


def timings(trace: Trace) -> Iterator[Timing]:
    """When each slice waited and ran, of all that an engine has done, or failed to do."""
    plan, (sent, ended, _) = trace.plan, trace.raw
    if plan is None:
        return
    opened: dict[tuple[int, int], list[tuple[float, float, int]]] = {}
    for i, lo, _, queued, start, _, _, size in sent:
        opened.setdefault((i, lo), []).append((queued, start, size))
    sizes = {i: size for i, _, _, _, _, _, _, size in sent}
    last: dict[int, float] = {}
    for i, lo, at, state in ended:
        p = plan.primitives[i]
        if p.engine and state in ("done", "failed"):
            if tries := opened.get((i, lo)):
                queued, start, size = tries.pop(0)
            else:  # a decoding: it begins where what it continues has ended
                queued = start = last.get(plan.sequence_of[i], at)
                size = sizes.get(plan.head[i], 1)
            yield Timing(p.engine, p.op.value, start - queued, at - start, size)
        last[i] = at


def done(trace: Trace) -> list[Primitive]:
    """Primitives that an engine has done, in the plan's order."""
    if trace.plan is None:
        return []
    primitives, (_, ended, _) = trace.plan.primitives, trace.raw
    found = {i for i, _, _, state in ended if state == "done" and primitives[i].engine}
    return [primitives[i] for i in sorted(found)]


def done_in_all(trace: Trace) -> int:
    """How many of those there are in the query, its parts and the queries inside, as far as these
    are recorded."""
    return len(done(trace)) + sum(map(done_in_all, trace.inner))


def ran_of(trace: Trace) -> list[str]:
    """Ids of those, with the paths of the parts that they are in."""
    return [scope.id(p.id) for scope in scopes(trace) for p in done(scope.trace)]


def steps_of(trace: Trace) -> list[Mapping[str, Any]]:
    """What agents that did not come to their end had done, parts and queries inside included."""
    found = list(trace.steps)
    for part in trace.inner:
        found += steps_of(part)
    return found


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """What lies in at least one of them, in seconds as a rule."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > until:
            total += end - max(start, until)
            until = end
    return total
