"""What instances take and what they count, one call after another, by hand."""

from __future__ import annotations

from math import inf

import pytest

from teola.engine import EngineKind
from teola.policies import batching, routing
from teola.policies.work import Slots
from teola.profile import EngineProfile
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Dispatch
from teola.schedule.health import EJECTION_S, FAILURES, RAMP
from teola.schedule.instances import LOOKS_S, Instances, Limits
from teola.schedule.quota import ApiAccount, MinuteLimits, Refusal
from tests.recording import work

LLM, BATCHES = Limits(100, 4, 9, True), Limits(100, 4, 2, False)
BUSY = Refusal("busy", 10.0)


def test_limits_are_those_of_an_engine_of_its_kind() -> None:
    declared = EngineProfile(
        max_batch=5, max_sequences=6, concurrency=7, kv_blocks=8, block_tokens=9
    )
    for kind, continuous in ((EngineKind.LLM, True), (EngineKind.EMBEDDING, False)):
        assert Limits.of(declared, kind) == Limits(5, 6, 7, continuous, 8, 9)
    assert Limits.of(EngineProfile(), EngineKind.LLM).kv_tokens is None
    known = Limits(5, 6, 7, True, 8, 9)
    assert known.kv_tokens == 72
    assert known.by_text(10) == Limits(5, 6, 7, True, 7, 10)
    assert LLM.by_text(10) == Limits(100, 4, 9, True, None, 10)


def test_an_llm_takes_as_many_tokens_and_calls_as_it_has_room_for() -> None:
    made = Instances([LLM])
    assert made.room(0, 0.0) == Slots(0, 100, 4, True, 0)
    instance = made.send(0, 7, 60, 2, 10)
    assert instance is made[0]
    assert (instance.weight, instance.context, instance.entries, instance.batches) == (
        50, 60, 2, {7: 2},
    )  # fmt: skip
    assert made.room(0, 0.0) == Slots(0, 50, 2, False, 2)
    made.prefilled(0, 50)
    assert made.room(0, 0.0) == Slots(0, 100, 2, True, 2)
    made.send(0, 8, 100, 1)
    assert made.room(0, 0.0) is None, "it computes as much as it can"
    made.prefilled(0, 1)
    assert made.room(0, 0.0) == Slots(0, 1, 1, False, 3)
    made.send(0, 9, 1, 1)
    made.prefilled(0, 100)
    assert made.room(0, 0.0) is None, "exactly as many calls"
    made.land(0, 7, 30, 0)
    assert made[0].batches == {7: 1, 8: 1, 9: 1}
    made.land(0, 7, 30, 0)
    assert made[0].batches == {8: 1, 9: 1}
    assert (made[0].weight, made[0].context, made[0].entries) == (0, 101, 2)
    assert (made.busy, made.mean_tokens) == (True, 161 / 4)
    made.land(0, 8, 100, 0)
    made.land(0, 9, 1, 0)
    assert not made.busy
    assert made.mean_tokens == 161 / 4, "of all that were ever sent"


def test_rows_land_as_many_at_once_as_end() -> None:
    made = Instances([LLM])
    made.send(0, 7, 40, 4)
    assert made.land(0, 7, 30, 20, 3).batches == {7: 1}
    assert (made[0].entries, made[0].weight, made[0].context) == (1, 20, 10)


def test_what_its_memory_has_left_bounds_an_llm_that_has_calls() -> None:
    """One that has none takes any: it would wait for ever else."""
    made = Instances([LLM])
    made.told(0, 30)
    assert made.room(0, 0.0) == Slots(0, 100, 4, True, 0)
    made.send(0, 1, 20, 1)
    assert (made[0].free, made.room(0, 0.0)) == (10, Slots(0, 10, 3, False, 1))
    made.send(0, 2, 10, 1)
    assert (made[0].free, made.room(0, 0.0)) == (0, None)
    made.told(0, 500)
    assert made.room(0, 0.0) == Slots(0, 70, 2, False, 2)
    made.restored(0)
    assert (made[0].free, made[0].restarts) == (None, 1)


def test_batches_have_places_and_those_that_wait_have_left_theirs() -> None:
    made = Instances([BATCHES])
    whole = Slots(0, 100, 4, True)
    assert made.room(0, 0.0) == whole
    made.send(0, 1, 10, 3)
    assert made.room(0, 0.0) == whole, "one place is left, for as much as ever"
    made.send(0, 2, 10, 1)
    assert made.room(0, 0.0) is None
    made.waits(0, 1)
    assert (made[0].running, made[0].calls, made.room(0, 0.0)) == (1, 2, whole)
    made.waits(0, -1)
    assert made.room(0, 0.0) is None
    made.land(0, 1, 5, 5)
    assert made.room(0, 0.0) is None, "two of its slices are left"
    made.land(0, 1, 5, 5, 2)
    assert made.room(0, 0.0) == whole


