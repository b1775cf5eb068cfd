"""What the passes share: the record of a rewrite, and cutting primitives into aligned pieces.

before    a ──▶ b ──▶ x             (a, b batchable and aligned; x is not)

after     a.1 ──▶ b.1 ──╮
          a.2 ──▶ b.2 ──┴▶ b.all ──▶ x
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from teola.graph import (
    AggregateParams,
    Aggregation,
    Graph,
    Op,
    Order,
    Part,
    Primitive,
    Prompt,
    Ref,
    Value,
)
from teola.profile import Profile


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One decision of a pass about one primitive, with its reason."""

    pass_name: str
    primitive: str
    applied: bool
    reason: str


LEAST_GAIN: Final = 0.1
"""What a pass adds to the work of engines must save its query at least this part of the time."""
EQUAL_S: Final = 1e-9
"""Estimates that differ by less are equal."""

Pass = Callable[[Graph, Profile], tuple[Graph, list[Rewrite]]]
"""Pure: a graph and the profiles of its engines -> a graph and what was decided."""


def map_refs(primitive: Primitive, change: Callable[[Ref], Ref]) -> Primitive:
    """The primitive with every Ref replaced by `change(ref)`."""
    inputs = tuple((key, _map_value(value, change)) for key, value in primitive.inputs)
    return replace(primitive, inputs=inputs)


def _map_value(value: Value, change: Callable[[Ref], Ref]) -> Value:
    if type(value) is Ref:
        return change(value)
    if type(value) is tuple:
        return tuple(change(ref) for ref in value)
    if type(value) is Prompt:
        return Prompt(tuple(_map_part(part, change) for part in value.parts))
    return value


def _map_part(part: Part, change: Callable[[Ref], Ref]) -> Part:
    if type(part.content) is Ref:
        return replace(part, content=change(part.content))
    return part


def aligned_successors(graph: Graph, roots: Iterable[str], items: int) -> list[str]:
    """Batchable primitives that can be cut wherever `roots` are: they read whole lists of them.

    Every list a successor is cut along must come from a root or another successor, or from a
    source outside the cut that is declared to be aligned with them (equal planned length).
    """
    successors: dict[str, None] = dict.fromkeys(roots)
    for id in graph.order:
        primitive = graph[id]
        if id in successors or not primitive.batchable or primitive.items != items:
            continue
        refs = [ref for _, ref in primitive.item_refs()]
        inside = [ref for ref in refs if ref.producer in successors]
        if inside and all(ref.items is None for ref in inside):
            successors[id] = None
    return list(successors)


class Cut:
    """Cuts `members` (aligned, topologically sorted) into `pieces` pieces each.

    outside(ref, i): what piece i reads of a list that no member gives. sizes: planned items.
    replaced: primitives that the caller has already turned into pieces of its own: id -> pieces.
    """

    def __init__(
        self,
        graph: Graph,
        members: Sequence[str],
        sizes: Sequence[int],
        outside: Callable[[Ref, int], Ref],
        replaced: Mapping[str, Sequence[Primitive]] | None = None,
    ) -> None:
        self.graph, self.outside, self.sizes = graph, outside, sizes
        self.pieces: dict[str, Sequence[Primitive]] = dict(replaced or {})
        self.members = members
        self.closing: dict[tuple[str, str], Primitive] = {}

    def apply(self) -> Graph:
        """The graph with the members cut and every other consumer reading the joined pieces."""
        graph = self.graph
        inside = set(self.members)
        for id in self.members:
            self.pieces[id] = [self._piece(graph[id], i, inside) for i in range(len(self.sizes))]
        primitives: list[Primitive] = []
        for p in graph.primitives:
            if p.id in self.pieces:
                primitives += [self._reorder(piece) for piece in self.pieces[p.id]]
            else:
                primitives.append(self._reorder(self._reread(p)))
        outputs = {name: self._joined(ref) for name, ref in graph.outputs.items()}
        primitives += self.closing.values()
        return Graph(graph.name, primitives, outputs, graph.inputs)

    def _piece(self, p: Primitive, i: int, inside: set[str]) -> Primitive:
        names = {name for name, _ in p.item_refs()}

        def change(name: str, value: Value) -> Value:
            if name in names and type(value) is Ref:
                if value.producer in inside:
                    return replace(value, producer=f"{value.producer}.{i + 1}")
                return self.outside(value, i)
            return _map_value(value, self._joined)

        return replace(
            p,
            id=f"{p.id}.{i + 1}",
            inputs=tuple((name, change(name, value)) for name, value in p.inputs),
            items=self.sizes[i],
            origin=p.origin or p.id,
        )

    def _reread(self, p: Primitive) -> Primitive:
        """A consumer that is not cut: an Aggregate takes the pieces, others one that joins them."""
        if not any(ref.producer in self.pieces for ref in p.refs()):
            return p
        params = p.params
        if isinstance(params, AggregateParams) and params.mode in _SPREADS:
            (name, parts), *_ = p.inputs
            spread: list[Ref] = []
            for ref in parts if isinstance(parts, tuple) else ():
                spread += self._spread(ref)
            return replace(p, inputs=((name, tuple(spread)),))
        return map_refs(p, self._joined)

    def _spread(self, ref: Ref) -> list[Ref]:
        pieces = self._pieces_with(ref)
        if pieces is None:
            return [ref]
        if len(pieces) == 1:
            return [replace(ref, producer=pieces[0].id)]
        if ref.items is not None:
            return [self._joined(ref)]
        return [replace(ref, producer=piece.id) for piece in pieces]

    def _pieces_with(self, ref: Ref) -> list[Primitive] | None:
        pieces = self.pieces.get(ref.producer)
        if pieces is None:
            return None
        return [piece for piece in pieces if ref.port in piece.outputs]

    def _joined(self, ref: Ref) -> Ref:
        """The same data from the pieces: from the one that has all of it, or else through an
        Aggregate, made when first needed."""
        pieces = self._pieces_with(ref)
        if pieces is None:
            return ref
        if len(pieces) == 1:
            return replace(ref, producer=pieces[0].id)
        if (within := _within(ref, pieces)) is not None:
            return within
        key = (ref.producer, ref.port)
        if key not in self.closing:
            p = self.graph[ref.producer]
            self.closing[key] = Primitive(
                id=f"{p.id}.{ref.port}.all",
                op=Op.AGGREGATE,
                component=p.component,
                engine="",
                inputs=(("parts", tuple(Ref(piece.id, ref.port) for piece in pieces)),),
                outputs=("out",),
                params=AggregateParams(Aggregation.CONCAT),
                guards=p.guards,
            )
        return Ref(self.closing[key].id, "out", ref.items)

    def _reorder(self, p: Primitive) -> Primitive:
        if not any(order.producer in self.pieces for order in p.after):
            return p
        after: list[Order] = []
        for order in p.after:
            pieces = self.pieces.get(order.producer)
            if pieces is None:
                after.append(order)
            else:
                after += [replace(order, producer=piece.id) for piece in pieces]
        return replace(p, after=tuple(after))


def _within(ref: Ref, pieces: Sequence[Primitive]) -> Ref | None:
    """The same items as a Ref to the piece that has them all; None if none has. The last piece has
    whatever is left."""
    if ref.items is None:
        return None
    (lo, hi), start = ref.items, 0
    for piece in pieces:
        last, end = piece is pieces[-1], start + piece.items
        if lo >= start and (last or (hi is not None and hi <= end)):
            items = lo - start, None if hi is None else hi - start
            return Ref(piece.id, ref.port, items)
        start = end
    return None


_SPREADS = (Aggregation.CONCAT, Aggregation.UNION)
