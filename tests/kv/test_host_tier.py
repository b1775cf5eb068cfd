"""Blocks that were evicted wait in the host's memory, and come back."""

from __future__ import annotations

import random
from sys import maxsize

import pytest

from teola.engine import NextRead
from teola.kv import POLICIES, Access, BlockCache, make_policy
from teola.kv.host_tier import HostTier, Use
from teola.kv.policies.next_use import NextUse
from teola.kv.policies.workload_aware import WorkloadAware
from tests.planted import catches, edited


class Copied:
    """A cache whose blocks hold what they are asked for by, moved as the cache says."""

    def __init__(self, near: int, far: int, policy: str = "lru") -> None:
        self.cache = BlockCache(near, 1, make_policy(policy), noting=True, host=far)
        self.near: list[object] = [None] * near
        self.far: list[object] = [None] * far
        self.seen = set[object]()

    def ask(self, keys: str, now: float = 0.0, access: Access | None = None) -> tuple[int, int]:
        """Blocks that were found, and how many of them in the host."""
        table = self.cache.acquire(keys, len(keys), access or Access(), now)
        assert table is not None
        for back, down in self.cache.swaps():
            coming = [self.far[slot] for slot, _ in back]
            for block, slot in down:
                self.far[slot] = self.near[block]
            for (_, block), held in zip(back, coming, strict=True):
                self.near[block] = held
        found = table.found, table.swapped
        assert [self.near[block] for block in table.blocks[: table.found]] == [*keys[: table.found]]
        for block, key in zip(table.blocks, keys, strict=True):
            self.near[block] = key
        self.cache.commit(table, keys, now)
        self.cache.release(table, now)
        self.cache.check()
        stored, evicted = self.cache.changes()
        assert not self.seen & set(stored), "it was there"
        self.seen |= set(stored)
        assert self.seen >= set(evicted)
        self.seen -= set(evicted)
        assert self.seen == set(self.cache.keys())
        return found

    @property
    def tiers(self) -> tuple[set[object], set[object]]:
        assert self.cache.host is not None
        return set(self.cache._cached), set(self.cache.host.keys())


def test_a_tier_of_nothing_is_refused_and_one_block_is_one() -> None:
    with pytest.raises(ValueError, match=r"^a host tier needs at least one block$"):
        HostTier(0, make_policy("lru"))
    tier, use = HostTier(1, make_policy("lru")), Use(0, Access(), 0.0)
    assert tier.put("a", use, 1.0) == (0, None)
    assert tier.put("b", use, 2.0) == (0, "a")
    assert tier.take("b") == 0
    assert tier.put("c", use, 3.0) == (0, None), "the slot is free again"


@catches(
    "found-in-the-host-stays-there",
    "what the policies evict above is forgotten at once",
    edited(BlockCache._evict, "if self.host is not None:", "if False:"),
)
def test_two_of_two_blocks() -> None:
    made = Copied(2, 2)
    for now, key in enumerate("abcde"):
        assert made.ask(key, float(now)) == (0, 0)
    assert made.tiers == ({"d", "e"}, {"b", "c"})
    assert made.ask("b", 5.0) == (1, 1)
    assert made.tiers == ({"e", "b"}, {"c", "d"})
    assert made.ask("a", 6.0) == (0, 0)


def test_a_prefix_may_lie_in_both_tiers() -> None:
    made = Copied(4, 4)
    made.ask("abcd", 0.0)
    made.ask("xy", 1.0)
    assert made.tiers[1] == {"c", "d"}
    assert made.ask("abcd", 2.0) == (4, 2)
    assert made.tiers == ({"a", "b", "c", "d"}, {"x", "y"})


def test_what_is_computed_again_is_not_kept_twice() -> None:
    made = Copied(3, 3)
    made.ask("abc", 0.0)
    made.ask("xyz", 1.0)
    assert made.tiers[1] == {"a", "b", "c"}
    first = made.cache.acquire("abd", 3, Access(), 2.0)
    assert first is not None
    assert (first.found, first.swapped) == (2, 2)
    made.cache.release(first, 2.0)
    made.cache.check()


def test_a_request_that_has_no_room_moves_nothing() -> None:
    made = Copied(2, 2)
    made.ask("ab", 0.0)
    held = made.cache.acquire("c", 1, Access(), 1.0)
    assert held is not None
    before = made.tiers
    assert made.cache.acquire("ab", 2, Access(), 2.0) is None
    assert made.tiers == before
    made.cache.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_blocks_hold_what_they_should_wherever_they_were(policy: str) -> None:
    chance = random.Random(policy)
    for _ in range(15):
        made = Copied(chance.randint(5, 12), chance.randint(1, 12), policy)
        now = 0.0
        for _ in range(150):
            now += chance.choice([0.0, 1.0, 40.0])
            start = chance.choice(["abcd", "wxyz", "mnop"])
            keys = start[: chance.randint(1, 4)] if chance.random() < 0.5 else start + "12"[:1]
            query = chance.choice([None, 1, 2])
            next_s = chance.choice([None, 5.0, float("inf")])
            reads = (NextRead(chance.choice([1, 3, maxsize]), next_s),)
            made.ask(keys, now, Access((chance.choice("ab"), ""), 0, query, reads))


@pytest.mark.parametrize("made", [WorkloadAware, NextUse])
def test_the_tier_below_knows_what_was_learned_and_learns_nothing(made: type) -> None:
    above = made(min_samples=1)
    below = above.below()
    fits = above.fits if isinstance(above, WorkloadAware) else above._fits
    access = Access(("app", ""), 0)
    below.touch([0], ["a"], 0, access, 0.0)
    below.touch([0], ["a"], 0, access, 50.0)
    fits.fit(60.0)
    assert fits.pooled is None
    above.touch([0], ["a"], 0, access, 60.0)
    above.touch([0], ["a"], 0, access, 70.0)
    fits.fit(80.0)
    assert fits.pooled is not None
    assert (below.fits if isinstance(below, WorkloadAware) else below._fits) is fits
