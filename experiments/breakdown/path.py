"""The real critical path of one query, and what the time along it was spent on.

It is found backwards: of what a primitive waited for, that which ended last, and so on to the
beginning. Along it every second belongs to exactly one of

    execution      inside an engine (or reading documents)
    queueing       ready, but not yet sent to an instance
    communication  between the core and an engine, either way, and inside the core
    optimisation   building, optimising and compiling the graph
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

from teola.runtime.observe.trace import Span, Trace

Inside = Callable[[Span], float]
"""Seconds of a span that its engine worked on it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds along the path; together the latency."""

    optimisation: float = 0.0
    communication: float = 0.0
    queueing: float = 0.0
    execution: float = 0.0

    def __add__(self, other: Parts) -> Parts:
        return Parts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))


def parts(trace: Trace, inside: Inside, optimisation_s: float) -> Parts:
    """Of a finished query. optimisation_s: what planning took, as far as the time before the first
    primitive allows."""
    assert trace.plan is not None
    graph = trace.plan.graph
    last = _last_slices(trace, graph.parents)
    lead = sum(s.end - s.start for s in trace.spans if s.primitive not in graph)
    found = Parts(execution=lead)
    span = max(last.values(), key=lambda s: s.end, default=None)
    end = trace.latency_s
    while span is not None:
        worked = min(max(inside(span), 0.0), span.end - span.start)
        found += Parts(
            execution=worked,
            queueing=span.start - span.queued,
            communication=(span.end - span.start) - worked + (end - span.end),
        )
        end = span.queued
        before = [last[parent] for parent in graph.parents[span.primitive] if parent in last]
        span = max(before, key=lambda s: s.end, default=None)
    planned = min(optimisation_s, max(0.0, end - lead))
    return found + Parts(optimisation=planned, communication=end - lead - planned)


def _last_slices(trace: Trace, known: object) -> dict[str, Span]:
    """The slice of each primitive that ended last."""
    found: dict[str, Span] = {}
    for span in trace.spans:
        if span.state == "done" and span.primitive in known:  # type: ignore[operator]
            before = found.get(span.primitive)
            if before is None or span.end > before.end:
                found[span.primitive] = span
    return found
