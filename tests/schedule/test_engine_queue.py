"""EngineQueue: slices, retries, instances, groups; one event in, what follows out.

Long because every event of one state machine has its case here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest

from teola.errors import EngineError, EngineUnavailable
from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.work import Size, Work
from teola.schedule.engine_queue import EngineQueue, Limits
from teola.schedule.events import (
    AbortRequest,
    CallEnded,
    Cause,
    Completed,
    Dispatch,
    Failed,
    FirstToken,
    InstanceChanged,
    InstanceDown,
    InstanceUp,
    MemberCompleted,
    Retried,
    SetTimer,
    Sized,
    Tell,
)
from teola.schedule.retry_budget import RETRY_FLOOR, RetryBudget
from tests.planted import catches, edited
from tests.policies import routed
from tests.recording import work
from tests.schedule.ends import AGAIN, done, failed, hear

NEVER = Cause(EngineError("wrong"))


def batch_queue(
    instances: int = 1, max_batch: int = 4, policy: str = "topology", **options: Any
) -> EngineQueue:
    limits = Limits(max_batch, 1024, 1, False)
    policies = batching.make(policy, **options), routing.make("least_loaded")
    return EngineQueue("e", [limits] * instances, *policies)


def llm_queue(instances: int = 1, tokens: int = 100, calls: int = 4) -> EngineQueue:
    limits = Limits(tokens, calls, 1, True)
    return EngineQueue(
        "e", [limits] * instances, batching.make("topology"), routing.make("least_loaded")
    )


def call(seq: int, tokens: int = 40, **more: Any) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "total": tokens, "cuttable": False, "members": (9,)}
    return work(seq, **{**given, **more})


def sent(queue: EngineQueue, now: float = 0.0) -> list[Dispatch]:
    return [c for c in queue.dispatch(now) if isinstance(c, Dispatch)]


def spans(dispatch: Dispatch) -> list[tuple[int, int]]:
    return [(piece.lo, piece.hi) for piece in dispatch.slices]


# --- slices ---------------------------------------------------------------------------------


def test_a_long_primitive_goes_in_slices_that_are_joined() -> None:
    queue = batch_queue()
    queue.submit(work(0, total=10), 0.0)
    told = []
    for expected in [(0, 4), (4, 8), (8, 10)]:
        (dispatch,) = sent(queue)
        assert spans(dispatch) == [expected]
        assert dispatch.slices[0].work.total == 10
        told += hear(queue, done(dispatch), 1.0)
    assert told == [Tell("q", Completed(0, {"out": 10}, None, 0))]
    assert queue.idle


def test_slices_may_end_in_any_order() -> None:
    queue = batch_queue(instances=3)
    queue.submit(work(0, total=10), 0.0)
    first, second, third = sent(queue)
    assert hear(queue, done(third, count=1), 1.0) == []
    assert hear(queue, done(first), 1.0) == []
    (tell,) = hear(queue, done(second), 1.0)
    assert tell.event.counts == {"out": 9}  # type: ignore[union-attr]
    assert queue.idle


def test_primitives_share_a_batch() -> None:
    queue = batch_queue()
    for k in range(3):
        queue.submit(work(k, total=2), 0.0)
    (dispatch,) = sent(queue)
    assert [(p.work.primitive, p.lo, p.hi) for p in dispatch.slices] == [(0, 0, 2), (1, 0, 2)]
    assert sent(queue) == [], "the instance runs one batch at a time"
    hear(queue, done(dispatch), 1.0)
    assert spans(sent(queue)[0]) == [(0, 2)]


def test_a_slice_that_nobody_sent_is_ignored() -> None:
    queue = batch_queue()
    queue.submit(work(0), 0.0)
    (dispatch,) = sent(queue)
    stray = replace(dispatch, batch=99)
    assert hear(queue, done(stray), 1.0) == []
    assert hear(queue, failed(stray), 1.0) == []
    assert len(hear(queue, done(dispatch), 1.0)) == 1
    assert hear(queue, done(dispatch), 1.0) == [], "once is enough"
    assert queue.idle


# --- retries --------------------------------------------------------------------------------


def test_a_failed_slice_is_tried_again_elsewhere() -> None:
    queue = batch_queue(instances=2)
    queue.submit(work(0, total=4, retries=2), 0.0)
    (first,) = sent(queue)
    assert hear(queue, failed(first), 1.0) == [Retried("q", 0, AGAIN)]
    (second,) = sent(queue)
    assert second.instance != first.instance
    assert spans(second) == spans(first)
    (tell,) = hear(queue, done(second), 2.0)
    assert isinstance(tell.event, Completed)  # type: ignore[union-attr]
    assert queue.idle


def test_with_one_instance_it_is_tried_again_there() -> None:
    queue = batch_queue()
    queue.submit(work(0, retries=2), 0.0)
    for _ in range(2):
        (dispatch,) = sent(queue)
        assert hear(queue, failed(dispatch), 1.0) == [Retried("q", 0, AGAIN)]
    (dispatch,) = sent(queue)
    assert hear(queue, failed(dispatch), 1.0) == [Tell("q", Failed(0, AGAIN))]
    assert queue.idle
    assert sent(queue) == []


def test_only_what_failed_is_tried_again() -> None:
    queue = batch_queue(instances=2)
    queue.submit(work(0, total=12, retries=2), 0.0)
    first, second = sent(queue)
    hear(queue, failed(first), 1.0)
    assert hear(queue, done(second), 1.0) == []
    (again,) = sent(queue)
    assert spans(again) == [(0, 4)]
    assert hear(queue, done(again), 2.0) == []
    (last,) = sent(queue)
    assert spans(last) == [(8, 12)]
    assert len(hear(queue, done(last), 2.0)) == 1
    assert queue.idle


def test_what_may_not_be_retried_is_not() -> None:
    for given, cause in [({"retries": 2}, NEVER), ({"retries": 0}, AGAIN)]:
        queue = batch_queue(instances=2)
        queue.submit(work(0, **given), 0.0)
        (dispatch,) = sent(queue)
        assert hear(queue, failed(dispatch, cause=cause), 1.0) == [Tell("q", Failed(0, cause))]


def test_a_failure_aborts_the_other_slices_and_waits_for_them() -> None:
    queue = batch_queue(instances=2)
    queue.submit(work(0, total=8), 0.0)
    first, second = sent(queue)
    out = hear(queue, failed(first, cause=NEVER), 1.0)
    assert out == [Tell("q", Failed(0, NEVER)), AbortRequest("e", 1, second.batch, "q", 0)]
    assert not queue.idle
    assert hear(queue, failed(second), 2.0) == [], "the run has been told"
    assert queue.idle


def test_retries_have_a_budget() -> None:
    """Ten at least, then a tenth of the engine's requests."""
    queue = batch_queue()
    granted = 0
    for k in range(RETRY_FLOOR + 5):
        queue.submit(work(k, retries=1), 0.0)
        (dispatch,) = sent(queue)
        out = hear(queue, failed(dispatch), 1.0)
        granted += isinstance(out[0], Retried)
        if isinstance(out[0], Retried):
            (dispatch,) = sent(queue)
            hear(queue, done(dispatch), 1.0)
    assert granted == RETRY_FLOOR
    for k in range(100, 300):
        queue.submit(work(k, retries=1), 0.0)
        (dispatch,) = sent(queue)
        hear(queue, done(dispatch), 1.0)
    queue.submit(work(999, retries=1), 0.0)
    (dispatch,) = sent(queue)
    assert isinstance(hear(queue, failed(dispatch), 1.0)[0], Retried)


