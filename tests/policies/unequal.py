"""Queues over instances that differ in speed, by seconds a prompt token and seconds a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from teola.graph import Op
from teola.policies.asker import Asker
from teola.policies.pairing import pair
from teola.policies.work import Estimate, Work, WorkSpec
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import CallEnded, Dispatch, FirstToken
from teola.schedule.instances import Limits

BUDGET = 2048


def queue(
    speeds: list[tuple[float, float]],
    *,
    batching: str = "fifo",
    routing: str = "least_loaded",
    options: dict[str, Any] | None = None,
    routing_options: dict[str, Any] | None = None,
    budget: int = BUDGET,
    sequences: int = 256,
) -> EngineQueue:
    """speeds: of each instance (seconds a token, seconds a step)."""
    profiles = [
        EngineProfile(step=StepTime(step, per_token_s=token), max_batch=budget)
        for token, step in speeds
    ]
    limits = [Limits(budget, sequences, 1, True) for _ in speeds]
    made = pair(batching, options or {}, routing, routing_options or {})
    return EngineQueue("e", limits, *made, profiles)


def call(
    run: str,
    total: int,
    answer: int = 0,
    *,
    at: float = 0.0,
    seq: int = 0,
    finish_by: float = float("inf"),
    rest_s: float = 0.0,
    **more: Any,
) -> Work:
    """A call of so many prompt tokens whose answer is expected to have so many."""
    spec = WorkSpec(
        engine="e",
        op=Op.PREFILLING,
        component="c",
        lane=None,
        cuttable=False,
        depth=0,
        members=(1,),
        retries=2,
        estimate=Estimate(rest_s=rest_s),
        expected_output=answer,
    )
    admitted = more.setdefault("admitted", 0.0)
    asker = Asker("t", "app", run, admitted, finish_by)
    return Work(spec, run, 0, total, at, seq, asker=asker, spans=[(0, total)], **more)


def window(run: str, rows: int, row_tokens: int, *, seq: int = 0) -> Work:
    """So many rows of a table, which leave room to calls."""
    one = call(run, rows, 100, seq=seq, row_tokens=row_tokens)
    return replace(one, spec=replace(one.spec, rows=True, yields=True, cuttable=True, members=()))


def submit(made: EngineQueue, work: Work, now: float = 0.0) -> int:
    """Where it is bound."""
    made.submit(work, now)
    return work.affinity


def sent(made: EngineQueue, now: float = 0.0) -> list[tuple[str, int]]:
    """(run, instance) of what goes out in a round."""
    return [
        (one.work.run, command.instance)
        for command in made.dispatch(now)
        if isinstance(command, Dispatch)
        for one in command.slices
    ]


def first(made: EngineQueue, run: str, now: float = 0.0) -> None:
    """A call's first token."""
    ((i, _),) = made.works[run, 0].flying.values()
    made.first_token(FirstToken("e", i, run, 0), now)


def end(made: EngineQueue, run: str, now: float = 0.0, generated: int | None = None) -> None:
    """A call's end."""
    ((_, batch),) = made.works[run, 0].flying.values()
    made.call_ended(CallEnded("e", batch, run, 0, {}, 0, generated), now)
