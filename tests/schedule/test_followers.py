"""Equal works: one is queued, the others follow it, and whoever leaves takes nothing from them."""

from __future__ import annotations

import pytest

from teola.errors import EngineError
from teola.policies.work import Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    Cause,
    Completed,
    Failed,
    FirstToken,
    Joined,
    MemberCompleted,
    Parted,
    Tell,
)
from teola.schedule.quota import Refusal
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.ends import AGAIN, done, failed, hear
from tests.schedule.test_engine_queue import batch_queue, call, llm_queue, sent

NEVER = Cause(EngineError("wrong"))


def equal(seq: int, run: str, admitted: float = 0.0, **more: object) -> Work:
    made = work(seq, run=run, primitive=0, admitted=admitted, program=run, **more)
    made.same = "same"
    return made


def submit_equal_calls(queue: EngineQueue, runs: str) -> None:
    """One call of an LLM for each run, all equal."""
    for seq, run in enumerate(runs):
        made = call(seq, run=run, primitive=0)
        made.same = "same"
        queue.submit(made, 0.0)


def told(run: str, items: int = 3) -> Tell:
    return Tell(run, Completed(0, {"out": items}, None, 0))


def failures(made: Work) -> int:
    return made.tries - made.excused


@catches(
    "followers-forgotten",
    "only the leader is told",
    edited(
        EngineQueue._ended, "for follower in self.followers.ended(work):", "for follower in ():"
    ),
)
def test_one_is_sent_and_all_are_told() -> None:
    queue = batch_queue()
    for seq, run in enumerate("abc"):
        queue.submit(equal(seq, run, total=3), 0.0)
    assert queue.queued == 1
    (dispatch,) = sent(queue)
    assert [piece.work.run for piece in dispatch.slices] == ["a"]
    out = list[object]()
    queue.submit(equal(3, "d", total=3), 0.5, out)
    assert out == [Joined("e", "d", 0, ("a", 0))]
    assert hear(queue, done(dispatch), 1.0) == [told(run) for run in "abcd"]
    assert queue.idle
    assert not queue.followers


@catches(
    "younger-leads",
    "a query stands behind a younger one that asked first",
    edited(EngineQueue._follows, "work.admitted < leader.admitted", "False"),
)
def test_the_place_is_that_of_the_query_that_was_admitted_first() -> None:
    queue = batch_queue()
    queue.submit(equal(0, "young", admitted=5.0, total=3), 6.0)
    queue.submit(equal(1, "old", admitted=1.0, total=3), 6.0)
    (dispatch,) = sent(queue, 6.0)
    assert [piece.work.run for piece in dispatch.slices] == ["old"]
    assert hear(queue, done(dispatch), 7.0) == [told("old"), told("young")]
    assert queue.idle


def test_a_leader_that_leaves_while_it_waits_is_followed_by_the_next() -> None:
    queue = batch_queue()
    for seq, run in enumerate("abc"):
        queue.submit(equal(seq, run, total=3), 0.0)
    assert queue.withdraw("a", 0, 0.1) == []
    (dispatch,) = sent(queue)
    assert [piece.work.run for piece in dispatch.slices] == ["b"]
    assert queue.withdraw("b", 0, 0.2) == []
    assert hear(queue, done(dispatch), 1.0) == [told("c")]
    assert queue.idle


def test_the_last_one_stops_what_is_in_flight() -> None:
    queue = llm_queue()
    submit_equal_calls(queue, "ab")
    (dispatch,) = sent(queue)
    assert queue.withdraw("a", 0, 0.1) == []
    told_first = queue.first_token(FirstToken("e", 0, "b", 0), 0.2)
    assert told_first == [Tell("b", Completed(0, {"sequence": 1}, None, 0))]
    assert queue.first_token(FirstToken("e", 0, "a", 0), 0.2) == []
    member = queue.member(MemberCompleted("e", 0, "b", 0, 9, {"text": 1}), 0.3)
    assert member == [Tell("b", Completed(9, {"text": 1}))]
    stops = queue.withdraw("b", 0, 0.4)
    assert stops == [AbortRequest("e", 0, dispatch.batch, "a", 0)]


def test_a_failure_is_one_try_for_all_and_what_goes_on_for_others_is_tried_again() -> None:
    queue = batch_queue()
    for seq, run in enumerate("abc"):
        queue.submit(equal(seq, run, total=3, retries=1), 0.0)
    (dispatch,) = sent(queue)
    queue.withdraw("a", 0, 0.1)
    assert hear(queue, failed(dispatch), 1.0) == []
    (dispatch,) = sent(queue, 1.0)
    assert [(piece.work.run, failures(piece.work)) for piece in dispatch.slices] == [("b", 1)]
    assert hear(queue, failed(dispatch), 2.0) == [Tell(run, Failed(0, AGAIN)) for run in "bc"]
    assert queue.idle


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_what_a_follower_has_been_told_is_not_written_again(order: str) -> None:
    """Whichever of them hears of the first token first."""
    queue = llm_queue()
    for seq, run in enumerate("ab"):
        made = call(seq, run=run, primitive=0, retries=2)
        made.same = "same"
        queue.submit(made, 0.0)
    (dispatch,) = sent(queue)
    for run in order:
        queue.first_token(FirstToken("e", 0, run, 0, to_client=run == "b"), 0.1)
    assert hear(queue, failed(dispatch), 1.0) == [Tell(run, Failed(0, AGAIN)) for run in "ab"]
    assert queue.idle


