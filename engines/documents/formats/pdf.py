"""The text of a PDF, page by page."""

from __future__ import annotations

from pathlib import Path

from pypdf import PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError

from . import Allowed, Extracted, Refused
from .hyphens import joined


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of a PDF file."""
    try:
        with path.open("rb") as file:
            pages = (page.extract_text() for page in PdfReader(file).pages)
            return Extracted(joined("\n".join(pages)))
    except (FileNotDecryptedError, DependencyError):
        raise Refused("encrypted") from None
