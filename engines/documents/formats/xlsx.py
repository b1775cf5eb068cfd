"""The sheets of an Excel workbook, row by row; formulas as the values that were saved with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openpyxl import load_workbook

from . import Allowed, Extracted, joined
from .archive import opened
from .tables import line


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of an .xlsx file; hidden sheets are hidden texts."""
    opened(path, allowed.unpacked_bytes).close()
    book = load_workbook(path, read_only=True, data_only=True, keep_links=False)
    parts: list[tuple[str, str]] = []
    hidden = 0
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # a file may claim a million rows
        rows = [row for row in map(line, _cells(sheet)) if row]
        if rows and sheet.sheet_state != "visible" and not allowed.keep_hidden:
            hidden += 1
        elif rows:
            parts.append((f"# {sheet.title}\n\n" + "\n".join(rows), sheet.title))
    return joined(parts, "\n\n", "sheet", hidden)


def _cells(sheet: Any) -> Iterator[list[str]]:
    for row in sheet.iter_rows(values_only=True):
        cells = ["" if value is None else str(value) for value in row]
        while cells and not cells[-1].strip():
            cells.pop()  # it has a format, and nothing in it
        yield cells