# --- withdrawing ----------------------------------------------------------------------------


def test_what_is_queued_is_forgotten_at_once() -> None:
    queue = batch_queue()
    queue.submit(work(0), 0.0)
    assert queue.withdraw("q", 0, 0.0) == []
    assert sent(queue) == []
    assert queue.idle
    assert queue.queued == 0
    assert queue.withdraw("q", 0, 0.0) == []


def test_what_runs_keeps_its_slot_until_it_has_ended() -> None:
    queue = batch_queue()
    queue.submit(work(0), 0.0)
    (dispatch,) = sent(queue)
    assert queue.withdraw("q", 0, 0.0) == [AbortRequest("e", 0, dispatch.batch, "q", 0)]
    queue.submit(work(1), 0.0)
    assert sent(queue) == []
    assert hear(queue, done(dispatch), 1.0) == []
    assert len(sent(queue)) == 1


@pytest.mark.parametrize("order", [*permutations(range(3))])
@pytest.mark.parametrize("ways", [*product((done, failed), repeat=3)])
def test_what_runs_in_slices_is_gone_with_the_last_of_them(order: Any, ways: Any) -> None:
    """In whatever order they come back, done or failed; nobody hears of it, and each slot is free
    when its own slice has come back."""
    queue = batch_queue(instances=3, max_batch=4)
    queue.submit(work(0, total=12, retries=2), 0.0)
    dispatches = sent(queue)
    assert [spans(dispatch) for dispatch in dispatches] == [[(0, 4)], [(4, 8)], [(8, 12)]]
    out = queue.withdraw("q", 0, 0.0)
    assert [o.instance for o in out if isinstance(o, AbortRequest)] == [0, 1, 2]
    others: list[Dispatch] = []
    for k, (i, way) in enumerate(zip(order, ways, strict=True)):
        assert not queue.idle
        assert hear(queue, way(dispatches[i]), 1.0) == []
        queue.submit(work(1 + k, total=4), 1.0)
        (following,) = sent(queue, 1.0)
        assert following.instance == dispatches[i].instance
        others.append(following)
    for following in others:
        (tell,) = hear(queue, done(following), 2.0)
        assert isinstance(tell, Tell)
    assert queue.idle


