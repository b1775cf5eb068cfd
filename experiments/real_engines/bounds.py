"""The longest path of measured execution times through the graph that one of our queries ran as.

No order of the same executions ends sooner, however many engines there are. On this machine the
embedder and the reranker are one model on one core, so a second bound has their batches wait for
one another in the order in which they ran.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from teola.runtime.observe.trace import Span, Trace

ONE_MODEL: Final = frozenset({"embedding", "rerank"})


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds from admission. path: of the graph alone. shared: with one model for two engines."""

    path_s: float
    shared_s: float


def bounds(trace: Trace) -> Bounds:
    """Both bounds of a finished query."""
    return Bounds(_longest(trace, frozenset()), _longest(trace, ONE_MODEL))


def _longest(trace: Trace, one_at_a_time: frozenset[str]) -> float:
    assert trace.plan is not None
    graph = trace.plan.graph
    lead = sum(span.end - span.start for span in trace.spans if span.primitive not in graph)
    ends: dict[str, float] = defaultdict(lambda: lead)
    turns: list[tuple[object, float]] = [((), lead)]
    place = {id: i for i, id in enumerate(graph.order)}
    # What a span waited for comes before it, also where both took no time at all.
    for span in sorted(trace.spans, key=lambda s: (s.start, place.get(s.primitive, -1))):
        if span.primitive not in graph or span.state != "done":
            continue
        ready = max((ends[parent] for parent in graph.parents[span.primitive]), default=lead)
        if span.engine in one_at_a_time:
            ready = max(ready, _turn_before(turns, span))
        end = ready + span.end - span.start
        ends[span.primitive] = max(ends[span.primitive], end)
        if span.engine in one_at_a_time:
            turns.append(((span.engine, span.batch), end))
    return max(ends.values(), default=lead)


def _turn_before(turns: list[tuple[object, float]], span: Span) -> float:
    """When the batches before that of `span` have ended."""
    batch = (span.engine, span.batch)
    return max(end for other, end in turns if other != batch)
