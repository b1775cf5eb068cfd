"""The sim driver: virtual time by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from teola.errors import InputError, UnknownName
from teola.graph import Op, Ref
from teola.passes import optimise
from teola.profile import Cost, EngineProfile, Profile, StepTime, paper
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import Dispatch, State
from teola.schedule.plan import Plan
from teola_apps.advanced_rag import app as advanced_rag
from tests.planted import catches, edited
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


class Deaf(Sim):
    """Its engines hear nothing of what they are sent."""

    def dispatch(self, command: Dispatch, now: float) -> None:
        pass


@catches(
    "unfinished-left-out-of-results",
    "queries that never end are not among the results",
    edited(Sim.run, "[*self.results, *self.unfinished]", "self.results"),
)
def test_a_query_that_never_ends_is_infinitely_long() -> None:
    sim = Deaf(llm())
    submit(sim, "a", at=1.0)
    (found,) = sim.run()
    assert (found.id, found.state, found.admitted, found.latency_s) == ("a", None, 1.0, inf)


def test_a_query_that_has_not_ended_yet_is_none_of_the_results() -> None:
    sim = Sim(llm(), outcomes=Planned(answer_tokens=11))
    submit(sim, "a")
    submit(sim, "b", at=1.0)
    submit(sim, "c", at=9.0)
    assert [r.id for r in sim.run(until=2.95)] == ["a"]
    assert [r.id for r in sim.unfinished] == ["b"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "lack 'question'"),
        ({"qestion": Tokens(10)}, "unknown input 'qestion'.*did you mean 'question'"),
    ],
)
def test_inputs_are_those_of_the_graph(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sim(llm()).submit(one_call(), inputs)
    late = Sim(llm())
    late.submit(one_call, inputs, at=3.0)
    with pytest.raises(InputError, match=message):
        late.run()


@pytest.mark.parametrize(
    "option",
    [
        {"instances": {"lm": 3}},
        {"batching": {"lm": "fifo"}},
        {"policy_options": {"lm": {}}},
        {"routing_options": {"lm": {}}},
        {"eviction_options": {"lm": {}}},
    ],
)
def test_engines_are_those_of_the_profile_or_of_the_plans(option: dict[str, Any]) -> None:
    for known in (one_call(), one_call):
        sim = Sim(llm(), **option)
        sim.submit(known, {"question": Tokens(10)})
        with pytest.raises(UnknownName, match=r"unknown engine 'lm'.*did you mean 'llm'"):
            sim.run()


def test_an_instance_count_and_a_killed_engine_are_checked() -> None:
    with pytest.raises(InputError, match="at least one instance, got 0"):
        Sim(llm(), instances={"llm": 0})
    sim = Sim(llm())
    sim.kill("lm", 0, at=1.0, back_s=None)
    submit(sim, "a")
    with pytest.raises(UnknownName, match="did you mean 'llm'"):
        sim.run()


def test_it_says_which_lengths_it_assumed_and_for_how_long_engines_worked() -> None:
    sim = Sim(llm())
    submit(sim, "a")
    sim.run()
    assert sim.assumed == {"m.answer_tokens": 16}
    assert sim.busy_s == {"llm": pytest.approx(1.0 + 15 * STEP)}
    assert sim.busy_shares(10.0) == {"llm": pytest.approx(0.25)}
    told = Sim(llm(), outcomes=Planned(lengths={"m": 11}))
    submit(told, "a")
    assert ends(told) == {"a": 2.0}
    assert told.assumed == {}


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


@pytest.mark.parametrize("factors", [(0.5, 2.0), (2.0, 0.5), (0.5, 0.25), (0.25, 0.5)])
def test_a_batch_takes_as_long_as_the_slowest_of_its_queries(factors: tuple[float, float]) -> None:
    """Of both together, whichever comes first: a base, and each item."""

    class Given(Planned):
        def stretch(self, query: Query, i: int, sigma: float) -> float:
            return factors["xy".index(query.id)]

    cost = Cost(base_s=1.0, per_item_s=0.5, sigma=0.3)
    sim = Sim(Profile("test", {"tool": EngineProfile({Op.TOOL_CALL: cost})}), outcomes=Given())
    both = plan(tool("a"), outputs={"answer": Ref("a", "out")})
    for id in "xy":
        sim.submit(both, {}, id=id)
    assert ends(sim) == dict.fromkeys("xy", pytest.approx(2.0 * max(factors)))
    assert sim.busy_shares(8.0) == {"python": pytest.approx(max(factors) / 4)}
    assert sim.busy_shares(0.0) == {"python": 0.0}


def test_a_successor_is_up_as_much_later_and_only_the_first_death_counts() -> None:
    sim = Sim(llm(instances=1))
    sim.kill("llm", 0, at=1.5, back_s=2.0)
    sim.kill("llm", 0, at=2.0, back_s=0.0)
    sim.kill("llm", 7, at=2.0, back_s=0.0)
    submit(sim, "a", at=1.0)
    submit(sim, "b", at=3.0)
    found = ends(sim)
    assert found["b"] == pytest.approx(found["a"])
    assert found["a"] == pytest.approx(3.5 + 1.0 + 15 * STEP)
