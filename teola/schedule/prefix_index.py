"""Which instance keeps which blocks, as far as one knows.

Keys are chained: a block's key says what stands in the prompt up to its end, so an index of keys
needs no tree. An entry is *told* (the instance said so) or *assumed* (a prompt with this block was
computed there). What is assumed is forgotten when the instance must have evicted it: as many blocks
later as its cache has, the least recently used first, or after ten minutes where nobody knows how
many it has. An instance that tells is not assumed anything of.

Besides, a block is *coming* while a call is on its way that will compute it: whoever goes to the
same instance meanwhile finds it there.
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
        """By key, a bit for each instance that keeps it; above those, one for each where it is
        coming (it may be both)."""
        self._coming = len(blocks)
        self._all = (1 << len(blocks)) - 1
        self._look_again = 0.0
        self._kept: list[dict[Hashable, float]] = [OrderedDict() for _ in blocks]
        """Of one that does not tell, in the order in which it will evict; else plain dicts, which
        are quicker."""
        self._tells = [False] * len(blocks)

    def hits(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """How many blocks, from the first on, each instance keeps; none: left out. O(what is kept
        of the prompt anywhere)."""
        return self.look(keys, now)[0]

    def look(
        self, keys: Sequence[Hashable], now: float
    ) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """How many blocks, from the first on, each instance keeps, and how many it keeps or is to
        compute; none: left out."""
        if self._of_unknown_size and now >= self._look_again:
            self._forget_old(now)
        kept: dict[int, int] = {}
        expected: dict[int, int] = {}
        keep = expect = self._all
        depth, before, where = -1, -1, self._where.get
        for depth, key in enumerate(keys):
            bits = where(key, 0)
            if bits != before:
                before = bits
                here = keep & bits
                if here != keep:
                    if depth:
                        kept.update(dict.fromkeys(_numbers(keep & ~here), depth))
                    keep = here
                here = expect & (bits | bits >> self._coming)
                if here != expect:
                    if depth:
                        expected.update(dict.fromkeys(_numbers(expect & ~here), depth))
                    expect = here
                    if not expect:
                        return kept, expected
        depth += 1
        if depth:
            kept.update(dict.fromkeys(_numbers(keep), depth))
            expected.update(dict.fromkeys(_numbers(expect), depth))
        return kept, expected

    def depth(self, i: int, keys: Sequence[Hashable], before: int) -> int:
        """How many of these blocks instance `i` keeps, which kept `before` of them when one last
        looked. O(what has changed): it keeps no block without the one before."""
        bit, where, depth = 1 << i, self._where.get, min(before, len(keys))
        while depth and not where(keys[depth - 1], 0) & bit:
            depth -= 1
        while depth < len(keys) and where(keys[depth], 0) & bit:
            depth += 1
        return depth

    def come(self, i: int, keys: Sequence[Hashable]) -> None:
        """A call that will compute these blocks is on its way to instance `i`."""
        bit, where = 1 << i + self._coming, self._where
        get = where.get
        for key in keys:
            where[key] = get(key, 0) | bit

    def came(self, i: int, keys: Sequence[Hashable]) -> None:
        """That call has computed them, or never will."""
        mask, where = ~(1 << i + self._coming), self._where
        get = where.get
        for key in keys:
            bits = get(key, 0)
            if bits & mask:
                where[key] = bits & mask
            elif bits:
                del where[key]

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
            kept.pop(key, None)
            self._keep(i, key, now)
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
            self._tells[i], self._kept[i] = True, {}
        kept, where, bit = self._kept[i], self._where, 1 << i
        get = where.get
        for key in evicted:
            if kept.pop(key, None) is not None:
                left = where[key] & ~bit
                if left:
                    where[key] = left
                else:
                    del where[key]
        for key in stored:
            kept[key] = now
            where[key] = get(key, 0) | bit

    def forget(self, i: int) -> None:
        """Instance `i` keeps nothing, and has to tell anew."""
        for key in list(self._kept[i]):
            self._forget(i, key)
        self._tells[i], self._kept[i] = False, OrderedDict()

    def tells(self, i: int) -> bool:
        """Whether instance `i` says what it keeps; else that is assumed."""
        return self._tells[i]

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
        where = {key: here for key, bits in self._where.items() if (here := bits & self._all)}
        assert found == where, "the index of prefixes and what instances keep differ"


def _numbers(bits: int) -> Iterator[int]:
    """Which bits are set."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last
