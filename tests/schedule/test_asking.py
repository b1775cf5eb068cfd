"""What is queued where, and who is asked: counted one by one."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import EngineUnavailable
from teola.graph import Op
from teola.policies.work import Work
from teola.schedule.asking import NOTHING, Asking
from teola.schedule.events import Cause
from teola.schedule.faults import Faults
from teola.schedule.retry_budget import RETRY_FLOOR, RetryBudget
from teola.schedule.waiting_line import WaitingLine
from tests.recording import work


def call(seq: int, affinity: int = -1, total: int = 10, **more: Any) -> Work:
    made = work(seq, op=Op.PREFILLING, lane=None, total=total, affinity=affinity, run=f"q{seq}")
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def asking() -> Asking:
    return Asking(Faults("e", "batching", "routing"))


def test_what_is_bound_counts_where_it_is_bound_and_the_rest_for_all(asking: Asking) -> None:
    works = [call(0), call(1, 3, 20, found=5), call(2, 3), call(3, 5), call(4)]
    for one in works:
        asking.queued(one)
    asking.validate(works)
    assert (asking.free_calls, asking.bound) == (2, 3)
    assert [asking.bound_to(i) for i in (0, 3, 5)] == [0, 2, 1]
    assert asking.for_instance(3) == (2, 25, 30)
    assert asking.for_instance(5) == (1, 10, 10)
    assert asking.for_instance(0) is NOTHING
    assert asking.stale == {3, 5}
    assert [asking.part(i, 2) for i in (0, 3, 5)] == [1, 3, 2], "its own, and a half of the others"
    asking.left(works[4])
    assert asking.part(0, 2) == 1, "a half of one is one"
    asking.left(works[0])
    assert [asking.part(i, 2) for i in (0, 3)] == [1, 2], "one at least"
    asking.left(works[1])
    assert asking.for_instance(3) == (1, 10, 10)
    asking.left(works[2])
    assert asking.for_instance(3) is NOTHING
    asking.validate([works[3]])


def test_rows_are_calls_each_for_itself(asking: Asking) -> None:
    rows = call(0, total=7, row_tokens=30)
    asking.queued(rows)
    asking.queued(call(1))
    assert asking.free_calls == 8
    asking.left(rows)
    assert asking.free_calls == 1


@pytest.mark.parametrize(
    ("works", "told"),
    [
        ([], "1 works are bound to none, and not 0"),
        ([0, 0], "1 works are bound to none, and not 2"),
        ([0], "bound by instance: {3: 1}, and not {}"),
        ([0, 2], "missing tokens by instance: {3: 10}, and not {3: 4}"),
    ],
)
def test_what_is_counted_otherwise_is_told(asking: Asking, works: list[int], told: str) -> None:
    queued = [call(0), call(1, 3), call(2, 3, 4)]
    asking.queued(queued[0])
    asking.queued(queued[1])
    asking.validate(queued[:2])
    with pytest.raises(AssertionError) as caught:
        asking.validate([queued[k] for k in works])
    assert str(caught.value).splitlines()[0] == told


def test_the_first_that_wants_to_be_asked_again_is_woken_for(asking: Asking) -> None:
    asking.queued(call(0, 3))
    assert asking.wake(0.0) is None
    asking.declined(3, None)
    assert asking.wake(0.0) is None
    asking.declined(5, 9.0)
    asking.declined(3, 7.0)
    assert (asking.wake(6.9), 3 in asking._ask) == (7.0, False)
    assert (asking.wake(7.0), 3 in asking._ask) == (9.0, True), "it is time"
    asking.changed([5])
    assert asking.wake(8.0) is None, "it is asked anyway"
    asking.declined(5, 12.0)
    asking.declined(5, 11.0)
    assert asking.wake(8.0) == 11.0
    asking.forget()
    assert asking.wake(8.0) is None


class InOrder:
    """A routing policy that has every instance asked."""

    def order(self, loads: Any, now: float) -> list[int]:
        return [*loads]


def test_of_those_that_declined_each_that_has_changed_is_asked_again(asking: Asking) -> None:
    routing: Any = InOrder()
    loads: Any = dict.fromkeys(range(4))
    for i in (0, 1, 2):
        asking.queued(call(i, i))
    asking.queued(call(9))
    for i in range(4):
        asking.declined(i, None)
    assert [*asking.candidates(routing, loads, 1.0)] == []
    asking.changed([0, 2, 3])
    assert [*asking.candidates(routing, loads, 1.0)] == [0, 2, 3]


def test_who_declined_is_asked_again_once_anything_has_come_or_gone(asking: Asking) -> None:
    """Also when the same works are there again as when it declined."""
    waiting = [call(k) for k in range(3)]

    def asked() -> list[int]:
        return [*asking.candidates(InOrder(), [0, 1], 0.0)]  # type: ignore[arg-type]

    asking.queued(waiting[0])
    for happens in (asking.queued, asking.left, asking.queued, asking.left):
        assert asked() == [0, 1]
        asking.declined(0, None)
        assert asked() == [1]
        happens(waiting[1])
        assert asked() == [0, 1], happens
        asking.declined(0, None)
        asking.queued(waiting[2])
        asking.left(waiting[2])
        assert asked() == [0, 1], "away and back"


# --- the line -------------------------------------------------------------------------------------


class Noting:
    """A batching policy that notes what it is told; told of a work with `bad`, it raises."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def add(self, work: Work, now: float) -> None:
        self.told.append(("add", work.run))

    def remove(self, work: Work, now: float) -> None:
        self.told.append(("remove", work.run))
        if work.run == "q9":
            raise ZeroDivisionError("bad")


