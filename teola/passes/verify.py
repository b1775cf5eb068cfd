"""verify: does a pass's graph still mean what the p-graph means?

Checked after every step in tests and with `--debug`: the graph is well formed and acyclic; the
outputs are the same; every primitive of the p-graph is still there, once, whole or in pieces that
cover it; guards (but for pure prefix work) and orders that protect effects are kept; what reads a
store before or after it is changed still does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import chain, product

from teola.errors import GraphError
from teola.graph import DecodeParams, Graph, Op, Primitive, Prompt
from teola.graph.ops import EFFECTS, PREFILLS, STORE_READS


def verify(before: Graph, after: Graph) -> None:
    """Raise GraphError where `after` lost something that `before` (a p-graph) promised."""
    after.validate()
    if after.outputs.keys() != before.outputs.keys():
        raise GraphError("the names of the outputs have changed")
    parts: dict[str, list[Primitive]] = defaultdict(list)
    for p in after.primitives:
        parts[p.origin or p.id].append(p)
    for p in before.primitives:
        pieces = parts.get(p.id)
        if not pieces:
            raise GraphError(f"primitive {p.id!r} is lost")
        _check_coverage(p, pieces)
        _check_guards(p, pieces)
        _check_effects(after, p, pieces)
    _check_stores(before, after, parts)


def _check_coverage(p: Primitive, pieces: list[Primitive]) -> None:
    if p.op is Op.PREFILLING:
        if sum(map(_prompt_parts, pieces)) != _prompt_parts(p):
            raise GraphError(f"the pieces of {p.id!r} are not its whole prompt")
        if sum(q.op is not Op.PARTIAL_PREFILLING for q in pieces) != 1:
            raise GraphError(f"{p.id!r} must have exactly one full prefilling")
    elif p.op is Op.DECODING:
        items = [q.params.item for q in pieces if isinstance(q.params, DecodeParams)]
        if len(pieces) > 1 and items != list(range(len(pieces))):
            raise GraphError(f"the partial decodings of {p.id!r} are not its items in order")
    elif sum(q.items for q in pieces) != p.items:
        raise GraphError(f"the pieces of {p.id!r} do not add up to its {p.items} items")


def _prompt_parts(p: Primitive) -> int:
    prompt = p.input("prompt")
    return len(prompt.parts) if isinstance(prompt, Prompt) else 0


def _check_guards(p: Primitive, pieces: list[Primitive]) -> None:
    for q in pieces:
        if q.op is not Op.PARTIAL_PREFILLING and q.guards != p.guards:
            raise GraphError(f"{q.id!r} lost a guard of {p.id!r}")


def _check_effects(after: Graph, p: Primitive, pieces: list[Primitive]) -> None:
    for order in p.after:
        if not order.effect:
            continue
        protected = {q.id for q in after.primitives if (q.origin or q.id) == order.producer}
        for q in pieces:
            missing = protected - after.ancestors[q.id]
            if missing and not (q.op is Op.PARTIAL_PREFILLING and p.op in PREFILLS):
                raise GraphError(f"{q.id!r} no longer follows the effect {sorted(missing)[0]!r}")


def _check_stores(before: Graph, after: Graph, parts: Mapping[str, list[Primitive]]) -> None:
    """Raise GraphError where the p-graph orders a read and a write of one store and the e-graph
    does not: what a search finds depends on that order."""
    reads = [p for p in before.primitives if p.op in STORE_READS]
    writes = [p for p in before.primitives if p.op in EFFECTS]
    for p, q in chain(product(reads, writes), product(writes, reads)):
        if p.engine == q.engine and p.id in before.ancestors[q.id]:
            first = {piece.id for piece in parts[p.id]}
            for piece in parts[q.id]:
                if missing := first - after.ancestors[piece.id]:
                    raise GraphError(
                        f"{piece.id!r} no longer follows {min(missing)!r} in store {p.engine!r}"
                    )
