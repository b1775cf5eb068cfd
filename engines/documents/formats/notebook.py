"""The cells of a Jupyter notebook: their texts, code, and what the code wrote; no images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Allowed, Extracted, Refused


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of an .ipynb file of version 4, or of one before it."""
    try:
        notebook = json.loads(path.read_bytes())
        sheets = notebook.get("worksheets") or [notebook]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        parts = [part for cell in cells for part in _parts(cell)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused("broken") from None
    return Extracted("\n\n".join(part for part in parts if part.strip()))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = _text(cell.get("source", cell.get("input", "")))
    if cell["cell_type"] != "code":
        yield source
        return
    if source.strip():
        yield f"```\n{source}\n```"
    for output in cell.get("outputs", []):
        data = output.get("data", output)
        yield _text(data.get("text/plain", data.get("text", "")))


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)
