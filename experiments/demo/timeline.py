"""A trace as a Gantt chart for the terminal, with the path that the latency went along."""

from __future__ import annotations

from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from experiments.demo import colours
from teola.graph import Graph
from teola.runtime.trace import Span, Trace

BEFORE = ("load", "optimise")
"""Steps before the graph, which everything waits for."""


class Row(NamedTuple):
    """A primitive: ready at `queued`, worked on from `start` to `end`, in seconds."""

    name: str
    engine: str
    queued: float
    start: float
    end: float


def gantt(trace: Trace, width: int) -> Table:
    """One line for each primitive that ran; `width` in columns."""
    rows = rows_of(trace.spans)
    assert trace.plan is not None
    critical = critical_path(trace.plan.graph, rows)
    labels = max(len(row.name) for row in rows) + 2
    columns = max(20, width - labels - 26)
    found = Table(
        title=f"timeline of the first question: {trace.latency_s:.2f} s",
        caption="░ waits for its engine   █ runs   * on the path that the latency went along",
        box=box.SIMPLE_HEAD,
    )
    found.add_column("primitive", no_wrap=True)
    found.add_column(f"0 to {trace.latency_s:.2f} s", no_wrap=True)
    found.add_column("from", justify="right", no_wrap=True)
    found.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        mark = "* " if row.name in critical else "  "
        label = Text(mark + row.name, f"bold {colours.of(row.engine)}" if mark == "* " else "")
        lasted = row.end - row.start
        found.add_row(
            label, _bar(row, trace.latency_s, columns), f"{row.start:.2f}", f"{lasted:.3f}"
        )
    return found


def rows_of(spans: list[Span]) -> list[Row]:
    """The slices of each primitive put together; what never ran is left out."""
    found: dict[str, Row] = {}
    for s in spans:
        if s.state != "done":
            continue
        before = found.get(s.primitive)
        row = Row(s.primitive, s.engine, s.queued, s.start, s.end)
        if before is not None:
            row = Row(
                s.primitive,
                s.engine,
                min(before.queued, s.queued),
                min(before.start, s.start),
                max(before.end, s.end),
            )
        found[s.primitive] = row
    return sorted(found.values(), key=lambda row: (row.start, row.end))


def critical_path(graph: Graph, rows: list[Row]) -> set[str]:
    """Back from what ended last, each time to the parent that ended last."""
    place = {id: i for i, id in enumerate(graph.order)}
    ends = {row.name: (row.end, place[row.name]) for row in rows if row.name in place}
    path = {*BEFORE}
    names = [max(ends, key=ends.__getitem__)]
    while names:
        path.add(names[0])
        parents = [q for q in graph.parents[names[0]] if q in ends]
        names = sorted(parents, key=ends.__getitem__)[-1:]
    return path


def _bar(row: Row, latency_s: float, columns: int) -> Text:
    scale = columns / latency_s if latency_s else 0.0
    queued, start = (min(columns - 1, int(at * scale)) for at in (row.queued, row.start))
    end = min(columns, max(start + 1, round(row.end * scale)))
    colour = colours.of(row.engine)
    bar = Text(" " * queued)
    bar.append("░" * (start - queued), f"dim {colour}")
    bar.append("█" * (end - start), colour)
    bar.append(" " * (columns - end))
    return bar
