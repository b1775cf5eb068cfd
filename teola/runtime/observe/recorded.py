"""A trace together with its graph's edges: what its pictures are drawn from, wherever it comes from
(a query of this process, or what a server tells)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, Self

from teola.errors import InputError
from teola.runtime.observe.stretches import chain, waited_for
from teola.runtime.observe.trace import NOT_RUN, Span, Trace

ITSELF: Final = "query"
"""The lane of what needs no engine: steps outside the graph, conditions, aggregates."""


class Lane(NamedTuple):
    """An instance of an engine (-1: the query itself)."""

    engine: str
    instance: int

    def __str__(self) -> str:
        return self.engine if self.instance < 0 else f"{self.engine} {self.instance}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """spans: by start, without those that were skipped. edges: (producer, consumer)."""

    query_id: str
    app: str
    state: str
    latency_s: float
    spans: tuple[Span, ...]
    edges: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """What a query of this process recorded."""
        edges = trace.plan.graph.edges() if trace.plan else ()
        return cls(
            trace.query_id,
            trace.app,
            trace.state,
            trace.latency_s,
            tuple(span for span in trace.spans if span.state not in NOT_RUN),
            tuple((edge.source, edge.target) for edge in edges),
        )

    @classmethod
    def from_json(cls, trace: Mapping[str, Any], graph: Mapping[str, Any] | None) -> Self:
        """What a server told. graph: its e-graph; None: there is none yet. Raises InputError."""
        try:
            spans = tuple(_span(one) for one in trace["spans"] if one["state"] not in NOT_RUN)
            edges = tuple((edge["from"], edge["to"]) for edge in (graph or {}).get("edges", ()))
            return cls(
                trace["query_id"], trace["app"], trace["state"], trace["latency_s"], spans, edges
            )
        except (KeyError, TypeError, AttributeError):
            raise InputError("that is no trace; is it a Teola server of this version?") from None

    @property
    def end_s(self) -> float:
        """When the last thing ended: the latency, unless the query still runs."""
        return max((self.latency_s, *(max(span.end, span.start) for span in self.spans)))

    def critical_path(self) -> frozenset[Span]:
        """Spans that the latency went along (see `runtime.critical_path`)."""
        parents: dict[str, list[str]] = {
            span.primitive: [] for span in self.spans if span.primitive != span.op
        }  # a step outside the graph is named like what it does, and nothing stands above it
        for source, target in self.edges:
            parents.setdefault(target, []).append(source)
        answered = self.state in ("running", "ok", "partial")
        path = chain(self.spans, waited_for(self.spans, parents), answered=answered)
        return frozenset(self.spans[i] for i in path)

    def lanes(self) -> dict[Lane, list[Span]]:
        """Spans by where they ran: the query itself first, then engines by their first span."""
        found: dict[Lane, list[Span]] = {Lane(ITSELF, -1): []}
        for span in self.spans:
            lane = Lane(span.engine, span.instance) if span.engine else Lane(ITSELF, -1)
            found.setdefault(lane, []).append(span)
        order = list(dict.fromkeys(lane.engine for lane in found))
        return {
            lane: found[lane]
            for lane in sorted(found, key=lambda x: (order.index(x.engine), x.instance))
            if found[lane]
        }


_FIELDS = frozenset(field.name for field in fields(Span))


def _span(told: Mapping[str, Any]) -> Span:
    return Span(**{name: value for name, value in told.items() if name in _FIELDS})
