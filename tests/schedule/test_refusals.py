"""Queues whose servers refuse: batches of several slices, pools of which each refuses in turn."""

from __future__ import annotations

import pytest

from teola.errors import EngineAway, EngineBusy
from teola.policies import batching, routing
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import BatchCompleted, Cause, Dispatch, SetTimer, Waits
from teola.schedule.instances import Limits
from teola.schedule.quota import Refusal
from tests.recording import work
from tests.schedule.refusing import Refusing, Server


def batches(instances: int = 1) -> EngineQueue:
    limits = [Limits(8, 8, 1, continuous=False)] * instances
    return EngineQueue("e", limits, batching.make("fifo"), routing.make("least_loaded"))


def refused(kind: str) -> Cause:
    if kind == "away":
        return Cause(EngineAway("refused"), True, refused=Refusal("away"))
    return Cause(EngineBusy("full"), True, refused=Refusal("busy"))


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["away", "busy"])
def test_the_only_server_is_waited_for_by_each_slice_of_a_batch(kind: str) -> None:
    queue, now = batches(), 0.0
    for k in range(3):
        queue.submit(work(k, retries=2, total=2), now)
    for _ in range(6):
        (sent,) = [c for c in queue.dispatch(now) if isinstance(c, Dispatch)]
        assert len(sent.slices) == 3
        told = queue.completed(BatchCompleted("e", sent.batch, [refused(kind)] * 3), now)
        assert [type(one) for one in told] == [Waits] * 3, "none has failed"
        until = {one.until for one in told if isinstance(one, Waits)}
        quota = queue.instances.limit(0, "e")
        assert until == {quota.closed_until}
        assert quota.closed_until > now
        timers = [c.at for c in queue.dispatch(now) if isinstance(c, SetTimer)]
        assert timers == [quota.closed_until]
        now = quota.closed_until
    assert queue.instances.limit(0, "e").refusals == 6, "a batch is one call"


def test_a_batch_of_which_the_last_slice_is_not_wanted_any_more_closes_its_server() -> None:
    queue = batches()
    for k in range(2):
        queue.submit(work(k, retries=2, total=2), 0.0)
    (sent,) = [c for c in queue.dispatch(0.0) if isinstance(c, Dispatch)]
    queue.withdraw("q", 1, 0.0)
    outcomes = [refused("busy"), Cause(EngineBusy("full"))]  # as of a query that has ended
    queue.completed(BatchCompleted("e", sent.batch, outcomes), 0.0)
    assert not [c for c in queue.dispatch(0.0) if isinstance(c, Dispatch)]
    assert queue.instances.limit(0, "e").closed_until > 0.0


# --- pools of which each refuses in turn ------------------------------------------------------


def test_who_was_away_is_asked_again_when_no_other_takes_anything() -> None:
    world = Refusing(Server(away=(0.0, 0.5), call_s=0.1), Server(at_once=0, after_s=100.0))
    world.comes(3)
    world.run(until=10.0)
    assert [i for _, i in world.ok] == [0] * 3
    assert not world.failed


def test_what_was_kept_from_one_goes_there_when_the_other_is_closed_by_others() -> None:
    world = Refusing(
        Server(away=(0.0, 0.5), call_s=0.1), Server(at_once=1, after_s=100.0, call_s=2.0)
    )
    world.comes(8)
    world.run(until=20.0)
    assert len(world.ok) == 8
    assert not world.failed
