"""Simulated runs: deterministic, complete, and bound by the same promises as live ones."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.graph import Op
from teola.passes import PIPELINE, optimise
from teola.policies.batching import BATCHING
from teola.profile import paper
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.schedule.plan import Plan
from teola.testing.pass_contract import parts_by
from teola.testing.templates import RandomTemplate
from teola_apps.advanced_rag import app
from tests.properties.drawn import Drawn, grown
from tests.recording import RecordingCore, check
from tests.remembered import remembered
from tests.soak.forms import short_and_long

QUERIES, KV_BLOCKS = 3, 400


def simulate(
    made: RandomTemplate, names: list[str], batching: str, seed: int
) -> tuple[list[SimulatedQuery], list[Any], RecordingCore]:
    """Three queries, a tenth of a second apart: results, traces and the core's log."""
    graph = made.builder.build(made.builder.configure({}), made.sizes)
    parts = parts_by(names, paper("13b"))
    plan = Plan(optimise(graph, paper("13b"), names, debug=True).e_graph, paper("13b"), parts=parts)
    traces = []
    left: list[str] = []

    def note(query: Query, result: SimulatedQuery) -> None:
        traces.append(query.trace.to_json())
        kept = {r.producer for r in graph.outputs.values()}
        ids = [query.plan.ids[i] for i in query.store.values]
        left.extend(id for id in ids if id not in kept | {r.producer for r in _outputs(plan)})

    sim = Sim(paper("13b"), batching=batching, outcomes=Drawn(seed), on_finish=note)
    core = sim.core = RecordingCore({}, sim._measure, sim.queries)
    inputs = {
        "question": Tokens(14),
        "notes": [Tokens(20)] * made.sizes["notes"],
        "chunks": [Tokens(256)] * made.sizes["chunks"],
        "scope": Tokens(0),
    }
    for k in range(QUERIES):
        sim.submit(plan, inputs, at=0.1 * k, tenant=f"t{k % 2}")
    results = sim.run()
    assert left == []
    return results, traces, core


def _outputs(plan: Plan) -> list[Any]:
    return list(plan.graph.outputs.values())


@pytest.mark.property
@settings(max_examples=30)
@given(
    made=grown(),
    names=st.lists(st.sampled_from(list(PIPELINE)), unique=True),
    batching=st.sampled_from(sorted(BATCHING)),
    seed=st.integers(0, 99),
)
def test_the_same_seed_gives_the_same_trace(
    made: RandomTemplate, names: list[str], batching: str, seed: int
) -> None:
    results, traces, core = simulate(made, names, batching, seed)
    again = simulate(made, names, batching, seed)
    assert json.dumps(traces) == json.dumps(again[1])
    assert [r.finished for r in results] == [r.finished for r in again[0]]
    assert [r.state for r in results] == [State.OK] * QUERIES
    check(core.log)
    for name, queue in core.queues.items():
        assert queue.idle, name
    for trace in traces:
        for span in trace["spans"]:
            assert 0 <= span["queued"] <= span["start"] <= span["end"] <= trace["latency_s"]


@settings(max_examples=30)
@given(made=grown())
def test_the_pipeline_makes_acyclic_graphs_that_keep_every_primitive(made: RandomTemplate) -> None:
    before = made.builder.build(made.builder.configure({}), made.sizes)
    after = optimise(before, paper("13b"), debug=True).e_graph
    assert len(after.order) == len(after.primitives)
    assert {p.origin or p.id for p in after.primitives} >= {p.id for p in before.primitives}
    added = [p for p in after.primitives if p.id not in before and not p.origin]
    assert all(p.op is Op.AGGREGATE for p in added)


KILLS = st.lists(
    st.tuples(
        st.sampled_from(["llm", "embedding", "vectorstore", "rerank"]),
        st.integers(0, 1),
        st.floats(0.0, 6.0),
        st.floats(0.01, 3.0),
    ),
    max_size=8,
)


ROUTINGS = {
    "least_loaded": {},
    "marginal_cost": {},
    "e2": {"window_s": 1.0, "min_routed": 2},
    "graph_aware": {"held_s": 8.0},
}
"""With options by which they do in seconds what else takes minutes."""


