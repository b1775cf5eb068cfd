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
    """What a query may still grow, and hold.

    parts: parts that it may still grow.
    primitives: of parts that may still run besides those that do.
    bytes: what it may hold at once.
    records: parts that may still be recorded.
    held_bytes: what engines computed for it and its parts, and what it keeps of parts that have
        ended, about.
    """

    parts: float = MOST_PARTS
    primitives: float = inf
    bytes: float = inf
    records: int = MOST_RECORDED
    held_bytes: int = 0

    def fits(self, primitives: int) -> bool:
        """Whether a part of so many primitives may run beside those that do."""
        return primitives <= self.primitives

    def grow(self, component: str, primitives: int, depth: int) -> None:
        """A part of so many primitives is to begin. Raises QueryFailed where that is too much."""
        if self.parts < 1:
            raise _too_large(component, "parts than a query may have", SMALLER)
        if primitives > self.primitives:
            what = f"primitives at once than a query may have ({primitives} more; max_primitives)"
            raise _too_large(component, what, "make its parts smaller, or raise max_primitives")
        if depth > DEEPEST:
            what = f"than {DEEPEST} parts inside each other"
            raise _too_large(component, what, "one that contains itself needs an end")
        self.parts -= 1
        self.primitives -= primitives

    def shrink(self, primitives: int) -> None:
        """A part of so many primitives has ended."""
        self.primitives += primitives

    def hold(self, component: str, more: int) -> None:
        """So many more bytes are held for `component`. Raises QueryFailed if that is too much."""
        self.held_bytes += more
        if self.held_bytes > self.bytes:
            raise QueryFailed(
                f"{component!r} holds more than the {self.bytes / 2**20:g} MiB that are held for "
                "one query (max_intermediate_bytes); give it fewer items, or let parts give less"
            )


def _too_large(component: str, what: str, way: str) -> QueryFailed:
    return QueryFailed(f"{component!r} grows to more {what}; {way}")