def test_a_member_of_a_batch_is_detached_and_the_others_go_on() -> None:
    queue = batch_queue()
    queue.submit(work(0, run="a"), 0.0)
    queue.submit(work(1, run="b"), 0.0)
    (dispatch,) = sent(queue)
    queue.withdraw("a", 0, 0.0)
    assert [tell.run for tell in hear(queue, done(dispatch), 1.0)] == ["b"]  # type: ignore[union-attr]
    assert queue.idle


# --- instances ------------------------------------------------------------------------------


def test_work_of_a_lost_instance_goes_to_another() -> None:
    queue = batch_queue(instances=2)
    queue.submit(work(0, retries=2), 0.0)
    queue.submit(work(1, retries=2), 0.0)
    (dispatch,) = sent(queue)
    out = queue.down(InstanceDown("e", dispatch.instance), 1.0)
    assert [(o.primitive, str(o.cause.error)) for o in out if isinstance(o, Retried)] == [
        (0, "instance 0 of 'e' is gone"),
        (1, "instance 0 of 'e' is gone"),
    ]
    (again,) = sent(queue)
    assert again.instance != dispatch.instance
    assert len(again.slices) == 2
    assert hear(queue, done(dispatch), 2.0) == [], "too late"
    assert len(hear(queue, done(again), 2.0)) == 2
    assert queue.idle