def test_a_failure_counts_for_the_most_urgent_of_those_who_are_left() -> None:
    """That one need not have asked first."""
    queue = batch_queue()
    queue.submit(equal(0, "a", total=3, retries=1), 0.0)
    (dispatch,) = sent(queue)
    for seq, (run, finish_by) in enumerate({"b": 50.0, "c": 9.0}.items(), 1):
        queue.submit(equal(seq, run, total=3, retries=1, finish_by=finish_by), 0.0)
    queue.withdraw("a", 0, 0.1)
    assert hear(queue, failed(dispatch), 1.0) == []
    (dispatch,) = sent(queue, 1.0)
    assert [(piece.work.run, failures(piece.work)) for piece in dispatch.slices] == [("c", 1)]
    assert hear(queue, failed(dispatch), 2.0) == [Tell(run, Failed(0, AGAIN)) for run in "cb"]
    assert queue.idle


def test_what_came_in_part_is_not_joined() -> None:
    queue = batch_queue(max_batch=2)
    queue.submit(equal(0, "a", total=3), 0.0)
    (first,) = sent(queue)
    hear(queue, done(first), 1.0)
    queue.submit(equal(1, "b", total=3), 1.0)
    assert queue.works["b", 0].leader is None
    assert queue.queued == 2


def test_all_fail_with_their_leader() -> None:
    queue = batch_queue()
    for seq, run in enumerate("ab"):
        queue.submit(equal(seq, run, total=3), 0.0)
    (dispatch,) = sent(queue)
    assert hear(queue, failed(dispatch, cause=NEVER), 1.0) == [
        Tell(run, Failed(0, NEVER)) for run in "ab"
    ]
    assert queue.idle


@catches(
    "tries-forgotten",
    "what failed for a query has all its tries again when an older one asks for it, too",
    edited(EngineQueue._promote, "old.tries - old.excused", "0"),
)
@catches(
    "queued-twice",
    "a work that was queued, followed and leads again stands in the line twice",
    edited(EngineQueue._promote, "= replace(first", "= (lambda one, **_: one)(first"),
)
def test_whoever_leads_the_others_has_the_tries_of_all_and_one_place() -> None:
    queue = batch_queue(max_batch=8, policy="critical_path")
    queue.submit(equal(0, "young", admitted=5.0, total=3, retries=1), 6.0)
    (dispatch,) = sent(queue, 6.0)
    hear(queue, failed(dispatch), 7.0)
    queue.submit(equal(1, "old", admitted=4.9, total=3, retries=1), 7.0)
    assert failures(queue.works["old", 0]) == 1
    queue.withdraw("old", 0, 7.0)
    (dispatch,) = sent(queue, 7.0)
    assert [(piece.work.run, failures(piece.work)) for piece in dispatch.slices] == [("young", 1)]
    assert queue.faults.error is None
    assert hear(queue, failed(dispatch), 8.0) == [Tell("young", Failed(0, AGAIN))]
    assert queue.idle


def test_who_takes_the_place_of_what_failed_goes_elsewhere_as_that_would() -> None:
    queue = batch_queue(instances=2)
    queue.submit(equal(0, "young", admitted=5.0, total=3, retries=1), 6.0)
    (dispatch,) = sent(queue, 6.0)
    hear(queue, failed(dispatch), 7.0)
    queue.submit(equal(1, "old", admitted=4.9, total=3, retries=1), 7.0)
    (again,) = sent(queue, 7.0)
    assert [piece.work.run for piece in again.slices] == ["old"]
    assert again.slices[0].work.avoid == dispatch.instance != again.instance


@catches(
    "leader-not-alone",
    "equals are answered with what one query's budget cuts off",
    edited(EngineQueue.parted, "self._promote(followers[0], followers, now)", "pass"),
)
def test_who_follows_a_call_that_may_write_less_has_its_own() -> None:
    queue = llm_queue()
    submit_equal_calls(queue, "abc")
    (poor,) = sent(queue)
    assert queue.parted(Parted("e", "a", 0), 0.1) == []
    (dispatch,) = sent(queue, 0.1)
    assert [piece.work.run for piece in dispatch.slices] == ["b"]
    hear(queue, done(poor), 1.0)
    assert set(queue.works) == {("b", 0), ("c", 0)}
    hear(queue, done(dispatch), 2.0)
    assert queue.idle
    assert not queue.followers


@catches(
    "refused-as-failed",
    "a refusal says nothing to those who are left of a call",
    edited(EngineQueue._left_and_failed, "if why is not None and not begun:", "if False:"),
)
def test_a_refusal_closes_its_server_though_who_made_the_call_has_left() -> None:
    queue = llm_queue()
    submit_equal_calls(queue, "ab")
    (dispatch,) = sent(queue)
    queue.withdraw("a", 0, 0.1)
    full = Cause(EngineError("full", retryable=True), True, refused=Refusal("busy", 7.0))
    hear(queue, failed(dispatch, cause=full), 1.0)
    assert queue.instances.limit(0, "e").closed_until == 8.0
    assert sent(queue, 1.0) == []
    (dispatch,) = sent(queue, 8.0)
    assert [(piece.work.run, failures(piece.work)) for piece in dispatch.slices] == [("b", 0)]
