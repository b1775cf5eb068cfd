"""lru: the block whose last use ended longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from teola.kv.policies.base import Access


class Lru:
    """Least recently used: blocks in the order in which they were offered."""

    def __init__(self) -> None:
        # A dict would search its beginning for the first entry that is left.
        self._offered: OrderedDict[int, None] = OrderedDict()

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        pass

    def offer(self, blocks: Sequence[int], now: float) -> None:
        self._offered.update(dict.fromkeys(blocks))

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            del self._offered[block]

    def evict(self, now: float) -> int:
        return self._offered.popitem(last=False)[0]

    def below(self) -> Lru:
        return Lru()
