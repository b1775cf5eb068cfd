"""The block cache against an oracle: what is cached, what is held, and nothing lost."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from teola.kv import Access, BlockCache, Table, make_policy, token_keys

SIZE, BLOCKS = 2, 7
Prefix = tuple[str, tuple[int, ...]]


def cache(blocks: int | None = BLOCKS, size: int = SIZE, *, noting: bool = False) -> BlockCache:
    return BlockCache(blocks, size, make_policy("lru"), noting=noting)


def keys(ids: list[int], salt: str = "") -> tuple[bytes, ...]:
    return token_keys(ids, SIZE, salt)


def prefixes(ids: list[int], salt: str) -> list[Prefix]:
    return [(salt, tuple(ids[:end])) for end in range(SIZE, len(ids) + 1, SIZE)]


class Comparison(RuleBasedStateMachine):
    """The oracle knows each block's content as a whole prefix, and the order of last releases."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache(noting=True)
        self.told: set[object] = set()
        self.held: list[tuple[Table, list[int], str]] = []
        self.content: dict[int, Prefix] = {}
        self.idle: list[int] = []

    def references(self, block: int) -> int:
        return sum(table.blocks.count(block) for table, _, _ in self.held)

    def longest(self, ids: list[int], salt: str) -> int:
        known, hits = set(self.content.values()), 0
        for prefix in prefixes(ids, salt):
            if prefix not in known:
                break
            hits += 1
        return hits

    @rule(ids=st.lists(st.integers(0, 1), max_size=9), salt=st.sampled_from("ab"))
    def match(self, ids: list[int], salt: str) -> None:
        assert self.cache.match(keys(ids, salt)) == self.longest(ids, salt)

    @rule(
        ids=st.lists(st.integers(0, 1), max_size=9),
        salt=st.sampled_from("ab"),
        room=st.integers(0, 5),
    )
    def acquire(self, ids: list[int], salt: str, room: int) -> None:
        blocks = -(-(len(ids) + room) // SIZE)
        hits = self.longest(ids, salt)
        found = [
            next(b for b, p in self.content.items() if p == prefix)
            for prefix in prefixes(ids, salt)[:hits]
        ]
        free = BLOCKS - len({b for t, _, _ in self.held for b in t.blocks} | {*self.content})
        evictable = [b for b in self.idle if b not in found]
        before = self.cache.available
        table = self.cache.acquire(keys(ids, salt), blocks, Access())
        if blocks - hits > free + len(evictable):
            assert table is None
            assert self.cache.available == before
            return
        assert table is not None
        assert table.blocks[:hits] == found
        assert table.found == hits
        assert len(table.blocks) == blocks
        fresh = set(table.blocks[hits:])
        assert len(fresh) == blocks - hits
        assert all(not self.references(block) for block in fresh)
        evicted = evictable[: max(0, len(fresh) - free)]
        assert {b for b in fresh if b in self.content} == set(evicted)
        for block in evicted:
            del self.content[block]
        self.idle = [b for b in self.idle if b not in evicted and b not in found]
        self.held.append((table, ids, salt))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        table, ids, salt = data.draw(st.sampled_from(self.held))
        self.cache.commit(table, keys(ids, salt))
        for block, prefix in zip(table.blocks, prefixes(ids, salt), strict=False):
            if prefix not in self.content.values():
                self.content[block] = prefix

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.held) - 1))
        table, blocks = self.held[at][0], list(self.held[at][0].blocks)
        self.cache.release(table)
        del self.held[at]
        self.idle += [b for b in reversed(blocks) if b in self.content and not self.references(b)]

    @rule()
    def changes(self) -> None:
        stored, evicted = self.cache.changes()
        assert not self.told & {*stored}
        assert self.told >= {*evicted}
        self.told = self.told - {*evicted} | {*stored}
        assert self.told == {keys(list(ids), salt)[-1] for salt, ids in self.content.values()}
        assert self.told == {*self.cache.keys()}

    @invariant()
    def nothing_is_lost(self) -> None:
        self.cache.check()
        held = {b for table, _, _ in self.held for b in table.blocks}
        assert self.cache.available == BLOCKS - len(held)
        assert self.cache.cached == len(self.content)


