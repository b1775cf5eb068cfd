"""Batching policies: what shares a batch, in which order, and what they keep."""

from __future__ import annotations

from itertools import product

import pytest

from teola.errors import UnknownName
from teola.policies import batching
from teola.policies.batching.base import Prioritises
from teola.policies.batching.fifo import Fifo
from teola.policies.batching.per_invocation import PerInvocation
from teola.policies.batching.topology import DEEP, Topology
from teola.policies.work import Taker
from tests.policies.choosing import add, chosen, kept, slots, take
from tests.recording import work

ALL = sorted(batching.BATCHING)


def test_a_batch_is_full_of_what_has_to_be_computed() -> None:
    """Tokens that an instance keeps take no room; the first that does not fit closes the batch."""
    for room in range(1, 12):
        for found in ((0, 0, 0), (3, 0, 0), (3, 1, 0), (2, 3, 1), (3, 3, 3)):
            works = [work(k, total=4, found=part, cuttable=False) for k, part in enumerate(found)]
            taker, left = Taker(slots(room, idle=False)), room
            for one in works:
                fits = 4 - one.found <= left
                more = taker.take(one)
                assert ((one, 0, 4) in taker.slices) == fits
                left -= (4 - one.found) * fits
                assert (taker.weight, more) == (left, fits and left > 0)
                if not more:
                    break


# --- what all of them do besides their contract (tests/testing) ------------------------------


@pytest.mark.parametrize("name", ALL)
class TestAll:
    def test_a_long_work_is_cut(self, name: str) -> None:
        policy = batching.make(name)
        add(policy, work(0, total=10))
        assert chosen(policy) == [(0, 0, 4)]

    def test_what_cannot_be_cut_goes_alone(self, name: str) -> None:
        policy = batching.make(name)
        add(policy, work(0, total=10, cuttable=False))
        assert chosen(policy, slots(idle=False)) == []
        assert chosen(policy, slots()) == [(0, 0, 10)]

    def test_a_retried_work_replaces_its_older_twin(self, name: str) -> None:
        policy = batching.make(name)
        first, other = work(0, total=8), work(1)
        add(policy, first, other)
        take(policy)
        first.queued = False
        policy.remove(first, 0.0)
        again = work(0, total=8, tries=1)
        add(policy, again)
        found = take(policy)
        assert again in found
        assert first not in found

    def test_nothing_is_kept_of_what_has_gone(self, name: str) -> None:
        policy = batching.make(name)
        for k in range(2000):
            add(policy, work(k, run=f"q{k}", component=f"c{k}", arrival=float(k)))
            take(policy, slots(weight=9), now=k + 1.0)
            assert kept(policy) <= 140
        while take(policy, slots(weight=9), now=9999.0):
            pass
        assert kept(policy) <= 65
        assert kept(policy, works_only=False) <= 65

    def test_the_older_is_more_urgent_in_the_engine_s_own_queue_too(self, name: str) -> None:
        policy = batching.make(name)
        ages = [
            work(k, run=f"q{k}", arrival=at, admitted=at, began=at)
            for k, at in enumerate((1.0, 2.0))
        ]
        add(policy, *ages)
        if isinstance(policy, Prioritises):
            older, younger = (policy.priority(one, 2.0) for one in ages)
            assert older > younger

    def test_one_that_waits_for_ever_keeps_nothing_of_the_others(self, name: str) -> None:
        policy = batching.make(name)
        bound = work(0, run="bound", component="bound", affinity=1)
        add(policy, bound)
        for k in range(1, 2000):
            w = work(k, run=f"q{k % 7}", component=f"c{k % 3}", arrival=float(k))
            add(policy, w)
            w.queued = False
            policy.remove(w, float(k))
            assert kept(policy) <= 140
        assert take(policy, slots(instance=1)) == [bound]


# --- topology -------------------------------------------------------------------------------


def test_topology_takes_the_deepest_first() -> None:
    policy = Topology()
    add(policy, work(0, depth=1), work(1, depth=5), work(2, depth=3))
    assert [seq for seq, *_ in chosen(policy, slots(weight=2))] == [1, 2]


def test_topology_takes_the_deepest_of_each_query_in_order_of_arrival() -> None:
    policy = Topology()
    add(
        policy,
        work(0, run="first", depth=4),
        work(1, run="first", depth=1),
        work(2, run="second", depth=2, arrival=1.0),
        work(3, run="second", depth=9, arrival=2.0),
    )
    assert [seq for seq, *_ in chosen(policy, slots(weight=2))] == [0, 3]
    assert [seq for seq, *_ in chosen(policy, slots(weight=3))] == [0, 3, 1]
    assert [seq for seq, *_ in chosen(policy, slots(weight=4))] == [0, 3, 1, 2]


