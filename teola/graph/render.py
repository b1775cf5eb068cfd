"""Graphs for people and programs: text, Mermaid, DOT (Graphviz), JSON. All are deterministic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola.errors import UnknownName
from teola.graph.graph import Graph
from teola.graph.graph_table import to_text
from teola.graph.ops import Op

COLOURS: Final[Mapping[Op, str]] = {
    Op.EMBEDDING: "#dbeafe",
    Op.INGESTION: "#dcfce7",
    Op.SEARCHING: "#dcfce7",
    Op.RERANKING: "#e0e7ff",
    Op.PREFILLING: "#fef3c7",
    Op.PARTIAL_PREFILLING: "#fde68a",
    Op.FULL_PREFILLING: "#fef3c7",
    Op.DECODING: "#fee2e2",
    Op.PARTIAL_DECODING: "#fecaca",
    Op.CONDITION: "#f3e8ff",
    Op.AGGREGATE: "#f1f5f9",
}
OTHER_COLOUR: Final = "#ecfeff"


def to_json(graph: Graph) -> dict[str, Any]:
    """{"primitives": [{id, op, engine, component, items, depth}], "edges": [{from, to, kind}]}."""
    depth = graph.depth
    return {
        "primitives": [
            {
                "id": p.id,
                "op": p.op.value,
                "engine": p.engine,
                "component": p.component,
                "items": p.items,
                "depth": depth[p.id],
            }
            for p in (graph[id] for id in graph.order)
        ],
        "edges": [
            {"from": edge.source, "to": edge.target, "kind": edge.kind} for edge in graph.edges()
        ],
    }


def to_mermaid(graph: Graph) -> str:
    """A Mermaid flow chart, one subgraph for each component."""
    names = {id: f"n{i}" for i, id in enumerate(graph.order)}
    lines = ["flowchart LR"]
    components = dict.fromkeys(graph[id].component for id in graph.order)
    for k, component in enumerate(components):
        lines.append(f"  subgraph c{k}[{_quoted(component)}]")
        for id in graph.order:
            p = graph[id]
            if p.component == component:
                lines.append(f"    {names[id]}{_shape(p.op, _label(id, p.op, p.items))}")
        lines.append("  end")
    arrows = {"data": "-->", "order": "-.->", "guard": "==>"}
    for edge in graph.edges():
        note = f"|{_quoted(edge.label)}|" if edge.kind == "guard" else ""
        arrow = arrows[edge.kind]
        lines.append(f"  {names[edge.source]} {arrow}{note} {names[edge.target]}")
    for op, ids in _by_op(graph).items():
        nodes = ",".join(names[id] for id in ids)
        colour = COLOURS.get(op, OTHER_COLOUR)
        lines.append(f"  classDef {op.value} fill:{colour},stroke:#64748b,color:#0f172a")
        lines.append(f"  class {nodes} {op.value}")
    return "\n".join(lines)


def to_dot(graph: Graph) -> str:
    """Graphviz DOT, one cluster for each component."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=LR;", "  node [style=filled];"]
    components = dict.fromkeys(graph[id].component for id in graph.order)
    for k, component in enumerate(components):
        lines.append(f"  subgraph cluster_{k} {{ label={_quoted(component)};")
        for id in graph.order:
            p = graph[id]
            if p.component == component:
                colour = COLOURS.get(p.op, OTHER_COLOUR)
                shape = "diamond" if p.op is Op.CONDITION else "box"
                label = _quoted(_label(id, p.op, p.items).replace("<br>", "\n"))
                lines.append(
                    f'    {_quoted(id)} [label={label}, shape={shape}, fillcolor="{colour}"];'
                )
        lines.append("  }")
    styles = {"data": "solid", "order": "dashed", "guard": "bold"}
    for edge in graph.edges():
        label = f", label={_quoted(edge.label)}" if edge.kind == "guard" else ""
        ends = f"{_quoted(edge.source)} -> {_quoted(edge.target)}"
        lines.append(f"  {ends} [style={styles[edge.kind]}{label}];")
    return "\n".join([*lines, "}"])


def render(graph: Graph, form: str) -> str:
    """The graph as `text`, `mermaid` or `dot`. Raises UnknownName."""
    if form not in FORMS:
        raise UnknownName("format", form, FORMS)
    return FORMS[form](graph)


FORMS: Final[Mapping[str, Callable[[Graph], str]]] = {
    "text": to_text,
    "mermaid": to_mermaid,
    "dot": to_dot,
}


def _label(id: str, op: Op, items: int) -> str:
    count = f" × {items}" if items > 1 else ""
    return f"{id}<br>{op.value}{count}"


def _shape(op: Op, label: str) -> str:
    quoted = _quoted(label)
    return f"{{{{{quoted}}}}}" if op is Op.CONDITION else f"[{quoted}]"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'").replace("\n", "\\n") + '"'


def _by_op(graph: Graph) -> dict[Op, list[str]]:
    by_op: dict[Op, list[str]] = {}
    for id in graph.order:
        by_op.setdefault(graph[id].op, []).append(id)
    return by_op
