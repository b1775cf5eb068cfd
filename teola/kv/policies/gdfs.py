"""gdfs: greedy dual by frequency and size. What was used often, or recently, or is dear to compute
again, stays.

    priority = clock + uses * cost / size

The size of a block is 1. The clock is 0 at first and then the priority of what was evicted last, so
that old fame fades. Priorities are set at each use; of equal ones, the block goes whose last use
ended longest ago.

    Cherkasova: Improving WWW proxies performance with greedy-dual-size-frequency caching, 1998.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from teola.kv.policies.base import Access
from teola.kv.policies.checked import positive_number
from teola.kv.policies.ranks import Ranked


class Gdfs(Ranked):
    """dearer: how much more the cost of a block is than that of the one before it in its prompt, as
    a fraction of the first one's: attention makes later tokens slower (0: all cost the same).

    clock: what was evicted last had this priority. ranks: the priorities, as of the last use.
    """

    def __init__(self, dearer: float = 0.0) -> None:
        super().__init__()
        self._dearer = positive_number("gdfs", "dearer", dearer, above=False, most=1e9)
        self.clock = 0.0
        self._uses: dict[int, int] = {}

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        uses, ranks, clock, dearer = self._uses, self.ranks, self.clock, self._dearer
        for at, block in enumerate(blocks, position):
            uses[block] = often = uses.get(block, 0) + 1
            ranks[block] = clock + often * (1.0 + dearer * at)

    def evict(self, now: float) -> int:
        self.clock, block = self.offered.pop()
        del self._uses[block], self.ranks[block]
        return block

    def below(self) -> Gdfs:
        return Gdfs(self._dearer)
