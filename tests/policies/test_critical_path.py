"""critical_path: who goes first, and when it pays to wait for company.

Long because each rule of the policy is tried beside the others.
"""

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
from teola.policies.batching.critical_path import (
    FEW,
    LENGTH,
    QUIET,
    SPARE_S,
    CriticalPath,
    _due,
    _latest_start,
    _since,
)
from teola.policies.lane_heaps import LaneHeaps
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


# --- in a hurry -------------------------------------------------------------------------------


def due(seq: int, deadline: float, left_s: float = 1.5, **more: Any) -> Work:
    """A work whose query has so much left of its longest path, and takes as long at its engine."""
    times = {"rest_s": left_s, "total_s": left_s, "call_s": left_s, **more.pop("times", {})}
    given = {"run": f"q{seq}", "deadline": deadline, **more}
    return work(seq, estimate=Estimate(**times), **given)


def rich() -> CriticalPath:
    """Has sent much that was in no hurry."""
    policy = CriticalPath()
    policy._spare_s = SPARE_S
    return policy


@catches(
    "never-in-a-hurry",
    "a work is in a hurry only when its deadline has come",
    edited(_latest_start, "- HURRY * max(LEAST_S, _left_s(work))", ""),
)
def test_a_work_goes_first_from_its_latest_start_on_and_not_before() -> None:
    """Twice what is left before the deadline, at second 17 of 20; of what is short, two
    seconds before."""
    for left_s, latest in ((1.5, 17.0), (0.1, 18.0)):
        policy = rich()
        add(policy, work(0, run="old"), due(1, 20.0, left_s, admitted=9.0))
        assert seqs(policy, latest - 0.01)[0] == 0
        assert seqs(policy, latest)[0] == 1


def test_of_those_in_a_hurry_the_earlier_deadline_goes_first_and_all_go_once() -> None:
    policy = rich()
    add(policy, work(0, run="old"), due(1, 11.0), due(2, 10.0), due(3, 600.0))
    assert [(seq, lo, hi) for seq, lo, hi in chosen(policy, slots(), 8.0)] == [
        (2, 0, 1),
        (1, 0, 1),
        (0, 0, 1),
        (3, 0, 1),
    ]


@catches(
    "hopeless-first",
    "what cannot be done in time any more goes first all the same",
    edited(CriticalPath._next_in_hurry, "now + _left_s(heap[0][-1]) <= heap[0][0]", "True"),
)
def test_what_cannot_be_done_in_time_any_more_is_ordered_as_if_it_had_no_deadline() -> None:
    policy = rich()
    add(policy, work(0, run="old"), due(1, 10.0, 4.0, admitted=1.0))
    assert seqs(policy, 6.0)[0] == 1
    assert seqs(policy, 6.01)[0] == 0


@catches(
    "all-in-a-hurry",
    "works in a hurry have all of the engine's time",
    edited(CriticalPath._charge, "self._spare_s -= taken_s", "pass"),
)
def test_works_in_a_hurry_have_at_most_half_of_an_engine_s_time() -> None:
    """Many wait that take 2 s and are in a hurry, and many that take 1 s and are in none."""
    policy = CriticalPath()
    add(policy, *(due(k, 30.0, 2.0, admitted=5.0) for k in range(100, 160)))
    patient = {"rest_s": 1.0, "total_s": 1.0, "call_s": 1.0}
    add(policy, *(work(k, run=f"q{k}", estimate=Estimate(**patient)) for k in range(90)))
    seconds = {"hurry": 0.0, "none": 0.0}
    for _ in range(90):
        (sent,) = policy.choose(slots(weight=1), 27.0)
        sent.work.spans, sent.work.queued = [], False
        sent.work.flying[0, 1] = (0, 0)
        policy.remove(sent.work, 27.0)
        seconds["hurry" if sent.work.seq >= 100 else "none"] += sent.work.spec.estimate.call_s
        assert seconds["hurry"] <= seconds["none"] + 2.0
    assert seconds["hurry"] == pytest.approx(seconds["none"], abs=3.0)