def a_line(*, lone: bool) -> tuple[WaitingLine, Noting, Faults]:
    faults, policy = Faults("e", "Noting", "Routing"), Noting()
    return WaitingLine(policy, faults, lone=lone), policy, faults  # type: ignore[arg-type]


def test_the_only_work_is_told_to_nobody_until_it_has_company() -> None:
    line, policy, _ = a_line(lone=True)
    one, two, again = call(0), call(1), call(2, tries=1)
    line.add(one, 0.0)
    assert (line.alone, line.count, line.ready, policy.told) == (one, 1, 1, [])
    line.add(two, 1.0)
    assert (line.alone, line.count, policy.told) == (None, 2, [("add", "q0"), ("add", "q1")])
    line.remove(one, 2.0)
    line.remove(one, 2.0)
    line.remove(two, 2.0)
    assert (line.count, policy.told[2:]) == (0, [("remove", "q0"), ("remove", "q1")])
    assert not one.queued
    line.add(again, 3.0)
    assert line.alone is None, "of another try the policy is told"
    line.remove(again, 3.0)
    line.add(three := call(3), 4.0)
    line.remove(three, 5.0)
    assert (line.alone, line.count, len(policy.told)) == (None, 0, 6)
    eager, told, _ = a_line(lone=False)
    eager.add(call(0), 0.0)
    assert (eager.alone, told.told) == (None, [("add", "q0")])


def test_what_is_held_is_queued_and_not_ready_and_nobody_is_told_of_it() -> None:
    line, policy, _ = a_line(lone=False)
    line.add(call(0), 0.0)
    line.hold(one := call(1), 0.0)
    line.hold(two := call(2), 0.0)
    assert (line.count, line.ready, len(policy.told)) == (3, 1, 1)
    line.release(one, 1.0)
    assert (line.count, line.ready, policy.told[1:]) == (3, 2, [("add", "q1")])
    line.remove(two, 2.0)
    assert (line.count, line.ready, line.held, len(policy.told)) == (2, 2, {}, 2)


def test_the_first_fault_of_a_policy_is_kept_with_its_cause() -> None:
    line, _, faults = a_line(lone=False)
    line.add(bad := call(9), 0.0)
    line.remove(bad, 0.0)
    assert str(faults.error) == (
        "engine 'e': batching policy 'Noting' failed: ZeroDivisionError('bad')"
    )
    assert isinstance(faults.error.__cause__, ZeroDivisionError)
    faults.of_routing("it chose none")
    assert "batching" in str(faults.error)
    other = Faults("e", "Noting", "Routing")
    other.of_routing("it chose none")
    assert str(other.error) == "engine 'e': routing policy 'Routing' failed: it chose none"
    assert other.error is not None
    assert other.error.__cause__ is None


# --- tries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "affordable"), [(0, RETRY_FLOOR), (100, 10), (101, 11), (110, 11), (1000, 100)]
)
def test_a_tenth_may_be_tried_again_and_ten_at_least(requests: int, affordable: int) -> None:
    budget, cause = RetryBudget(), Cause(EngineUnavailable("gone"), True)
    lost = Cause(EngineUnavailable("gone"), True, lost=True)
    budget.requests = requests
    one = call(0)
    one.spec = work(retries=1).spec
    for _ in range(affordable):
        assert budget.affordable
        assert budget.may_retry(one, cause)
        budget.count(cause)
        budget.count(lost)
    assert not budget.affordable
    assert (budget.may_retry(one, cause), budget.may_retry(one, lost)) == (False, True)
    assert (budget.retries, budget.budgeted) == (2 * affordable, affordable)


@pytest.mark.parametrize(
    ("more", "retryable", "may"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"streamed": True}, True, False),
        ({"tries": 1}, True, True),
        ({"tries": 2}, True, False),
        ({"tries": 2, "excused": 1}, True, True),
    ],
)
def test_what_may_be_tried_again(more: dict[str, Any], retryable: bool, may: bool) -> None:
    one = call(0, **more)
    one.spec = work(retries=2).spec
    assert RetryBudget().may_retry(one, Cause(EngineUnavailable("gone"), retryable)) is may
