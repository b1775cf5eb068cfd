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
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

from teola.schedule.coming import Chain, Coming
from teola.schedule.pages import PAGE, Pages

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
        """Key -> a bit for each instance that keeps it; one more bit, above those, if it is in a
        page."""
        self._all = (1 << len(blocks)) - 1
        self._pages, self._coming = Pages(self._where, self._all + 1), Coming(self._where)
        self._look_again = 0.0
        self._assumed: list[OrderedDict[Hashable, float]] = [OrderedDict() for _ in blocks]
        """In the order in which an instance will evict them, with their last use."""
        self._told: list[int | None] = [None] * len(blocks)
        """How many, of those that tell."""
        self._gone = 0
        """A bit for each instance that told, and is to be forgotten before anybody looks."""
        self.stale: set[int] = set()
        """Instances that keep more or less, for the view."""

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
        if self._gone:
            self._sweep()
        ends = self._ends(keys)
        depths = {i: depth for depth, bits in ends if depth for i in _numbers(bits)}
        coming: dict[int, int] = {}
        for depth, bits in ends if self._coming else ():
            coming |= self._coming.depths(keys, depth, bits)
        return depths, {**depths, **coming} if coming else depths

    def _ends(self, keys: Sequence[Hashable]) -> list[tuple[int, int]]:
        """How many blocks are kept, with a bit for each instance that keeps so many and no more."""
        pages, keep, length = self._pages.kept.get, self._all, len(keys)
        ends: list[tuple[int, int]] = []
        for end in range(PAGE, length + 1, PAGE):
            if keep & ~pages(keys[end - 1], 0):
                keep = self._within(keys, end - PAGE, end, keep, ends)
                if not keep:
                    return ends
        begun = length % PAGE
        if begun:
            keep = self._within(keys, length - begun, length, keep, ends)
        ends.append((length, keep))
        return ends

    def _within(
        self,
        keys: Sequence[Hashable],
        begin: int,
        end: int,
        keep: int,
        found: list[tuple[int, int]],
    ) -> int:
        """Which of the instances `keep` keep the blocks of one page, or of the last ones behind all
        pages; add to `found` where the others end."""
        get, last = self._where.get, keys[end - 1]
        for depth in range(begin, end):
            still_kept = keep & get(keys[depth], 0)
            if still_kept != keep:
                found.append((depth, keep & ~still_kept))
                keep = still_kept
                if not keep & ~self._pages.kept.get(last, 0):
                    return keep
        if end - begin == PAGE:
            self._pages.note(keys, end, keep)
        return keep

    def depth(self, i: int, keys: Sequence[Hashable], before: int) -> int:
        """How many of these blocks instance `i` keeps, which kept `before` of them when one last
        looked. O(what has changed): it keeps no block without the one before."""
        if self._gone:
            self._sweep()
        bit, where, depth = 1 << i, self._where.get, min(before, len(keys))
        while depth and not where(keys[depth - 1], 0) & bit:
            depth -= 1
        while depth < len(keys) and where(keys[depth], 0) & bit:
            depth += 1
        return depth

    def come(self, i: int, keys: Sequence[Hashable], start: int = 0) -> Chain:
        """A call is on its way to instance `i`, which will compute these blocks from `start` on."""
        return self._coming.add(i, keys, start)

    def came(self, chain: Chain) -> None:
        """The call of this chain has computed its blocks, or never will."""
        self._coming.remove(chain)

    def _forget_old(self, now: float) -> None:
        """What was assumed of instances long ago."""
        self._look_again = now + LOOK_S
        for i in self._of_unknown_size:
            self.expire(i, now - FORGOTTEN_S)

    def computed(self, i: int, keys: Sequence[Hashable], now: float) -> None:
        """A prompt with these blocks was computed on instance `i`."""
        if self._told[i] is not None:
            return
        if self._gone:
            self._sweep()
        self.stale.add(i)
        kept, where, bit = self._assumed[i], self._where, 1 << i
        for key in reversed(keys):  # an instance evicts the end of a prompt before its beginning
            kept.pop(key, None)
            kept[key] = now
            where[key] = where.get(key, 0) | bit
        most = self._blocks[i]
        while most is not None and len(kept) > most:
            self._drop(i, [kept.popitem(last=False)[0]])

    def last_used(self, i: int, keys: Sequence[Hashable]) -> tuple[int, float]:
        """How many of these blocks, from the first on, instance `i` keeps, and when the last of
        them was used; none of one that tells, of which nothing is assumed."""
        assumed, used, depth = self._assumed[i], 0.0, 0
        if not assumed:
            return depth, used
        for key in keys:
            at = assumed.get(key)
            if at is None:
                break
            depth, used = depth + 1, at
        return depth, used

    def expire(self, i: int, used: float) -> None:
        """Instance `i` has evicted what was used at that time or before."""
        kept = self._assumed[i]
        while kept and next(iter(kept.values())) <= used:
            self._drop(i, [kept.popitem(last=False)[0]])
            self.stale.add(i)

    def told(self, i: int, stored: Sequence[Hashable], evicted: Sequence[Hashable]) -> None:
        """What instance `i` says that it keeps and keeps no more."""
        self.stale.add(i)
        if self._gone:
            self._sweep()
        count = self._told[i]
        if count is None:
            self.forget(i)
            count = 0
        if evicted:
            count -= self._drop(i, evicted)
        self._told[i] = count + self._add(i, stored)

    def forget(self, i: int) -> None:
        """Instance `i` keeps nothing, and has to tell anew."""
        self.stale.add(i)
        if self._told[i]:
            self._gone |= 1 << i
        elif self._assumed[i]:
            self._drop(i, self._assumed[i])
        self._told[i], self._assumed[i] = None, OrderedDict()

    def tells(self, i: int) -> bool:
        """Whether instance `i` says what it keeps; else that is assumed."""
        return self._told[i] is not None

    def _sweep(self) -> None:
        """Forget what all those told that are gone. O(n), for however many: where each one's blocks
        were listed, every block that is stored or evicted would take as long again."""
        gone, self._gone = self._gone, 0
        self._pages.forget(gone)
        where, paged = self._where, self._all + 1
        for key in [key for key, bits in where.items() if bits & gone]:
            bits_left = where[key] & ~gone
            if bits_left & ~paged:
                where[key] = bits_left
            else:
                del where[key]

    def size(self, i: int) -> int:
        """How many blocks instance `i` keeps."""
        told = self._told[i]
        return len(self._assumed[i]) if told is None else told

    def _add(self, i: int, keys: Sequence[Hashable]) -> int:
        """Instance `i` keeps these blocks; how many it did not keep before."""
        where, bit = self._where, 1 << i
        before = len(where)
        bits_of_keys = [*map(where.setdefault, keys, repeat(bit))]
        added = len(where) - before
        if bits_of_keys.count(bit) < len(bits_of_keys):  # others keep some of them
            for key in keys:
                bits = where[key]
                if not bits & bit:
                    where[key] = bits | bit
                    added += 1
        return added

    def _drop(self, i: int, keys: Collection[Hashable]) -> int:
        """Instance `i` keeps these blocks no longer; how many it kept before."""
        where, bit, paged = self._where, 1 << i, self._all + 1
        bits_of_keys = [*map(where.pop, keys, repeat(0))]
        dropped = bits_of_keys.count(bit)
        if dropped == len(bits_of_keys):
            return dropped
        in_pages = []
        for key, bits in zip(keys, bits_of_keys, strict=True):
            if bits not in (0, bit):  # others keep it
                where[key] = bits & ~bit
                if bits & bit:
                    dropped += 1
                    if bits & paged:
                        in_pages.append(key)
        self._pages.lost(i, in_pages)
        return dropped

    def validate(self) -> None:
        """Raises AssertionError if what it knows of keys and of instances differs. O(n): for
        tests."""
        if self._gone:
            self._sweep()
        for i, (count, assumed) in enumerate(zip(self._told, self._assumed, strict=True)):
            noted = {key for key, bits in self._where.items() if bits >> i & 1}
            assert self.size(i) == len(noted), f"instance {i} keeps {len(noted)} blocks"
            assert count is not None or noted == assumed.keys(), f"{i} is not as it is assumed"
            assert count is None or not assumed, f"instance {i} tells, and is assumed to keep more"
        assert all(bits & self._all for bits in self._where.values()), "nobody keeps a block"
        self._pages.validate()


def _numbers(bits: int) -> Iterator[int]:
    """Which bits are set."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last
