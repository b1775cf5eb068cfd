"""The slides of a presentation: texts, tables and notes, without hidden slides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pptx import Presentation

from . import Allowed, Extracted, joined
from .archive import opened
from .tables import line


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of a .pptx file."""
    opened(path, allowed.unpacked_bytes).close()
    parts: list[tuple[str, int]] = []
    hidden = 0
    for number, slide in enumerate(Presentation(str(path)).slides, 1):
        if slide.element.get("show") in ("0", "false") and not allowed.keep_hidden:
            hidden += 1
            continue
        texts = [text for text in _texts(slide.shapes) if text.strip()]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            texts.append(slide.notes_slide.notes_text_frame.text)
        if any(text.strip() for text in texts):
            parts.append(("\n\n".join([f"# Slide {number}", *texts]), number))
    return joined(parts, "\n\n", "slide", hidden)


def _texts(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _texts(shape.shapes)
        elif shape.has_text_frame:
            yield shape.text_frame.text.replace("\v", "\n")
        elif getattr(shape, "has_table", False):
            rows = ([cell.text for cell in row.cells] for row in shape.table.rows)
            yield "\n".join(filter(None, map(line, rows)))
