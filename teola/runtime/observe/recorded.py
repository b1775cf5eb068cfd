"""A trace together with its graph's edges: what its pictures are drawn from, wherever it comes from
(a query of this process, or what a server tells)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, Self

from teola.errors import InputError
from teola.runtime.observe.shares import TimeShare, shares_of
from teola.runtime.observe.stretches import NONE, chain
from teola.runtime.observe.trace import NOT_RUN, Span, Trace
from teola.runtime.observe.whole import whole

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
    """spans: by start, with those of parts and queries inside, without those that were skipped.
    edges: (producer, consumer) of the query's own graph. before: see `whole`. shares: of its time,
    by what it was spent on."""

    query_id: str
    app: str
    state: str
    latency_s: float
    spans: tuple[Span, ...]
    edges: tuple[tuple[str, str], ...] = ()
    before: tuple[int, ...] = ()
    shares: tuple[TimeShare, ...] = ()

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """What a query of this process recorded."""
        edges = trace.plan.graph.edges() if trace.plan else ()
        woven = whole(trace)
        return cls(
            trace.query_id,
            trace.app,
            trace.state,
            trace.latency_s,
            *_ran(woven.spans, woven.before, tuple((edge.source, edge.target) for edge in edges)),
            tuple(shares_of(trace)),
        )

    @classmethod
    def from_json(cls, timeline: Mapping[str, Any], graph: Mapping[str, Any] | None) -> Self:
        """A timeline that a server told. graph: its e-graph; None: there is none yet. Raises
        InputError."""
        try:
            spans = [_span(entry) for entry in timeline["spans"]]
            before = [_index(entry["waited_for"], len(spans)) for entry in timeline["spans"]]
            edges = tuple((edge["from"], edge["to"]) for edge in (graph or {}).get("edges", ()))
            return cls(
                timeline["query_id"],
                timeline["app"],
                timeline["state"],
                timeline["end_s"],
                *_ran(spans, before, edges),
                tuple(TimeShare(**entry) for entry in timeline["shares"]),
            )
        except (IndexError, KeyError, TypeError, ValueError, AttributeError):
            raise InputError("that is no timeline; is it a Teola server of this version?") from None

    @property
    def end_s(self) -> float:
        """When the last thing ended: the latency, unless the query still runs."""
        return max((self.latency_s, *(max(span.end, span.start) for span in self.spans)))

    def critical_path(self) -> frozenset[Span]:
        """Spans that the latency went along (see `runtime.critical_path`)."""
        answered = self.state in ("running", "ok", "partial")
        return frozenset(self.spans[i] for i in chain(self.spans, self.before, answered=answered))

    def lanes(self) -> dict[Lane, list[Span]]:
        """Spans by where they ran: the query itself first, then engines by their first span."""
        by_lane: dict[Lane, list[Span]] = {Lane(ITSELF, -1): []}
        for span in self.spans:
            lane = Lane(span.engine, span.instance) if span.engine else Lane(ITSELF, -1)
            by_lane.setdefault(lane, []).append(span)
        order = list(dict.fromkeys(lane.engine for lane in by_lane))
        return {
            lane: by_lane[lane]
            for lane in sorted(by_lane, key=lambda x: (order.index(x.engine), x.instance))
            if by_lane[lane]
        }


Edges = tuple[tuple[str, str], ...]


def _ran(
    spans: Sequence[Span], before: Sequence[int], edges: Edges
) -> tuple[tuple[Span, ...], Edges, tuple[int, ...]]:
    """What ran of these spans, the edges, and whom it waited for among what ran."""
    indices = [i for i, span in enumerate(spans) if span.state not in NOT_RUN]
    place = {i: k for k, i in enumerate(indices)}

    def above(i: int) -> int:
        at = before[i]
        for _ in spans:
            if at == NONE or at in place:
                return place.get(at, NONE)
            at = before[at]
        raise ValueError("a span waits for itself")  # which only another process can tell

    return tuple(spans[i] for i in indices), edges, tuple(map(above, indices))


_FIELDS = frozenset(field.name for field in fields(Span))


def _index(told: Any, count: int) -> int:
    """The index of one of so many spans, as a server tells it (None: of none)."""
    if told is None:
        return NONE
    if type(told) is not int or not 0 <= told < count:
        raise ValueError("there is no such span")
    return told


def _span(told: Mapping[str, Any]) -> Span:
    if not isinstance(told["state"], str):
        raise TypeError("a state is a text")
    return Span(**{name: value for name, value in told.items() if name in _FIELDS})
