"""What an engine answers to a dispatch, as events, and a queue that hears of it."""

from __future__ import annotations

from teola.errors import EngineError
from teola.policies.work import Slice
from teola.schedule.engine_queue import EngineQueue, Output
from teola.schedule.events import BatchCompleted, CallEnded, Cause, Dispatch, Outcome

AGAIN = Cause(EngineError("busy", retryable=True), retryable=True)
Ended = BatchCompleted | CallEnded


def ended(dispatch: Dispatch, *outcomes: Outcome | None, k: int = 0) -> Ended:
    """The batch is over (None, or none given: as many items as were sent); of one of LLM calls, the
    call number `k`."""
    given = outcomes or (None,) * len(dispatch.slices)
    if dispatch.slices[0].work.spec.lane is None:
        work = dispatch.slices[k].work
        outcome = given[0] or {}
        return CallEnded(dispatch.engine, dispatch.batch, work.run, work.primitive, outcome)
    found = [_all(one) if o is None else o for one, o in zip(dispatch.slices, given, strict=True)]
    return BatchCompleted(dispatch.engine, dispatch.batch, found)


def _all(one: Slice) -> dict[str, int]:
    return {"out": one.hi - one.lo}


def done(dispatch: Dispatch, k: int = 0, count: int | None = None) -> Ended:
    """All went well. count: items of each slice."""
    outcome = None if count is None else {"out": count}
    return ended(dispatch, *([outcome] * len(dispatch.slices)), k=k)


def failed(dispatch: Dispatch, k: int = 0, cause: Cause = AGAIN) -> Ended:
    """Nothing did."""
    return ended(dispatch, *([cause] * len(dispatch.slices)), k=k)


def hear(queue: EngineQueue, event: Ended, now: float) -> list[Output]:
    """What the queue says to it."""
    if isinstance(event, BatchCompleted):
        return queue.completed(event, now)
    return queue.call_ended(event, now)
