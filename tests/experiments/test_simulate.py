"""What a system sustains, by what it can be worked out to be; and what its core is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.baselines.knowledge import LENDER, Knows, known
from experiments.baselines.systems import SYSTEMS, Planner
from experiments.common.latencies import geometric, within
from experiments.common.simulate import Latencies, Setting, alone, steady, sustained, under_load
from experiments.common.testbed import testbed
from experiments.common.workloads import draw, example, find_app
from teola.graph import Op
from teola.profile import paper


def test_what_is_sustained_is_what_the_slowest_engine_can_do() -> None:
    """Naive RAG is bound by the embedding: 0.05 s a batch of 32 and 0.025 s a chunk."""
    setting = Setting("naive-rag", testbed("13b"), queries=400)
    chunks = [query.chunks for query in draw("naive-rag", 400, setting.testbed.values)]
    seconds = sum(0.025 * n + 0.05 * n / 32 for n in chunks) / len(chunks)
    found = sustained(SYSTEMS["llamadist_pc_to_nowait"], setting, 1 / seconds, fine=1.05)
    assert 0.9 < found * seconds < 1.05


def test_more_load_takes_longer() -> None:
    setting = Setting("advanced-rag", testbed("13b"), queries=60)
    means = [under_load(SYSTEMS["teola"], setting, rate).mean for rate in (0.03, 0.2, 0.5)]
    assert means == sorted(means)


def test_latencies_that_grow_are_not_steady() -> None:
    flat = Latencies([5.0, 1.0, 1.0, 1.0, 1.0, 1.1], [])
    grows = Latencies([1.0, 1.0, 1.0, 1.0, 1.2, 1.3], [])
    assert flat.thirds() == (1.0, pytest.approx(1.05))
    assert steady([flat])
    assert not steady([grows])
    assert steady([flat, flat, replace(flat, seconds=[1.0] * 4 + [1.1, 1.2])])


def test_figures_of_several_seeds() -> None:
    assert geometric([2.0, 8.0]) == pytest.approx(4.0)
    assert within([3.0]) == 0.0
    assert within([1.0, 2.0, 3.0]) == pytest.approx(4.30 / 3**0.5)


# --- what the core knows --------------------------------------------------------------------


def test_the_core_is_told_other_times_than_the_engines_take() -> None:
    """One query has nothing to wait for, whatever its core believes: it takes what engines take."""
    setting, query = Setting("advanced-rag", testbed("13b")), example("advanced-rag")
    seconds = {
        knows: alone(SYSTEMS[f"teola_{knows.value}"], setting, query)
        for knows in Knows
        if knows is not Knows.LEARNED
    }
    assert seconds == dict.fromkeys(seconds, pytest.approx(seconds[Knows.EXACT], rel=0.02))
    rest = {
        name: Planner(SYSTEMS[name], "naive-rag", setting.testbed).plan(48).specs[0].estimate.rest_s
        for name in ("teola_exact", "teola_double", "teola_half")
    }
    assert rest["teola_double"] == pytest.approx(2 * rest["teola_exact"])
    assert rest["teola_half"] == pytest.approx(rest["teola_exact"] / 2)


def test_what_is_known_by_each() -> None:
    bed = testbed("13b")
    assert known(Knows.EXACT, bed) == bed.profile
    assert known(Knows.BORROWED, bed) == paper(LENDER["paper-13b"]) != bed.profile
    double = known(Knows.DOUBLE, bed).engines
    assert double["llm"].step.per_token_s == 2 * bed.profile.engines["llm"].step.per_token_s
    assert double["rerank"].costs[Op.RERANKING].base_s == 0.1
    assert double["llm"].max_batch == bed.profile.engines["llm"].max_batch
    changed = replace(bed, profile=known(Knows.DOUBLE, bed))
    at_first = known(Knows.LEARNED, bed)
    assert known(Knows.LEARNED, changed) == at_first, "it knows limits and no times"
    assert at_first.engines["llm"].max_sequences == bed.profile.engines["llm"].max_sequences


def test_drafts_and_verdicts_are_of_one_engine_and_nothing_else_is_changed() -> None:
    plan = Planner(SYSTEMS["teola"], "search-agent", testbed("13b")).plan(0)
    assert {p.engine for p in plan.primitives if p.engine} == {"proxy", "llm", "websearch"}
    builder = find_app("search-agent").builder
    before = builder.build(builder.configure({}), {})
    assert plan.optimised is not None
    after = plan.optimised.p_graph
    assert [p.id for p in after.primitives] == [p.id for p in before.primitives]
    assert "judge" in {p.engine for p in before.primitives}
