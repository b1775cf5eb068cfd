"""Where a passage stands in its document: among its metadata, and in words.

The keys are those of `teola.engine.ChunkPlace`. A document's own metadata may have the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

LONGEST: Final = 80
"""Characters of a name that is cited; of a longer one, its beginning."""
WORDS: Final = (
    ("pages", "pp. {}"),
    ("page", "p. {}"),
    ("slides", "slides {}"),
    ("slide", "slide {}"),
    ("sheet", "sheet “{}”"),
    ("section", "section “{}”"),
)
"""The first key that there is says where."""
RANGES: Final = {"page": "pages", "slide": "slides"}
"""The key of a passage's first and last place, by the key of its first."""
_MANY: Final = frozenset(RANGES.values())


def with_place(metadata: Mapping[str, Any], place: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A document's metadata, and the place of a passage of it.

    Where the document has a key of the place itself, or that of a range of such places, the place
    is left out: what people wrote is what filters match, and half of a place would be wrong there.
    """
    if not place or any(key in metadata or RANGES.get(key) in metadata for key in place):
        return metadata
    return {**metadata, **place}


def cited(document: str, metadata: Mapping[str, Any]) -> str:
    """The document, and the place in its metadata if there is one: `report.pdf, p. 12`."""
    for key, words in WORDS:
        value = metadata.get(key)
        if key in _MANY and not (isinstance(value, str) and re.search("[-–]", value)):
            continue  # it may be how many the document has
        if isinstance(value, str | int) and not isinstance(value, bool):
            name = " ".join(str(value)[: 2 * LONGEST].split())
            if name:
                shown = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
                return f"{document}, {words.format(shown)}"
    return document
