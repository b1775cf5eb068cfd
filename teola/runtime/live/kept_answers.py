"""What calls of LLMs have written, kept for equal calls that come later: of one query, and of
applications that share their answers."""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final, NamedTuple

QUERY_ANSWERS, QUERY_BYTES = 1_000, 8 * 2**20
"""What is kept at most for one query, with its parts and the queries inside it."""
SHARED_BYTES: Final = 64 * 2**20
"""What is kept at most for all applications that share their answers."""
OVERHEAD: Final = 200
"""Bytes of an entry besides its text."""


class KeptAnswer(NamedTuple):
    """What a call wrote, and how it ended where not as it should (see Trace.ends)."""

    text: str
    end: str


class _Kept(NamedTuple):
    answer: KeptAnswer
    until: float
    size: int


class KeptAnswers:
    """Answers by digest; the one that was not wanted for longest goes first. scope: in the digests
    of calls that are equal within this only, such as a query's id."""

    __slots__ = ("_bytes", "_kept", "_most", "_most_bytes", "scope")

    def __init__(
        self, scope: str = "", most: float = QUERY_ANSWERS, most_bytes: int = QUERY_BYTES
    ) -> None:
        self.scope, self._most, self._most_bytes = scope, most, most_bytes
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that are held, about."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, same: bytes, now: float) -> KeptAnswer | None:
        """What such a call wrote, if that is still kept."""
        found = self._kept.get(same)
        if found is None:
            return None
        if found.until <= now:
            self._drop(same)
            return None
        self._kept.move_to_end(same)
        return found.answer

    def keep(self, same: bytes, answer: KeptAnswer, until: float = inf) -> None:
        """Keep what such a call wrote. until: on the driver's clock."""
        size = len(answer.text) * (1 if answer.text.isascii() else 4) + OVERHEAD
        if same in self._kept:
            self._drop(same)
        if size > self._most_bytes:
            return
        self._kept[same] = _Kept(answer, until, size)
        self._bytes += size
        while self._bytes > self._most_bytes or len(self._kept) > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, same: bytes) -> None:
        self._bytes -= self._kept.pop(same).size
