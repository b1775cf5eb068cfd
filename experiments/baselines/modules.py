"""The p-graphs of module chains: no pass touches them, a module is a black box.

llamadist       index ─▶ expand ─▶ embed ─▶ search ─▶ ...   in the template's order
llamadist_pc    index ────────────────────▶ search ─▶ ...   a module runs once its inputs are whole,
                expand ─▶ embed ────────────╯               and finds its instruction in the cache
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from teola.graph import Graph, Op, Order, Part, Primitive, Prompt


def chain(graph: Graph) -> Graph:
    """LlamaDist: the p-graph as it is. Its order edges run every module after the one before."""
    return graph


def by_hand(graph: Graph) -> Graph:
    """LlamaDistPC: independent modules side by side, instructions always cached."""
    return cached_instructions(side_by_side(graph))


def side_by_side(graph: Graph) -> Graph:
    """A module starts when all modules whose data it reads have ended: nothing finer."""
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


def cached_instructions(graph: Graph) -> Graph:
    """The literal text that a prompt begins with costs nothing to prefill: it is left out."""
    made = [
        replace(
            p,
            inputs=tuple(
                (name, Prompt(_after_instruction(value.parts)))
                if type(value) is Prompt
                else (name, value)
                for name, value in p.inputs
            ),
        )
        if p.op is Op.PREFILLING
        else p
        for p in graph.primitives
    ]
    return Graph(graph.name, made, graph.outputs, graph.inputs)


def _after_instruction(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    first = next((i for i, part in enumerate(parts) if not isinstance(part.content, str)), 0)
    return parts[first:]


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
