"""A thousand instances: what a round looks at, and that nobody is left out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from teola.errors import EngineUnavailable
from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.batching import BATCHING
from teola.policies.work import Slice, Slots, Work
from teola.schedule.asking import FIRST
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    Cause,
    Dispatch,
    InstanceChanged,
    InstanceDown,
    SetTimer,
    Timer,
)
from teola.schedule.health import EJECTION_S
from teola.schedule.instances import Instances, Limits
from teola.schedule.quota import Refusal
from tests.recording import work
from tests.schedule.ends import ended, hear

MANY = 1000
LOST = Cause(EngineUnavailable("connection refused"), retryable=True)


def queue_of(count: int, policy: str = "topology", *, llm: bool = False) -> EngineQueue:
    limits = Limits(100, 4, 1, llm)
    policies = batching.make(policy), routing.make("least_loaded")
    return EngineQueue("e", [limits] * count, *policies)


def call(seq: int, **more: Any) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "total": 40, "cuttable": False, "run": f"q{seq}"}
    return work(seq, **{**given, **more})


def sent(queue: EngineQueue, now: float = 0.0) -> list[Dispatch]:
    return [c for c in queue.dispatch(now) if isinstance(c, Dispatch)]


def end(queue: EngineQueue, dispatch: Dispatch, now: float, cause: Cause | None = None) -> None:
    calls = dispatch.slices if queue.continuous else dispatch.slices[:1]
    for k in range(len(calls)):
        hear(queue, ended(dispatch, *[cause] * len(dispatch.slices), k=k), now)


class Asked:
    """A batching policy that never sends anything, and notes whom it is asked about."""

    def __init__(self) -> None:
        self.instances: list[int] = []
        self.wake: float | None = None

    def since(self) -> list[int]:
        """About whom it was asked since it was asked this."""
        found, self.instances = self.instances, []
        return found

    def add(self, work: Work, now: float) -> None:
        pass

    def remove(self, work: Work, now: float) -> None:
        pass

    def choose(self, slots: Slots, now: float) -> Sequence[Slice]:
        self.instances.append(slots.instance)
        return []

    def wake_at(self, now: float) -> float | None:
        return self.wake


def asking_queue() -> tuple[EngineQueue, Asked]:
    queue, asked = queue_of(MANY, llm=True), Asked()
    queue.line.policy = asked  # type: ignore[assignment]
    return queue, asked


def test_a_round_asks_a_few_instances_and_those_that_something_is_bound_to() -> None:
    queue, asked = asking_queue()
    queue.submit(call(0), 0.0)
    queue.submit(call(1, affinity=777), 0.0)
    assert sent(queue) == []
    assert asked.since() == [*range(FIRST), 777]


def test_if_all_is_bound_nobody_else_is_asked() -> None:
    queue, asked = asking_queue()
    for k, instance in enumerate((777, 500, 777)):
        queue.submit(call(k, affinity=instance), 0.0)
    assert sent(queue) == []
    assert asked.since() == [500, 777]


def test_who_declined_is_asked_again_only_if_something_changed_there() -> None:
    queue, asked = asking_queue()
    queue.submit(call(0), 0.0)
    queue.submit(call(1, affinity=777), 0.0)
    queue.submit(call(2, affinity=500), 0.0)
    sent(queue)
    asked.since()
    assert sent(queue) == []
    assert asked.since() == []
    queue.changed(InstanceChanged("e", 500, 90), 0.0)
    assert sent(queue) == []
    assert asked.since() == [500]
    queue.submit(call(3, affinity=777), 1.0)
    assert sent(queue) == []
    assert asked.since() == [777]
    queue.submit(call(4), 1.0)
    assert sent(queue) == []
    assert asked.since() == list(range(FIRST)), "it may go to any of them"
    queue.withdraw("q4", 4, 2.0)
    assert sent(queue) == []
    assert asked.since() == list(range(FIRST)), "what was behind it may be first now"


def test_who_named_a_time_is_asked_again_then() -> None:
    queue, asked = asking_queue()
    asked.wake = 5.0
    queue.submit(call(0, affinity=777), 0.0)
    assert SetTimer("e", 5.0) in queue.dispatch(0.0)
    asked.wake = 7.0
    queue.submit(call(1, affinity=500), 1.0)
    assert not [c for c in queue.dispatch(1.0) if isinstance(c, SetTimer)], "5.0 comes first"
    asked.since()
    queue.woken(Timer("e"), 0.0)
    assert [c.at for c in queue.dispatch(5.0) if isinstance(c, SetTimer)] == [7.0]
    assert asked.since() == [777]
    queue.woken(Timer("e"), 0.0)
    asked.wake = None
    assert queue.dispatch(7.0) == []
    assert asked.since() == [500, 777]


def test_the_time_that_was_named_last_counts() -> None:
    queue, asked = asking_queue()
    asked.wake = 5.0
    queue.submit(call(0), 0.0)
    assert SetTimer("e", 5.0) in queue.dispatch(0.0)
    asked.wake = 7.0
    queue.submit(call(1), 1.0)
    assert [c.at for c in queue.dispatch(1.0) if isinstance(c, SetTimer)] == [7.0]


def test_what_is_bound_goes_when_what_was_in_its_way_has_left() -> None:
    queue = queue_of(2, llm=True)
    queue.submit(call(0, affinity=1, total=80), 0.0)
    assert len(sent(queue)) == 1
    queue.submit(call(1, affinity=1, total=40), 1.0)
    queue.submit(call(2, affinity=1, total=20), 1.0)
    assert sent(queue, 1.0) == [], "the first of them does not fit, and none overtakes it"
    queue.withdraw("q1", 1, 2.0)
    assert [piece.work.run for d in sent(queue, 2.0) for piece in d.slices] == ["q2"]


def test_what_failed_somewhere_goes_there_again_once_the_others_are_lost() -> None:
    queue = queue_of(2)
    for k in range(2):
        queue.submit(call(k, total=100, retries=1 - k, lane=Op.EMBEDDING), 0.0)
    first, _ = sent(queue)
    end(queue, first, 1.0, Cause(EngineUnavailable("busy"), retryable=True))
    queue.instances.restored(0)
    assert sent(queue, 1.0) == [], "it avoids the one where it failed"
    queue.down(InstanceDown("e", 1), 2.0)
    assert [(d.instance, d.slices[0].work.run) for d in sent(queue, 2.0)] == [(0, "q0")]


def test_an_instance_whose_share_grows_is_asked_again() -> None:
    """It was ejected, and declined while it had a small share: nothing changes but the time."""
    queue = queue_of(2, llm=True)
    queue.submit(call(0, affinity=0), 0.0)
    end(queue, sent(queue)[0], 0.0, LOST)
    queue.submit(call(1, total=100), EJECTION_S)
    queue.submit(call(2, total=100), EJECTION_S)
    first, second = sent(queue, EJECTION_S)
    queue.submit(call(3, total=60), EJECTION_S)
    end(queue, next(d for d in (first, second) if d.instance == 0), EJECTION_S)
    assert [d.instance for d in sent(queue, EJECTION_S)] == [0], "nothing runs there: one may go"
    queue.submit(call(4, total=30), EJECTION_S + 1)
    assert sent(queue, EJECTION_S + 1) == []
    assert [d.instance for d in sent(queue, EJECTION_S + 30)] == [0]


@pytest.mark.parametrize("llm", [False, True])
def test_all_instances_get_work(llm: bool) -> None:
    queue = queue_of(MANY, llm=llm)
    for k in range(MANY):
        queue.submit(call(k, total=100), 0.0)
    assert sorted(d.instance for d in sent(queue)) == list(range(MANY))


@pytest.mark.parametrize("policy", sorted(BATCHING))
def test_what_is_bound_to_an_instance_goes_there_and_elsewhere_if_it_is_lost(policy: str) -> None:
    queue = queue_of(40, policy, llm=True)
    for k in range(6):
        queue.submit(call(k, affinity=33), 0.0)
    on_it = sent(queue)
    assert {d.instance for d in on_it} == {33}
    queue.down(InstanceDown("e", 33), 1.0)
    left = {piece.work.run for d in sent(queue, 1.0) for piece in d.slices}
    assert left == {"q2", "q3", "q4", "q5"}, "those that had been sent may not be retried"


@pytest.mark.parametrize("policy", sorted(BATCHING))
def test_ejecting_an_instance_frees_what_waits_for_it(policy: str) -> None:
    queue = queue_of(2, policy, llm=True)
    queue.submit(call(0, affinity=1, total=100), 0.0)
    (first,) = sent(queue)
    queue.submit(call(1, affinity=1), 0.0)
    assert sent(queue) == []
    end(queue, first, 1.0, LOST)
    assert [d.instance for d in sent(queue, 1.0)] == [0]


@pytest.mark.parametrize("continuous", [False, True])
def test_the_order_of_instances_is_kept_whatever_happens(continuous: bool) -> None:
    """`open` against a scan of all instances, after every change."""
    draw = random.Random(5)
    limits = Limits(100, 4, 2, continuous)
    instances = Instances([limits] * 12)
    flying: list[tuple[int, int, int, int]] = []
    for step in range(600):
        now, i = float(step), draw.randrange(12)
        kind = draw.choice(["send", "send", "land", "prefilled", "down", "up", "told", "failed"])
        slots = instances.room(i, now)
        if kind == "send" and slots:
            weight = draw.randint(1, slots.weight)
            instances.send(i, step, weight, 1)
            flying.append((i, step, weight, weight))
        elif kind == "land" and flying:
            instances.land(*flying.pop(draw.randrange(len(flying))))
        elif kind == "prefilled" and flying and continuous:
            k = draw.randrange(len(flying))
            instances.prefilled(flying[k][0], flying[k][3])
            flying[k] = (*flying[k][:3], 0)
        elif kind == "down":
            instances.down(i, healing=True)
        elif kind == "up":
            instances.restored(i)
        elif kind == "told" and continuous:
            instances.told(i, draw.choice([0, 30, 500]))
        elif kind == "failed" and draw.random() < 0.3:
            instances.failed(i, now, lost=True)
        loads = instances.open(now)
        instances.changed.clear()
        assert loads.numbers == tuple(k for k in range(12) if instances.room(k, now))
        assert [k for k, _ in loads] == sorted(
            loads.numbers, key=lambda k: (_load(instances, k, limits), k)
        )


def _load(instances: Instances, i: int, limits: Limits) -> float:
    instance = instances[i]
    if limits.continuous:
        return instance.context / limits.max_batch
    return instance.weight / limits.max_batch + len(instance.batches)


def test_memory_that_is_full_closes_an_instance_until_it_tells_otherwise() -> None:
    queue = queue_of(1, llm=True)
    queue.submit(call(0), 0.0)
    assert len(sent(queue)) == 1
    queue.changed(InstanceChanged("e", 0, 0), 0.0)
    queue.submit(call(1), 0.0)
    assert sent(queue) == []
    queue.changed(InstanceChanged("e", 0, 60), 0.0)
    assert len(sent(queue)) == 1


@pytest.mark.parametrize("kind", ["busy", "away"])
def test_those_that_refuse_at_once_are_not_asked_again_at_once(
    kind: Literal["busy", "away"],
) -> None:
    """Nor those of another engine; but the same one always after the same time."""

    def waits() -> list[float]:
        made = {name: Instances([Limits(100, 4, 1, True)] * 4) for name in ("a", "b")}
        return [
            instances.refused(i, name, Refusal(kind), 0, 1, 0.0)
            for name, instances in made.items()
            for i in range(4)
        ]

    assert len({*waits()}) == 8
    assert waits() == waits()


@pytest.mark.parametrize("seed", range(6))
def test_those_with_room_are_found_although_only_the_time_has_passed(seed: int) -> None:
    """`open` against a scan of all instances, which fail, come back and are asked at any time: much
    later, or when something is to change. One that has refused depends on the time for ever, so
    that there are lives without refusals."""
    draw, now, batch = random.Random(seed), 0.0, 0
    limits = Limits(100, 4, 2, continuous=bool(seed % 2))
    instances, flying = Instances([limits] * 4), list[tuple[int, int, int]]()
    for _ in range(250):
        i = draw.randrange(4)
        more = "refused" if seed >= 4 else "wait"
        kind = draw.choice(["send", "send", "land", "well", "well", "failed", "up", "wait", more])
        slots = instances.room(i, now)
        if kind == "send" and slots is not None:
            batch += 1
            weight = draw.choice([1, slots.weight])
            instances.send(i, batch, weight, 1)
            flying.append((i, batch, weight))
        elif kind in ("land", "well") and flying:
            at, sent, weight = flying.pop(draw.randrange(len(flying)))
            instances.land(at, sent, weight, weight)
            if kind == "well" and (health := instances[at].health) is not None:
                health.succeeded(now)
        elif kind == "failed":
            instances.failed(i, now, lost=draw.random() < 0.5)
        elif kind == "refused":
            why = Refusal(draw.choice(["busy", "away"]), draw.choice([None, 0.0, 7.0]))
            instances.refused(i, "e", why, batch, batch + 1, now)
        elif kind == "up":
            instances.restored(i)
        elif kind == "wait":
            now += draw.choice([0.5, 15.0, EJECTION_S, 1000.0])
        numbers = instances.open(now).numbers
        instances.changed.clear()
        assert numbers == tuple(k for k in range(4) if instances.room(k, now) is not None)