@pytest.mark.property
@settings(max_examples=40)
@given(
    made=grown(),
    names=st.sampled_from([[], list(PIPELINE)]),
    kills=KILLS,
    routing=st.sampled_from(sorted(ROUTINGS)),
    eviction=st.sampled_from(["lru", "next_use"]),
)
def test_deaths_of_instances_lose_nothing(
    made: RandomTemplate, names: list[str], kills: list[Any], routing: str, eviction: str
) -> None:
    """Every query ends as without them, or with the one failure that used up its retries."""
    graph = made.builder.build(made.builder.configure({}), made.sizes)
    parts = parts_by(names, paper("13b"))
    plan = Plan(optimise(graph, paper("13b"), names, debug=True).e_graph, paper("13b"), parts=parts)
    inputs = {
        "question": Tokens(14),
        "notes": [Tokens(20)] * made.sizes["notes"],
        "chunks": [Tokens(256)] * made.sizes["chunks"],
        "scope": Tokens(0),
    }
    told = _with_kills(plan, inputs, [], routing, eviction)
    ended = _with_kills(plan, inputs, kills, routing, eviction)
    assert len(ended) == len(told) == QUERIES
    last = max([at + back for _, _, at, back in kills], default=0.0)
    for result, oracle in zip(ended, told, strict=True):
        assert result.finished <= max(last, oracle.finished) + 60
        if result.state is not State.FAILED or len(kills) < 3:
            assert (result.state, result.outputs) == (oracle.state, oracle.outputs)


def _with_kills(
    plan: Plan, inputs: dict[str, Any], kills: list[Any], routing: str, eviction: str
) -> list[SimulatedQuery]:
    """Two of the queries are a session's."""
    profile = paper("13b")
    small = replace(profile.engines["llm"], kv_blocks=KV_BLOCKS)
    sim = Sim(
        replace(profile, engines={**profile.engines, "llm": small}),
        routing=routing,
        routing_options=dict.fromkeys(profile.engines, ROUTINGS[routing]),
        eviction=eviction,
        outcomes=Drawn(5),
        instances={"embedding": 2, "vectorstore": 2},
    )
    core = sim.core = RecordingCore({}, sim._measure, sim.queries)
    for k in range(QUERIES):
        sim.submit(plan, inputs, at=0.1 * k, id=f"q{k}", program="" if k == 1 else "s")
    used = {p.engine for p in plan.primitives}
    for engine, instance, at, back in kills:
        if engine in used:
            sim.kill(engine, instance, at=at, back_s=back)
    results = sorted(sim.run(), key=lambda result: result.id)
    for name, queue in core.queues.items():
        assert queue.idle, name
        assert all(i.weight == 0 and i.entries == 0 for i in queue.instances), name
        assert [*remembered(queue)] == []
    return results


@short_and_long("deaths", 200, 1000, pytest.mark.nightly)
def test_deaths_lose_none_of_five_times_as_many_queries(deaths: int) -> None:
    """Two instances of everything, of which one dies every 12 s in mid-query."""
    builder = app.builder
    graph = builder.build(builder.configure({}), {"chunks": 12})
    plan = Plan(optimise(graph, paper("7b"), list(PIPELINE)).e_graph)
    rng = Random(11)
    engines = ("llm", "embedding", "vectorstore", "rerank")
    sim = Sim(paper("7b"), instances=dict.fromkeys(engines, 2))
    inputs = {"question": Tokens(14), "chunks": [Tokens(256)] * 12, "scope": Tokens(0)}
    for k in range(5 * deaths):
        sim.submit(plan, inputs, at=2.5 * k, id=f"q{k}")
    for k in range(deaths):
        sim.kill(rng.choice(engines), rng.randrange(2), at=12.5 * k + rng.random(), back_s=1.0)
    results = sim.run()
    assert len(results) == 5 * deaths
    assert {result.state for result in results} == {State.OK}
    assert all(queue.idle for queue in sim.core.queues.values())
