"""Blocks in the order of a number that each has, for policies that do not go by offering."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

SPARE: Final = 1024
"""Ranks without blocks that may be left before it is worth clearing them away."""


class Ranks:
    """The lowest rank goes first; blocks of equal rank in the order in which they were put."""

    def __init__(self) -> None:
        self._ranked: dict[float, OrderedDict[int, None]] = {}
        self._ranks: list[float] = []
        self._rank: dict[int, float] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._rank

    def put(self, block: int, rank: float) -> None:
        """Rank a block, which was not."""
        blocks = self._ranked.get(rank)
        if blocks is None:
            blocks = self._ranked[rank] = OrderedDict()
            heappush(self._ranks, rank)
            if len(self._ranks) > 2 * len(self._ranked) + SPARE:
                self._ranks = [*self._ranked]
                heapify(self._ranks)
        blocks[block] = None
        self._rank[block] = rank

    def drop(self, block: int) -> None:
        """Rank it no longer."""
        rank = self._rank.pop(block)
        blocks = self._ranked[rank]
        del blocks[block]
        if not blocks:
            del self._ranked[rank]

    def first(self) -> tuple[float, int] | None:
        """The lowest rank and its first block, which stays; None if there is none."""
        ranked, ranks = self._ranked, self._ranks
        while ranks:
            blocks = ranked.get(ranks[0])
            if blocks is not None:
                return ranks[0], next(iter(blocks))
            heappop(ranks)
        return None

    def pop(self) -> tuple[float, int]:
        """Take that block out, and say its rank. There is one."""
        found = self.first()
        assert found is not None, "nothing is offered"
        self.drop(found[1])
        return found


class Ranked:
    """What policies have in common that give each block a rank when it is used, and let the lowest
    one go. ranks: by block, of all that are in the cache; `touch` keeps it."""

    def __init__(self) -> None:
        self.ranks: dict[int, float] = {}
        self.offered = Ranks()

    def offer(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self.offered.put(block, self.ranks[block])

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.offered.drop(block)

    def evict(self, now: float) -> int:
        block = self.offered.pop()[1]
        del self.ranks[block]
        return block
