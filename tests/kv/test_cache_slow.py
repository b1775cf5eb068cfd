"""The cache beside a slow one: two tiers, reservations, requests that hold blocks side by side.

The slow one has blocks as objects, and lists of what may go, in order. Both policies are lru.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from teola.kv import Access, BlockCache, Table, make_policy

KEYS = [f"{start}{end}" for start in "ab" for end in range(5)]
"""Blocks of two prompts, in order."""


@dataclass(eq=False)
class Block:
    key: str | None = None
    holders: int = 0


@dataclass(eq=False)
class Request:
    table: Table
    blocks: list[Block]
    committed: int
    prompt: list[str]


@dataclass
class Slow:
    """near: what can be found here; idle: of that, what nobody holds, the next to go first. far:
    keys of the tier below, the next to go first."""

    blocks: int
    slots: int
    near: dict[str, Block] = field(default_factory=dict)
    idle: list[Block] = field(default_factory=list)
    far: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    reserved: int = 0

    @property
    def free(self) -> int:
        """Blocks that hold nothing, less those that are reserved."""
        held = {block for request in self.requests for block in request.blocks}
        return self.blocks - len(held | {*self.near.values()}) - self.reserved

    def found(self, keys: list[str]) -> int:
        for k, key in enumerate(keys):
            if key not in self.near and key not in self.far:
                return k
        return len(keys)

    def evict(self) -> None:
        gone = self.idle.pop(0)
        assert gone.key is not None
        del self.near[gone.key]
        if self.slots:
            if len(self.far) == self.slots:
                self.far.pop(0)
            self.far.append(gone.key)

    def acquire(self, keys: list[str], count: int) -> tuple[list[Block], int, int] | None:
        """The blocks, how many were found, and how many of those below."""
        keys = keys[:count]
        hits = self.found(keys)
        behind = [self.near.get(key) for key in keys[hits + 1 :]]
        again = [block for block in behind if block is not None and not block.holders]
        here = [self.near[key] for key in keys[:hits] if key in self.near]
        fresh = count - len(here) - len(again)
        stay = [block for block in self.idle if block in here or block in again]
        if fresh > self.free + len(self.idle) - len(stay):
            return None
        self.idle = [block for block in self.idle if block not in stay]
        below = [key for key in keys[:hits] if key not in self.near]
        self.far = [key for key in self.far if key not in below]
        free = self.free
        for _ in range(fresh - max(0, free)):
            self.evict()
        made = {key: Block(key) for key in below}
        blocks = []
        for k in range(count):
            key = keys[k] if k < len(keys) else None
            block = self.near.get(key) if key is not None else None
            if key in made:
                block = self.near[key] = made[key]
            elif block is None or (k >= hits and block not in again):
                block = Block()
            block.holders += 1
            blocks.append(block)
        return blocks, hits, len(below)

    def commit(self, request: Request, keys: list[str]) -> None:
        for k in range(request.committed, min(len(keys), len(request.blocks))):
            block, key = request.blocks[k], keys[k]
            if self.near.get(key, block) is block:
                self.near[key], block.key = block, key
                self.far = [other for other in self.far if other != key]
            request.committed = k + 1

    def release(self, request: Request) -> None:
        self.requests.remove(request)
        for block in reversed(request.blocks):
            block.holders -= 1
            if not block.holders and block.key is not None:
                self.idle.append(block)

    def reserve(self, count: int) -> bool:
        if count > self.free + len(self.idle):
            return False
        for _ in range(count - max(0, self.free)):
            self.evict()
        self.reserved += count
        return True

    def extend(self, request: Request, count: int) -> None:
        self.reserved -= count
        made = [Block(holders=1) for _ in range(count)]
        request.blocks += made


def compare(cache: BlockCache, slow: Slow, numbers: dict[Block, int]) -> None:
    cache.check()
    assert sorted(map(str, cache.keys())) == sorted([*slow.near, *slow.far])
    assert cache.cached == len(slow.near) + len(slow.far)
    assert cache.free == slow.free
    assert cache.available == slow.free + len(slow.idle)
    for request in slow.requests:
        table = request.table
        assert table.committed == request.committed
        assert len(table.blocks) == len(request.blocks)
        for number, block in zip(table.blocks, request.blocks, strict=True):
            assert numbers.setdefault(block, number) == number, "it is the same block"
    held = {block for request in slow.requests for block in request.blocks}
    live = [numbers[block] for block in held | {*slow.near.values()} if block in numbers]
    assert len(live) == len({*live}), "two blocks are one"


@pytest.mark.parametrize("slots", [0, 1, 3, 20])
@pytest.mark.parametrize("seed", range(6))
def test_requests_get_what_a_slow_cache_gives(slots: int, seed: int) -> None:
    draw = Random(100 * slots + seed)
    blocks = draw.choice([3, 5, 8])
    cache = BlockCache(blocks, 1, make_policy("lru"), noting=True, host=slots)
    slow, numbers, told = Slow(blocks, slots), dict[Block, int](), set[Any]()
    for step in range(250):
        what = draw.random()
        start, length = draw.choice([0, 5]), draw.randint(0, 5)
        keys = KEYS[start : start + length]
        if what < 0.4:
            count = length + draw.choice([-1, 0, 0, 1])
            if count >= 0:
                expected = slow.acquire(keys, count)
                table = cache.acquire(keys, count, Access(), float(step))
                assert (table is None) == (expected is None), step
                if table is not None and expected is not None:
                    made, hits, below = expected
                    assert (table.found, table.swapped) == (hits, below)
                    slow.requests.append(Request(table, made, hits, KEYS[start : start + 5]))
        elif what < 0.5:
            count = draw.randint(0, 3)
            assert cache.reserve(count, float(step)) is slow.reserve(count)
        elif what < 0.55 and slow.reserved:
            count = draw.randint(1, slow.reserved)
            cache.unreserve(count)
            slow.reserved -= count
        elif slow.requests:
            request = draw.choice(slow.requests)
            if what < 0.62 and slow.reserved:
                count = draw.randint(1, slow.reserved)
                cache.extend(request.table, count, float(step))
                slow.extend(request, count)
            elif what < 0.8:
                cache.commit(request.table, request.prompt[:length], float(step))
                slow.commit(request, request.prompt[:length])
            else:
                cache.release(request.table, float(step))
                slow.release(request)
                assert (request.table.blocks, request.table.found) == ([], 0)
                assert request.table.committed == 0, "it is empty"
        compare(cache, slow, numbers)
        assert cache.match(keys) == slow.found(keys)
        stored, evicted = cache.changes()
        assert not told & {*stored}
        assert told >= {*evicted}
        told = told - {*evicted} | {*stored}
        assert told == {*cache.keys()}


# --- what `check` finds ---------------------------------------------------------------------


def filled(host: int = 2) -> BlockCache:
    """Of eight blocks: two that may go, two that are held, one of them filled, and three that were
    used; in the tier below is one."""
    cache = BlockCache(8, 1, make_policy("lru"), host=host)
    for keys in (["x"], ["a", "b"]):
        table = cache.acquire(keys, len(keys), Access())
        assert table is not None
        cache.commit(table, keys)
        cache.release(table)
    crowd = cache.acquire([], 6, Access())
    assert cache.reserve(0)
    assert crowd is not None
    cache.release(crowd)
    held = cache.acquire(["c"], 2, Access())
    assert held is not None
    cache.commit(held, ["c"])
    cache.check()
    return cache


def idle_is_free(cache: BlockCache) -> None:
    cache._free.append(cache._cached["a"])


def key_is_lost(cache: BlockCache) -> None:
    cache._keys[cache._cached["a"]] = None


def held_too_seldom(cache: BlockCache) -> None:
    cache._references[cache._cached["a"]] = -1
    cache._offered -= 1


def in_both_tiers(cache: BlockCache) -> None:
    assert cache.host is not None
    cache.host._slots["a"] = 1


def too_many_below(cache: BlockCache) -> None:
    assert cache.host is not None
    cache.host._slots |= {"p": 0, "q": 1, "r": 2}


def setting(name: str, change: int) -> Callable[[BlockCache], None]:
    return lambda cache: setattr(cache, name, getattr(cache, name) + change)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (lambda cache: cache._free.append(cache._free[0]), "^a block is free twice"),
        (key_is_lost, "^$"),
        (held_too_seldom, "^$"),
        (setting("_offered", 1), "^cached blocks and offered ones differ"),
        (setting("_offered", -1), "^cached blocks and offered ones differ"),
        (lambda cache: cache._free.pop(), "^a block is lost"),
        (idle_is_free, "^one is in two states"),
        (setting("blocks", -2), "^there are more blocks than there may be"),
        (setting("_reserved", -1), "^more was given up than was reserved"),
        (setting("_reserved", 7), "^more is reserved than is free"),
        (in_both_tiers, "^a block is in both tiers"),
        (too_many_below, "^$"),
    ],
)
def test_a_check_finds_whatever_is_wrong(
    breaks: Callable[[BlockCache], None], message: str
) -> None:
    cache = filled()
    breaks(cache)
    with pytest.raises(AssertionError, match=message):
        cache.check()


def test_as_much_as_can_be_is_not_wrong() -> None:
    cache = filled()
    assert cache.reserve(cache.available)
    assert cache.available == 0
    cache.check()


def test_what_is_evicted_and_stored_is_told_only_to_who_wants_it() -> None:
    with pytest.raises(ValueError, match=r"^this cache was made without noting=True$"):
        filled().changes()
