"""Draws the p-graph and the e-graph of advanced RAG as SVG: `python docs/images/make.py`.

A lane for each component, a column for each step that must wait for the one before. The pictures
have a light card of their own behind them, so they can be read on any background.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from teola.graph import Graph
from teola.graph.render import COLOURS, OTHER_COLOUR
from teola_apps.advanced_rag import app

HERE = Path(__file__).parent
PITCH, WIDTH, HEIGHT, LANE_GAP, MARGIN, LABEL = 96, 85, 26, 18, 18, 84
ROW = HEIGHT + 8
TITLES = {"p-graph": "p-graph: as the template has it", "e-graph": "e-graph: after the passes"}


class Layout:
    """Where each primitive is: its column, and its row counted over all lanes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.column: dict[str, int] = {}
        for id in graph.order:
            parents = (self.column[parent] for parent in graph.parents[id])
            self.column[id] = max(parents, default=-1) + 1
        self.top: dict[str, float] = {}
        self.lanes: list[tuple[str, float, float]] = []
        y = 44.0
        for component in dict.fromkeys(p.component for p in graph.primitives):
            used: dict[int, int] = {}
            for p in graph.primitives:
                if p.component == component:
                    row = used.get(self.column[p.id], 0)
                    used[self.column[p.id]] = row + 1
                    self.top[p.id] = y + row * ROW
            bottom = y + max(used.values()) * ROW - 8
            self.lanes.append((component, y, bottom))
            y = bottom + LANE_GAP
        self.height = y + 20
        self.width = LABEL + (max(self.column.values()) + 1) * PITCH + MARGIN

    def left(self, id: str) -> float:
        return LABEL + self.column[id] * PITCH


def svg(graph: Graph, title: str) -> str:
    """The picture as text."""
    layout = Layout(graph)
    size = f'width="{layout.width}" height="{layout.height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {layout.width} {layout.height:.0f}" role="img" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect x="1" y="1" width="{layout.width - 2}" height="{layout.height - 2:.0f}" rx="10" '
        'fill="#ffffff" stroke="#cbd5e1"/>',
        f'<text x="{MARGIN}" y="27" font-size="17" font-weight="600" fill="#0f172a">'
        f"{escape(title)}, {len(graph)} primitives</text>",
        *_lanes(layout),
        *_edges(layout),
        *_nodes(layout),
        f'<text x="{MARGIN}" y="{layout.height - 10:.0f}" font-size="13" fill="#475569">'
        "solid: data &#160;&#160; dashed: order that carries no data</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _lanes(layout: Layout) -> Iterator[str]:
    for component, top, bottom in layout.lanes:
        yield (
            f'<rect x="8" y="{top - 6:.0f}" width="{layout.width - 16}" '
            f'height="{bottom - top + 12:.0f}" rx="6" fill="#f1f5f9"/>'
        )
        yield (
            f'<text x="{MARGIN}" y="{(top + bottom) / 2 + 5:.0f}" font-size="14" '
            f'fill="#334155">{escape(component)}</text>'
        )


def _edges(layout: Layout) -> Iterator[str]:
    kinds: dict[tuple[str, str], str] = {}
    for edge in layout.graph.edges():
        if kinds.get((edge.source, edge.target)) != "data":
            kinds[edge.source, edge.target] = edge.kind
    for (source, target), kind in kinds.items():
        x1 = layout.left(source) + WIDTH
        y1, y2 = (layout.top[id] + HEIGHT / 2 for id in (source, target))
        x2 = layout.left(target)
        bend = max(10.0, min(60.0, (x2 - x1) / 2))
        dash = "" if kind == "data" else ' stroke-dasharray="5 4"'
        colour = "#475569" if kind == "data" else "#dc2626"
        yield (
            f'<path d="M{x1:.0f} {y1:.0f} C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} '
            f'{x2 - 4:.0f} {y2:.0f}" fill="none" stroke="{colour}" stroke-width="1.3"{dash}/>'
        )
        yield (
            f'<path d="M{x2 - 6:.0f} {y2 - 3:.1f} L{x2:.0f} {y2:.1f} L{x2 - 6:.0f} {y2 + 3:.1f} Z" '
            f'fill="{colour}"/>'
        )


def _nodes(layout: Layout) -> Iterator[str]:
    for p in layout.graph.primitives:
        x, y = layout.left(p.id), layout.top[p.id]
        count = f" ×{p.items}" if p.items > 1 else ""
        label = p.id.removeprefix(f"{p.component}.").replace("prefill.ahead1", "ahead") + count
        small = 13 if len(label) < 11 else 12
        yield (
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
            f'fill="{COLOURS.get(p.op, OTHER_COLOUR)}" stroke="#64748b"/>'
        )
        yield (
            f'<text x="{x + WIDTH / 2:.0f}" y="{y + 17.5:.1f}" font-size="{small}" '
            f'text-anchor="middle" fill="#0f172a">{escape(label)}</text>'
        )


def graphs() -> dict[str, Graph]:
    """What is drawn, by name."""
    optimised = app.explain(question="Why?", profile="paper-13b").optimised
    return {"p-graph": optimised.p_graph, "e-graph": optimised.e_graph}


def main() -> None:
    """Write both pictures beside this file."""
    for name, graph in graphs().items():
        (HERE / f"{name}.svg").write_text(svg(graph, TITLES[name]), encoding="utf-8")


if __name__ == "__main__":
    main()
