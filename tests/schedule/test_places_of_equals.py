"""Where equal works stand: as old as the oldest, wanted by the earliest deadline."""

from __future__ import annotations

import pytest

from teola.policies import batching, routing
from teola.policies.work import Slots, Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.instances import Limits
from tests.planted import catches, edited
from tests.recording import work


def queue(policy: str, instances: int = 2) -> EngineQueue:
    limits = [Limits(1, 1, 1, False)] * instances
    return EngineQueue("e", limits, batching.make(policy), routing.make("least_loaded"))


def equal(seq: int, **given: object) -> Work:
    made = work(seq, run=f"q{seq // 10}", **given)
    made.same = "digest"
    return made


@catches(
    "equals-compared",
    "a heap compares works, where two entries have one place",
    edited(Work.__lt__, "return False", "raise TypeError"),
    edited(EngineQueue._promote, "max(old.tries, first.tries) + 1", "first.tries"),
)
@pytest.mark.parametrize("policy", ["critical_path", "topology"])
def test_a_leader_that_goes_leaves_its_place_to_an_equal_one(policy: str) -> None:
    for others in range(5):
        bed = queue(policy)
        for k in range(others):
            bed.submit(work(100 + k, run=f"b{k}"), 0.0)
        for k in range(4):
            bed.submit(equal(k, arrival=1.0), 1.0)
        for k in range(3):
            bed.withdraw("q0", k, 1.5)
        sent = bed.dispatch(2.0)
        assert bed.faults.error is None
        assert len(sent) == min(2, others + 1)


@catches(
    "equals-hurry",
    "what follows an equal work waits as patiently as that",
    edited(EngineQueue._promote, "min(work.deadline for work in equals)", "old.deadline"),
)
def test_the_most_urgent_of_equal_works_says_when_they_go() -> None:
    bed = queue("critical_path", 1)
    bed.submit(work(1, run="running"), 0.0)
    bed.dispatch(0.0)
    bed.submit(work(2, run="old", admitted=1.0), 1.0)
    bed.submit(equal(30, admitted=2.0, deadline=600.0), 2.0)
    bed.submit(equal(40, admitted=3.0, deadline=9.0), 3.0)
    bed.submit(equal(50, admitted=0.5, deadline=600.0), 3.0)
    (first,) = [one for one in bed.works.values() if one.queued and one.same]
    assert (first.admitted, first.deadline) == (0.5, 9.0)


@catches(
    "equals-forget-promises",
    "an equal work with an earlier objective stands where the first one stands",
    edited(EngineQueue._follows, "work.asker.finish_by < leader.asker.finish_by", "False"),
)
@catches(
    "oldest-of-equals-leads",
    "an equal work of an older query takes the first one's objective from it",
    edited(EngineQueue._promote, "sorted(equals, key=lambda work: work.asker.finish_by)", "equals"),
)
def test_equal_works_stand_where_the_earliest_objective_stands() -> None:
    for came in ((9.0, 50.0), (50.0, 9.0)):
        bed = queue("urgency", 1)
        bed.submit(work(1, run="running"), 0.0)
        bed.dispatch(0.0)
        bed.submit(work(2, run="promised", finish_by=20.0), 1.0)
        for k, finish_by in enumerate(came):
            admitted = 1.0 if finish_by == 9.0 else 0.0
            bed.submit(equal(30 + 10 * k, admitted=admitted, finish_by=finish_by), 2.0)
        (first,) = [one for one in bed.works.values() if one.queued and one.same]
        assert (first.asker.finish_by, first.admitted) == (9.0, 0.0)
        chosen = bed.line.policy.choose(Slots(0, 9, 9, True), 3.0)
        assert [piece.work.run for piece in chosen] == [first.run, "promised"]
