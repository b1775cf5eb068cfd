"""What routing policies are told: loads in order, what is found, who may be held."""

from __future__ import annotations

from math import nextafter
from random import Random

import pytest

from teola.policies.batching.base import by_keys, is_eager, is_whole, priorities
from teola.policies.routing.base import (
    HELD,
    MOST_HELD_S,
    InstanceView,
    Load,
    Loads,
    RoutingPolicy,
    found_tokens,
    holdable,
)
from tests.recording import work


@pytest.mark.parametrize("seed", range(8))
def test_loads_are_in_order_whatever_changes(seed: int) -> None:
    """Against a sort of all that are there: by rank, or load where there is none, then number."""
    draw = Random(seed)
    start = [Load(i, float(draw.randrange(3))) for i in draw.sample(range(8), draw.randrange(4))]
    loads = Loads(start)
    there = {load.instance: (load.load, load.load) for load in start}
    for _ in range(120):
        i = draw.randrange(8)
        if draw.random() < 0.3:
            loads.drop(i)
            there.pop(i, None)
        else:
            load, rank = float(draw.randrange(3)), draw.choice([None, 0.0, 1.0, 2.5])
            loads.put(i, load, rank)
            there[i] = load, load if rank is None else rank
        order = sorted(there, key=lambda i: (there[i][1], i))
        assert [*loads] == [Load(i, there[i][0]) for i in order]
        assert [*loads.instances] == order
        assert loads.numbers == tuple(sorted(there))
        assert len(loads) == len(there)
        assert [i in loads for i in range(8)] == [i in there for i in range(8)]
        assert loads.idle == sum(load == 0 for load, _ in there.values())
        for last in range(-1, 9):
            turns = sorted(there, key=lambda i: (i <= last, i))
            assert [*loads.after(last)] == [Load(i, there[i][0]) for i in turns]


def test_a_call_finds_whole_blocks_and_computes_its_last_token() -> None:
    for size in range(1, 5):
        for tokens in range(20):
            for blocks in range(9):
                fit = [k for k in range(blocks + 1) if k == 0 or k * size < tokens]
                assert found_tokens(work(total=tokens), blocks, size) == size * max(fit)


def test_only_what_was_never_bound_may_be_held_and_not_for_long() -> None:
    last = 5.0 + MOST_HELD_S
    assert holdable(work(arrival=5.0), 5.0)
    assert holdable(work(arrival=5.0), nextafter(last, 0.0))
    assert not holdable(work(arrival=5.0), last)
    assert not holdable(work(arrival=5.0, tries=1), 5.0)
    assert not holdable(work(arrival=5.0, affinity=0), 5.0)


def test_what_an_instance_has_is_what_runs_and_what_waits() -> None:
    seen = InstanceView(True, 2, 30, 400, 5000, None, waiting=7, awaited=60_000)
    assert (seen.pending, seen.calls) == (5030, 9)


def test_by_default_the_least_loaded_comes_first_and_only_homes_bind() -> None:
    policy, loads = RoutingPolicy(), Loads([Load(0, 2.0), Load(1, 1.0)])
    assert [*policy.order(loads, 0.0)] == [1, 0]
    assert policy.place(work(home=3, affinity=1), 0.0) == 3
    assert policy.place(work(), 0.0) == -1
    assert [*policy.free(0.0)] == []
    assert policy.wake_at(0.0) is None
    assert {policy.why(work(), at, 0.0).because.value for at in (0, 1, 7)} == {"policy"}
    assert policy.why(work(), HELD, 0.0).because.value == "held"


class Plain:
    """Declares nothing."""


class Quick:
    """Declares all there is."""

    eager, whole, wants_keys = True, True, True

    def priority(self, work: object, now: float) -> int:
        return 7


class Denies:
    eager, whole, wants_keys = False, False, False


class MayBe:
    """Decides for each of its objects."""

    def __init__(self, eager: bool) -> None:
        self._eager = eager

    @property
    def eager(self) -> bool:
        return self._eager


class Inherits(Quick):
    """May do more with each work than what it inherits from."""


class SaysSoAgain(Quick):
    eager = True


@pytest.mark.parametrize(
    ("policy", "eager", "whole", "keys", "priority"),
    [
        (Plain(), False, False, False, 0),
        (Quick(), True, True, True, 7),
        (Denies(), False, False, False, 0),
        (MayBe(True), True, False, False, 0),
        (MayBe(False), False, False, False, 0),
        (Inherits(), False, True, True, 7),
        (SaysSoAgain(), True, True, True, 7),
    ],
)
def test_what_a_batching_policy_declares(
    policy: object, eager: bool, whole: bool, keys: bool, priority: int
) -> None:
    assert is_eager(policy) is eager
    assert is_whole(policy) is whole
    assert by_keys(policy) is keys
    assert priorities(policy)(work(), 0.0) == priority