def test_topology_takes_all_of_one_depth_together() -> None:
    policy = Topology()
    add(policy, *(work(k, run="first", depth=2) for k in range(3)))
    add(policy, work(3, run="second", depth=2, arrival=1.0))
    assert [seq for seq, *_ in chosen(policy)] == [0, 1, 2, 3]
    assert [seq for seq, *_ in chosen(policy, slots(weight=2))] == [0, 1]


def test_topology_passes_over_what_does_not_fit() -> None:
    policy = Topology()
    add(policy, work(0, run="a", depth=9, affinity=1), work(1, run="a", depth=1), work(2, run="b"))
    assert [seq for seq, *_ in chosen(policy, slots(weight=1))] == [1]
    assert [seq for seq, *_ in chosen(policy, slots(weight=1, instance=1))] == [0]


def test_topology_s_priorities_are_in_its_order() -> None:
    """Older queries come first, and of one query what is deeper; very deep is all one."""
    works = [
        work(k, began=began, depth=depth)
        for k, (began, depth) in enumerate(product((0.001, 5.0, 5.001), (0, 1, DEEP - 1, DEEP, 99)))
    ]
    policy = Topology()
    by_rule = sorted(works, key=lambda one: (one.began, -min(one.spec.depth, DEEP - 1)))
    assert sorted(works, key=lambda one: -policy.priority(one, 6.0)) == by_rule
    assert len({policy.priority(one, 6.0) for one in works}) == 3 * 3


def test_topology_is_empty_in_the_end() -> None:
    policy = Topology()
    add(policy, *(work(k, run=f"q{k % 3}", depth=k % 4) for k in range(12)))
    while take(policy):
        pass
    assert policy._buckets == {}
    assert policy._live == 0


# --- fifo -----------------------------------------------------------------------------------


def test_fifo_ignores_depth() -> None:
    policy = Fifo()
    add(policy, work(0, depth=0), work(1, depth=9))
    assert [seq for seq, *_ in chosen(policy, slots(weight=1))] == [0]


def test_fifo_waits_for_a_batch_to_fill_but_not_longer() -> None:
    policy = Fifo(max_wait_s=0.1)
    add(policy, work(0, arrival=1.0))
    assert chosen(policy, now=1.0) == []
    assert policy.wake_at(1.0) == 1.1
    add(policy, work(1, arrival=1.09, total=2))
    assert chosen(policy, now=1.09) == []
    assert len(chosen(policy, now=1.1)) == 2
    add(policy, work(2, arrival=1.095))
    assert len(chosen(policy, now=1.095)) == 3, "four items are a full batch"


def test_fifo_wakes_for_each_batch_that_waits() -> None:
    """The first in the queue may be overdue and bound to an instance that is busy."""
    policy = Fifo(max_wait_s=0.1)
    add(policy, work(0, arrival=1.0, affinity=1), work(1, arrival=5.0))
    assert chosen(policy, now=5.0) == []
    assert policy.wake_at(5.0) == 5.1


def test_fifo_without_a_wait_never_wakes() -> None:
    policy = Fifo()
    add(policy, work(0))
    assert policy.wake_at(0.0) is None


def test_fifo_puts_what_failed_first() -> None:
    policy = Fifo()
    tried = work(9, tries=1), work(7, tries=2), work(8, tries=1), work(6, tries=1, arrival=1.0)
    add(policy, work(0), work(1), *tried)
    assert [seq for seq, *_ in chosen(policy, slots(weight=5))] == [7, 8, 9, 6, 0]


# --- per invocation -------------------------------------------------------------------------


def test_per_invocation_runs_one_bundle_at_a_time() -> None:
    policy = PerInvocation()
    add(policy, work(0, component="a"), work(1, component="b"), work(2, component="a"))
    assert [w.seq for w in take(policy)] == [0, 2]
    assert [w.seq for w in take(policy)] == [1]


def test_per_invocation_cuts_a_bundle_at_the_batch_size() -> None:
    policy = PerInvocation()
    add(policy, work(0, total=6), work(1, total=6))
    assert chosen(policy) == [(0, 0, 4)]
    take(policy)
    assert chosen(policy) == [(0, 4, 6), (1, 0, 2)]


def test_per_invocation_tells_queries_apart() -> None:
    policy = PerInvocation()
    add(policy, work(0, run="x"), work(1, run="y"))
    assert [w.seq for w in take(policy)] == [0]


# --- names ----------------------------------------------------------------------------------


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match=r"unknown batching policy 'topolgy'.*'topology'"):
        batching.make("topolgy")
