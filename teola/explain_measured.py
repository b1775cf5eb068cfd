"""What a run measured of each primitive, for an explanation: how long, and how many items came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from teola.graph import Graph
from teola.runtime.observe.demand import covered
from teola.runtime.observe.trace import NOT_RUN, Span, Trace


@dataclass(frozen=True)
class MeasuredGraph:
    """Measurements of an e-graph, by primitive. queued, ran: seconds until its first slice ran, and
    from then until its last was done; of primitives that were done. states: how its last span
    ended. items: that came; the planned ones where it takes no list."""

    queued: Mapping[str, float]
    ran: Mapping[str, float]
    states: Mapping[str, str]
    items: Mapping[str, int]
    _done: Mapping[str, list[Span]]

    @classmethod
    def of(cls, trace: Trace, graph: Graph) -> Self:
        """What the trace recorded of its own graph."""
        every, done = trace.spans, defaultdict[str, list[Span]](list)
        for span in every:
            if span.state == "done":
                done[span.primitive].append(span)
        return cls(
            {id: min(s.start for s in of) - min(s.queued for s in of) for id, of in done.items()},
            {id: max(s.end for s in of) - min(s.start for s in of) for id, of in done.items()},
            {span.primitive: span.state for span in every},
            {p.id: _came(every, p.id) if p.batchable else p.items for p in graph.primitives},
            done,
        )

    def of_origins(self, origin: Mapping[str, str], graph: Graph) -> dict[str, float]:
        """Seconds in which any piece of a primitive of the p-graph ran. origin: see `origins`."""
        pieces = defaultdict[str, list[tuple[float, float]]](list)
        for id, of in origin.items():
            pieces[of] += ((span.start, span.end) for span in self._done.get(id, ()))
        return {id: covered(pieces[id]) for id in graph.order if pieces[id]}

    def items_of(self, origin: Mapping[str, str], graph: Graph, after: Graph) -> dict[str, int]:
        """Items that came for the pieces of each primitive of the p-graph; as `of_origins`."""
        items = {p.id: 0 if p.batchable else p.items for p in graph.primitives}
        for id, of in origin.items():
            if graph[of].batchable and after[id].batchable:
                items[of] += self.items[id]
        return items


def _came(spans: Iterable[Span], id: str) -> int:
    """Items of a primitive that were sent, each counted once however often it was tried."""
    slices = {(s.lo, s.hi) for s in spans if s.primitive == id and s.state not in NOT_RUN}
    return int(covered(slices))
