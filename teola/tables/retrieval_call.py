"""What one RETRIEVE of a query asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from teola.errors import InputError
from teola.tables.llm_call import check_call_options

CONTEXTS: Final = "VARCHAR[]"
"""The type of its column."""
MOST: Final = 200
"""Contexts of one text (SearchParams)."""
USAGE: Final = "write RETRIEVE(column, 'collection', 3)"


@dataclass(frozen=True, slots=True)
class RetrievalCall:
    """collection: that is searched. k: contexts for each text. keep_rank: they stay in the order of
    relevance in prompts, too."""

    collection: str
    k: int
    keep_rank: bool = False

    @property
    def digest(self) -> str:
        """Digest of all that decides the contexts of a text."""
        return sha256(repr((self.collection, self.k)).encode()).hexdigest()[:16]

    @property
    def shown(self) -> str:
        """The call as it is written, without its text."""
        return f"RETRIEVE(..., {self.collection!r}, {self.k})"


def retrieval_of(collection: Any, k: Any, options: Mapping[str, Any]) -> RetrievalCall:
    """The call of a RETRIEVE with these arguments. Raises InputError."""
    check_call_options("RETRIEVE", options, ("keep_rank",))
    if not isinstance(collection, str) or not collection.strip():
        raise InputError(f"RETRIEVE needs the name of a collection, not {collection!r}: {USAGE}")
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST:
        raise InputError(f"RETRIEVE gives from 1 to {MOST} contexts, not {k!r}: {USAGE}")
    keep_rank = options.get("keep_rank", False)
    if not isinstance(keep_rank, bool):
        raise InputError(f"keep_rank must be true or false, not {keep_rank!r}")
    return RetrievalCall(collection, k, keep_rank)
