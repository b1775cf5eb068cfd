"""Runs the requests of a recorded run through the simulator's StepServer, without any scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from teola.instance import Step, StepServer, TokenSequence
from teola.kv import BlockCache, make_policy
from teola.profile import StepTime
from teola.runtime.step_fit.recorded_run import RecordedRequest, RecordedRun

TERMS = ("base_s", "per_sequence_s", "per_context_s", "per_token_s", "per_pair_s", "prefill_s")
TermValues = NDArray[numpy.float64]


def terms(step: Step, repeats: int) -> TermValues:
    """What the step's time is in proportion to, in the order of TERMS."""
    context = repeats * step.context + step.decodes * (repeats * (repeats - 1) // 2)
    decodes = repeats * step.decodes
    return numpy.array((repeats, decodes, context, step.tokens, step.pairs, step.tokens > 0), float)


@dataclass
class SteppedRun:
    """answered: the requests, with the times at which they would be answered. decode: by request,
    the terms of all steps from its first token to its last. preemptions: how many there were."""

    answered: list[RecordedRequest]
    decode: list[TermValues]
    preemptions: int


def replay(run: RecordedRun, time: StepTime) -> SteppedRun:
    """The run as it would be if steps took this time. No request finds what another one computed,
    but one that was preempted what it had computed itself."""
    cache = BlockCache(run.kv_blocks, run.block_tokens, make_policy("lru"))
    finds = run.finds and run.kv_blocks is not None
    server = StepServer(run.token_budget, run.max_sequences, cache)
    answered, coming = list(run.requests), 0
    nothing: TermValues = numpy.zeros(len(TERMS))
    spent, until_first, decode = nothing, [nothing] * len(answered), [nothing] * len(answered)
    now, ended = 0.0, 0
    while ended < len(answered):
        while coming < len(answered) and run.requests[coming].queued <= now:
            request = run.requests[coming]
            grown = _own_keys(coming, run.block_tokens) if finds else None
            server.add(TokenSequence(coming, request.prompt, request.output, grown=grown))
            coming += 1
        step = server.plan(now)
        if step is None:
            now = run.requests[coming].queued
            continue
        repeats = step.repeat
        if coming < len(answered):
            until = run.requests[coming].queued - now
            repeats = min(repeats, time.steps(until, step.decodes, step.context))
        now += time.seconds(step.decodes, step.context, step.tokens, step.pairs, repeats)
        spent = spent + terms(step, repeats)
        for event in server.finish(step, now, repeats):
            id = event.id
            assert isinstance(id, int)
            if event.kind == "first":
                until_first[id], answered[id] = spent, answered[id]._replace(first=now)
            else:
                decode[id] = spent - until_first[id]
                answered[id] = answered[id]._replace(last=now)
                ended += 1
    return SteppedRun(answered, decode, server.preemptions)


def _own_keys(id: int, block_tokens: int) -> Callable[[int], range]:
    """Keys of the blocks of a request that nobody shares."""
    first = id << 32
    return lambda tokens: range(first, first + tokens // block_tokens)
