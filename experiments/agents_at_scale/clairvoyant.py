"""Eviction by the recorded future: the block that is read again latest goes first (Belady 1966).

No server knows that. With sessions the future depends on what is served when; what is recorded is
how long a session pauses and what its next request begins with, so each block's next use is known
as soon as its session has an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf

from teola.kv import Access
from teola.kv.policies.ranks import Ranked


class Future:
    """Tells the caches of all instances when blocks will be read."""

    def __init__(self) -> None:
        self.caches: list[Clairvoyant] = []

    def reads(self, keys: Sequence[Hashable], at: float) -> None:
        """These blocks are read at that time, and not earlier."""
        for cache in self.caches:
            cache.told(keys, at)


class Clairvoyant(Ranked):
    """The eviction policy of one instance. What nobody told of is not read again."""

    def __init__(self, future: Future) -> None:
        super().__init__()
        future.caches.append(self)
        self._key: dict[int, Hashable] = {}
        self._block: dict[Hashable, int] = {}

    def told(self, keys: Sequence[Hashable], at: float) -> None:
        """These blocks are read at that time."""
        for key in reversed(keys):
            block = self._block.get(key)
            if block is not None:
                self.ranks[block] = -at
                if block in self.offered:
                    self.withdraw((block,))
                    self.offer((block,), at)

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        for block, key in zip(blocks, keys, strict=True):
            self._key[block], self._block[key], self.ranks[block] = key, block, -inf

    def evict(self, now: float) -> int:
        block = super().evict(now)
        del self._block[self._key.pop(block)]
        return block
