"""lru: the block whose last use ended longest ago."""

from __future__ import annotations

from teola.kv.policies.base import Access


class Lru:
    """Least recently used; a dict keeps the order in which blocks were offered."""

    def __init__(self) -> None:
        self._offered: dict[int, None] = {}

    def touch(self, block: int, position: int, access: Access) -> None:
        pass

    def offer(self, block: int) -> None:
        self._offered[block] = None

    def withdraw(self, block: int) -> None:
        del self._offered[block]

    def evict(self) -> int:
        block = next(iter(self._offered))
        del self._offered[block]
        return block
