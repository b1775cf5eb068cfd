"""Eviction by the recorded future: the block that is read again latest goes first (Belady 1966).

No server knows that. With sessions the future depends on what is served when; what is recorded is
how long a session pauses and what its next request begins with, so each block's next use is known
as soon as its session has an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf

from teola.kv import Access


class Future:
    """Tells the caches of all instances when blocks will be read."""

    def __init__(self) -> None:
        self.caches: list[Clairvoyant] = []

    def reads(self, keys: Sequence[Hashable], at: float) -> None:
        """These blocks are read at that time, and not earlier."""
        for cache in self.caches:
            cache.told(keys, at)


class Clairvoyant:
    """The eviction policy of one instance. What nobody told of is not read again."""

    def __init__(self, future: Future) -> None:
        future.caches.append(self)
        self._numbers = count()
        self._key: dict[int, Hashable] = {}
        self._block: dict[Hashable, int] = {}
        self._next: dict[int, float] = {}
        self._offered: dict[int, int] = {}
        self._heap: list[tuple[float, int, int]] = []

    def told(self, keys: Sequence[Hashable], at: float) -> None:
        """These blocks are read at that time."""
        for key in reversed(keys):
            block = self._block.get(key)
            if block is not None:
                self._next[block] = at
                if block in self._offered:
                    self._put(block)

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        for block, key in zip(blocks, keys, strict=True):
            self._key[block], self._block[key], self._next[block] = key, block, inf

    def offer(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self._put(block)

    def _put(self, block: int) -> None:
        number = self._offered[block] = next(self._numbers)
        heappush(self._heap, (-self._next[block], number, block))

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            del self._offered[block]

    def evict(self, now: float) -> int:
        while True:
            _, number, block = heappop(self._heap)
            if self._offered.get(block) == number:
                del self._offered[block], self._next[block], self._block[self._key.pop(block)]
                return block
