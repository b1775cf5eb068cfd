"""Kind: what flows between components, and what takes what."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """What flows between components."""

    TEXT = "text"
    TEXTS = "texts"
    VECTORS = "vectors"
    CHUNKS = "chunks"
    HITS = "hits"
    SCOPE = "scope"
    DOCUMENTS = "documents"
    ANY = "any"

    __hash__ = object.__hash__

    def accepts(self, given: Kind) -> bool:
        """Whether an input of this kind can take `given`."""
        if self is given or Kind.ANY in (self, given):
            return True
        return (self, given) in _WIDENS


_WIDENS = {
    (Kind.TEXTS, Kind.TEXT),  # one text is a list of one
    (Kind.TEXTS, Kind.CHUNKS),
    (Kind.TEXTS, Kind.HITS),
}


LISTS = frozenset({Kind.TEXTS, Kind.HITS})
"""Kinds of inputs whose length shapes a query's graph."""
