"""The rows of a table as lines, each value under its heading.

Empty cells stay. A value that spans columns or rows stands in each of them, so that a row can be
read alone: a passage may begin in the middle of a table.

    Name | Opened      rowspan 2    Holm | 1920
    Holm | 1920        ---------->  Holm | 1950
         | 1950
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_COLUMNS: Final = 1000
MOST_ROWS: Final = 65534
"""Of a span, by the HTML Standard."""


def line(cells: Iterable[str]) -> str:
    """A row as one line; nothing if all of its cells are empty."""
    values = [" ".join(cell.split()) for cell in cells]
    return " | ".join(values) if any(values) else ""


def span_number(value: str | None, least: int) -> int:
    """`value` as a number of columns or rows, `least` at least; 1 if it is no number."""
    written = (value or "").strip()
    if not (written.isascii() and written.isdecimal()) or len(written) > 9:
        return 1
    return max(least, int(written))


class HtmlTable:
    """A table whose cells arrive one after the other."""

    def __init__(self) -> None:
        self._row: list[tuple[str, int, int]] = []  # text, columns, rows
        self._spans: dict[int, tuple[str, int]] = {}  # column -> text, rows that are left

    @property
    def begun(self) -> bool:
        """Whether a row has cells and has not ended."""
        return bool(self._row)

    def cell(self, columns: int, rows: int) -> None:
        """A cell begins. rows: 0 for all that follow."""
        self._row.append(("", min(columns, MOST_COLUMNS), min(rows or MOST_ROWS, MOST_ROWS)))

    def fill(self, text: str) -> None:
        """The last cell that began has this text."""
        self._row[-1] = (text, *self._row[-1][1:])

    def end_spans(self) -> None:
        """Spans of rows end here: no cell goes on into the next part of the table."""
        self._spans.clear()

    def end_row(self) -> str:
        """What the row says: one line, or the cells one by one where they hold paragraphs."""
        row, self._row = self._row, []
        texts = [text for text, _, _ in row if text]
        apart = not self._spans and (len(row) == 1 or any("\n\n" in text for text in texts))
        values: list[str] = []
        for text, columns, rows in row:
            self._carry(values)
            for _ in range(columns):
                if rows > 1:
                    self._spans[len(values)] = (text, rows)
                values.append(text)
        while len(values) <= max(self._spans, default=-1):
            values.append(self._spans.get(len(values), ("", 0))[0])
        self._spans = {at: (text, left - 1) for at, (text, left) in self._spans.items() if left > 1}
        if apart:
            return "\n\n".join(texts)
        return line(values) if row else ""

    def _carry(self, values: list[str]) -> None:
        """Append the cells of earlier rows that span to this column."""
        while len(values) in self._spans:
            values.append(self._spans[len(values)][0])
