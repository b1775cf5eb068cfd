"""What a corpus is made of: the files of a folder, or the language reference that Python brings.

The reference is the default, because it is there wherever Teola is: the help texts of the language
(`pydoc_data.topics`), some eighty pages. Of long ones only the beginning is taken, so that the
first start takes seconds.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teola.engine import Source
from teola.errors import EngineUnavailable

BEGINNING: Final = 4000
"""Characters of a page of the reference."""
LONGEST_TITLE: Final = 200
_UNDERLINE = re.compile(r"([=*~^#-])\1{2,}")
_HEADING = re.compile(r"#{1,6}\s+(\S.*)")


@dataclass(frozen=True, slots=True)
class Document:
    """One document, with the address that its hits are to have."""

    url: str
    source: Source


@dataclass(frozen=True, slots=True)
class Collected:
    """The documents of a corpus. name: tells one corpus from another."""

    name: str
    documents: tuple[Document, ...]


def of_folder(folder: Path) -> Collected:
    """All files below `folder`, in order, without hidden ones. Raises EngineUnavailable."""
    where = folder.expanduser().resolve()
    if not where.is_dir():
        raise EngineUnavailable(
            f"the corpus folder {str(folder)!r} does not exist or is no folder: give one with "
            "documents",
            retryable=False,
        )
    documents = []
    for parent, names, files in os.walk(where):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                documents.append(Document(path.as_uri(), Source(name, path=path)))
    if not documents:
        raise EngineUnavailable(
            f"the corpus folder {str(folder)!r} holds no files: put documents into it",
            retryable=False,
        )
    return Collected(where.as_uri(), tuple(documents))


def of_python() -> Collected:
    """Python's language reference. Raises EngineUnavailable where Python came without."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise EngineUnavailable(
            "this Python has no help texts to search (pydoc_data): give the corpus a folder",
            retryable=False,
        ) from None
    documents = [
        Document(f"pydoc:{topic}", Source(topic, text=_beginning(text)))
        for topic, text in sorted(topics.items())
        if text.strip()
    ]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Collected(f"python-{version}", tuple(documents))


def _beginning(text: str) -> str:
    """Whole paragraphs, at most `BEGINNING` characters of them if the first is not longer."""
    if len(text) <= BEGINNING:
        return text
    return text[:BEGINNING].rpartition("\n\n")[0] or text[:BEGINNING]


def titled(text: str, otherwise: str) -> tuple[str, str]:
    """The heading that a text begins with (or `otherwise`), and the text without it."""
    first, _, after = text.lstrip().partition("\n")
    second, _, rest = after.partition("\n")
    heading = _HEADING.fullmatch(first.strip())
    if heading:
        title, body = heading[1].rstrip("# "), after
    elif _UNDERLINE.fullmatch(second.strip()):
        title, body = first, rest
    else:
        title, body = otherwise, text
    title = " ".join(title.split())[:LONGEST_TITLE] or otherwise
    return title, body.strip() or text.strip()
