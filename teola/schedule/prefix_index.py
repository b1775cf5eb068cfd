"""Which instance keeps which blocks, as far as one knows.

Keys are chained: a block's key says what stands in the prompt up to its end, so an index of keys
needs no tree. An entry is *told* (the instance said so) or *assumed* (a prompt with this block was
computed there). What is assumed is forgotten when the instance must have evicted it: as many blocks
later as its cache has, the least recently used first, or after ten minutes where nobody knows how
many it has. An instance that tells is not assumed anything of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

FORGOTTEN_S: Final = 600.0
"""How long what is assumed counts, of an instance whose cache is of unknown size."""
LOOK_S: Final = 1.0
"""How often it is looked for what is older."""


class PrefixIndex:
    """blocks: of each instance's cache (None: nobody knows)."""

    def __init__(self, blocks: Sequence[int | None]) -> None:
        self._blocks = blocks
        self._of_unknown_size = [i for i, most in enumerate(blocks) if most is None]
        self._where: dict[Hashable, int] = {}
        """By key, a bit for each instance."""
        self._look_again = 0.0
        self._kept: list[OrderedDict[Hashable, float]] = [OrderedDict() for _ in blocks]
        self._tells = [False] * len(blocks)

    def hits(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """How many blocks, from the first on, each instance keeps; none: left out. O(what is kept
        of the prompt anywhere)."""
        if self._of_unknown_size and now >= self._look_again:
            self._forget_old(now)
        found: dict[int, int] = {}
        left, depth, where = -1, 0, self._where
        for key in keys:
            here = left & where.get(key, 0)
            if here != left:
                if left >= 0:
                    found.update(dict.fromkeys(_numbers(left & ~here), depth))
                left = here
                if not left:
                    return found
            depth += 1
        if depth:
            found.update(dict.fromkeys(_numbers(left), depth))
        return found

    def _forget_old(self, now: float) -> None:
        """What was assumed of instances long ago."""
        self._look_again = now + LOOK_S
        for i in self._of_unknown_size:
            self.expire(i, now - FORGOTTEN_S)

    def computed(self, i: int, keys: Sequence[Hashable], now: float) -> None:
        """A prompt with these blocks was computed on instance `i`."""
        if self._tells[i]:
            return
        kept = self._kept[i]
        for key in reversed(keys):  # an instance evicts the end of a prompt before its beginning
            self._keep(i, key, now)
            kept.move_to_end(key)
        most = self._blocks[i]
        while most is not None and len(kept) > most:
            self._forget(i, next(iter(kept)))

    def last_used(self, i: int, keys: Sequence[Hashable]) -> tuple[int, float]:
        """How many of these blocks, from the first on, instance `i` keeps, and when the last of
        them was used; none of one that tells, of which nothing is assumed."""
        kept, used, depth = self._kept[i], 0.0, 0
        if self._tells[i]:
            return depth, used
        for key in keys:
            at = kept.get(key)
            if at is None:
                break
            depth, used = depth + 1, at
        return depth, used

    def expire(self, i: int, used: float) -> None:
        """Instance `i` has evicted what was used at that time or before."""
        if self._tells[i]:
            return
        kept = self._kept[i]
        while kept and next(iter(kept.values())) <= used:
            self._forget(i, next(iter(kept)))

    def told(
        self, i: int, stored: Sequence[Hashable], evicted: Sequence[Hashable], now: float
    ) -> None:
        """What instance `i` says that it keeps and keeps no more."""
        if not self._tells[i]:
            self.forget(i)
            self._tells[i] = True
        for key in evicted:
            self._forget(i, key)
        for key in stored:
            self._keep(i, key, now)

    def forget(self, i: int) -> None:
        """Instance `i` keeps nothing, and has to tell anew."""
        for key in list(self._kept[i]):
            self._forget(i, key)
        self._tells[i] = False

    def size(self, i: int) -> int:
        """How many blocks instance `i` keeps."""
        return len(self._kept[i])

    def _keep(self, i: int, key: Hashable, now: float) -> None:
        self._kept[i][key] = now
        self._where[key] = self._where.get(key, 0) | 1 << i

    def _forget(self, i: int, key: Hashable) -> None:
        if self._kept[i].pop(key, None) is None:
            return
        here = self._where[key] & ~(1 << i)
        if here:
            self._where[key] = here
        else:
            del self._where[key]

    def validate(self) -> None:
        """Raises AssertionError if both directions differ. O(n): for tests."""
        found: dict[Hashable, int] = {}
        for i, kept in enumerate(self._kept):
            for key in kept:
                found[key] = found.get(key, 0) | 1 << i
        assert found == self._where, "the index of prefixes and what instances keep differ"


def _numbers(bits: int) -> Iterator[int]:
    """Which bits are set."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last