@catches(
    "deaths-in-the-budget",
    "what died with an instance counts as retries",
    edited(RetryBudget.count, "not cause.lost", "True"),
    edited(RetryBudget.may_retry, "cause.lost or ", ""),
)
def test_deaths_leave_the_budget_to_failures() -> None:
    """Each primitive has its own number of tries, whatever happens to others."""
    queue = batch_queue()
    for k in range(RETRY_FLOOR + 5):
        queue.submit(work(k, retries=1), 0.0)
        sent(queue)
        assert isinstance(queue.down(InstanceDown("e", 0), 1.0)[0], Retried)
        queue.up(InstanceUp("e", 0), 1.0)
        (dispatch,) = sent(queue)
        hear(queue, done(dispatch), 1.0)
    queue.submit(work(99, retries=1), 0.0)
    (dispatch,) = sent(queue)
    assert isinstance(hear(queue, failed(dispatch), 1.0)[0], Retried)
    assert (queue.retries, queue.retry_budget.budgeted) == (RETRY_FLOOR + 6, 1)
    sent(queue)
    assert isinstance(queue.down(InstanceDown("e", 0), 1.0)[0], Tell), "its only retry is used up"


def test_work_waits_while_no_instance_is_up() -> None:
    queue = batch_queue()
    queue.down(InstanceDown("e", 0), 0.0)
    queue.submit(work(0), 0.0)
    assert sent(queue) == []
    queue.up(InstanceUp("e", 0), 0.0)
    assert len(sent(queue)) == 1


def test_what_avoided_an_instance_returns_to_it_when_the_other_is_lost() -> None:
    queue = batch_queue(instances=2)
    queue.submit(work(0, retries=2), 0.0)
    (dispatch,) = sent(queue)
    hear(queue, failed(dispatch), 1.0)
    other = 1 - dispatch.instance
    queue.down(InstanceDown("e", other), 1.0)
    (again,) = sent(queue)
    assert again.instance == dispatch.instance


def test_batches_are_spread_over_instances() -> None:
    queue = batch_queue(instances=3)
    for k in range(6):
        queue.submit(work(k, total=4), 0.0)
    assert sorted(d.instance for d in sent(queue)) == [0, 1, 2]


# --- LLMs -----------------------------------------------------------------------------------


def test_calls_are_admitted_while_their_prompts_fit_the_budget() -> None:
    queue = llm_queue()
    for k in range(3):
        queue.submit(call(k), 0.0)
    (dispatch,) = sent(queue)
    assert [p.work.primitive for p in dispatch.slices] == [0, 1], (
        "80 of 100 tokens; 40 more do not fit"
    )
    first = FirstToken("e", 0, "q", 0)
    assert queue.first_token(first, 1.0) == [Tell("q", Completed(0, {"sequence": 1}, None, 0))]
    assert queue.first_token(first, 1.0) == []
    (more,) = sent(queue, 1.0)
    assert [p.work.primitive for p in more.slices] == [2]


def test_a_prompt_beyond_the_budget_goes_alone() -> None:
    queue = llm_queue()
    queue.submit(call(0, 10), 0.0)
    queue.submit(call(1, 500), 0.0)
    (dispatch,) = sent(queue)
    assert [p.work.primitive for p in dispatch.slices] == [0]
    queue.first_token(FirstToken("e", 0, "q", 0), 1.0)
    (dispatch,) = sent(queue)
    assert [p.work.primitive for p in dispatch.slices] == [1]


def test_calls_are_admitted_while_there_are_sequences() -> None:
    queue = llm_queue(tokens=10_000, calls=2)
    for k in range(3):
        queue.submit(call(k), 0.0)
    (dispatch,) = sent(queue)
    assert len(dispatch.slices) == 2
    queue.first_token(FirstToken("e", 0, "q", 0), 1.0)
    assert sent(queue) == [], "decoding holds its sequence"
    assert hear(queue, done(dispatch), 1.0) == [], "its members have spoken for it"
    assert len(sent(queue)) == 1


def test_members_are_passed_on_and_end_with_the_stream() -> None:
    queue = llm_queue()
    queue.submit(call(0, members=(1, 2)), 0.0)
    (dispatch,) = sent(queue)
    queue.first_token(FirstToken("e", 0, "q", 0), 1.0)
    member = MemberCompleted("e", 0, "q", 0, 1, {"items": 1})
    assert queue.member(member, 2.0) == [Tell("q", Completed(1, {"items": 1}))]
    assert hear(queue, done(dispatch), 3.0) == []
    assert queue.member(member, 4.0) == []
    assert queue.idle


