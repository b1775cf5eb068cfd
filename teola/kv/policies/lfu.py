"""lfu: the block that was used least often; of those, the one whose last use ended longest ago."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from teola.kv.policies.base import Access
from teola.kv.policies.ranks import Ranked


class Lfu(Ranked):
    """Least frequently used, counted since the block came into the cache."""

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        uses = self.ranks
        for block in blocks:
            uses[block] = uses.get(block, 0) + 1

    def below(self) -> Lfu:
        return Lfu()
