"""lru, fifo, lfu and gdfs, by the sequences of the paper's sheet; what holds for all policies."""

from __future__ import annotations

import heapq
import random
from math import inf
from sys import maxsize
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import NextRead
from teola.errors import InputError, UnknownName
from teola.kv import POLICIES, Access, make_policy
from teola.kv.host_tier import below
from teola.kv.policies import FirstIn, Gdfs, Lru
from teola.kv.policies.ranks import Ranked, Ranks
from tests.kv.policies.replaying import Watched, asked
from tests.planted import catches, edited


@catches(
    "fifo-like-lru",
    "a block that is found counts as having come again",
    edited(FirstIn.touch, "came.setdefault(block, now)", "came[block] = now"),
)
def test_three_blocks_for_a_b_c_a_d_a_a_b() -> None:
    lru, fifo = asked("lru", 3, "abcadaab"), asked("fifo", 3, "abcadaab")
    assert (lru.hits, lru.evicted) == (3, ["b", "c"])
    assert (fifo.hits, fifo.evicted) == (2, ["a", "b", "c"])


@catches(
    "gdfs-without-clock",
    "old fame does not fade",
    edited(Gdfs.evict, "self.clock, block", "_, block"),
)
def test_greedy_dual_keeps_what_was_used_often() -> None:
    made = asked(policy := Gdfs(), 3, "abcadaab")
    assert made.hits == 3
    assert policy.clock == 1
    assert sorted(policy.ranks.values()) == [2, 2, 5]


def test_greedy_dual_breaks_ties_by_the_last_use() -> None:
    made = asked(policy := Gdfs(), 2, "aabcda")
    assert (made.hits, made.evicted) == (1, ["b", "a", "c"])
    assert policy.clock == 2
    assert sorted(policy.ranks.values()) == [3, 3]
    lru = asked("lru", 2, "aabcda")
    assert (lru.hits, lru.evicted) == (1, ["a", "b", "c"])


def test_greedy_dual_may_hold_the_ends_of_long_prompts_dearer() -> None:
    for dearer, first in ((0.0, "d"), (1.0, "a")):
        made = Watched(4, Gdfs(dearer))
        made.ask("abcd", now=0.0)
        made.ask("x", now=1.0)
        assert made.evicted == [first]


@catches(
    "lfu-forgets-nothing",
    "a block that comes again is as often used as it was before",
    edited(Ranked.evict, "del self.ranks[block]", "pass"),
)
def test_least_frequently_used_counts_since_a_block_came() -> None:
    made = asked("lfu", 2, "aabcbb")
    assert made.evicted == ["b", "c"]
    assert made.hits == 2


def test_a_block_behind_a_missing_one_is_found_again_once_that_is_back() -> None:
    made = Watched(4, "fifo")
    made.ask("a", now=0.0)
    made.ask("abc", now=1.0)
    made.ask("xy", now=2.0)
    assert sorted(made.cache.keys(), key=str) == ["b", "c", "x", "y"], "the beginning went first"
    assert made.ask("abc", now=3.0) == 0
    assert "b" not in made.evicted
    assert made.cache.match("abc") == 3
    assert made.ask("abc", now=4.0) == 3


