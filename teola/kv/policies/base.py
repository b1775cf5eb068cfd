"""What an eviction policy is told, and what it is asked."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Access(NamedTuple):
    """One request's use of the cache.

    now: of the caller's clock, in seconds. category: (app, component) of the request. turn: of its
    conversation, from 0.
    """

    now: float = 0.0
    category: tuple[str, str] = ("", "")
    turn: int = 0


class Policy(Protocol):
    """Orders the blocks that are cached and referenced by nobody. No I/O, clock or chance; each
    method at most O(log n) in the number of blocks."""

    def touch(self, block: int, position: int, access: Access) -> None:
        """A request found `block` in the cache, or put it there, as its `position`th from the
        start; told on every access, before anything else about the block."""
        ...

    def offer(self, block: int) -> None:
        """Nobody references `block` any longer: it may be evicted. A request's blocks come from
        the last to the first, since without its beginning a prefix is of no use."""
        ...

    def withdraw(self, block: int) -> None:
        """An offered block is referenced again."""
        ...

    def evict(self) -> int:
        """Choose one of the offered blocks (there is one), which is thereby forgotten."""
        ...
