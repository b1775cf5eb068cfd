"""The bound by hand, and against the simulator: two programs that share no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from experiments.baselines.systems import SYSTEMS, Planner, System, profile_of
from experiments.common import workloads
from experiments.common.bound import Bound, bound
from experiments.common.simulate import Setting, alone
from experiments.common.testbed import SIZES, Testbed, testbed
from experiments.common.workloads import APPS, Answers, Drawn, example
from teola.graph import Graph, Ref
from teola.passes import optimise
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from tests.schedule.plans import call, plan

LLM = EngineProfile(
    step=StepTime.of(Cost(base_s=1.0, per_token_s=0.1), Cost(base_s=0.01)), max_batch=1000
)


def of(made: Plan, given: Mapping[str, Any], instances: int, tokens: int = 11) -> Bound:
    profile = Profile("test", {"llm": replace(LLM, instances=instances)}, dispatch_s=0.5)
    return bound(made, given, "q", Planned(answer_tokens=tokens), profile)


def test_one_call_by_hand() -> None:
    """0.5 s to get there, 1 s and ten tokens of 0.1 s, then ten more tokens of 0.01 s."""
    found = of(plan(*call("m")), {"question": Tokens(10)}, 1)
    assert found == Bound(pytest.approx(2.6), pytest.approx(2.6))


@pytest.mark.parametrize(("instances", "seconds"), [(1, 5.6), (2, 3.6), (3, 3.6), (9, 2.6)])
def test_calls_share_instances_by_hand(instances: int, seconds: float) -> None:
    """Four calls whose prompts take 1 s each beside the batch's own 1 s: one instance has at least
    4, 2, 2 or 1 of them. Besides 0.5 s to get there and ten tokens of 0.01 s."""
    graph = plan(*(p for i in range(4) for p in call(f"m{i}"))).graph
    outputs = {f"a{i}": Ref(f"m{i}", "text") for i in range(4)}
    made = Plan(Graph("four", graph.primitives, outputs, graph.inputs))
    found = of(made, {"question": Tokens(10)}, instances)
    assert found.path_s == pytest.approx(2.6)
    assert found.bound_s == pytest.approx(seconds)


def bounds(system: System, app: str, bed: Testbed, query: Drawn) -> Bound:
    made = Planner(system, app, bed).plan(query.chunks)
    given = workloads.inputs(app, query, bed.values)
    return bound(made, given, "0", Answers(app, [query], bed.values), profile_of(system, bed))


def test_stages_of_one_embedding_run_on_one_instance() -> None:
    """Naive RAG over 48 chunks: two stages, 0.05 + 32 x 0.025 and 0.05 + 16 x 0.025 s, each with
    0.0007 s to get there; their ingestion, and then nothing else is in the graph."""
    builder = workloads.find_app("naive-rag").builder
    graph = builder.build(builder.configure({}), {"chunks": 48})
    e_graph = optimise(graph, testbed("13b").profile).e_graph
    stages = [p for p in e_graph.primitives if p.component == "index"]
    made = Plan(Graph("index", stages, {}, graph.inputs))
    query = example("naive-rag")
    given = workloads.inputs("naive-rag", query, testbed("13b").values)
    found = bound(made, given, "0", Planned(), testbed("13b").profile)
    path = 0.0007 + 0.05 + 32 * 0.025 + 0.0007 + 0.002 + 32 * 0.0001
    assert found.path_s == pytest.approx(path)
    least = 2 * (0.0007 + 0.05) + 48 * 0.025 + 0.0007 + 0.002 + 16 * 0.0001
    assert found.bound_s == pytest.approx(least)


@pytest.mark.parametrize("app", ["advanced-rag", "search-agent"])
@pytest.mark.parametrize("llm", SIZES)
@pytest.mark.parametrize("searches", [True, False])
def test_a_chain_takes_exactly_its_bound(app: str, llm: str, searches: bool) -> None:
    """No two of its calls run at once, so there is nothing to schedule."""
    system, query = SYSTEMS["llamadist_po"], example(app, searches=searches)
    found = bounds(system, app, testbed(llm), query)
    assert alone(system, Setting(app, testbed(llm)), query) == pytest.approx(found.bound_s)


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("system", ["teola_exact", "llamadist_pc_po", "llamadist_pc_to"])
def test_no_query_is_faster_than_its_bound(app: str, system: str) -> None:
    setting = Setting(app, testbed("13b"), seed=2)
    for query in setting.drawn(25):
        found = bounds(SYSTEMS[system], app, setting.testbed, query)
        assert found.path_s <= found.bound_s + 1e-9
        assert alone(SYSTEMS[system], setting, query) >= found.bound_s - 1e-9
