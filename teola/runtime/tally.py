"""Tally: what a query, with all its parts and theirs, may still grow, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from teola.errors import QueryFailed

MOST_PARTS: Final = 10_000
"""Parts of one query, if nobody says otherwise."""
MOST_RECORDED: Final = 500
"""Parts of one query of which a trace says what happened in each; of more it says how many."""
DEEPEST: Final = 16
"""Parts inside each other."""

SMALLER: Final = "give it fewer items or turns"


@dataclass(slots=True)
class Tally:
    """parts, primitives, tokens: that it may still grow, and that its calls may still take.
    bytes: that it may hold at once. records: parts that may still be recorded. held_bytes: what
    engines computed for it and its parts, and what it keeps of parts that have ended, about."""

    parts: float = MOST_PARTS
    primitives: float = inf
    tokens: float = inf
    bytes: float = inf
    records: int = MOST_RECORDED
    held_bytes: int = 0

    def grow(self, component: str, primitives: int, depth: int) -> None:
        """A part of so many primitives is to begin. Raises QueryFailed where that is too much."""
        self.parts -= 1
        self.primitives -= primitives
        if self.parts < 0:
            raise _too_large(component, "parts", SMALLER)
        if self.primitives < 0:
            raise _too_large(component, "primitives", SMALLER)
        if self.tokens < 0:
            raise _too_large(component, "tokens", "give it fewer turns, or shorter texts")
        if depth > DEEPEST:
            raise _too_large(
                component, "parts inside each other", "one that contains itself needs an end"
            )

    def hold(self, component: str, more: int) -> None:
        """So many more bytes are held for `component`. Raises QueryFailed if that is too much."""
        self.held_bytes += more
        if self.held_bytes > self.bytes:
            raise QueryFailed(
                f"{component!r} holds more than the {self.bytes / 2**20:g} MiB that are held for "
                "one query; give it fewer items, or let its parts give less"
            )


def _too_large(component: str, what: str, way: str) -> QueryFailed:
    return QueryFailed(f"{component!r} grows to more {what} than this query may have; {way}")
