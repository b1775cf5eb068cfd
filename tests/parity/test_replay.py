"""Replay: a core is a function of what it is told and when, whoever tells it.

A log of what a core heard, live or simulated, is told to a fresh one, which has to say the same. So
both drivers use a core that keeps no clock, no randomness and nothing else of its own, and a log is
enough to look into a run. What a simulation predicts of a live run is another question; see
`tests/experiments/test_fidelity.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.cost import StepTime
from teola.errors import EngineError
from teola.passes import PIPELINE, optimise
from teola.policies.batching import BATCHING
from teola.profile import EngineProfile, Profile, paper
from teola.runtime.sim import Sim
from teola.runtime.sim.staged import (
    StagedAnswers,
    StagedCall,
    StagedPlans,
    StagedQuery,
    inputs_of,
)
from teola.runtime.values import Tokens
from teola.schedule.events import Cause, Command, Dispatch, Finish, Retried, Tuned
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashEmbedder, hash_engines
from teola.testing.pass_contract import parts_by, profile_of
from teola.testing.templates import RandomTemplate
from tests.properties.drawn import Drawn, grown
from tests.recording import Bench, Log, RecordingCore, fresh, replayed
from tests.runtime.faults import Flaky


def plain(commands: list[Command]) -> list[Any]:
    """Commands with errors and works by value: these are equal to themselves only."""
    return [_plain_command(command) for command in commands]


def _plain_command(command: Command) -> Any:
    if isinstance(command, (Finish, Retried)):
        plain = replace(command, cause=_plain(command.cause))  # type: ignore[arg-type]
        if isinstance(plain, Finish):
            return replace(plain, reasons=tuple(map(_plain, plain.reasons)))  # type: ignore[arg-type]
        return plain
    if isinstance(command, Dispatch):
        slices = [(w.run, w.primitive, lo, hi, w.arrival, w.total) for w, lo, hi in command.slices]
        return replace(command, slices=tuple(slices))  # type: ignore[arg-type]
    return command


def _plain(cause: Cause | None) -> object:
    return cause and (type(cause.error), str(cause.error), cause.retryable)


async def record(made: RandomTemplate, names: list[str], batching: str, cancel: int | None) -> Log:
    """Two live queries at once, of which one may be cancelled after some turns of the loop."""
    graph = made.builder.build(made.builder.configure({}), made.sizes)
    plan = Plan(optimise(graph, profile_of(), names).e_graph, parts=parts_by(names, profile_of()))
    served = hash_engines(models=2)
    served["embedding"] = [Flaky(HashEmbedder(), failing={1}), HashEmbedder()]
    async with Bench(served, batching=batching) as bench:
        tasks = [bench.start(plan, {**made.inputs, "chunks": []}) for _ in range(2)]
        if cancel is not None:
            for _ in range(cancel):
                await asyncio.sleep(0)
            tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await bench.settle()
        bench.assert_idle()
        return bench.core.log


@settings(max_examples=40)
@given(
    made=grown(),
    names=st.sampled_from([None, []]),
    batching=st.sampled_from(sorted(BATCHING)),
    cancel=st.none() | st.integers(0, 40),
)
def test_a_fresh_core_repeats_what_the_live_one_did(
    made: RandomTemplate, names: list[str], batching: str, cancel: int | None
) -> None:
    log = asyncio.run(record(made, names, batching, cancel))
    queues = {
        name: fresh(_queue(name, engine), batching)
        for name, engine in {**hash_engines(2), "embedding": [HashEmbedder()] * 2}.items()
    }
    for call, again in zip(log.calls, replayed(log, queues), strict=True):
        assert plain(again) == plain(call[3]), call[:2]


def _queue(name: str, engine: Any) -> Any:
    from teola.runtime.engines import EngineConfig, queue_for

    instances = engine if isinstance(engine, list) else [engine]
    return queue_for(name, instances, EngineConfig(name, instances=len(instances)))


@settings(max_examples=40)
@given(made=grown(), batching=st.sampled_from(sorted(BATCHING)), seed=st.integers(0, 9))
def test_a_fresh_core_repeats_what_the_simulated_one_did(
    made: RandomTemplate, batching: str, seed: int
) -> None:
    graph = made.builder.build(made.builder.configure({}), made.sizes)
    parts = parts_by(list(PIPELINE), paper("13b"))
    plan = Plan(optimise(graph, paper("13b")).e_graph, paper("13b"), parts=parts)
    sim = Sim(paper("13b"), batching=batching, outcomes=Drawn(seed))
    core = sim.core = RecordingCore({}, sim._measure, sim.queries)
    inputs = {
        "question": Tokens(14),
        "notes": [Tokens(20)] * made.sizes["notes"],
        "chunks": [Tokens(256)] * made.sizes["chunks"],
        "scope": Tokens(0),
    }
    for k in range(3):
        sim.submit(plan, inputs, at=0.1 * k, cancel_after_s=0.4 if k == 1 else None)
    assert len(sim.run()) == 3
    queues = {name: fresh(queue, batching) for name, queue in core.queues.items()}
    for call, again in zip(core.log.calls, replayed(core.log, queues), strict=True):
        assert plain(again) == plain(call[3]), call[:2]


def test_a_log_in_which_an_option_was_tuned_is_repeated() -> None:
    """The event is in the log: without it, a fresh core decides otherwise."""
    pool = tuple(
        EngineProfile(step=StepTime(0.02, per_token_s=token_s), max_batch=2048, max_sequences=256)
        for token_s in (0.0002, 0.0008)
    )
    llm = replace(pool[0], pool=pool, instances=2, source="declared")
    profile = Profile("unequal", {"llm": llm})
    query = StagedQuery(((StagedCall("plan", 1000, 20),), (StagedCall("tell", 3000, 40),)))
    answers, plan = StagedAnswers(), StagedPlans(profile).plan(query)
    policies = {"batching": "urgency", "routing": "workload_balanced"}
    sim = Sim(profile, **{kind: {"llm": name} for kind, name in policies.items()}, outcomes=answers)
    core = sim.core = RecordingCore({}, sim._measure, sim.queries)
    for k in range(12):
        answers.put(str(k), query)
        sim.submit(plan, inputs_of(query), at=0.2 * k, id=str(k), finish_by_s=20.0)
    sim.at(1.0, lambda: sim.handle(Tuned("llm", "routing", {"alpha": 1.0}), sim.now))
    assert len(sim.run()) == 12

    def again(log: Log) -> list[Any]:
        queues = {name: fresh(queue, **policies) for name, queue in core.queues.items()}
        return [plain(commands) for commands in replayed(log, queues)]

    said = [plain(call[3]) for call in core.log.calls]
    assert again(core.log) == said
    untuned = [call for call in core.log.calls if not isinstance(call[1], Tuned)]
    assert len(untuned) == len(said) - 1
    assert again(replace(core.log, calls=untuned)) != [plain(call[3]) for call in untuned]


def test_an_error_is_told_apart() -> None:
    """The comparison above would notice another cause."""
    finish = Finish("q", "failed", Cause(EngineError("a")), ())  # type: ignore[arg-type]
    other = replace(finish, cause=Cause(EngineError("b")))
    assert plain([finish]) != plain([other])
    assert plain([finish]) == plain([replace(finish, cause=Cause(EngineError("a")))])


@pytest.mark.parametrize("batching", ["topology", "fifo", "per_invocation"])
def test_the_log_holds_something(batching: str) -> None:
    """A replay of nothing would prove nothing."""
    from hypothesis import find

    made = find(grown(), lambda made: len(made.builder.template.components) > 2)
    log = asyncio.run(record(made, [], batching, None))
    assert sum(len(call[3]) for call in log.calls) > 4
