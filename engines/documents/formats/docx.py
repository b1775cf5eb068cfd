"""The text of a Word document: headings, lists and tables in their order, without hidden text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docx import Document
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph
from docx.text.run import Run

from . import Allowed, Extracted, joined
from .archive import opened
from .tables import line

_HEADING: Final = re.compile(r"Heading ([1-6])|Title")
_RUNS: Final = ".//w:r[not(ancestor::w:moveFrom or ancestor::w:txbxContent)]"
"""Those in links, insertions and content controls, too; deleted ones have no text."""


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of a .docx file."""
    opened(path, allowed.unpacked_bytes).close()
    words = _Words(allowed.keep_hidden)
    parts = [part for part in words.parts(Document(str(path))._body) if part[0].strip()]
    return joined(parts, "\n\n", "section", words.hidden)


class _Words:
    def __init__(self, keep_hidden: bool) -> None:
        self._keep_hidden, self.hidden = keep_hidden, 0

    def parts(self, holder: Any) -> Iterator[tuple[str, str | None]]:
        """Paragraphs and tables of a document or of a cell; headings also without their marks."""
        for part in _blocks(holder._element):
            if part.tag == qn("w:p"):
                yield self._paragraph(Paragraph(part, holder))
            else:
                yield "\n".join(filter(None, self._rows(Table(part, holder)))), None

    def _paragraph(self, paragraph: Paragraph) -> tuple[str, str | None]:
        shown, was_hidden = [], False
        for run in (Run(element, paragraph) for element in paragraph._p.xpath(_RUNS)):
            hidden = not self._keep_hidden and bool(run.font.hidden) and bool(run.text.strip())
            self.hidden += hidden and not was_hidden  # runs beside each other are one text
            was_hidden = hidden
            if not hidden:
                shown.append(run.text)
        text = "".join(shown)
        style = paragraph.style.name if paragraph.style is not None else None
        heading = _HEADING.fullmatch(style or "")
        if heading and text.strip():
            return f"{'#' * int(heading[1] or 1)} {text}", text
        return f"* {text}" if (style or "").startswith("List") and text.strip() else text, None

    def _rows(self, table: Table) -> Iterator[str]:
        for row in table.rows:
            cells = [""] * row.grid_cols_before
            cells += [" ".join(text for text, _ in self.parts(cell)) for cell in row.cells]
            yield line(cells)


def _blocks(element: Any) -> Iterator[Any]:
    """Paragraphs and tables, those in content controls among them."""
    for child in element:
        if child.tag == qn("w:sdt"):
            for inner in child.iterchildren(qn("w:sdtContent")):
                yield from _blocks(inner)
        elif child.tag in (qn("w:p"), qn("w:tbl")):
            yield child