def test_a_partial_prefilling_has_no_members_and_tells_the_run_itself() -> None:
    queue = llm_queue()
    queue.submit(call(0, members=()), 0.0)
    (dispatch,) = sent(queue)
    (tell,) = hear(queue, done(dispatch), 1.0)
    assert tell.event.instance == 0  # type: ignore[union-attr]
    assert queue.idle


def test_a_call_is_not_repeated_once_its_tokens_go_to_the_client() -> None:
    for streamed in (False, True):
        queue = llm_queue(instances=2)
        queue.submit(call(0, retries=2), 0.0)
        (dispatch,) = sent(queue)
        queue.first_token(FirstToken("e", dispatch.instance, "q", 0, streamed), 1.0)
        queue.member(MemberCompleted("e", dispatch.instance, "q", 0, 9, {}), 1.0)
        out = hear(queue, failed(dispatch), 2.0)
        assert out == ([Tell("q", Failed(0, AGAIN))] if streamed else [Retried("q", 0, AGAIN)])


def test_a_repeated_call_counts_its_prompt_again() -> None:
    queue = llm_queue()
    queue.submit(call(0, retries=2), 0.0)
    (dispatch,) = sent(queue)
    queue.first_token(FirstToken("e", 0, "q", 0), 1.0)
    hear(queue, failed(dispatch), 2.0)
    (again,) = sent(queue)
    assert queue.instances[0].weight == 40
    queue.first_token(FirstToken("e", 0, "q", 0), 3.0)
    hear(queue, done(again), 4.0)
    assert queue.idle


def test_a_call_stays_with_its_prefix() -> None:
    queue = llm_queue(instances=2)
    queue.submit(call(0, 90, affinity=1), 0.0)
    queue.submit(call(1, 90, affinity=1), 0.0)
    (dispatch,) = sent(queue)
    assert dispatch.instance == 1
    assert sent(queue) == [], "instance 0 is free, but the prefix is not there"


def test_a_prefix_on_a_lost_instance_binds_nobody() -> None:
    queue = llm_queue(instances=2)
    queue.submit(call(0, 90, affinity=1), 0.0)
    queue.submit(call(1, 90, affinity=1, retries=2), 0.0)
    sent(queue)
    queue.down(InstanceDown("e", 1), 1.0)
    queue.submit(call(2, 10, affinity=1), 1.0)
    (dispatch,) = sent(queue)
    assert dispatch.instance == 0
    assert {p.work.primitive for p in dispatch.slices} == {1, 2}


def test_a_first_token_from_a_lost_instance_is_too_late() -> None:
    queue = llm_queue(instances=2)
    queue.submit(call(0, retries=2), 0.0)
    (dispatch,) = sent(queue)
    queue.down(InstanceDown("e", dispatch.instance), 1.0)
    (again,) = sent(queue)
    assert queue.first_token(FirstToken("e", dispatch.instance, "q", 0), 2.0) == []
    assert [i.weight for i in queue.instances] == [0, 40]
    assert len(queue.first_token(FirstToken("e", again.instance, "q", 0), 2.0)) == 1


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("outcome", [{}, AGAIN, NEVER], ids=["ends", "fails", "fails for good"])
def test_what_a_call_found_there_is_not_given_back_as_it_ends(outcome: Any, begins: bool) -> None:
    queue = routed.router(routing.make("lmetric"), 1)
    shared = routed.prompt(("system", 64))
    routed.route(queue, "before", shared)
    routed.first(queue, "before", 0.0)
    routed.end(queue, "before", 0.0, 1)
    routed.route(queue, "again", (*shared, *routed.prompt(("own", 20))))
    ((_, batch),) = queue.works["again", 0].flying.values()
    assert queue.instances[0].weight == 20
    if begins:
        routed.first(queue, "again", 0.0)
    queue.call_ended(CallEnded("e", batch, "again", 0, outcome), 0.0)
    assert queue.instances[0].weight == 0