TestComparison = Comparison.TestCase
TestComparison.settings = settings(max_examples=150, stateful_step_count=40)


def test_the_same_ids_of_another_tenant_are_not_found() -> None:
    kv = cache()
    ids = [1, 2, 3, 4]
    table = kv.acquire(keys(ids, "a"), 2, Access())
    assert table is not None
    kv.commit(table, keys(ids, "a"))
    assert kv.match(keys(ids, "a")) == 2
    assert kv.match(keys(ids, "b")) == 0


def test_keys_depend_on_all_that_came_before() -> None:
    assert keys([1, 2, 3, 4])[0] == keys([1, 2, 9, 9])[0]
    assert keys([1, 2, 3, 4])[1] != keys([2, 1, 3, 4])[1]
    assert len(keys([1, 2, 3])) == 1


def test_a_long_random_history_neither_loses_nor_exceeds_anything() -> None:
    chance = random.Random(0)
    kv = BlockCache(64, 4, make_policy("lru"))
    held: list[Table] = []
    for _ in range(3000):
        ids = [chance.randrange(3) for _ in range(chance.randrange(1, 60))]
        table = kv.acquire(token_keys(ids, 4), -(-len(ids) // 4), Access())
        if table is None:
            kv.release(held.pop(chance.randrange(len(held))))
            continue
        kv.commit(table, token_keys(ids, 4))
        held.append(table)
        if len(held) > 6:
            kv.release(held.pop(chance.randrange(len(held))))
    kv.check()
    for table in held:
        kv.release(table)
    assert kv.available == 64
    kv.check()


@pytest.mark.parametrize(("blocks", "size"), [(0, 16), (4, 0)])
def test_a_cache_of_nothing_is_refused(blocks: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"^a block cache needs at least one block of one token$"):
        cache(blocks, size)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_cache_of_so_few_blocks_holds_exactly_as_many(blocks: int) -> None:
    """Each request takes all of them; one block more is never to be had."""
    kv = cache(blocks)
    for first in range(3):
        ids = [first] * (SIZE * blocks)
        assert kv.acquire((), blocks + 1, Access()) is None
        table = kv.acquire(keys(ids), blocks, Access())
        assert table is not None
        assert (table.found, kv.available) == (0, 0)
        assert kv.acquire((), 1, Access()) is None
        kv.commit(table, keys(ids))
        kv.release(table)
        again = kv.acquire(keys(ids), blocks, Access())
        assert again is not None
        assert again.found == blocks
        kv.release(again)
        kv.check()


def test_a_cache_without_bound_never_evicts_and_numbers_blocks_as_they_are_used() -> None:
    kv = cache(None)
    for first in range(0, 200, 2):
        table = kv.acquire(keys([first, 0]), 1, Access())
        assert table is not None
        assert table.blocks == [first // 2]
        kv.commit(table, keys([first, 0]))
        kv.release(table)
    assert kv.cached == 100
    assert kv.match(keys([0, 0])) == 1
    kv.check()


def test_a_thousand_huge_caches_cost_nothing() -> None:
    tracemalloc.start()
    try:
        made = [cache(10**7) for _ in range(1000)]
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()
    assert made[0].available == 10**7


def test_changes_are_told_to_who_wants_them_only() -> None:
    with pytest.raises(ValueError, match=r"^this cache was made without noting=True$"):
        cache().changes()


def test_evicting_takes_no_longer_where_there_are_more_blocks() -> None:
    """Each turn of a full cache evicts a block, from the front of all that are offered."""

    def seconds(blocks: int) -> float:
        kv = cache(blocks, 1)
        for number in range(blocks):
            one(kv, number)
        began = time.perf_counter()
        for number in range(blocks, blocks + 2000):
            one(kv, number)
        return time.perf_counter() - began

    def one(kv: BlockCache, number: int) -> None:
        table = kv.acquire((), 1, Access())
        assert table is not None
        kv.commit(table, (number,))
        kv.release(table)

    assert min(seconds(10**5) for _ in range(3)) < 4 * min(seconds(10**3) for _ in range(3))
