"""fifo: the block that came into the cache first, however often it was found since."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from teola.kv.policies.base import Access
from teola.kv.policies.ranks import Ranked


class FirstIn(Ranked):
    """First in, first out; of what came together, the end of a prompt before its beginning."""

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        came = self.ranks
        for block in blocks:
            came.setdefault(block, now)

    def below(self) -> FirstIn:
        return FirstIn()
