"""The published planner of groups (GGR, in later versions of the paper), as a system beside ours.

Of all values the one with the most to share, its length x (rows with it - 1), makes a group: its
rows come first, and its column, with those that have one value in the group, first in them. Then
the same within the group over the other columns, and over the rows that are left. Beyond some
levels there is one order by score, and rows are sorted. Columns with too many values make none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from teola.runtime.rows import Row
from teola.tables.orders import ColumnStatistics, by_score

ROW_LEVELS: Final = 4
COLUMN_LEVELS: Final = 2
TOO_DISTINCT: Final = 0.7
"""Share of a column's values that differ, from which on it makes no groups."""

Cells = Sequence[Sequence[str]]
Placed = list[tuple[int, tuple[int, ...]]]
"""Rows in the order in which they are asked, each with the order of its columns."""


def arranged(rows: Sequence[Row]) -> list[Row]:
    """Rows as they are to be asked: in another order, and each with its fields in its own."""
    cells = [row.text.split("\n")[1:] for row in rows]
    found, before = list[Row](), ""
    columns = range(len(cells[0]) if cells else 0)
    for at, order in planned(cells, [*range(len(rows))], [*columns], ROW_LEVELS, COLUMN_LEVELS):
        lines = [cells[at][column] for column in order]
        first = lines[0] if lines else ""
        found.append(Row(rows[at].id, "".join(f"\n{line}" for line in lines), first != before))
        before = first
    return found


def planned(
    cells: Cells, rows: list[int], columns: list[int], row_levels: int, column_levels: int
) -> Placed:
    """The order of some rows, over some columns."""
    best = _best(cells, rows, columns) if row_levels and column_levels else None
    if best is None:
        return _one_order(cells, rows, columns)
    column, value = best
    group = [row for row in rows if cells[row][column] == value]
    rest = [row for row in rows if cells[row][column] != value]
    first = cells[group[0]]
    alike = [one for one in columns if all(cells[row][one] == first[one] for row in group)]
    head = (column, *(one for one in alike if one != column))
    others = [one for one in columns if one not in head]
    inner = planned(cells, group, others, row_levels, column_levels - 1)
    outer = planned(cells, rest, columns, row_levels - 1, column_levels)
    return [*((row, (*head, *order)) for row, order in inner), *outer]


def _best(cells: Cells, rows: list[int], columns: list[int]) -> tuple[int, str] | None:
    """The column and value with the most to share; None: nothing repeats."""
    found: tuple[int, int, str] | None = None
    for column in columns:
        counts = Counter(cells[row][column] for row in rows)
        if len(counts) > TOO_DISTINCT * len(rows):
            continue
        for value, count in counts.items():
            score = len(value) * (count - 1)
            if score > 0 and (found is None or score > found[0]):
                found = score, column, value
    return None if found is None else found[1:]


def _one_order(cells: Cells, rows: list[int], columns: list[int]) -> Placed:
    """One order by score, sorted."""
    if not rows:
        return []
    statistics = []
    for column in columns:
        values = [cells[row][column] for row in rows]
        statistics.append(ColumnStatistics(sum(map(len, values)) / len(rows), len(set(values))))
    order = tuple(columns[at] for at in by_score(statistics, len(rows)))
    sorted_rows = sorted(rows, key=lambda row: [cells[row][column] for column in order])
    return [(row, order) for row in sorted_rows]
