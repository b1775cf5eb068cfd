"""fifo: the block that came into the cache first, however often it was found since."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from teola.kv.policies.base import Access
from teola.kv.policies.ranks import Ranks


class FirstIn:
    """First in, first out; of what came together, the end of a prompt before its beginning."""

    def __init__(self) -> None:
        self._came: dict[int, float] = {}
        self._offered = Ranks()

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        came = self._came
        for block in blocks:
            came.setdefault(block, now)

    def offer(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self._offered.put(block, self._came[block])

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._offered.drop(block)

    def evict(self, now: float) -> int:
        block = self._offered.pop()[1]
        del self._came[block]
        return block

    def below(self) -> FirstIn:
        return FirstIn()