def test_they_are_lost_when_all_are_gone_and_none_heals() -> None:
    made = Instances([LLM, LLM])
    assert not made.lost
    assert Instances([]).lost
    made.down(0, healing=False)
    assert (made.lost, made[0].up, made[0].gone) == (False, False, True)
    made.down(0, healing=False)
    made.down(1, healing=True)
    assert (made.lost, made[1].up, made[1].gone) == (False, False, False)
    assert (made.room(0, 0.0), made.others(0, 0.0), made.others(1, 0.0)) == (None, False, False)
    made.found(1, False)
    assert made.lost
    made.found(1, True)
    assert (made.lost, made.others(0, 0.0), made.others(1, 0.0)) == (False, True, False)
    made.restored(0)
    assert made.others(1, 0.0)


@pytest.mark.parametrize("limits", [LLM, BATCHES])
def test_who_was_ejected_takes_nothing_then_one_probe_then_a_share(limits: Limits) -> None:
    made = Instances([limits, limits])
    for k in range(FAILURES):
        until = made.failed(0, 0.0, lost=False)
        assert (until is None) == (k < FAILURES - 1)
    assert (until, made[0].ejections, [*made.weak]) == (EJECTION_S, 1, [0])
    assert (made.room(0, EJECTION_S - 0.1), made[0].usable(EJECTION_S - 0.1)) == (None, False)
    assert made.open(EJECTION_S - 0.1).numbers == (1,)
    assert made.room(0, EJECTION_S) == Slots(0, 100, 1, True)
    assert made[0].usable(EJECTION_S)
    assert made.open(EJECTION_S).numbers == (0, 1)
    made.send(0, 1, 10, 1)
    assert made.room(0, EJECTION_S) is None, "one at a time"
    health = made[0].health
    assert health is not None
    health.succeeded(EJECTION_S)
    made.land(0, 1, 10, 10)
    for after, share in RAMP[:-1]:
        calls = max(1, int(4 * share))
        assert made.room(0, EJECTION_S + after) == Slots(0, int(100 * share), calls, True), share
    if limits.continuous:
        made.send(0, 2, 4, 1)
        assert made.room(0, EJECTION_S) is None, "a tenth of four calls is one"
        assert made.room(0, EJECTION_S + 15.0) == Slots(0, 46, 1, False, 1)
        made.land(0, 2, 4, 4)
    well = EJECTION_S + RAMP[-1][0]
    made.open(well - 0.1)
    assert [*made.weak] == [0]
    made.open(well)
    assert [*made.weak] == []
    assert made.room(0, well) == Instances([limits]).room(0, 0.0)


def test_a_batch_that_is_refused_is_one_call_however_many_slices_it_has() -> None:
    made = Instances([BATCHES])
    made.send(0, 5, 30, 3)
    for _ in range(3):
        made.refused(0, "e", BUSY, 5, 6, 1.0)
        made.land(0, 5, 10, 10)
    quota = made[0].quota
    assert quota is not None
    assert quota.refusals == 1
    made.refused(0, "e", BUSY, 6, 7, 2.0)
    assert quota.refusals == 2
    calls = Instances([LLM])
    calls.send(0, 5, 30, 3)
    for _ in range(3):
        calls.refused(0, "e", BUSY, 5, 6, 1.0)
    quota = calls[0].quota
    assert quota is not None
    assert quota.refusals == 3


def test_a_batch_comes_back_with_its_last_slice_and_calls_each_for_itself() -> None:
    for limits, grows in ((BATCHES, [False, True]), (LLM, [True, True])):
        made = Instances([limits])
        quota = made.limit(0, "e")
        quota._ceiling = 5
        made.send(0, 5, 20, 2)
        seen = []
        for _ in range(2):
            quota.window = 1.0
            made.land(0, 5, 10, 10)
            made.came_back(0, 5, 1.0)
            seen.append(quota.window > 1)
        assert seen == grows
    made = Instances([LLM])
    made.came_back(0, 1, 1.0)  # of whose server nothing is known
    made.began(0)
    assert made[0].quota is None


def test_an_account_bounds_those_who_share_it() -> None:
    account = ApiAccount(MinuteLimits(requests=3))
    made = Instances([LLM, BATCHES])
    for i in range(2):
        assert made.limit(i, "e", account).account is account
        assert made.limit(i, "e", ApiAccount()).account is account, "the first one holds"
    assert made.room(0, 0.0) == Slots(0, 100, 3, True)
    assert made.room(1, 0.0) == Slots(1, 100, 4, True, rationed=True)
    account.requests.draw(2, 0.0)
    assert made.room(0, 0.0) == Slots(0, 100, 1, True)
    made.send(0, 1, 10, 1)
    assert made.room(0, 0.0) == Slots(0, 90, 1, False, 1)
    assert made.opens_at(0.0) is None
    account.requests.draw(1, 0.0)
    assert (made.room(0, 0.0), made.room(1, 0.0), made[0].usable(0.0)) == (None, None, False)
    assert made.opens_at(0.0) == account.opens_at(0.0)


