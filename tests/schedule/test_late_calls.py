"""Calls that give no token in time: what becomes of them, and when a second try is late itself."""

from __future__ import annotations

from typing import Any

import pytest

from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    CallEnded,
    Cause,
    Dispatch,
    Ejected,
    FirstTokenLate,
    Retried,
    Timer,
)
from teola.schedule.hedging import Backup, Hedging
from teola.schedule.instances import Limits
from teola.schedule.overdue import UNKNOWN_S, Overdue
from tests.recording import work

STEP_S, TOKEN_S = 1.0, 0.01


def queue_of(instances: int, *, timed: bool = True, kv_blocks: int | None = None) -> EngineQueue:
    limits = Limits(100, 8, 1, True, kv_blocks, 1)
    step = StepTime(base_s=STEP_S, per_token_s=TOKEN_S)
    profiles = [EngineProfile(step=step, max_batch=100)] * instances if timed else ()
    queue = EngineQueue(
        "e",
        [limits] * instances,
        batching.make("fifo"),
        routing.make("round_robin"),
        profiles,
    )
    queue.overdue = Overdue()
    return queue


def call(seq: int = 0, retries: int = 1, **more: Any) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "cuttable": False, "members": (1,), **more}
    return work(seq, run=f"q{seq}", primitive=0, total=20, retries=retries, **given)


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("instances", [1, 2])
def test_a_late_call_goes_elsewhere_if_it_may_and_there_is_an_elsewhere(
    instances: int, retries: int
) -> None:
    """As one that failed through no fault of its caller's, who may ask again."""
    queue = queue_of(instances, timed=False)
    queue.submit(call(retries=retries), 0.0)
    (sent,) = (one for one in queue.dispatch(0.0) if isinstance(one, Dispatch))
    assert queue.woken(Timer("e"), UNKNOWN_S - 0.1) == []
    out = queue.woken(Timer("e"), UNKNOWN_S)
    moves = retries > 0 and instances > 1
    assert out[0] == FirstTokenLate("e", 0, UNKNOWN_S, moves)
    assert queue.instances[0].quota is not None
    if not moves:
        assert out[1:] == []
        assert queue.works["q0", 0].on(0)
        return
    assert out[1] == AbortRequest("e", 0, sent.batch, "q0", 0)
    assert not any(isinstance(one, Ejected) for one in out)
    (retried,) = (one for one in out if isinstance(one, Retried))
    assert isinstance(retried.cause, Cause)
    error: Any = retried.cause.error
    assert str(error) == "instance 0 of 'e' gave no token for 60 s"
    assert (error.retryable, retried.cause.retryable, retried.cause.lost) == (True, True, False)
    (again,) = (one for one in queue.dispatch(UNKNOWN_S) if isinstance(one, Dispatch))
    assert again.instance == 1
    assert queue.call_ended(CallEnded("e", sent.batch, "q0", 0, {"sequence": 1}), 61.0) == []
    assert queue.works["q0", 0].on(1), "what comes from the first one comes for nobody"


def expected_of(pending: int, kv_tokens: int | None) -> float:
    """Seconds within which a second try is expected to give a token once the first one has ended.
    pending: tokens that are computed there besides, of a call of 30."""
    queue = queue_of(2, kv_blocks=kv_tokens)
    queue.hedging = Hedging(1.0)
    one = call(planned_output=5)
    one.spans, one.queued, one.prefilling = [], False, True
    queue.works["q0", 0], one.flying[0, 20] = one, (0, 1)
    queue.instances.send(0, 1, 20, 1)
    queue.instances.send(1, 2, 20, 1)
    queue.instances.send(1, 3, 30, 1, 30 - pending)
    backup = Backup(1, 2, 0.5)
    queue.hedging.running["q0", 0] = backup
    queue._take_place(one, backup, 1.0)
    assert one.on(1)
    assert (one.sent, one.found) == (0.5, 0)
    queue._waits_there(one, backup, 1.0)
    assert queue.overdue is not None
    (sent,) = queue.overdue._sent.values()
    assert (sent.instance, sent.batch, sent.tokens) == (1, 2, 20 + pending)
    assert sent.expected_s is not None
    return sent.expected_s


@pytest.mark.parametrize("pending", [0, 30])
def test_a_second_try_that_is_the_only_one_left_is_late_by_what_is_pending_there(
    pending: int,
) -> None:
    """It was sent before, and counts there: nothing more is to be computed, nor to fit. The two
    prompts there have 50 tokens, and one of the answers 5."""
    expected_s = expected_of(pending, None)
    assert expected_s == pytest.approx((20 + pending) * (TOKEN_S + STEP_S / 100))
    assert expected_of(pending, 55) == expected_s
    assert expected_of(pending, 54) > expected_s
