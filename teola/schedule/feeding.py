"""Which primitives may grow over a list while the call that writes it goes on.

decode ─────────────────────▶ grow       the list as it is
decode.1, decode.2 ─▶ join ─▶ grow       the list in pieces, by the pass pipeline_decoding
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from teola.graph import QUERY, AggregateParams, Aggregation, GrowParams, Primitive, Ref
from teola.graph.ops import DECODES
from teola.passes.pipeline_decoding import LIST


class Feeding(NamedTuple):
    """primitive: grows over a list that one call writes. giver: who gives it the list."""

    primitive: int
    giver: int


def feeding(
    primitives: Sequence[Primitive],
    index: Mapping[str, int],
    head: Sequence[int],
    members: Sequence[Sequence[int]],
) -> dict[int, tuple[Feeding, ...]]:
    """What grows over the list that a call writes, by the head of the call. head: of the call that
    a primitive is a member of; members: of the call that it heads."""
    by_giver: dict[int, tuple[Feeding, ...]] = {}
    for i, p in enumerate(primitives):
        feeds = p.params.feeds if isinstance(p.params, GrowParams) else ""
        ref = p.input(feeds) if feeds else None
        if not isinstance(ref, Ref):
            continue
        pieces = tuple(_pieces(ref, primitives, index))
        if pieces and pieces[0] >= 0 and pieces == tuple(members[head[pieces[0]]]):
            of = head[pieces[0]]
            by_giver[of] = (*by_giver.get(of, ()), Feeding(i, index[ref.producer]))
    return by_giver


def _pieces(ref: Ref, primitives: Sequence[Primitive], index: Mapping[str, int]) -> Iterator[int]:
    """The decodings that write the list behind `ref`, in the order of its items; -1 stands for
    whatever else some of it comes from."""
    i = -1 if ref.producer == QUERY or ref.items is not None else index[ref.producer]
    p = primitives[i]
    if i >= 0 and p.op in DECODES and ref.port == LIST:
        yield i
    elif i >= 0 and p.params == AggregateParams(Aggregation.CONCAT):
        for part in p.refs():
            yield from _pieces(part, primitives, index)
    else:
        yield -1