def test_the_first_that_opens_is_waited_for_if_it_is_there() -> None:
    made = Instances([LLM] * 3)
    assert made.opens_at(0.0) is None
    until = [made.refused(i, "e", Refusal("busy", 10.0 * (i + 1)), 0, 1, 0.0) for i in range(2)]
    assert until == [10.0, 20.0]
    assert made.opens_at(5.0) == 10.0
    assert made.opens_at(10.0) == 20.0, "the first is open"
    made.down(0, healing=True)
    assert made.opens_at(5.0) == 20.0
    made.down(1, healing=True)
    assert made.opens_at(5.0) is None


def test_time_counts_while_something_waits_and_no_server_takes_anything() -> None:
    made = Instances([LLM])
    made.limited(0.0, waits=True)
    assert (made.limited_s(9.0), made.has_limited) == (0.0, False), "it takes something"
    made.refused(0, "e", BUSY, 0, 1, 0.0)
    made.limited(1.0, waits=False)
    assert made.limited_s(9.0) == 0.0
    made.limited(2.0, waits=True)
    made.limited(3.0, waits=True)
    assert (made.limited_s(5.0), made.has_limited) == (3.0, True)
    made.limited(6.0, waits=False)
    assert made.limited_s(9.0) == 4.0
    made.limited(8.0, waits=True)
    made.limited(10.0, waits=True)
    assert made.limited_s(99.0) == 6.0, "it is open again"


def test_memory_is_for_as_many_calls_as_are_usual() -> None:
    limits = LLM._replace(kv_blocks=10, block_tokens=16)
    made = Instances([limits, limits, LLM])
    assert made.fits([made[0]]) == inf, "nothing was sent yet"
    made.send(0, 1, 30, 2)
    made.send(1, 2, 50, 2)
    assert made.fits([made[0]]) == 160 / 20
    assert made.fits([made[0], made[1]]) == 320 / 20
    assert made.fits([made[0], made[2]]) == inf
    assert made.fits([]) == 0


def slow_ones() -> Instances:
    """The first is four times as slow as the others."""
    made = Instances([LLM] * 3)
    made.weigh([4.0, 1.0, 1.0])
    assert made.slowness == [4.0, 1.0, 1.0]
    made.open(0.0)
    return made


@pytest.mark.parametrize(
    ("calls", "waiting", "worth"),
    [
        ((4, 4), 23, False),
        ((4, 4), 24, True),
        ((4, 4), 25, True),
        ((4, 3), 99, False),
        ((4, 0), 99, False),
    ],
)
def test_a_slow_one_is_worth_it_once_the_fast_are_full_and_many_wait(
    calls: tuple[int, int], waiting: int, worth: bool
) -> None:
    """Three more of all their places wait: then a quarter of them would be done as late."""
    made = slow_ones()
    for i, count in enumerate(calls, 1):
        if count:
            made.send(i, i, count, count)
    made.open(0.0)
    if calls == (4, 4):
        assert made.worth(0, waiting, 0.0) is worth
        assert made.worth(0, 12, 0.0, among={1}), "only those count"
        assert not made.worth(0, 11, 0.0, among={1})
        made.down(2, healing=True)
        made.open(0.0)
        assert made.worth(0, 12, 0.0), "who is not there gives no place"
    else:
        assert made.worth(0, waiting, 0.0), "the fast one was asked before"
    assert made.worth(1, 0, 0.0), "a fast one is always"
    assert Instances([LLM] * 3).worth(0, 0, 0.0), "they are alike"


def test_a_slow_one_is_looked_at_when_it_has_had_nothing_for_a_while() -> None:
    made = slow_ones()
    assert [*made.due(LOOKS_S - 0.1)] == []
    assert [*made.due(LOOKS_S)] == [0], "no fast one is"
    made.send(0, 1, 10, 1).sent_at = LOOKS_S
    assert [*made.due(3 * LOOKS_S)] == [], "something is there"
    made.land(0, 1, 10, 10)
    assert [*made.due(2 * LOOKS_S - 0.1)] == []
    assert [*made.due(2 * LOOKS_S)] == [0]
    made.refused(0, "e", Refusal("busy", 10.0), 1, 2, 2 * LOOKS_S)
    assert [*made.due(2 * LOOKS_S)] == [], "it takes nothing"
    made.weigh([1.0, 1.0, 1.0])
    assert (made.slowness, [*made.due(9e9)]) == ((), [])


@pytest.mark.parametrize("limits", [LLM, BATCHES])
@pytest.mark.parametrize("works", [1, 2, 3])
def test_what_waits_for_a_server_counts_until_it_is_sent_and_no_longer(
    limits: Limits, works: int
) -> None:
    """Whether it waits alone or with others; nothing else may happen for long."""
    queue = EngineQueue("e", [limits], batching.make("fifo"), routing.make("round_robin"))
    instances = queue.instances
    opens = instances.refused(0, "e", BUSY, 0, 1, 0.0)
    for seq in range(works):
        queue.submit(work(seq, total=30), 4.0)
    queue.dispatch(4.0)
    assert instances.limited_s(opens) == opens - 4.0
    assert any(isinstance(command, Dispatch) for command in queue.dispatch(opens))
    assert instances.limited_s(opens + 1000.0) == opens - 4.0
