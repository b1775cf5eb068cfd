"""The baselines are what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from experiments.baselines.systems import BASELINES, SYSTEMS, Cache, System, batching_options
from experiments.baselines.tuning import tuned
from experiments.common import workloads
from experiments.common.simulate import Setting, alone, under_load
from experiments.common.testbed import testbed
from experiments.common.workloads import APPS, example
from teola.graph import Op
from teola.profile import Cost, EngineProfile, Profile, paper
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Span
from teola.runtime.sim import SimulatedQuery

EPSILON = 1e-9


@cache
def spans(system: str, app: str) -> Sequence[Span]:
    """What the example query does."""
    kept: list[Span] = []

    def keep(query: Query, result: SimulatedQuery) -> None:
        kept.extend(span for span in query.trace.spans if span.state == "done")

    alone(SYSTEMS[system], Setting(app, testbed("13b")), example(app), keep)
    return kept


def module(system: str, app: str, name: str) -> tuple[float, float]:
    """When a module was ready and when it had ended."""
    mine = [span for span in spans(system, app) if span.component == name]
    return min(span.queued for span in mine), max(span.end for span in mine)


@pytest.mark.parametrize("system", ["llamadist_po", "llamadist_to"])
@pytest.mark.parametrize("app", APPS)
def test_modules_of_llamadist_run_one_after_the_other(system: str, app: str) -> None:
    order = workloads.find_app(app).builder.template.order
    ran = [name for name in order if any(s.component == name for s in spans(system, app))]
    assert len(ran) >= 4
    ended = 0.0
    for name in ran:
        ready, end = module(system, app, name)
        assert ready >= ended - EPSILON, f"{name} was ready before the module before it ended"
        ended = end


def test_modules_of_llamadist_pc_run_side_by_side_but_whole() -> None:
    index, expand, embed, search = (
        module("llamadist_pc_po", "advanced-rag", name)
        for name in ("index", "expand", "embed", "search")
    )
    assert index[0] == expand[0] == 0.0
    assert embed[0] == pytest.approx(expand[1]), "all rewritings at once"
    assert search[0] == pytest.approx(max(embed[1], index[1]))
    embedded = [s for s in spans("llamadist_pc_po", "advanced-rag") if s.component == "embed"]
    assert [span.hi - span.lo for span in embedded] == [3]


def test_every_system_finds_its_instructions_in_the_cache() -> None:
    """Two prompts share a step; of each, three blocks of 16 tokens are the instruction's."""
    bed = testbed("13b")
    saved = 2 * 48 * bed.profile.engines["llm"].step.per_token_s
    forgetful = replace(SYSTEMS["llamadist_po"], cache=Cache.QUERY)

    def prefill(system: System) -> float:
        kept: list[Span] = []

        def keep(query: Query, result: SimulatedQuery) -> None:
            kept.extend(s for s in query.trace.spans if s.primitive == "generate.1.prefill")

        alone(system, Setting("naive-rag", bed), example("naive-rag"), keep)
        return kept[0].end - kept[0].start

    for system in BASELINES:
        if system.batching == "per_invocation":
            assert prefill(forgetful) - prefill(system) == pytest.approx(saved), system.name


def test_searching_follows_ingestion_in_both() -> None:
    for system in ("llamadist_po", "llamadist_pc_to"):
        found = spans(system, "naive-rag")
        (ingestion,) = [span for span in found if span.op == "ingestion"]
        (search,) = [span for span in found if span.op == "searching"]
        assert search.start >= ingestion.end


def test_to_waits_for_batches_to_fill_and_po_does_not() -> None:
    """48 chunks: 32 fill a batch, and the other 16 have waited long enough when it is done. Every
    other batch is not full and waits: 0.1 s twice for embedding and generating, 0.05 s twice."""
    waits = {
        span.primitive: round(span.start - span.queued, 6)
        for span in spans("llamadist_to", "naive-rag")
        if span.engine and span.op != "decoding" and span.lo == 0
    }
    assert waits == {
        "index.embed": 0.0,
        "index.ingest": 0.05,
        "embed.embed": 0.1,
        "search.search": 0.05,
        "generate.1.prefill": 0.1,
        "generate.2.prefill": 0.1,
        "generate.3.prefill": 0.1,
        "generate.merge.prefill": 0.1,
    }
    for system in ("llamadist_po", "llamadist_to_nowait"):
        for span in spans(system, "naive-rag"):
            assert span.start == span.queued or span.lo == 32


def test_waits_are_the_testbeds() -> None:
    bed = replace(testbed("7b"), wait_s=0.3, wait_store_s=0.2)
    options = batching_options(SYSTEMS["llamadist_to"], bed)
    assert options["proxy"] == {"max_wait_s": 0.3}
    assert options["vectorstore"] == {"max_wait_s": 0.2}
    assert batching_options(SYSTEMS["llamadist_po"], bed) == {}


def test_batch_sizes_are_tuned_by_doubling() -> None:
    """The sizes of the profile are what the procedure finds; a wrong one is put right."""
    bed = paper("13b")
    assert {n: e.max_batch for n, e in tuned(bed).engines.items()} == {
        n: e.max_batch for n, e in bed.engines.items()
    }
    steep = EngineProfile({Op.EMBEDDING: Cost(base_s=1.0, per_item_s=0.01)}, max_batch=2)
    found = tuned(Profile("p", {"embedding": steep})).engines["embedding"].max_batch
    assert found > 256
    cost = steep.costs[Op.EMBEDDING]
    gain = (2 * found / cost.seconds(2 * found, 0)) / (found / cost.seconds(found, 0))
    assert gain < 1.05


def test_all_systems_see_the_same_queries() -> None:
    """With one sequence of arrivals and answers, whatever the system: their work is the same."""
    setting = Setting("search-agent", testbed("13b"), queries=20, seed=5)

    def work(name: str) -> list[tuple[str, bool]]:
        found: list[tuple[str, bool]] = []

        def keep(query: Query, result: SimulatedQuery) -> None:
            searched = any(s.op == "web_search" for s in query.trace.spans if s.state == "done")
            found.append((query.id, searched))

        under_load(SYSTEMS[name], setting, 0.5, keep)
        return sorted(found)

    first, *others = (work(system.name) for system in BASELINES)
    assert {searched for _, searched in first} == {True, False}
    assert all(other == first for other in others)
    assert work("teola") == first
