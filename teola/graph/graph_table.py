"""A graph as a table: a line for each primitive, in topological order, as wide as there is room.

    depth  primitive  op  engine  items  est. s  waits for           names, where they fit
    #  primitive  op  engine  items  est. s  waits for               numbers, and ranges of them
    #  primitive  items  est. s  waits for                           columns are left out

No name and no number is ever broken: where a column does not fit, it is left out, the one that
tells least first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Final, NamedTuple

from teola.graph.graph import Graph

NUMBER: Final = "#"
WAITS_FOR: Final = "waits for"
LEAST: Final = 16
"""Columns for numbers of parents: more of them go on in the next line."""
LEFT_OUT: Final = ("depth", "op", "engine", WAITS_FOR, "items")
"""Columns in the order in which they go."""
_LEFT_ALIGNED: Final = ("primitive", "op", "engine", WAITS_FOR)
MARKS: Final[Mapping[str, str]] = {"data": "{}", "order": "({})", "guard": "[{}]"}
_LEGEND: Final[Mapping[str, str]] = {
    "order": "(n) protects an effect and carries no data",
    "guard": "[n] decides whether it runs",
}

Cells = Mapping[str, str]
"""Primitive -> what stands in its line."""


class _Column(NamedTuple):
    title: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))


def to_text(
    graph: Graph,
    columns: Mapping[str, Cells] | None = None,
    *,
    width: int | None = None,
    items: Mapping[str, int] | None = None,
) -> str:
    """The graph as a table. columns: further ones, by their titles. width: characters that a line
    may have (None: as many as it needs). items: of each primitive, where they are not those that
    were planned."""
    more = columns or {}
    counts = {id: graph[id].items for id in graph.order} if items is None else items
    all_columns = {
        "depth": [str(graph.depth[id]) for id in graph.order],
        "primitive": [*graph.order],
        "op": [graph[id].op.value for id in graph.order],
        "engine": [graph[id].engine or "-" for id in graph.order],
        "items": [str(counts[id]) for id in graph.order],
        **{title: [cells.get(id, "") for id in graph.order] for title, cells in more.items()},
    }
    named = [_Column(title, cells) for title, cells in all_columns.items()]
    whole = _lines([*named, _Column(WAITS_FOR, _named_parents(graph))])
    if width is None or max(map(len, whole)) <= width:
        return "\n".join(whole)
    all_columns = {NUMBER: [str(n) for n in range(1, len(graph) + 1)], **all_columns}
    all_columns[WAITS_FOR] = _numbered_parents(graph)
    return "\n".join(_narrowed(graph, all_columns, [*more], width))


def _narrowed(
    graph: Graph, all_columns: dict[str, list[str]], more: Sequence[str], width: int
) -> list[str]:
    """Leave out columns until the others fit."""
    for title in ("", *LEFT_OUT, *more[:-1]):
        all_columns.pop(title, None)
        if title == WAITS_FOR:
            del all_columns[NUMBER]  # nothing refers to it any more
        shown = [_Column(title, cells) for title, cells in all_columns.items()]
        last = min(shown[-1].width, LEAST) if WAITS_FOR in all_columns else shown[-1].width
        if sum(column.width + 2 for column in shown[:-1]) + last <= width:
            break
    if WAITS_FOR not in all_columns:
        return _lines(shown)
    kinds = {edge.kind for edge in graph.edges()}
    legend = [meaning for kind, meaning in _LEGEND.items() if kind in kinds]
    notes = wrap(f"{WAITS_FOR}: numbers of primitives; {'; '.join(legend)}".rstrip("; "), width)
    return [*_lines(shown, width), *notes]


def _lines(columns: Sequence[_Column], width: int | None = None) -> list[str]:
    """The lines of a table. width: where the last column goes on in a further line."""
    widths = [column.width for column in columns]
    before = sum(widths[:-1]) + 2 * (len(columns) - 1)
    lines = []
    for row in zip(*((column.title, *column.cells) for column in columns), strict=True):
        cells = [
            cell.ljust(size) if column.title in _LEFT_ALIGNED else cell.rjust(size)
            for cell, size, column in zip(row, widths, columns, strict=True)
        ]
        if width is None or columns[-1].title != WAITS_FOR:
            lines.append("  ".join(cells).rstrip())
            continue
        folded = wrap(row[-1], max(LEAST, width - before)) or [""]
        lines.append("  ".join([*cells[:-1], folded[0]]).rstrip())
        lines += (" " * before + rest for rest in folded[1:])
    return lines


def _parents(graph: Graph) -> Iterator[list[tuple[str, str]]]:
    """The parents of each primitive, with the kind of edge: of two with data, the other one."""
    kinds = {(e.source, e.target): e.kind for e in graph.edges()}  # data comes first
    for id in graph.order:
        yield [(parent, kinds.get((parent, id), "data")) for parent in graph.parents[id]]


def _named_parents(graph: Graph) -> list[str]:
    return [
        ", ".join(parent if kind == "data" else f"{parent} ({kind})" for parent, kind in parents)
        or "-"
        for parents in _parents(graph)
    ]


def _numbered_parents(graph: Graph) -> list[str]:
    """Parents by their numbers, consecutive ones as a range: `3 7-9 (1-2)`."""
    number = {id: n for n, id in enumerate(graph.order, 1)}
    return [
        " ".join(_ranges([(number[parent], kind) for parent, kind in parents])) or "-"
        for parents in _parents(graph)
    ]


def _ranges(parents: Sequence[tuple[int, str]]) -> Iterator[str]:
    for kind, mark in MARKS.items():
        numbers = sorted(n for n, of in parents if of == kind)
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
            first, *rest = (n for _, n in run)
            yield mark.format(f"{first}-{rest[-1]}" if rest else first)
