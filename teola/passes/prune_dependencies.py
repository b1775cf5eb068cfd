"""Pass 1, prune dependencies (paper, section 5.2): drop order edges that carry no data.

    before    index ┄┄▶ expand ──▶ embed ──▶ search        (┄ order of the template)
    after     index ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ search        (protects an effect: stays)
              expand ──▶ embed ──▶ search

Whole branches come loose and run in parallel. Guards and edges that protect an effect stay.
"""

from __future__ import annotations

from dataclasses import replace

from teola.graph import Graph, Primitive
from teola.passes.rewrite import Rewrite
from teola.profile import Profile

NAME = "prune_dependencies"


def prune_dependencies(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Remove every order edge that protects no effect."""
    rewrites: list[Rewrite] = []
    primitives = []
    for p in graph.primitives:
        kept = tuple(order for order in p.after if order.effect)
        dropped = [order.producer for order in p.after if not order.effect]
        if dropped:
            rewrites.append(Rewrite(NAME, p.id, True, _reason(p, dropped)))
            p = replace(p, after=kept)
        for order in kept:
            reason = f"must follow {order.producer}: {order.reason}"
            rewrites.append(Rewrite(NAME, p.id, False, reason))
        primitives.append(p)
    if not any(rewrite.applied for rewrite in rewrites):
        return graph, rewrites
    return Graph(graph.name, primitives, graph.outputs, graph.inputs), rewrites


def _reason(p: Primitive, dropped: list[str]) -> str:
    read = {ref.producer for ref in p.refs()}
    idle = [producer for producer in dict.fromkeys(dropped) if producer not in read]
    if idle:
        return f"no data flows from {', '.join(idle)}"
    return f"the data of {', '.join(dict.fromkeys(dropped))} orders it already"
