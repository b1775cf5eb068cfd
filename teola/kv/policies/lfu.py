"""lfu: the block that was used least often; of those, the one whose last use ended longest ago."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from teola.kv.policies.base import Access
from teola.kv.policies.ranks import Ranks


class Lfu:
    """Least frequently used, counted since the block came into the cache."""

    def __init__(self) -> None:
        self._uses: dict[int, int] = {}
        self._offered = Ranks()

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        uses = self._uses
        for block in blocks:
            uses[block] = uses.get(block, 0) + 1

    def offer(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self._offered.put(block, self._uses[block])

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._offered.drop(block)

    def evict(self, now: float) -> int:
        block = self._offered.pop()[1]
        del self._uses[block]
        return block

    def below(self) -> Lfu:
        return Lfu()
