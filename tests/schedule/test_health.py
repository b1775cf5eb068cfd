"""Instances that fail: ejected, tried again, taken back bit by bit; never the last one."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.errors import EngineError, EngineUnavailable
from teola.graph import Op
from teola.policies import batching, routing
from teola.schedule.engine_queue import EngineQueue, Tell
from teola.schedule.events import (
    Cause,
    Dispatch,
    Ejected,
    Failed,
    InstanceDown,
    InstanceUp,
    Recovered,
    SetTimer,
)
from teola.schedule.health import EJECTION_S, FAILURES, LONGEST_S, Health
from teola.schedule.instances import Limits
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.ends import ended, hear

BUSY = Cause(EngineError("busy", retryable=True), retryable=True)
LOST = Cause(EngineUnavailable("connection refused"), retryable=True)
CALLER = Cause(EngineError("the prompt is too long"))


def queue_of(instances: int, *, llm: bool = False) -> EngineQueue:
    limits = Limits(100, 10, 1, llm)
    return EngineQueue(
        "e", [limits] * instances, batching.make("fifo"), routing.make("round_robin")
    )


class Driven:
    """A queue, one work at a time: which instance got it, and what came of its end."""

    def __init__(self, queue: EngineQueue) -> None:
        self.queue, self.seq = queue, 0

    def send(self, now: float, **more: Any) -> Dispatch | None:
        self.seq += 1
        given: dict[str, Any] = {"run": f"q{self.seq}", "arrival": now, **more}
        if self.queue.continuous:
            given |= {"op": Op.PREFILLING, "lane": None, "cuttable": False}
        self.queue.submit(work(self.seq, **given), now)
        found = [c for c in self.queue.dispatch(now) if isinstance(c, Dispatch)]
        return found[0] if found else None

    def end(self, dispatch: Dispatch, now: float, cause: Cause | None = None) -> list[Any]:
        return hear(self.queue, ended(dispatch, cause), now)

    def fail_on(self, instance: int, now: float, cause: Cause = BUSY, times: int = 1) -> list[Any]:
        """Fail `times` works on `instance`; those that go elsewhere succeed."""
        out: list[Any] = []
        while times:
            dispatch = self.send(now)
            assert dispatch is not None
            if dispatch.instance == instance:
                out += self.end(dispatch, now, cause)
                times -= 1
            else:
                self.end(dispatch, now)
        return out


def ejections(out: list[Any]) -> list[Ejected]:
    return [command for command in out if isinstance(command, Ejected)]


def test_five_failures_in_a_row_eject_an_instance() -> None:
    driven = Driven(queue_of(2))
    assert not ejections(driven.fail_on(0, 1.0, times=FAILURES - 1))
    out = driven.fail_on(0, 2.0)
    assert ejections(out) == [Ejected("e", 0, 2.0 + EJECTION_S, BUSY)]
    assert SetTimer("e", 2.0 + EJECTION_S) in out
    for _ in range(4):
        dispatch = driven.send(3.0)
        assert dispatch is not None
        assert dispatch.instance == 1
        driven.end(dispatch, 3.0)


def test_a_success_between_failures_keeps_it() -> None:
    driven = Driven(queue_of(2))
    driven.fail_on(0, 1.0, times=FAILURES - 1)
    while (dispatch := driven.send(1.0)) and dispatch.instance != 0:
        driven.end(dispatch, 1.0)
    assert dispatch is not None
    driven.end(dispatch, 1.0)
    assert not ejections(driven.fail_on(0, 1.0, times=FAILURES - 1))


def test_errors_of_the_caller_never_count() -> None:
    driven = Driven(queue_of(2))
    assert not ejections(driven.fail_on(0, 1.0, CALLER, times=3 * FAILURES))


def test_a_lost_connection_ejects_at_once_but_never_the_last_instance() -> None:
    driven = Driven(queue_of(2))
    assert ejections(driven.fail_on(0, 1.0, LOST))
    assert not ejections(driven.fail_on(1, 1.0, LOST, times=3))
    alone = Driven(queue_of(1))
    assert not ejections(alone.fail_on(0, 1.0, LOST, times=3 * FAILURES))


def test_after_its_time_one_probe_goes_to_it_and_its_share_grows() -> None:
    driven = Driven(queue_of(2, llm=True))
    driven.fail_on(0, 0.0, LOST)
    sent = [driven.send(EJECTION_S, total=10) for _ in range(6)]
    on_zero = [d for d in sent if d is not None and d.instance == 0]
    assert len(on_zero) == 1, "half open: one probe"
    out = driven.end(on_zero[0], EJECTION_S)
    assert [c.at for c in out if isinstance(c, SetTimer)] == [EJECTION_S + 15, EJECTION_S + 30]
    assert Recovered("e", 0) in out
    assert [one.ejections for one in driven.queue.instances] == [1, 0]
    rooms = [driven.queue.instances.room(0, EJECTION_S + after) for after in (0, 15, 30)]
    assert [(slots.weight, slots.entries) for slots in rooms] == [(10, 1), (50, 5), (100, 10)]


def test_a_failing_probe_ejects_for_longer_each_time() -> None:
    driven, now, lengths = Driven(queue_of(2)), 0.0, []
    driven.fail_on(0, now, LOST)
    for _ in range(12):
        health = driven.queue.instances[0].health
        assert health is not None
        assert health._until is not None
        now = health._until
        (ejected,) = ejections(driven.fail_on(0, now))
        lengths.append(ejected.until - now)
    assert lengths[:3] == [60.0, 90.0, 120.0]
    assert lengths[-1] == LONGEST_S


def test_a_quiet_time_is_forgiven() -> None:
    health = Health()
    assert health.failed(0.0, lost=True) == 30.0
    health.succeeded(30.0)
    assert health.failed(100.0, lost=True) == 160.0
    health.succeeded(160.0)
    later = 160.0 + LONGEST_S + 1
    assert health.failed(later, lost=True) == later + EJECTION_S


@pytest.mark.parametrize(("quiet_s", "times"), [(LONGEST_S, 2), (LONGEST_S + 0.01, 1)])
def test_a_quiet_time_is_longer_than_the_longest_ejection(quiet_s: float, times: int) -> None:
    health = Health()
    health.failed(0.0, lost=True)
    health.succeeded(30.0)
    again = 30.0 + quiet_s
    assert health.failed(again, lost=True) == again + times * EJECTION_S


def test_what_was_bound_to_an_ejected_instance_goes_elsewhere() -> None:
    driven = Driven(queue_of(2, llm=True))
    driven.fail_on(0, 0.0, LOST)
    dispatch = driven.send(1.0, affinity=0)
    assert dispatch is not None
    assert dispatch.instance == 1


def test_nothing_waits_for_instances_that_never_come_back() -> None:
    queue = queue_of(2)
    queue.submit(work(1), 0.0)
    queue.down(InstanceDown("e", 0, healing=False), 0.0)
    assert [c for c in queue.dispatch(0.0) if isinstance(c, Dispatch)], "the other one serves"
    queue.submit(work(2), 0.0)
    queue.down(InstanceDown("e", 1, healing=False), 0.0)
    told = [c for c in queue.give_up(0.0) if isinstance(c, Tell)]
    assert [type(t.event) for t in told] == [Failed]
    assert "all its instances are gone" in str(told[0].event.cause.error)  # type: ignore[union-attr]
    queue.submit(work(3), 1.0)
    queue.up(InstanceUp("e", 1), 0.0)
    assert queue.queued == 1
    assert [c.instance for c in queue.dispatch(1.0) if isinstance(c, Dispatch)] == [1]


def test_a_replaced_instance_starts_afresh() -> None:
    driven = Driven(queue_of(2))
    driven.fail_on(0, 0.0, LOST)
    driven.queue.down(InstanceDown("e", 0), 1.0)
    driven.queue.up(InstanceUp("e", 0), 0.0)
    sent = [driven.send(2.0) for _ in range(2)]
    assert sorted(d.instance for d in sent if d) == [0, 1]


@pytest.mark.parametrize("llm", [False, True])
@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 40.0)), max_size=60))
def test_some_instance_always_takes_work(llm: bool, ends: list[tuple[bool, float]]) -> None:
    """Whatever fails and when: work is never stuck while all instances can be reached."""
    driven, now = Driven(queue_of(3, llm=llm)), 0.0
    for fine, passed in ends:
        now += passed
        dispatch = driven.send(now, total=5)
        assert dispatch is not None
        driven.end(dispatch, now, None if fine else LOST)
    assert driven.queue.idle


def in_and_out(seed: int) -> None:
    """An instance's requests, against a list of all that happened there."""
    draw, now, health = Random(seed), 0.0, Health()
    in_a_row, ejected_at, until, back, ejections = 0, -inf, -inf, None, 0
    for _ in range(300):
        now += draw.choice([0.0, 1.0, 5.0, 15.0, 30.0, 60.0, 301.0])
        out = back is None and until > -inf
        assert health.ejected(now) == (out and now < until), now
        assert health.half_open(now) == (out and now >= until)
        share = 1.0
        if back is not None and now < back + 30.0:
            share = 0.1 if now < back + 15.0 else 0.5
        if not out:
            assert health.share(now) == share
        assert health.well(now) == (not out and share == 1.0)
        if draw.random() < 0.5:
            in_a_row += 1
            lost = draw.random() < 0.2
            weak = (out and now >= until) or (not out and share < 1.0)
            told = health.failed(now, lost=lost)
            if (out and now < until) or not (lost or weak or in_a_row >= FAILURES):
                assert told is None
                continue
            quiet = back is not None and now > back + LONGEST_S
            ejections = 1 if quiet else ejections + 1
            in_a_row, ejected_at, back = 0, now, None
            until = ejected_at + min(LONGEST_S, EJECTION_S * ejections)
            assert told == until
        elif not (out and now < until) or draw.random() < 0.3:
            in_a_row = 0
            grows = health.succeeded(now)
            assert grows == ((now + 15.0, now + 30.0) if out and now >= until else ())
            if out and now >= until:
                back = now
        if draw.random() < 0.02:
            health.reset()
            in_a_row, until, back = 0, -inf, None


@catches(
    "ejected-for-ever-longer",
    "an instance that was well for long is ejected for as long as if it had not been",
    edited(Health.failed, "1 if quiet else self.ejections + 1", "self.ejections + 1"),
)
@catches(
    "quiet-from-its-end",
    "an instance is well as soon as its probe succeeded",
    edited(Health.well, " and self.share(now) >= 1.0", ""),
)
def test_an_instance_is_out_and_back_as_a_list_of_its_requests_says() -> None:
    for seed in range(6):
        in_and_out(seed)
