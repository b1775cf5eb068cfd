"""The p-graphs of module chains: no pass touches them, a module is a black box.

llamadist       index ─▶ expand ─▶ embed ─▶ search ─▶ ...   in the template's order
llamadist_pc    index ────────────────────▶ search ─▶ ...   a module runs once its inputs are whole,
                expand ─▶ embed ────────────╯
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from teola.graph import Graph, Order, Primitive


def chain(graph: Graph) -> Graph:
    """LlamaDist: the p-graph as it is. Its order edges run every module after the one before."""
    return graph


def side_by_side(graph: Graph) -> Graph:
    """LlamaDistPC: a module starts when all modules whose data it reads have ended."""
    modules = _modules(graph)
    reads = {name: _reads(graph, parts) - {name} for name, parts in modules.items()}
    tails = {name: _tails(parts) for name, parts in modules.items()}
    made: list[Primitive] = []
    for p in graph.primitives:
        after = [order for order in p.after if order.effect]
        inside = {q.id for q in modules[p.component]}
        if not any(ref.producer in inside for ref in p.refs()):
            after += [
                Order(tail, "its module reads what that one gives")
                for name in modules
                if name in reads[p.component]
                for tail in tails[name]
            ]
        made.append(replace(p, after=tuple(after)))
    return Graph(graph.name, made, graph.outputs, graph.inputs)


def _modules(graph: Graph) -> dict[str, list[Primitive]]:
    found: dict[str, list[Primitive]] = {}
    for p in graph.primitives:
        found.setdefault(p.component, []).append(p)
    return found


def _reads(graph: Graph, parts: Iterable[Primitive]) -> set[str]:
    """Modules whose data these primitives read."""
    return {
        graph[ref.producer].component for p in parts for ref in p.refs() if ref.producer in graph
    }


def _tails(parts: Iterable[Primitive]) -> list[str]:
    """Primitives of a module that no other of it reads."""
    listed = list(parts)
    read = {ref.producer for p in listed for ref in p.refs()}
    return [p.id for p in listed if p.id not in read]
