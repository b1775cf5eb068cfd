"""KV blocks with reference counts, found again by what they hold.

    free  --acquire-->  referenced  --release-->  free (never filled, or a duplicate)
                            |  ^    --release-->  cached --evicted by the policy--> free
                          commit acquire by a later request with the same prefix

A full block's key is a digest of all token ids up to its end, and of the tenant: equal keys mean
equal KV, and no tenant's timing tells of another's prompts. Which block is evicted is the policy's
choice, among those that nobody references. This module holds no KV: block numbers index whatever
the caller keeps it in.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from teola.kv.policies import Access, Policy

_DIGEST_BYTES = 16


@dataclass(slots=True, eq=False)
class Table:
    """The blocks of one request, in order. The first `found` ones were in the cache; the first
    `committed` ones have been offered to it."""

    blocks: list[int]
    found: int
    committed: int
    access: Access


class BlockCache:
    """`blocks` blocks of `block_tokens` tokens each. Operations are O(1) a block, times the
    policy's."""

    def __init__(self, blocks: int, block_tokens: int, policy: Policy) -> None:
        if blocks < 1 or block_tokens < 1:
            raise ValueError("a block cache needs at least one block of one token")
        self.blocks, self.block_tokens = blocks, block_tokens
        self._policy = policy
        self._free = list(range(blocks - 1, -1, -1))
        self._references = [0] * blocks
        self._keys: list[bytes | None] = [None] * blocks
        self._cached: dict[bytes, int] = {}
        self._offered = 0

    @property
    def available(self) -> int:
        """Blocks that could be allocated now: free ones and those that may be evicted."""
        return len(self._free) + self._offered

    @property
    def cached(self) -> int:
        """Blocks that can be found by their key, referenced or not."""
        return len(self._cached)

    def keys(self, ids: Sequence[int], salt: str = "") -> tuple[bytes, ...]:
        """The key of each full block of `ids`. salt: the tenant."""
        size = self.block_tokens * array("q").itemsize
        data = memoryview(array("q", ids)).cast("B")
        key = blake2b(salt.encode(), digest_size=_DIGEST_BYTES).digest()
        found: list[bytes] = []
        for end in range(size, len(data) + 1, size):
            digest = blake2b(key, digest_size=_DIGEST_BYTES)
            digest.update(data[end - size : end])
            key = digest.digest()
            found.append(key)
        return tuple(found)

    def match(self, keys: Sequence[bytes]) -> int:
        """How many blocks, from the first on, are in the cache."""
        cached = self._cached
        for i, key in enumerate(keys):
            if key not in cached:
                return i
        return len(keys)

    def acquire(self, keys: Sequence[bytes], blocks: int, access: Access) -> Table | None:
        """Reference the longest cached prefix of `keys` and allocate the rest of `blocks` blocks,
        evicting as needed; None, and nothing changed, if that cannot be had now."""
        prefix = [self._cached[key] for key in keys[: self.match(keys[:blocks])]]
        returning = sum(not self._references[block] for block in prefix)
        fresh = blocks - len(prefix)
        if fresh > self.available - returning:
            return None
        for i, block in enumerate(prefix):
            self._policy.touch(block, i, access)
            if not self._references[block]:
                self._policy.withdraw(block)
            self._references[block] += 1
        self._offered -= returning
        table = Table(prefix, len(prefix), len(prefix), access)
        table.blocks += [self._allocate() for _ in range(fresh)]
        return table

    def _allocate(self) -> int:
        block = self._free.pop() if self._free else self._evict()
        self._references[block] = 1
        return block

    def _evict(self) -> int:
        block = self._policy.evict()
        self._offered -= 1
        key = self._keys[block]
        assert key is not None
        del self._cached[key]
        self._keys[block] = None
        return block

    def commit(self, table: Table, keys: Sequence[bytes]) -> None:
        """The first blocks of the table now hold what `keys` say, so others may find them. Where
        another block with the same content was quicker, that one stays the one to be found."""
        for i in range(table.committed, min(len(keys), len(table.blocks))):
            block, key = table.blocks[i], keys[i]
            if key not in self._cached:
                self._policy.touch(block, i, table.access)
                self._cached[key] = block
                self._keys[block] = key
        table.committed = max(table.committed, min(len(keys), len(table.blocks)))

    def release(self, table: Table) -> None:
        """Give up the references of a table, which is empty afterwards."""
        for block in reversed(table.blocks):
            self._references[block] -= 1
            if self._references[block]:
                continue
            if self._keys[block] is None:
                self._free.append(block)
            else:
                self._policy.offer(block)
                self._offered += 1
        table.blocks = []
        table.found = table.committed = 0

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
        assert free | idle | held == set(range(self.blocks)), "a block is lost"
        assert len(free) + len(idle) + len(held) == self.blocks, "a block is in two states"
