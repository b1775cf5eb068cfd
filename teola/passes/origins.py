"""Which primitive of a p-graph each one of its e-graph was made from."""

from __future__ import annotations

from teola.graph import Graph


def origins(before: Graph, after: Graph) -> dict[str, str]:
    """Primitive of the e-graph -> the one of the p-graph that it was made from, if there is one.

    What joins the pieces of a primitive comes from that primitive.
    """
    origin_of: dict[str, str] = {}
    for id in after.order:
        p = after[id]
        joined = [origin_of[ref.producer] for ref in p.refs() if ref.producer in origin_of]
        origin = id if id in before else p.origin or next(iter(joined), "")
        if origin in before:
            origin_of[id] = origin
    return origin_of
