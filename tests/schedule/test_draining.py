"""EngineQueue where an instance is leaving: what moves, what stays, and what it costs."""

from __future__ import annotations

from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    Failed,
    FirstToken,
    InstanceDown,
    InstanceDraining,
    InstanceUp,
    Retried,
    Tell,
)
from teola.schedule.placing import Placing
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.ends import AGAIN, done, failed, hear
from tests.schedule.test_engine_queue import batch_queue, call, llm_queue, sent


@catches(
    "moving-costs-a-try",
    "moving off a dead instance uses up retries",
    edited(Placing._elsewhere, "excused=old.excused + 1", "excused=old.excused"),
)
def test_moving_off_a_dead_instance_leaves_all_tries_for_failures() -> None:
    """It never ran there, so nothing of its own went wrong."""
    queue = llm_queue(instances=2)
    for k in range(3):
        queue.submit(call(k, 30, affinity=1, retries=1), 0.0)
    queue.down(InstanceDown("e", 1), 1.0)
    (moved,) = sent(queue, 1.0)
    assert (moved.instance, len(moved.slices)) == (0, 3)
    assert queue.retries == 0
    assert hear(queue, failed(moved), 2.0)[-1] == Retried("q", 0, AGAIN)
    (again,) = sent(queue, 2.0)
    assert hear(queue, failed(again), 3.0)[-1] == Tell("q", Failed(0, AGAIN))
    assert queue.retries == 1


@catches(
    "drained-at-once",
    "draining takes away what an instance has",
    edited(EngineQueue.draining, "self.placing.unbind(event.instance, now)", "self.works.clear()"),
)
@catches(
    "drained-and-fed",
    "an instance that is drained gets more",
    edited(EngineQueue.draining, "self.instances.down(event.instance, healing=True)", "pass"),
)
@catches(
    "drained-and-waited-for",
    "what is bound to an instance that is drained waits for it",
    edited(EngineQueue.draining, "self.placing.unbind(event.instance, now)", "pass"),
)
def test_a_draining_instance_ends_what_it_has_and_gets_nothing_more() -> None:
    queue = llm_queue(instances=2)
    queue.submit(call(0, 90, affinity=1), 0.0)
    (there,) = sent(queue)
    queue.submit(call(1, 40, affinity=1), 0.0)
    queue.draining(InstanceDraining("e", 1), 1.0)
    (moved,) = sent(queue, 1.0)
    assert (moved.instance, [p.work.primitive for p in moved.slices]) == (0, [1])
    queue.submit(call(2, 40, affinity=1), 1.0)
    (other,) = sent(queue, 1.0)
    assert other.instance == 0
    assert len(queue.first_token(FirstToken("e", 1, "q", 0), 2.0)) == 1, "it is still heard of"
    assert hear(queue, done(there), 3.0) == []
    queue.submit(call(3, 40), 3.0)
    assert sent(queue, 3.0) == [], "the other one is full"
    queue.up(InstanceUp("e", 1), 0.0)
    assert [d.instance for d in sent(queue, 4.0)] == [1]


def test_the_last_instance_is_waited_for_while_it_is_drained() -> None:
    queue = batch_queue()
    queue.draining(InstanceDraining("e", 0), 0.0)
    queue.submit(work(0), 0.0)
    assert queue.dispatch(0.0) == []
    assert queue.queued == 1
    queue.up(InstanceUp("e", 0), 0.0)
    assert len(sent(queue, 1.0)) == 1
