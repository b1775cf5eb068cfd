"""Eviction policies: found by name, told of every access."""

from __future__ import annotations

import pytest

from teola.errors import UnknownName
from teola.kv import Access, BlockCache, make_policy
from teola.kv.policies import Lru


class Watching(Lru):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[tuple[int, int, Access]] = []

    def touch(self, block: int, position: int, access: Access) -> None:
        self.touched.append((block, position, access))


def test_lru_evicts_what_was_released_first_and_ends_of_prefixes_before_beginnings() -> None:
    kv = BlockCache(4, 1, make_policy("lru"))
    for ids in ([1, 2], [3, 4]):
        table = kv.acquire(kv.keys(ids), 2, Access())
        assert table is not None
        kv.commit(table, kv.keys(ids))
        kv.release(table)
    assert kv.acquire((), 1, Access()) is not None
    assert kv.match(kv.keys([1, 2])) == 1
    assert kv.match(kv.keys([3, 4])) == 2


def test_a_policy_is_told_category_and_turn_on_every_access() -> None:
    policy = Watching()
    kv = BlockCache(4, 1, policy)
    first, again = Access(1.0, ("app", "answer"), 0), Access(2.0, ("app", "answer"), 1)
    table = kv.acquire(kv.keys([1, 2]), 3, first)
    assert table is not None
    assert policy.touched == []
    kv.commit(table, kv.keys([1, 2]))
    assert policy.touched == [(0, 0, first), (1, 1, first)]
    assert kv.acquire(kv.keys([1, 2]), 2, again) is not None
    assert policy.touched[2:] == [(0, 0, again), (1, 1, again)]


def test_an_unknown_policy_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(UnknownName, match="unknown eviction policy 'lur'; did you mean 'lru'"):
        make_policy("lur")
