"""Eviction policies: found by name, told of every access."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random

import pytest

from teola.errors import UnknownName
from teola.kv import Access, BlockCache, make_policy
from teola.kv.cache import Table
from teola.kv.policies import REGISTRY, Lru


class Watching(Lru):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[tuple[list[int], list[Hashable], int, Access, float]] = []
        self.offered: list[tuple[list[int], float]] = []

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        self.touched.append(([*blocks], [*keys], position, access, now))

    def offer(self, blocks: Sequence[int], now: float) -> None:
        self.offered.append(([*blocks], now))
        super().offer(blocks, now)


def test_lru_evicts_what_was_released_first_and_ends_of_prefixes_before_beginnings() -> None:
    kv = BlockCache(4, 1, make_policy("lru"))
    for keys in ("ab", "cd"):
        table = kv.acquire(keys, 2, Access())
        assert table is not None
        kv.commit(table, keys)
        kv.release(table)
    assert kv.acquire((), 1, Access()) is not None
    assert kv.match("ab") == 1
    assert kv.match("cd") == 2


@pytest.mark.parametrize("policy", REGISTRY.names())
@pytest.mark.parametrize("seed", range(4))
def test_a_request_is_taken_just_when_there_is_room_for_what_it_lacks(
    policy: str, seed: int
) -> None:
    """Whichever block is evicted, also beginnings before what follows them."""
    chance, kv = Random(seed), BlockCache(6, 1, make_policy(policy))
    held = list[tuple[Table, str]]()
    for now in range(300):
        if held and chance.random() < 0.5:
            kv.release(held.pop(chance.randrange(len(held)))[0], now)
            continue
        keys = chance.choice("AB") + chance.choice(["", "a", "ab", "abc"])
        keys = "".join(keys[: k + 1] + "/" for k in range(len(keys)))
        prefixes, blocks = keys.split("/")[:-1], len(keys.split("/")) - 1 + chance.choice([0, 0, 1])
        there = {key: kv._cached[key] for key in prefixes if key in kv._cached}
        hits = kv.match(prefixes)
        used = {there[key] for key in prefixes[:hits]}
        used |= {block for block in there.values() if not kv._references[block]}
        idle = sum(not kv._references[block] for block in used)
        room, before = kv.available, kv.keys()
        table = kv.acquire(prefixes, blocks, Access(), now)
        if blocks - len(used) > room - idle:
            assert table is None
            assert (kv.available, kv.keys()) == (room, before)
        else:
            assert table is not None
            assert (len(table.blocks), table.found) == (blocks, hits)
            assert used <= set(table.blocks)
            kv.commit(table, prefixes, now)
            held.append((table, keys))
        kv.check()


def test_a_policy_is_told_what_when_where_and_for_whom() -> None:
    policy = Watching()
    kv = BlockCache(4, 1, policy)
    first, again = Access(("app", "answer"), 0), Access(("app", "answer"), 1)
    table = kv.acquire("ab", 3, first, 1.0)
    assert table is not None
    assert policy.touched == []
    kv.commit(table, "a", 2.0)
    kv.commit(table, "ab", 3.0)
    assert policy.touched == [([0], ["a"], 0, first, 2.0), ([1], ["b"], 1, first, 3.0)]
    other = kv.acquire("ab", 2, again, 4.0)
    assert other is not None
    assert policy.touched[2:] == [([0, 1], ["a", "b"], 0, again, 4.0)]
    kv.release(table, 5.0)
    assert policy.offered == [], "the other one has them, and the third was never filled"
    kv.release(other, 6.0)
    assert policy.offered == [([1, 0], 6.0)]


def test_a_block_that_another_filled_first_is_not_told_of() -> None:
    policy = Watching()
    kv = BlockCache(6, 1, policy)
    late, early = (kv.acquire("", 3, Access()) for _ in range(2))
    assert late is not None
    assert early is not None
    kv.commit(early, "ab")
    kv.commit(late, "abc")
    assert [(keys, at) for _, keys, at, _, _ in policy.touched] == [(["a", "b"], 0), (["c"], 2)]


def test_an_unknown_policy_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(UnknownName, match="unknown eviction policy 'lur'; did you mean 'lru'"):
        make_policy("lur")