def test_free_kv_memory_bounds_what_is_sent() -> None:
    queue = llm_queue(tokens=1000)
    queue.submit(call(0), 0.0)
    sent(queue)
    queue.changed(InstanceChanged("e", 0, 30), 0.0)
    queue.submit(call(1), 0.0)
    assert sent(queue) == [], "40 tokens do not fit 30"
    queue.changed(InstanceChanged("e", 0, 50), 0.0)
    assert len(sent(queue)) == 1


def pieces(queue: EngineQueue, now: float = 0.0) -> list[tuple[int, int]]:
    """Instance and number of calls of every batch of a round."""
    return [(d.instance, len(d.slices)) for d in sent(queue, now)]


def test_idle_instances_share_the_calls() -> None:
    """Three that are ready together do not all go to the first of two instances without work."""
    queue = llm_queue(instances=2, tokens=1000)
    for k in range(3):
        queue.submit(call(k), 0.0)
    assert pieces(queue) == [(0, 2), (1, 1)]


def test_an_instance_that_decodes_is_not_idle() -> None:
    """Another prefill there would hold up what runs: the calls share one on the idle instance."""
    queue = llm_queue(instances=2, tokens=1000)
    queue.submit(call(0), 0.0)
    (first,) = sent(queue)
    piece = first.slices[0]
    queue.first_token(FirstToken("e", 0, piece.work.run, piece.work.primitive), 1.0)
    for k in (1, 2, 3):
        queue.submit(call(k), 1.0)
    assert pieces(queue, 1.0) == [(1, 3)]


def test_what_is_bound_to_an_instance_is_not_of_its_share() -> None:
    queue = llm_queue(instances=2, tokens=1000, calls=9)
    for k in range(3):
        queue.submit(call(k, affinity=0), 0.0)
    for k in (3, 4):
        queue.submit(call(k), 0.0)
    assert pieces(queue) == [(0, 4), (1, 1)]


# --- timers ---------------------------------------------------------------------------------


def test_a_batch_that_waits_sets_one_timer() -> None:
    queue = batch_queue(policy="fifo", max_wait_s=0.1)
    queue.submit(work(0, arrival=5.0), 5.0)
    assert queue.dispatch(5.0) == [SetTimer("e", 5.1)]
    queue.submit(work(1, arrival=5.05), 5.05)
    assert queue.dispatch(5.05) == []
    (dispatch,) = sent(queue, 5.1)
    assert len(dispatch.slices) == 2


def test_a_full_batch_does_not_wait() -> None:
    queue = batch_queue(policy="fifo", max_wait_s=0.1)
    queue.submit(work(0, total=4), 0.0)
    assert len(sent(queue)) == 1


def test_where_no_instance_could_be_started_all_are_gone_until_they_could() -> None:
    queue, why = batch_queue(instances=3), EngineUnavailable("there is no room for it")
    queue.submit(work(0), 0.0)
    queue.refuse(why)
    assert queue.instances.lost
    assert not any(one.up for one in queue.instances)
    (told,) = queue.give_up(1.0)
    assert told == Tell("q", Failed(0, Cause(why)))
    queue.refuse(None)
    assert not queue.instances.lost
    for k in range(1, 4):
        queue.submit(work(k, total=4), 2.0)
    assert {one.instance for one in sent(queue, 2.0)} == {0, 1, 2}


def test_a_call_that_is_being_measured_has_come_and_has_a_home() -> None:
    """Rows leave places to it, and it goes to what keeps its sequence."""
    queue = llm_queue(instances=2)
    queue.hold(call(0, 0, arrival=3.0, affinity=1, primitive=0))
    assert queue.instances.last_call == 3.0
    assert sent(queue, 3.0) == []
    queue.sized(Sized("e", "q", 0, Size(40)), 4.0)
    assert [one.instance for one in sent(queue, 4.0)] == [1]
