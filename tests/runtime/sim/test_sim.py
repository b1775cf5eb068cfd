"""The sim driver: virtual time by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teola.graph import Op, Ref
from teola.passes import optimise
from teola.profile import Cost, EngineProfile, Profile, StepTime, paper
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.schedule.plan import Plan
from teola_apps.advanced_rag import app as advanced_rag
from tests.schedule.plans import call, plan, tool

STEP = 0.1


def llm(**more: Any) -> Profile:
    """A prompt takes 1 s whatever its length, a decoding step 0.1 s."""
    given = {"instances": 1, "max_batch": 1000, "max_sequences": 4} | more
    engine = EngineProfile(step=StepTime.of(Cost(base_s=1.0), Cost(base_s=STEP)), **given)
    return Profile("test", {"llm": engine})


def ends(sim: Sim) -> dict[str, float]:
    return {result.id: round(result.finished, 6) for result in sim.run()}


def one_call() -> Plan:
    return plan(*call("m"))


def submit(sim: Sim, id: str, at: float = 0.0, tokens: int = 10, **more: Any) -> None:
    sim.submit(one_call(), {"question": Tokens(tokens)}, id=id, at=at, **more)


def test_a_call_takes_its_prefill_and_its_steps() -> None:
    """1 s for the prompt and the first of 11 tokens, ten steps for the others."""
    sim = Sim(llm(), outcomes=Planned(answer_tokens=11))
    submit(sim, "a")
    assert ends(sim) == {"a": 2.0}


def test_calls_decode_together() -> None:
    sim = Sim(llm(), outcomes=Planned(answer_tokens=11))
    submit(sim, "a")
    submit(sim, "b")
    assert ends(sim) == {"a": 2.0, "b": 2.0}


def test_a_prefill_waits_for_the_step_and_stretches_the_decodings() -> None:
    """b arrives at 1.45 s, while a decodes: its prompt runs from 1.5 s to 2.5 s; a has had five of
    its ten steps before and one beside it, so four are left, b needs ten."""
    sim = Sim(llm(), outcomes=Planned(answer_tokens=11))
    submit(sim, "a")
    submit(sim, "b", at=1.45)
    assert ends(sim) == {"a": 2.9, "b": 3.5}


def test_a_bound_on_sequences_makes_calls_wait() -> None:
    sim = Sim(llm(max_sequences=1), outcomes=Planned(answer_tokens=11))
    submit(sim, "a")
    submit(sim, "b")
    assert ends(sim) == {"a": 2.0, "b": 4.0}


def test_two_instances_run_side_by_side() -> None:
    sim = Sim(llm(max_sequences=1), outcomes=Planned(answer_tokens=11), instances={"llm": 2})
    submit(sim, "a")
    submit(sim, "b")
    assert ends(sim) == {"a": 2.0, "b": 2.0}


def test_each_instance_of_a_pool_takes_its_own_time() -> None:
    """The second one takes 3 s for a prompt, and as long as the first for a step; a fourth, which
    the pool does not reach, is as the engine says."""
    fast = llm().engines["llm"]
    slow = replace(fast, step=replace(fast.step, prefill_s=fast.step.prefill_s + 2.0))
    profile = llm(instances=4, max_sequences=1)
    entry = profile.engines["llm"]
    profile = replace(profile, engines={"llm": replace(entry, pool=(entry, slow, entry))})
    sim = Sim(profile, routing="round_robin", outcomes=Planned(answer_tokens=11))
    for id in "abcd":
        submit(sim, id)
    assert ends(sim) == {"a": 2.0, "b": 4.0, "c": 2.0, "d": 2.0}


def test_batches_take_the_time_of_their_instance() -> None:
    fast = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=1.0)}, max_batch=1, instances=2)
    slow = replace(fast, costs={Op.TOOL_CALL: Cost(base_s=2.5)})
    sim = Sim(Profile("test", {"python": replace(fast, pool=(fast, slow))}), routing="round_robin")
    for id in "ab":
        sim.submit(plan(tool("t")), {"question": Tokens(1)}, id=id)
    assert sorted(ends(sim).values()) == [1.0, 2.5]


def test_dispatching_takes_its_time() -> None:
    profile = llm()
    sim = Sim(Profile("test", profile.engines, dispatch_s=0.25), outcomes=Planned(answer_tokens=1))
    submit(sim, "a")
    assert ends(sim) == {"a": 1.25}


def test_a_cancelled_call_frees_its_place_at_once() -> None:
    sim = Sim(llm(max_sequences=1), outcomes=Planned(answer_tokens=101))
    submit(sim, "a", cancel_after_s=2.0)
    submit(sim, "b")
    found = {r.id: r for r in sim.run()}
    assert found["a"].state is State.CANCELLED
    assert found["a"].finished == 2.0
    assert found["b"].finished == pytest.approx(2.0 + 1.0 + 10.0)
    assert all(queue.idle for queue in sim.core.queues.values())


def test_a_deadline_ends_a_query() -> None:
    sim = Sim(llm(), outcomes=Planned(answer_tokens=101))
    submit(sim, "a", at=3.0, deadline_s=1.5)
    (result,) = sim.run()
    assert (result.state, result.finished, result.latency_s) == (State.DEADLINE, 4.5, 1.5)
    assert all(queue.idle for queue in sim.core.queues.values())


def test_time_can_be_stopped_and_go_on() -> None:
    sim = Sim(llm(), outcomes=Planned(answer_tokens=11))
    submit(sim, "a")
    submit(sim, "b", at=5.0)
    assert [r.id for r in sim.run(until=3.0)] == ["a"]
    assert [r.id for r in sim.run()] == ["a", "b"]


def test_a_waiting_batch_goes_when_its_time_is_up() -> None:
    profile = Profile("test", {"tool": EngineProfile({Op.TOOL_CALL: Cost(base_s=1.0)})})
    sim = Sim(profile, batching="fifo", policy_options={"python": {"max_wait_s": 0.5}})
    both = plan(tool("a"), outputs={"answer": Ref("a", "out")})
    sim.submit(both, {}, id="x")
    sim.submit(both, {}, id="y", at=0.25)
    assert ends(sim) == {"x": 1.5, "y": 1.5}


def test_times_that_vary_are_drawn_by_seed() -> None:
    profile = Profile("test", {"tool": EngineProfile({Op.TOOL_CALL: Cost(base_s=1.0, sigma=0.5)})})
    found = []
    for seed in (1, 1, 2):
        sim = Sim(profile, outcomes=Planned(seed=seed))
        sim.submit(plan(tool("a")), {}, id="x")
        found.append(ends(sim)["x"])
    assert found[0] == found[1] != found[2]


def rag_seconds(passes: list[str] | None, batching: str = "topology") -> float:
    builder, profile = advanced_rag.builder, paper("13b")
    graph = builder.build(builder.configure({}), {"chunks": 48})
    sim = Sim(profile, batching=batching)
    sim.submit(
        Plan(optimise(graph, profile, passes).e_graph),
        {"question": Tokens(14), "chunks": [Tokens(256)] * 48, "scope": Tokens(0)},
    )
    (result,) = sim.run()
    assert result.state is State.OK
    return result.latency_s


def test_the_passes_make_advanced_rag_faster() -> None:
    """On one query, under the paper's profile; each pass on its own does not make it slower."""
    chain = rag_seconds([])
    assert rag_seconds(None) < chain / 1.2
    for name in ("prune_dependencies", "decompose_stages", "pipeline_decoding"):
        assert rag_seconds([name]) <= chain * 1.02, name
