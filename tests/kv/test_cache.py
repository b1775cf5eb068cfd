"""The block cache against an oracle: what is cached, what is held, and nothing lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from teola.kv import Access, BlockCache, Table, make_policy

SIZE, BLOCKS = 2, 7
Prefix = tuple[str, tuple[int, ...]]


def cache(blocks: int = BLOCKS, size: int = SIZE) -> BlockCache:
    return BlockCache(blocks, size, make_policy("lru"))


def prefixes(ids: list[int], salt: str) -> list[Prefix]:
    return [(salt, tuple(ids[:end])) for end in range(SIZE, len(ids) + 1, SIZE)]


class Comparison(RuleBasedStateMachine):
    """The oracle knows each block's content as a whole prefix, and the order of last releases."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache()
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
        assert self.cache.match(self.cache.keys(ids, salt)) == self.longest(ids, salt)

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
        table = self.cache.acquire(self.cache.keys(ids, salt), blocks, Access())
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
        self.cache.commit(table, self.cache.keys(ids, salt))
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
    table = kv.acquire(kv.keys(ids, "a"), 2, Access())
    assert table is not None
    kv.commit(table, kv.keys(ids, "a"))
    assert kv.match(kv.keys(ids, "a")) == 2
    assert kv.match(kv.keys(ids, "b")) == 0


def test_keys_depend_on_all_that_came_before() -> None:
    kv = cache()
    assert kv.keys([1, 2, 3, 4])[0] == kv.keys([1, 2, 9, 9])[0]
    assert kv.keys([1, 2, 3, 4])[1] != kv.keys([2, 1, 3, 4])[1]
    assert len(kv.keys([1, 2, 3])) == 1


def test_a_long_random_history_neither_loses_nor_exceeds_anything() -> None:
    chance = random.Random(0)
    kv = BlockCache(64, 4, make_policy("lru"))
    held: list[Table] = []
    for _ in range(3000):
        ids = [chance.randrange(3) for _ in range(chance.randrange(1, 60))]
        table = kv.acquire(kv.keys(ids), -(-len(ids) // 4), Access())
        if table is None:
            kv.release(held.pop(chance.randrange(len(held))))
            continue
        kv.commit(table, kv.keys(ids))
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
    with pytest.raises(ValueError, match="at least one block"):
        cache(blocks, size)