def test_what_an_unlimited_cache_finds() -> None:
    for policy in POLICIES:
        made = Watched(None, policy)
        assert [made.ask(keys) for keys in ((1, 2, 3), (1, 2, 4), (1, 2, 3, 5))] == [0, 2, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_finds_more_than_there_is_or_loses_a_block(policy: str) -> None:
    chance = random.Random(policy)
    for _ in range(20):
        ideal = Watched(None, "lru")
        made = Watched(chance.randint(1, 30), policy)
        prompts: list[tuple[int, ...]] = [()]
        now = 0.0
        for number in range(120):
            now += chance.choice([0.0, 0.1, 3.0, 70.0])
            before = chance.choice(prompts[-20:])
            prompt = before + tuple(1000 * number + k for k in range(chance.randint(1, 6)))
            prompts.append(prompt)
            access = Access(
                (chance.choice("ab"), ""),
                chance.randint(0, 6),
                chance.choice([None, 1, 2]),
                (NextRead(chance.choice([2, maxsize]), chance.choice([None, 1.0, 50.0, inf])),),
            )
            assert made.ask(prompt, access, now) <= ideal.ask(prompt, access, now)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_somebody_holds_is_never_evicted(policy: str) -> None:
    made = Watched(4, policy)
    held = made.cache.acquire("ab", 2, Access(query=1), 0.0)
    assert held is not None
    made.cache.commit(held, "ab", 0.0)
    for now in range(1, 9):
        made.ask(f"{now}x", Access(query=2), float(now))
    assert made.cache.match("ab") == 2
    assert made.cache.acquire((), 3, Access(), 9.0) is None, "two of four are taken"


ABOVE, FROM_0 = "must be a number above 0, got", "must be a number from 0 on, got"
WHOLE = "must be a whole number from 1 on, got"


@pytest.mark.parametrize(
    ("policy", "option", "value", "told"),
    [
        ("gdfs", "dearer", -1, f"{FROM_0} -1"),
        ("gdfs", "dearer", 1.1e9, f"{FROM_0} 1100000000.0"),
        ("workload_aware", "life_s", 0, f"{ABOVE} 0"),
        ("workload_aware", "life_s", "long", "must be a number above 0 or 'fitted', got 'long'"),
        ("workload_aware", "window_s", True, f"{ABOVE} True"),
        ("workload_aware", "window_s", None, f"{ABOVE} None"),
        ("workload_aware", "refit_s", 0.0, f"{ABOVE} 0.0"),
        ("workload_aware", "min_samples", 1.5, f"{WHOLE} 1.5"),
        ("workload_aware", "min_samples", 0, f"{WHOLE} 0"),
        ("workload_aware", "min_samples", True, f"{WHOLE} True"),
        ("workload_aware", "same_s", -0.1, f"{FROM_0} -0.1"),
        (
            "workload_aware",
            "refit_s",
            4000,
            "must not be more than window_s, or nothing would be left to fit; got 4000 and 3600.0",
        ),
        ("next_use", "refit_s", 0, f"{ABOVE} 0"),
        ("next_use", "window_s", 0, f"{ABOVE} 0"),
        ("next_use", "min_samples", 0, f"{WHOLE} 0"),
        ("next_use", "life_s", "fitted", f"{ABOVE} 'fitted'"),
        ("next_use", "life_s", inf, f"{ABOVE} inf"),
    ],
)
def test_options_are_checked(policy: str, option: str, value: object, told: str) -> None:
    with pytest.raises(InputError) as caught:
        make_policy(policy, **{option: value})
    assert str(caught.value) == f"eviction policy {policy!r}: {option} {told}"


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("gdfs", {"dearer": 0}),
        ("gdfs", {"dearer": 1e9}),
        ("workload_aware", {"life_s": inf}),
        ("workload_aware", {"life_s": "fitted", "same_s": 0, "min_samples": 1}),
        ("workload_aware", {"refit_s": 50.0, "window_s": 50.0}),
        ("next_use", {"life_s": 1e9, "window_s": inf, "min_samples": 1}),
    ],
)
def test_options_may_be_as_small_and_as_large_as_they_make_sense(
    policy: str, options: dict[str, Any]
) -> None:
    assert type(make_policy(policy, **options)) is POLICIES[policy]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_tier_below_goes_by_a_fresh_policy_of_the_same_kind(policy: str) -> None:
    above = make_policy(policy)
    above.touch([7], ["x"], 0, Access(), 0.0)
    above.offer([7], 0.0)
    lower = below(above)
    assert type(lower) is type(above)
    lower.touch([3], ["y"], 0, Access(), 1.0)
    lower.offer([3], 1.0)
    assert (lower.evict(2.0), above.evict(2.0)) == (3, 7)
    assert type(below(SimpleNamespace())) is Lru  # type: ignore[arg-type]  # it says nothing


def test_the_tier_below_goes_by_the_same_options() -> None:
    dear = below(Gdfs(1.0))
    dear.touch([0, 1], "ab", 0, Access(), 0.0)
    dear.offer([1, 0], 0.0)
    assert dear.evict(0.0) == 0, "the end of a prompt is dearer"


def test_an_unknown_option_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean 'life_s'"):
        make_policy("workload_aware", live_s=1.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_lowest_rank_goes_first_however_many_have_gone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a sort of all that are ranked; ranks without blocks are cleared away now and then."""
    monkeypatch.setattr("teola.kv.policies.ranks.SPARE", 3)
    draw, ranks, live = random.Random(seed), Ranks(), dict[int, float]()
    assert ranks.first() is None
    for block in range(300):
        rank = float(draw.choice([draw.randrange(5), draw.randrange(1000)]))
        ranks.put(block, rank)
        live[block] = rank
        while len(live) > 6 or (live and draw.random() < 0.3):
            gone = draw.choice([*live])
            if draw.random() < 0.5:
                ranks.drop(gone)
            else:
                expected = min(live.items(), key=lambda entry: (entry[1], entry[0]))
                popped = ranks.pop()
                assert popped == expected[::-1]
                gone = popped[1]
            del live[gone]
            assert gone not in ranks
        expected = min(live.items(), key=lambda entry: (entry[1], entry[0]), default=None)
        assert ranks.first() == (expected and expected[::-1])
        assert len(ranks._ranks) <= 2 * 7 + 3, "what is gone is cleared away"


def test_ranks_that_all_have_blocks_are_not_cleared_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find nothing, at each block that is put, and look at all of them."""
    monkeypatch.setattr("teola.kv.policies.ranks.SPARE", 3)
    cleared = list[int]()

    def ordered(ranks: list[float]) -> None:
        cleared.append(len(ranks))
        heapq.heapify(ranks)

    monkeypatch.setattr("teola.kv.policies.ranks.heapify", ordered)
    ranks = Ranks()
    for block in range(100):
        ranks.put(block, float(block))
    assert cleared == []
    for block in range(100, 400):  # the lowest goes each time
        ranks.drop(block - 100)
        ranks.put(block, float(block))
    assert set(cleared) == {100}
    assert len(cleared) <= 300 // 100, "once for as many as have gone"
