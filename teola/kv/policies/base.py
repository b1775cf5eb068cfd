"""What an eviction policy is told, and what it is asked."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from sys import maxsize
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from teola.engine import NextRead

NEVER: Final = (NextRead(maxsize, inf),)
"""Its query reads nothing of it again."""


class Access(NamedTuple):
    """Who uses the cache.

    category: (app, component) of the request. turn: of its conversation, from 0. query: whose it
    is, where that is known: what only one has read is its alone. reads: what is known from its
    graph of when that one reads which of its blocks again, none being known of those behind the
    last.
    """

    category: tuple[str, str] = ("", "")
    turn: int = 0
    query: Hashable = None
    reads: tuple[NextRead, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether it is known that its query reads nothing again."""
        if not self.reads or self.reads[-1].seconds != inf:
            return False
        return all(seconds is None for _, seconds in self.reads[:-1])


class Policy(Protocol):
    """Orders the blocks that are cached and referenced by nobody. No I/O, clock or chance.

    What else it may have: `LooksAhead`, and `below` (teola.kv.host_tier).

    It is told of runs of blocks, as they follow one another in a request; a method takes at most
    O(log n) for each block of the run, n being all blocks. now: seconds of the caller's clock.
    """

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        """A request found `blocks` in the cache, or put them there. Told on every access, before
        anything else about the blocks. keys: what they hold. position: of the first one in the
        request, from 0."""
        ...

    def offer(self, blocks: Sequence[int], now: float) -> None:
        """Nobody references `blocks` any longer: they may be evicted. They come from the last to
        the first, since without its beginning a prefix is of no use."""
        ...

    def withdraw(self, blocks: Sequence[int]) -> None:
        """Offered blocks are referenced again."""
        ...

    def evict(self, now: float) -> int:
        """Choose one of the offered blocks (there is one), which is thereby forgotten."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """looks_ahead: `Access.reads` is worked out for it."""

    @property
    def looks_ahead(self) -> bool: ...


def looks_ahead(policy: Any) -> bool:
    """Whether a policy wants to know when blocks are read again."""
    return isinstance(policy, LooksAhead) and bool(policy.looks_ahead)
