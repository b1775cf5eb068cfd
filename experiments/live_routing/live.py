"""The live half: calls that reach the servers through a runtime, and what is learned of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from time import monotonic
from typing import Any, Final, NamedTuple

from experiments.common.arrivals import arrivals
from experiments.common.latencies import percentile
from experiments.live_routing.pair import COUNT, Pair
from experiments.live_routing.workload import Asked, app
from experiments.replay.replay import LLM
from teola import App, Runtime
from teola.cost import StepTime
from teola.engine import Call, EngineSpec, Keys, QueryContext, TextPart
from teola.errors import EngineError
from teola.graph import DecodeParams, Op, Prompt
from teola.learning import Lessons
from teola.policies.routing import DEFAULT
from teola.profile import Profile
from teola.runtime.observe.trace import Trace
from teola.schedule.plan import Plan

DEADLINE_S: Final = 3600.0
ALONE: Final = 12
"""Calls that teach one by one; the others do so together."""
TOGETHER: Final = 0.9
"""Of those, arrivals at each server in the time that one takes alone."""


class Answered(NamedTuple):
    """What became of a call, in seconds after it was due."""

    latency_s: float
    ttft_s: float

    @classmethod
    def of(cls, trace: Trace, due: float) -> Answered:
        """By its trace."""
        assert trace.finished is not None
        first = next(span.end for span in trace.spans if span.op == Op.PREFILLING.value)
        return cls(trace.finished - due, trace.admitted + first - due)


class Learned(NamedTuple):
    """Of a server: what a step takes, and how much longer for the other one (EngineProfile)."""

    step: StepTime
    crowding: float


@dataclass(frozen=True, slots=True)
class Routed:
    """What a policy made of a workload. asked, found: tokens of prompts, as the servers counted
    them. others: processor cores that were busy with something else. learned: meanwhile, of each
    server."""

    answered: Sequence[Answered]
    asked: int
    found: int
    others: float
    learned: Learned

    def row(self) -> dict[str, Any]:
        """Its part of a row of the report."""
        latencies = [one.latency_s for one in self.answered]
        return {
            "calls": len(latencies),
            "hit_tokens": self.found,
            "hit_ratio": round(self.found / max(1, self.asked), 5),
            "mean_s": round(fmean(latencies), 4),
            "p99_s": round(percentile(latencies, 99), 4),
            "ttft_mean_s": round(fmean(one.ttft_s for one in self.answered), 4),
        }


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the servers when policies are compared. learned: of each.
    spec: as they declare themselves. sizes: of the calls that will be asked, by the engine."""

    learned: Learned
    spec: EngineSpec
    sizes: Sequence[Sequence[Keys]]


def routed(pair: Pair, policy: str, profile: Profile, calls: Sequence[Asked]) -> Routed:
    """The calls under a routing policy, with nothing in the caches."""
    pair.empty()
    with Runtime({LLM: pair.engine(policy)}, profile=profile) as runtime:
        application = app(runtime)
        runtime.start(runtime.ensure([LLM])).result()
        before, busy, began = pair.prefixes(), pair.others_s(), monotonic()
        answered = [Answered.of(trace, due) for trace, due in _ask(application, calls)]
        others = (pair.others_s() - busy) / (monotonic() - began)
        counted = pair.prefixes().since(before)
        return Routed(answered, counted.asked, counted.found, others, _learned(runtime))


def known(pair: Pair, teaching: Sequence[Asked], coming: Sequence[Sequence[Asked]]) -> Known:
    """What a runtime learns from the first calls, and the sizes of others."""
    with Runtime({LLM: pair.engine(DEFAULT)}) as runtime:
        application = app(runtime)
        alone = [_ask(application, [replace(call, at=0.0)])[0] for call in teaching[:ALONE]]
        each = fmean(trace.latency_s for trace, _ in alone)
        rest = teaching[ALONE:]
        times = arrivals(COUNT * TOGETHER / each, len(rest))
        traces = _ask(
            application, [replace(call, at=at) for call, at in zip(rest, times, strict=True)]
        )
        learned = _learned(runtime)
        plan = traces[-1][0].plan
        assert plan is not None
        engine = runtime.host(LLM).engine
        sizes = [[engine.keys(_call(plan, one)) for one in calls] for calls in coming]  # type: ignore[attr-defined]
        return Known(learned, runtime.spec(LLM), sizes)


def _ask(application: App, calls: Sequence[Asked]) -> list[tuple[Trace, float]]:
    """The traces of the calls, each of which is asked at its time, and when that was."""

    async def one(call: Asked, began: float) -> tuple[Trace, float]:
        loop, due = asyncio.get_running_loop(), began + call.at
        await asyncio.sleep(due - loop.time())
        result = await application.arun(call.given(), deadline_s=DEADLINE_S)
        assert result.trace is not None
        return result.trace, due

    async def everything() -> list[tuple[Trace, float]]:
        began = asyncio.get_running_loop().time()
        return await asyncio.gather(*(one(call, began) for call in calls))

    return application.home.start(everything()).result()


def _learned(runtime: Runtime) -> Learned:
    """What steps of the servers take. Raises EngineError if too few calls were asked."""

    async def snapshot() -> Lessons:
        assert runtime.learner is not None
        return runtime.learner.snapshot()

    times = runtime.start(snapshot()).result().engines.get(LLM)
    if times is None or times.step is None:
        raise EngineError("a step's time was not learned: ask more calls")
    return Learned(times.step, times.crowding)


def _call(plan: Plan, asked: Asked) -> Call:
    """The LLM call that will be made of it."""
    primitive = next(p for p in plan.primitives if p.op is Op.PREFILLING)
    prompt, given = primitive.input("prompt"), asked.given()
    assert isinstance(prompt, Prompt)
    parts = tuple(
        TextPart(
            part.role, part.content if isinstance(part.content, str) else given[part.content.port]
        )
        for part in prompt.parts
    )
    return Call(QueryContext("size"), parts, DecodeParams())
