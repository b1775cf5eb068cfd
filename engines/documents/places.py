"""Where passages stand in a document: on a page, on a slide, on a sheet, in a section.

    text        [ page 1 ....... ][ page 2 .............. ][ page 3 ...
    starts      0                 812                      2150
    passage              [ .............. ]                            page 1, pages 1-2

A passage stands where it begins. Pages and slides may be shorter than a passage, so it also says
which of them it ends on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from teola.citation import RANGES
from teola.engine import ChunkPlace

KINDS: Final = frozenset({"page", "slide", "sheet", "section"})


@dataclass(frozen=True, slots=True)
class Places:
    """Places of a text, in order. starts: the characters at which they begin."""

    kind: str = "section"
    starts: Sequence[int] = ()
    names: Sequence[str | int] = ()

    def of(self, spans: Iterable[tuple[int, int]]) -> list[ChunkPlace | None]:
        """The place of each stretch of the text, from a character to another; None before the first
        place. Stretches of one place share one mapping."""
        shared: dict[tuple[int, int], ChunkPlace | None] = {}
        places: list[ChunkPlace | None] = []
        for start, end in spans:
            first = last = bisect_right(self.starts, start) - 1
            if self.kind in RANGES:
                last = max(first, bisect_left(self.starts, end) - 1)
            if (first, last) not in shared:
                shared[first, last] = self._place(first, last) if first >= 0 else None
            places.append(shared[first, last])
        return places

    def _place(self, first: int, last: int) -> ChunkPlace:
        name = self.names[first]
        if first == last:
            return {self.kind: name}
        return {self.kind: name, RANGES[self.kind]: f"{name}-{self.names[last]}"}


NOWHERE: Final = Places()