def test_a_prefill_in_a_hurry_waits_for_nobody() -> None:
    """Four calls run, which it stops for 0.2 s each. Alone it would wait up to 0.8 s for company;
    the policy asks to be woken when its latest start comes."""
    policy = rich()
    estimate = Estimate(rest_s=1.0, base_s=BASE_S, total_s=1.0, call_s=1.0)
    given = {"lane": None, "op": Op.PREFILLING, "total": 100, "cuttable": False}
    add(
        policy,
        work(0, run="q", arrival=9.0, admitted=9.0, estimate=estimate, deadline=11.5, **given),
    )
    busy = {"weight": 1000, "entries": 8, "running": 4}
    assert seqs(policy, 9.0, **busy) == []
    assert policy.wake_at(9.0) == 9.5
    assert seqs(policy, 9.4, **busy) == []
    assert seqs(policy, 9.5, **busy) == [0]


def test_deadlines_of_what_has_gone_are_forgotten() -> None:
    policy = CriticalPath()
    for k in range(2000):
        add(policy, due(k, k + 120.0))
        take(policy, slots(weight=1), float(k))
    assert len(policy._coming) < 200


def test_what_is_in_a_hurry_is_so_still_when_what_has_gone_is_forgotten() -> None:
    policy = rich()
    first, late, bound = work(0, run="old"), due(1, 10.0), due(2, 9.9)
    bound.affinity = 0
    add(policy, first, late, bound)
    assert seqs(policy, 8.0) == [2, 1, 0]
    policy._sweep()
    assert seqs(policy, 8.0) == [2, 1, 0]


def test_a_call_in_a_hurry_is_more_urgent_in_the_engine_s_own_queue() -> None:
    policy = rich()
    first, last = work(0, run="old"), due(1, 10.0)
    add(policy, first, last)
    assert policy.priority(first, 0.0) > policy.priority(last, 0.0)
    assert seqs(policy, 8.0) == [1, 0]
    assert policy.priority(last, 8.0) > policy.priority(first, 8.0)


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


@catches(
    "woken-in-the-past",
    "a piece in a hurry waits as one that is not",
    edited(CriticalPath.choose, "newest.deadline == inf or _latest_start(newest) > now", "True"),
)
@catches(
    "woken-by-the-gone",
    "a piece waits for the latest start of what has gone",
    edited(CriticalPath.choose, "self._hurry(now)", "None"),
)
def test_what_is_waited_for_is_never_in_the_past() -> None:
    late = 1.5
    policy = after_urgent(deadline=3.4)
    policy._spare_s = SPARE_S
    assert seqs(policy, late, weight=1024) == [1], "it is in a hurry"
    policy = after_urgent()
    gone = prefill(2, arrival=1.0, deadline=3.4)
    add(policy, gone)
    gone.queued = False
    policy.remove(gone, 1.0)
    policy._newest = next(one for *_, one in policy.waiting.by_lane[None][-1] if one.seq == 1)
    assert seqs(policy, late, weight=1024) == []
    assert (policy.wake_at(late) or 0.0) > late


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


def test_what_waits_stays_when_what_has_gone_is_swept() -> None:
    """Of each lane, wherever it is bound."""
    heaps = LaneHeaps[Any]()
    lanes = Op.EMBEDDING, Op.RERANKING
    works = [work(k, affinity=k % 3 - 1, lane=lanes[k % 2]) for k in range(12)]
    for one in works:
        heaps.add(one, (one.seq, one))
    for gone in works[::4]:
        gone.queued = False
        heaps.remove()
    heaps.sweep()
    places = {
        entry[-1].seq: (lane, instance)
        for lane, by_instance in heaps.by_lane.items()
        for instance, heap in by_instance.items()
        for entry in heap
    }
    assert places == {one.seq: (one.spec.lane, one.affinity) for one in works if one.queued}


def test_rows_press_no_piece_that_is_computed_ahead() -> None:
    given = {"lane": None, "op": Op.PREFILLING, "cuttable": True}
    for row_tokens, pressed in ((10, False), (0, True)):
        policy = CriticalPath()
        add(policy, work(0, total=5, row_tokens=row_tokens, rows=bool(row_tokens), **given))
        assert seqs(policy, 1.0, weight=1000) == [0]
        assert bool(policy._pressed) is pressed
