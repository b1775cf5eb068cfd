"""critical_path: who goes first, and when it pays to wait for company."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.errors import InputError, UnknownName
from teola.graph import Op
from teola.policies import batching
from teola.policies.batching.critical_path import FEW, LENGTH, QUIET, CriticalPath, _due, _since
from teola.policies.work import Estimate, Work
from tests.planted import catches, edited
from tests.policies.choosing import add, chosen, slots, take
from tests.recording import work

BASE_S = 0.2


def seqs(policy: CriticalPath, now: float = 0.0, **given: Any) -> list[int]:
    return [seq for seq, *_ in chosen(policy, slots(**given), now)]


def prefill(seq: int, arrival: float, latest_s: float = 0.0, **more: Any) -> Work:
    """A call of 100 prompt tokens; `latest_s` seconds after second 0 it must start."""
    estimate = Estimate(rest_s=1.0, latest_s=latest_s, base_s=BASE_S)
    given = {"lane": None, "op": Op.PREFILLING, "total": 100, "cuttable": False, **more}
    return work(seq, run=f"q{seq}", arrival=arrival, estimate=estimate, **given)


# --- who goes first -------------------------------------------------------------------------


def test_of_two_queries_of_one_age_the_shorter_goes_first() -> None:
    policy = CriticalPath()
    add(policy, work(0, run="long", estimate=Estimate(total_s=5.0)))
    add(policy, work(1, run="short", estimate=Estimate(total_s=2.0)))
    assert seqs(policy) == [1, 0]


def test_an_old_query_goes_before_a_short_one() -> None:
    policy = CriticalPath()
    add(policy, work(0, run="long", admitted=1.0, estimate=Estimate(total_s=5.0)))
    add(policy, work(1, run="short", admitted=4.5, estimate=Estimate(total_s=2.0)))
    assert seqs(policy) == [0, 1]


@catches(
    "length-as-age",
    "a second of a query's length counts as a second of its age, so long ones come last",
    edited(_due, "LENGTH * ", ""),
)
def test_a_second_of_length_counts_as_three_quarters_of_a_second_of_age() -> None:
    for admitted, first in ((3.2, 1), (3.3, 0)):
        policy = CriticalPath()
        add(policy, work(0, run="long", admitted=1.0, estimate=Estimate(total_s=5.0)))
        add(policy, work(1, run="short", admitted=admitted, estimate=Estimate(total_s=2.0)))
        assert seqs(policy)[0] == first


def test_age_counts_from_admission_and_not_from_the_queue() -> None:
    policy = CriticalPath()
    add(policy, work(0, run="young", admitted=3.0, arrival=3.0))
    add(policy, work(1, run="old", admitted=1.0, arrival=4.0))
    assert seqs(policy) == [1, 0]


def test_within_a_query_the_longest_remaining_path_goes_first() -> None:
    policy = CriticalPath()
    add(policy, *(work(k, estimate=Estimate(rest_s=rest)) for k, rest in enumerate([1, 5, 3])))
    assert seqs(policy) == [1, 2, 0]


@settings(max_examples=100)
@given(seed=st.integers(0, 10**6), lengths=st.lists(st.floats(0.1, 9.0), min_size=2, max_size=5))
def test_a_query_is_overtaken_only_by_those_that_come_less_than_its_length_after_it(
    seed: int, lengths: list[float]
) -> None:
    """However many short queries come: whoever is served before an older one was near enough."""
    draw, policy, queued = random.Random(seed), CriticalPath(), {}
    for k in range(120):
        length = draw.choice(lengths)
        w = work(k, run=f"q{k}", admitted=k / 4, arrival=k / 4, estimate=Estimate(total_s=length))
        queued[k] = w
        add(policy, w)
        if k % 2:
            for served in take(policy, slots(weight=1), now=k / 4):
                del queued[served.seq]
                for older in queued.values():
                    if older.began < served.began:
                        length = older.spec.estimate.total_s
                        assert served.began < older.began + LENGTH * length


# --- now or later ---------------------------------------------------------------------------


def test_nothing_waits_where_nothing_runs() -> None:
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0, latest_s=99.0))
    assert seqs(policy, 1.0, weight=1024) == [0]


def test_a_prefill_waits_until_that_has_cost_as_much_as_it_does() -> None:
    """Three calls run: to go costs 3 x 0.2 s. Alone it waits 0.6 s."""
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0))
    assert seqs(policy, 1.0, weight=1024, running=3) == []
    assert policy.wake_at(1.0) == pytest.approx(1.6)
    assert seqs(policy, 1.59, weight=1024, running=3) == []
    assert seqs(policy, 1.6, weight=1024, running=3) == [0]


def test_several_that_wait_wait_less() -> None:
    """Two wait from 1.0 and 1.2 on: at 1.4 they have waited 0.6 s together."""
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0))
    assert seqs(policy, 1.0, weight=1024, running=3) == []
    add(policy, prefill(1, arrival=1.2))
    assert seqs(policy, 1.2, weight=1024, running=3) == []
    assert policy.wake_at(1.2) == pytest.approx(1.4)
    assert seqs(policy, 1.4, weight=1024, running=3) == [0, 1]


def test_what_has_slack_waits_for_nothing_until_it_is_used_up() -> None:
    """It must start at 5.0; then it waits 0.6 s more, as any other."""
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0, latest_s=5.0))
    assert seqs(policy, 4.0, weight=1024, running=3) == []
    assert policy.wake_at(4.0) == pytest.approx(5.0)
    assert seqs(policy, 5.0, weight=1024, running=3) == []
    assert policy.wake_at(5.0) == pytest.approx(5.6)
    assert seqs(policy, 5.6, weight=1024, running=3) == [0]


def test_what_has_slack_goes_along_with_what_has_none() -> None:
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0, latest_s=50.0), prefill(1, arrival=1.0))
    assert seqs(policy, 1.0, weight=1024, running=3) == []
    assert seqs(policy, 1.5, weight=1024, running=3) == []
    assert sorted(seqs(policy, 1.6, weight=1024, running=3)) == [0, 1]


def test_where_nothing_runs_what_has_slack_does_not_lengthen_what_has_none() -> None:
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0, latest_s=50.0), prefill(1, arrival=1.0))
    assert [w.seq for w in take(policy, slots(1024), now=1.0)] == [1]
    assert seqs(policy, 1.0, weight=1024, running=1) == []
    assert seqs(policy, 1.0, weight=1024, instance=1) == [0], "it has nothing else to do"


# --- computed ahead -------------------------------------------------------------------------


def after_urgent(**ahead: Any) -> CriticalPath:
    """At 1.0 a prefill without slack of query q0 went to instance 0. A piece waits."""
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0))
    assert [w.seq for w in take(policy, slots(1024), now=1.0)] == [0]
    add(policy, prefill(1, arrival=1.0, ahead=True, **ahead))
    return policy


@catches(
    "ahead-under-load",
    "pieces of prompts are computed ahead although other queries need their instance",
    edited(CriticalPath._until, "QUIET * work.spec.estimate.base_s", "0.0"),
)
def test_a_piece_stays_while_others_have_urgent_work_there() -> None:
    policy, quiet = after_urgent(), 1.0 + QUIET * BASE_S
    assert seqs(policy, 1.5, weight=1024) == []
    assert policy.wake_at(1.5) == pytest.approx(quiet)
    assert seqs(policy, 1.5, weight=1024, instance=1) == [1], "there is nothing else to do there"
    assert seqs(policy, quiet, weight=1024) == [1]


def test_it_does_not_even_go_along_with_what_is_urgent() -> None:
    policy = after_urgent()
    add(policy, prefill(2, arrival=2.0))
    assert [w.seq for w in take(policy, slots(1024), now=2.0)] == [2]
    assert seqs(policy, 2.0, weight=1024) == []


def test_urgent_work_of_its_own_query_does_not_hold_it() -> None:
    policy = CriticalPath()
    add(policy, replace(prefill(0, arrival=1.0), run="q1"))
    assert [w.seq for w in take(policy, slots(1024), now=1.0)] == [0]
    add(policy, prefill(1, arrival=1.0, ahead=True))
    assert seqs(policy, 1.0, weight=1024) == [1]


@catches(
    "unwanted-for-ever",
    "a piece that the rest of its prompt cannot take along waits until it is quiet",
    edited(_since, " and not work.wanted", ""),
)
def test_it_goes_as_any_other_once_the_rest_waits_for_it() -> None:
    assert seqs(after_urgent(wanted=True), 1.5, weight=1024) == [1]


def test_elsewhere_what_has_slack_goes_along_as_long_as_there_is_room() -> None:
    policy = CriticalPath()
    add(policy, work(0, estimate=Estimate(latest_s=50.0)), work(1, arrival=1.0))
    assert seqs(policy, 1.0) == [0, 1]


@pytest.mark.parametrize("weight", [400, 350])
def test_behind_a_full_batch_all_wait(weight: int) -> None:
    """No more fit: five wait for the three that run, 0.12 s each are 0.2 s x 3."""
    policy = CriticalPath()
    add(policy, *(prefill(k, arrival=1.0) for k in range(5)))
    assert seqs(policy, 1.0, weight=weight, running=3) == []
    assert policy.wake_at(1.0) == pytest.approx(1.12)
    assert seqs(policy, 1.11, weight=weight, running=3) == []
    assert seqs(policy, 1.12, weight=weight, running=3) == list(range(weight // 100))


def test_a_full_batch_goes_when_what_runs_has_ended() -> None:
    policy = CriticalPath()
    add(policy, *(prefill(k, arrival=1.0) for k in range(5)))
    assert seqs(policy, 1.0, weight=400, running=3) == []
    assert seqs(policy, 1.05, weight=400) == [0, 1, 2, 3]


def test_while_a_prefill_is_under_way_none_follows() -> None:
    """It could not begin, and what comes until then would have to go without it."""
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0))
    assert seqs(policy, 99.0, weight=900, idle=False, running=1) == []
    assert policy.wake_at(99.0) is None, "its end is an event"
    add(policy, prefill(1, arrival=99.5))
    assert seqs(policy, 99.7, weight=1000) == [0, 1]


@pytest.mark.parametrize(("patience", "base_s"), [(1.0, 0.0), (0.0, BASE_S)])
def test_if_waiting_saves_nothing_prefills_follow_each_other(
    patience: float, base_s: float
) -> None:
    policy = CriticalPath(patience)
    call = work(0, lane=None, total=100, cuttable=False, estimate=Estimate(base_s=base_s))
    add(policy, call)
    assert seqs(policy, 1.0, weight=900, idle=False, running=1) == [0]


def test_small_calls_fill_what_a_large_one_leaves() -> None:
    policy = CriticalPath()
    add(policy, *(prefill(k, arrival=1.0, total=n) for k, n in enumerate([500, 600, 100, 450, 40])))
    assert [w.seq for w in take(policy, slots(1024), now=1.0)] == [0, 2, 4]
    assert seqs(policy, 1.0, weight=1024) == [1], "the large one comes first now"


def test_small_calls_do_not_top_up_what_is_under_way_for_ever() -> None:
    """Else a large one, which needs all the room, would never get it."""
    policy = CriticalPath()
    calls = [(0, 600), (1, 100)]
    add(policy, *(work(k, lane=None, total=n, cuttable=False) for k, n in calls))
    assert seqs(policy, 1.0, weight=500, idle=False, running=1) == []


def test_the_search_for_what_fits_ends() -> None:
    policy = CriticalPath()
    lengths = [500, *([600] * (FEW + 1)), 100]
    add(policy, *(prefill(k, arrival=1.0, total=n) for k, n in enumerate(lengths)))
    assert seqs(policy, 1.0, weight=1024) == [0]


def test_if_only_calls_are_used_up_it_waits_for_more_of_them() -> None:
    """A place has come free at 5 s: it is worth 0.2 s x 31 to wait. Then there are two: company to
    each other, so 0.2 s of their wait for room count."""
    policy = CriticalPath()
    add(policy, *(prefill(k, arrival=1.0) for k in range(9)))
    assert seqs(policy, 5.0, weight=1024, entries=1, running=31) == []
    assert policy.wake_at(5.0) == pytest.approx(11.2)
    assert seqs(policy, 5.5, weight=1024, entries=2, running=30) == []
    assert policy.wake_at(5.5) == pytest.approx(4.8 + 0.2 * 30 / 2)
    assert len(take(policy, slots(1024, entries=8, running=24), now=6.0)) == 8
    assert seqs(policy, 7.0, weight=1024, entries=1, running=31) == [], "the clock begins anew"
    assert policy.wake_at(7.0) == pytest.approx(13.2)


def test_no_patience_never_waits() -> None:
    policy = CriticalPath(patience=0)
    add(policy, prefill(0, arrival=1.0, latest_s=50.0))
    assert seqs(policy, 1.0, weight=1024, running=3) == [0]


def test_without_a_profile_nothing_waits() -> None:
    policy = CriticalPath()
    add(policy, work(0, lane=None, total=100, cuttable=False))
    assert seqs(policy, 0.0, weight=1024, running=30) == [0]


def test_the_earliest_of_several_instances_wakes() -> None:
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0))
    for instance, running in enumerate((5, 2, 4)):
        assert seqs(policy, 1.0, weight=1024, instance=instance, running=running) == []
    assert policy.wake_at(1.0) == pytest.approx(1.4)


def test_the_clock_begins_anew_when_what_waited_has_gone_alone() -> None:
    policy = CriticalPath()
    add(policy, prefill(0, arrival=1.0))
    assert seqs(policy, 1.0, weight=1024, running=3) == []
    assert [w.seq for w in take(policy, slots(1024), now=1.1)] == [0]
    add(policy, prefill(1, arrival=1.0))
    assert seqs(policy, 5.0, weight=1024, running=3) == []
    assert policy.wake_at(5.0) == pytest.approx(5.6)


@catches(
    "room-counts-not",
    "a wait for room is none",
    edited(CriticalPath._waits, "room - base_s * (len(slices) + behind - 1)", "room"),
)
@catches(
    "room-counts-all",
    "a wait for room counts however long it was",
    edited(CriticalPath._waits, "room - base_s * (len(slices) + behind - 1)", "-inf"),
)
def test_what_calls_have_waited_for_room_counts_as_far_as_they_are_company_to_one_another() -> None:
    """There is room from 5 s on, and three calls run that they would hold up for 0.2 s each. To go
    together saves 0.2 s for each call beside the first."""
    for arrivals, goes in (
        ((5.0,), 5.6),
        ((1.0,), 5.6),
        ((1.0, 1.0), 5.1),
        ((4.9, 4.9), 5.2),
        ((1.0, 5.0), 5.2),
    ):
        policy = CriticalPath()
        add(policy, *(prefill(k, arrival=at) for k, at in enumerate(arrivals)))
        assert seqs(policy, 5.0, weight=1024, running=3) == []
        assert policy.wake_at(5.0) == pytest.approx(goes)


def test_calls_that_were_company_enough_go_at_once() -> None:
    """Three have waited for room: 2 x 0.2 s of it count for each, 0.6 s are enough."""
    policy = CriticalPath()
    add(policy, *(prefill(k, arrival=1.0) for k in range(3)))
    assert seqs(policy, 5.0, weight=1024, running=3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"affinity": 1}, []),
        ({"avoid": 0}, []),
        ({"total": 9}, [(0, 0, 4)]),
        ({"total": 9, "cuttable": False}, [(0, 0, 9)]),
        ({"affinity": 0}, [(0, 0, 1)]),
    ],
)
def test_what_is_queued_alone_goes_where_it_may(given: Any, expected: Any) -> None:
    policy = CriticalPath()
    add(policy, work(0, **given))
    assert chosen(policy) == expected


# --- where it may run -----------------------------------------------------------------------


def test_the_lane_with_the_most_urgent_work_goes_first() -> None:
    policy = CriticalPath()
    add(policy, work(0, admitted=2.0), work(1, lane=Op.SEARCHING, admitted=1.0), work(2))
    assert seqs(policy, weight=1) == [2]
    assert seqs(policy) == [2, 0]
    add(policy, work(3, lane=Op.SEARCHING, admitted=-1.0))
    assert seqs(policy) == [3, 1]


def test_a_lane_whose_works_avoid_the_instance_does_not_hold_up_another() -> None:
    policy = CriticalPath()
    add(policy, work(0, avoid=0), work(1, lane=Op.SEARCHING, admitted=1.0))
    assert seqs(policy) == [1]


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [-1, "much", True, None, float("nan"), float("inf")])
def test_a_wrong_patience_is_refused(patience: object) -> None:
    with pytest.raises(InputError, match="patience must be a number from 0"):
        batching.make("critical_path", patience=patience)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown option 'patence' in batching policy 'critic"):
        batching.make("critical_path", patence=1)
