"""Each invariant of a block cache is looked at: break it, and it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from teola.kv import Access, BlockCache, make_policy

Corruption = Callable[[BlockCache], object]


@pytest.fixture
def cache() -> BlockCache:
    """Of six blocks: 0 is held, 1 is held and found, 2 and 3 wait to be evicted, 4 is free again, 5
    was never used. Two more are in the host's tier."""
    made = BlockCache(6, 1, make_policy("lru"), host=3)
    for key in "xy":
        table = made.acquire(key, 1, Access())
        assert table is not None
        made.commit(table, key)
        made.release(table)
    assert made.reserve(6)
    made.unreserve(6)
    held = made.acquire("", 2, Access())
    waiting = made.acquire("", 2, Access())
    free = made.acquire("", 1, Access())
    assert held is not None
    assert waiting is not None
    assert free is not None
    made.commit(held, ["h"])
    made.commit(waiting, ["w", "v"])
    made.release(waiting)
    made.release(free)
    return made


def test_what_is_sound_stays_silent(cache: BlockCache) -> None:
    cache.check()
    assert cache.host is not None
    assert len(cache.host) == 2
    assert (cache.available, cache._offered, len(cache._free)) == (4, 2, 1)


CORRUPTIONS: dict[str, Corruption] = {
    "a block is free twice": lambda c: c._free.append(c._free[0]),
    "cached blocks and offered ones differ": lambda c: setattr(c, "_offered", c._offered + 1),
    "a block is lost": lambda c: c._free.pop(),
    "one is in two states": lambda c: c._free.append(c._cached["h"]),
    "there are more blocks than there may be": lambda c: setattr(c, "blocks", 4),
    "more was given up than was reserved": lambda c: c.unreserve(1),
    "more is reserved than is free": lambda c: setattr(c, "_reserved", c.free + 1),
    "a block is in both tiers": lambda c: c.host._slots.__setitem__("h", 0),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("told", CORRUPTIONS)
def test_what_is_broken_is_told(told: str, cache: BlockCache) -> None:
    CORRUPTIONS[told](cache)
    with pytest.raises(AssertionError) as caught:
        cache.check()
    assert str(caught.value).splitlines()[0] == told


def test_as_much_as_there_is_may_be_used_and_reserved(cache: BlockCache) -> None:
    """Exactly all of it: one block more, or less, is what is told above."""
    assert cache.reserve(cache.free)
    cache.check()
    assert cache.free == 0
    assert cache.reserve(cache.available)
    assert not cache.reserve(1)
    cache.check()
    cache.unreserve(cache._reserved)
    cache.check()
    assert cache.available == 4


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda c: c._references.__setitem__(c._free[0], -1),
        lambda c: c._keys.__setitem__(c._free[0], "z"),
        lambda c: setattr(c.host, "slots", 1),
    ],
)
def test_what_else_is_broken_is_noticed(corrupt: Corruption, cache: BlockCache) -> None:
    corrupt(cache)
    with pytest.raises(AssertionError):
        cache.check()
