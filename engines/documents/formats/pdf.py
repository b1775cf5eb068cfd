"""The text of a PDF, page by page."""

from __future__ import annotations

from pathlib import Path

from pypdf import PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError

from . import Allowed, Extracted, Refused, hyphens, joined


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of a PDF file."""
    try:
        with path.open("rb") as file:
            pages = PdfReader(file).pages
            numbered = enumerate(pages, 1)
            texts = ((hyphens.joined(page.extract_text()), number) for number, page in numbered)
            return joined(texts, "\n", "page")
    except (FileNotDecryptedError, DependencyError):
        raise Refused("encrypted") from None
