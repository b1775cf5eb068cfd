"""An e-graph as a table that fits a terminal: parents are given by their numbers."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from experiments.demo import colours
from teola.graph import Graph


def table(graph: Graph) -> Table:
    """One line a primitive, in topological order."""
    numbers = {id: str(i) for i, id in enumerate(graph.order, 1)}
    kinds = {(e.source, e.target): e.kind for e in graph.edges() if e.kind != "data"}
    found = Table(
        title=f"e-graph of the first question: {len(graph)} primitives",
        caption="(n) protects an effect and carries no data; depth: primitives that still follow",
        box=box.SIMPLE_HEAD,
    )
    found.add_column("#", justify="right", style="dim")
    for name in ("primitive", "op", "engine"):
        found.add_column(name, no_wrap=True)
    for name in ("items", "depth"):
        found.add_column(name, justify="right")
    found.add_column("waits for")
    for id in graph.order:
        p = graph[id]
        waits = [
            f"({numbers[q]})" if (q, id) in kinds else numbers[q]
            for q in sorted(graph.parents[id], key=graph.order.index)
        ]
        colour = colours.of(p.engine)
        found.add_row(
            numbers[id],
            Text(id, colour),
            p.op.value.replace("_", " "),
            Text(p.engine or "-", colour),
            str(p.items) if p.items > 1 else "",
            str(graph.depth[id]),
            " ".join(waits),
        )
    return found
