"""A latency that no order and no batching of a query's calls can beat on these engines.

Everything counts as much as in the fastest batch measured, over all queries of one application and
document size that were asked one at a time:

* a text, a chunk or a passage: seconds of the fastest batch of its component alone, divided by the
  items in it (what never ran but beside other components counts as nothing);
* a prefilling: the shortest one of its component, divided by how many shared the engine meanwhile;
* a decoded token: the fastest call of its engine; what is between the engines: nothing.

The path is the longest one through the graph with these times; splitting the document comes before
what reads its chunks, and before nothing else. The bound is that, or more where an engine has more
to do than the path says: everything of one engine that has a path of at least d behind it cannot
begin before the first of it can, takes its time on the one instance, and is followed by d. The
embedder and the reranker are one model on one core, so they are one engine here. Decodings share
steps and are on paths only.

What it does not know is an engine that is faster than it ever was in the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from teola.graph import QUERY, Graph, Op, Primitive
from teola.graph.ops import CONTROL, DECODES, PREFILLS
from teola.runtime.observe.trace import Span, Trace
from teola.schedule.plan import Plan

ONE_MODEL: Final = frozenset({"embedding", "rerank"})
Kind = tuple[str, Op]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds from admission. path: the longest one. bound: with what each engine has to do."""

    path_s: float
    bound_s: float


def bounds(traces: Sequence[Trace], one: frozenset[str] = ONE_MODEL) -> Bounds:
    """Bounds of all of these queries: none of them, and nobody else's, ends sooner. one: engines
    that are one."""
    fastest = _Fastest()
    for trace in traces:
        fastest.see(trace)
    found = [_Earliest(trace, fastest) for trace in traces]
    return Bounds(min(query.path() for query in found), min(query.bound(one) for query in found))


@dataclass(slots=True)
class _Fastest:
    """The least that was ever measured. split: seconds before the graph. item: of a batch. share:
    of a prefilling. token: of a decoding, by engine."""

    split: float = float("inf")
    item: dict[Kind, float] = field(default_factory=dict)
    share: dict[Kind, float] = field(default_factory=dict)
    token: dict[str, float] = field(default_factory=dict)

    def see(self, trace: Trace) -> None:
        plan, spans = _plan(trace), _done(trace)
        graph = plan.graph
        outside = (span.end - span.start for span in trace.spans if span.primitive not in graph)
        self.split = min(self.split, sum(outside))
        batches: dict[tuple[str, int], list[Span]] = defaultdict(list)
        for span in spans:
            op = graph[span.primitive].op
            if op in PREFILLS:
                kind, seconds = (span.component, op), _share(span, spans, graph)
                self.share[kind] = min(seconds, self.share.get(kind, seconds))
            elif op not in CONTROL | DECODES:
                batches[span.engine, span.batch].append(span)
        for batch in batches.values():
            kinds = {(span.component, graph[span.primitive].op) for span in batch}
            if len(kinds) == 1:
                kind, items = kinds.pop(), sum(span.hi - span.lo for span in batch)
                seconds = (max(span.end for span in batch) - batch[0].start) / items
                self.item[kind] = min(seconds, self.item.get(kind, seconds))
        for head, seconds in _decoding(plan, spans).items():
            if (steps := trace.calls[head].completion_tokens - 1) > 0:
                engine = graph[head].engine
                self.token[engine] = min(seconds / steps, self.token.get(engine, seconds / steps))

    def seconds(self, trace: Trace) -> dict[str, float]:
        """How long each primitive of a query takes at least; only of those that ran."""
        plan, found = _plan(trace), dict[str, float]()
        spans = _done(trace)
        decoding = _decoding(plan, spans)
        for span in spans:
            p = plan.graph[span.primitive]
            kind, least = (p.component, p.op), 0.0
            if p.op in DECODES:
                head = _head(plan, p.id)
                if head in decoding and decoding[head] > 0:
                    steps = max(0, trace.calls[head].completion_tokens - 1)
                    part = (span.end - span.start) / decoding[head]
                    least = part * steps * self.token.get(p.engine, 0.0)
            elif p.op in PREFILLS:
                least = self.share[kind]
            elif p.op not in CONTROL:
                least = (span.hi - span.lo) * self.item.get(kind, 0.0)
            found[p.id] = found.get(p.id, 0.0) + least
        return found


class _Earliest:
    """When a query can end at the earliest."""

    def __init__(self, trace: Trace, fastest: _Fastest) -> None:
        self.graph, self.seconds = _plan(trace).graph, fastest.seconds(trace)
        self.order = [id for id in self.graph.order if id in self.seconds]
        self.starts: dict[str, float] = {}
        for id in self.order:
            lead = fastest.split if _reads_chunks(self.graph[id]) else 0.0
            before = (q for q in self.graph.parents[id] if q in self.seconds)
            self.starts[id] = max([lead, *(self.starts[q] + self.seconds[q] for q in before)])
        self.behind: dict[str, float] = {}
        for id in reversed(self.order):
            after = (q for q in self.graph.children[id] if q in self.seconds)
            self.behind[id] = max((self.seconds[q] + self.behind[q] for q in after), default=0.0)

    def path(self) -> float:
        """By the longest path."""
        return max((self.starts[id] + self.seconds[id] for id in self.order), default=0.0)

    def bound(self, one: frozenset[str]) -> float:
        """By that, and by what each engine has to do."""
        found = self.path()
        for own in self._engines(one).values():
            for after in {self.behind[id] for id in own}:
                crowd = [id for id in own if self.behind[id] >= after]
                first = min(self.starts[id] for id in crowd)
                found = max(found, first + sum(self.seconds[id] for id in crowd) + after)
        return found

    def _engines(self, one: frozenset[str]) -> Mapping[object, list[str]]:
        found: dict[object, list[str]] = defaultdict(list)
        for id in self.order:
            p = self.graph[id]
            if p.op not in CONTROL | DECODES:
                found[one if p.engine in one else p.engine].append(id)
        return found


def _plan(trace: Trace) -> Plan:
    assert trace.plan is not None
    return trace.plan


def _done(trace: Trace) -> list[Span]:
    """What ran to its end, of the graph."""
    graph = _plan(trace).graph
    return [span for span in trace.spans if span.primitive in graph and span.state == "done"]


def _share(span: Span, spans: Iterable[Span], graph: Graph) -> float:
    """Seconds of a prefilling, divided by how many of its engine ran while it did; all that was
    decoded meanwhile counts as one."""
    beside = [
        graph[other.primitive].op in PREFILLS
        for other in spans
        if other.engine == span.engine and other.start < span.end and other.end > span.start
    ]
    return (span.end - span.start) / max(1, sum(beside) + (False in beside))


def _decoding(plan: Plan, spans: Iterable[Span]) -> dict[str, float]:
    """Call (by what leads it) -> seconds from its first token to its last."""
    ends: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if plan.graph[span.primitive].op in DECODES:
            ends[_head(plan, span.primitive)].append(span)
    return {
        head: max(span.end for span in of) - min(span.start for span in of)
        for head, of in ends.items()
    }


def _head(plan: Plan, id: str) -> str:
    return plan.ids[plan.head[plan.index[id]]]


def _reads_chunks(p: Primitive) -> bool:
    return any(ref.producer == QUERY and ref.port == "chunks" for ref in p.refs())
