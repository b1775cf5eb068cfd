"""KV blocks with reference counts, found again by what they hold.

    free  --acquire-->  referenced  --release-->  free (never filled, or a duplicate)
                            |  ^    --release-->  cached --evicted by the policy--> free
                          commit acquire by a later request with the same prefix

Blocks may be reserved before they are needed by number: they are counted, and stay free.
A full block's key (`keys`) stands for all tokens up to its end: equal keys mean equal KV. Which
block is evicted is the policy's choice, among those that nobody references. This module holds no
KV: block numbers index whatever the caller keeps it in. Blocks get their numbers on first use, so
that a cache which is never filled costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from teola.kv.host_tier import HostTier, Swap, Use, below
from teola.kv.policies import Access, Policy


@dataclass(slots=True, eq=False)
class Table:
    """The blocks of one request, in order. The first `found` ones were in the cache, so many of
    them in the host's tier (`swapped`); the first `committed` ones have been offered to it."""

    blocks: list[int]
    found: int
    committed: int
    access: Access
    swapped: int = 0


class BlockCache:
    """`blocks` blocks (None: without bound) of `block_tokens` tokens each. Operations are O(1) a
    block, times the policy's. noting: remember changes, for `changes`. host: blocks of a tier
    below, which takes what is evicted (0: there is none)."""

    def __init__(
        self,
        blocks: int | None,
        block_tokens: int,
        policy: Policy,
        *,
        noting: bool = False,
        host: int = 0,
    ) -> None:
        if block_tokens < 1 or (blocks is not None and blocks < 1):
            raise ValueError("a block cache needs at least one block of one token")
        self.blocks = sys.maxsize if blocks is None else blocks
        self.block_tokens = block_tokens
        self._policy = policy
        self._free: list[int] = []
        self._references: list[int] = []
        self._keys: list[Hashable | None] = []
        self._cached: dict[Hashable, int] = {}
        self._offered = self._reserved = 0
        self._noted: dict[Hashable, bool] | None = {} if noting else None
        self.host = HostTier(host, below(policy)) if host else None
        self._uses: dict[int, Use] = {}
        self._swaps: list[Swap] = []
        self._down: list[tuple[int, int]] = []

    @property
    def available(self) -> int:
        """Blocks that could be allocated now: free ones and those that may be evicted, without
        those that are reserved."""
        return self.free + self._offered

    @property
    def free(self) -> int:
        """Free blocks that are not reserved."""
        return self.blocks - len(self._references) + len(self._free) - self._reserved

    @property
    def bounded(self) -> bool:
        """Whether it can be full."""
        return self.blocks < sys.maxsize

    @property
    def cached(self) -> int:
        """Blocks that can be found by their key, referenced or not."""
        return len(self._cached) + (len(self.host) if self.host else 0)

    def match(self, keys: Sequence[Hashable]) -> int:
        """How many blocks, from the first on, are in the cache."""
        cached, host = self._cached, self.host
        for i, key in enumerate(keys):
            if key not in cached and (host is None or key not in host):
                return i
        return len(keys)

    def acquire(
        self, keys: Sequence[Hashable], blocks: int, access: Access, now: float = 0.0
    ) -> Table | None:
        """Reference the longest cached prefix of `keys` and allocate the rest of `blocks` blocks,
        evicting as needed; None, and nothing changed, if that cannot be had now.

        A cached block behind a missing one cannot be used; if nobody references it, it is given to
        the request, which computes it again where it lies."""
        cached, references = self._cached, self._references
        prefix: list[int] = []
        for key in keys[:blocks]:
            found = cached.get(key)
            if found is None:
                break
            prefix.append(found)
        if (
            self.host is not None
            and keys[len(prefix) : blocks][:1]
            and keys[len(prefix)] in self.host
        ):
            return self._acquire_back(keys, blocks, access, now)
        hits = len(prefix)
        idle = [block for block in prefix if not references[block]]
        cut_off = self._cut_off(keys, hits, blocks)
        fresh = blocks - hits - len(cut_off)
        if fresh > self.available - len(idle) - len(cut_off):
            return None
        if prefix:
            self._told(prefix, keys[:hits], 0, access, now)
            if idle:
                self._policy.withdraw(idle)
                self._offered -= len(idle)
            for block in prefix:
                references[block] += 1
        self._pin(cut_off)
        prefix += self._allocate(fresh, now)
        for at, block in cut_off:
            prefix.insert(at, block)
        if self._down:
            self._swapped(())
        return Table(prefix, hits, hits, access)

    def _acquire_back(
        self, keys: Sequence[Hashable], blocks: int, access: Access, now: float
    ) -> Table | None:
        """As `acquire`, where some of the prefix is in the host's tier and has to come back."""
        cached, references, host = self._cached, self._references, self.host
        assert host is not None
        hits = min(self.match(keys), blocks)
        there = [(at, cached[key]) for at, key in enumerate(keys[:hits]) if key in cached]
        idle = [block for _, block in there if not references[block]]
        cut_off = self._cut_off(keys, hits, blocks)
        fresh = blocks - len(there) - len(cut_off)
        if fresh > self.available - len(idle) - len(cut_off):
            return None
        self._policy.withdraw(idle)
        self._offered -= len(idle)
        for _, block in there:
            references[block] += 1
        self._pin(cut_off)
        coming = [at for at in range(hits) if keys[at] not in cached]
        slots = [host.take(keys[at]) for at in coming]
        made = self._allocate(fresh, now)
        table, back = made[len(coming) :], made[: len(coming)]
        for at, block in sorted([*there, *zip(coming, back, strict=True), *cut_off]):
            table.insert(at, block)
        for at, block in zip(coming, back, strict=True):
            cached[keys[at]] = block
            self._keys[block] = keys[at]
        self._told(table[:hits], keys[:hits], 0, access, now)
        self._swapped(tuple(zip(slots, back, strict=True)))
        return Table(table, hits, hits, access, len(coming))

    def _cut_off(self, keys: Sequence[Hashable], hits: int, blocks: int) -> list[tuple[int, int]]:
        """Cached blocks behind a missing one that nobody references, with where they stand."""
        cached, references = self._cached, self._references
        return [
            (at, block)
            for at in range(hits + 1, min(len(keys), blocks))
            if (block := cached.get(keys[at])) is not None and not references[block]
        ]

    def _pin(self, cut_off: list[tuple[int, int]]) -> None:
        if cut_off:
            self._policy.withdraw([block for _, block in cut_off])
            self._offered -= len(cut_off)
            for _, block in cut_off:
                self._references[block] = 1

    def _told(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        """Tell the policy of a use, and remember it for the tier below."""
        self._policy.touch(blocks, keys, position, access, now)
        if self.host is not None:
            for at, block in enumerate(blocks, position):
                self._uses[block] = Use(at, access, now)

    def _swapped(self, back: tuple[tuple[int, int], ...]) -> None:
        self._swaps.append(Swap(back, tuple(self._down)))
        self._down = []

    def swaps(self) -> list[Swap]:
        """What moved between the tiers since this was last asked, request by request: who keeps KV
        has to copy it before anything is computed."""
        found, self._swaps = self._swaps, []
        return found

    def _allocate(self, count: int, now: float) -> list[int]:
        """So many blocks that hold nothing: free ones, then fresh ones, then evicted ones."""
        references, free = self._references, self._free
        unevicted = min(count, self.free)
        taken = free[: -unevicted - 1 : -1]
        del free[len(free) - len(taken) :]
        for block in taken:
            references[block] = 1
        known = len(references)
        fresh = unevicted - len(taken)
        if fresh:
            taken += range(known, known + fresh)
            references += [1] * fresh
            self._keys += [None] * fresh
        while len(taken) < count:
            block = self._evict(now)
            references[block] = 1
            taken.append(block)
        return taken

    def reserve(self, blocks: int, now: float = 0.0) -> bool:
        """Leave so many blocks free, evicting as needed, until `extend` takes them or `unreserve`
        gives them up. False, and nothing changed, if that cannot be had now."""
        if blocks > self.available:
            return False
        for _ in range(blocks - self.free):
            self._free.append(self._evict(now))
        self._reserved += blocks
        if self._down:
            self._swapped(())
        return True

    def unreserve(self, blocks: int) -> None:
        """Give up so many of the blocks that are reserved."""
        self._reserved -= blocks

    def extend(self, table: Table, blocks: int, now: float = 0.0) -> None:
        """Add so many blocks behind the others of a table. They must have been reserved, if the
        cache can be full."""
        if self.bounded:
            self._reserved -= blocks
        table.blocks += self._allocate(blocks, now)

    def _evict(self, now: float) -> int:
        block = self._policy.evict(now)
        self._offered -= 1
        key = self._keys[block]
        assert key is not None
        del self._cached[key]
        self._keys[block] = None
        gone: Hashable | None = key
        if self.host is not None:
            slot, gone = self.host.put(key, self._uses.pop(block), now)
            self._down.append((block, slot))
        if self._noted is not None and gone is not None:
            self._note(gone, False)
        return block

    def commit(self, table: Table, keys: Sequence[Hashable], now: float = 0.0) -> None:
        """The first blocks of the table now hold what `keys` say, so others may find them. Where
        another block with the same content was quicker, that one stays the one to be found."""
        first, end = table.committed, min(len(keys), len(table.blocks))
        cached, blocks, held = self._cached, table.blocks, self._keys
        for i in range(first, end):
            block, key = blocks[i], keys[i]
            known = key in cached
            if cached.setdefault(key, block) != block:
                self._touch(table, keys, first, i, now)
                first = i + 1
                continue
            host = self.host
            lower = host is not None and key in host
            if host is not None and lower:
                host.take(key)  # it was computed again
            if self._noted is not None and not known and not lower:
                self._note(key, True)
            held[block] = key
        self._touch(table, keys, first, end, now)
        table.committed = max(table.committed, end)

    def _touch(
        self, table: Table, keys: Sequence[Hashable], first: int, end: int, now: float
    ) -> None:
        if end > first:
            self._told(table.blocks[first:end], keys[first:end], first, table.access, now)

    def release(self, table: Table, now: float = 0.0) -> None:
        """Give up the references of a table, which is empty afterwards."""
        references, keys, free, idle = self._references, self._keys, self._free, list[int]()
        for block in reversed(table.blocks):
            references[block] = left = references[block] - 1
            if left:
                continue
            if keys[block] is None:
                free.append(block)
            else:
                idle.append(block)
        if idle:
            self._policy.offer(idle, now)
            self._offered += len(idle)
        table.blocks = []
        table.found = table.committed = 0

    # --- for those who know where what is kept --------------------------------------------------

    def keys(self) -> list[Hashable]:
        """Those of all blocks that can be found."""
        return [*self._cached, *(self.host.keys() if self.host else ())]

    def changes(self) -> tuple[list[Hashable], list[Hashable]]:
        """Keys that were stored, and keys that were evicted, since this was last asked. What came
        and went meanwhile is in neither. Raises ValueError if the cache does not note them."""
        if self._noted is None:
            raise ValueError("this cache was made without noting=True")
        noted, self._noted = self._noted, {}
        stored = [key for key, there in noted.items() if there]
        return stored, [key for key, there in noted.items() if not there]

    def _note(self, key: Hashable, there: bool) -> None:
        assert self._noted is not None
        if self._noted.pop(key, None) is None:
            self._noted[key] = there

    def check(self) -> None:
        """Raises AssertionError if a block is lost or counted twice. O(n): for tests."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        found = sorted(self._cached.values())
        assert found == [b for b, key in enumerate(self._keys) if key is not None]
        idle = {b for b in found if not self._references[b]}
        held = {b for b, count in enumerate(self._references) if count}
        assert all(count >= 0 for count in self._references)
        assert len(idle) == self._offered, "cached blocks and offered ones differ"
        assert free | idle | held == set(range(len(self._references))), "a block is lost"
        assert len(free) + len(idle) + len(held) == len(self._references), "one is in two states"
        assert len(self._references) <= self.blocks, "there are more blocks than there may be"
        assert self._reserved >= 0, "more was given up than was reserved"
        assert self.free >= 0, "more is reserved than is free"
        if self.host is not None:
            assert not self._cached.keys() & set(self.host.keys()), "a block is in both tiers"
            assert len(self.host) <= self.host.slots
