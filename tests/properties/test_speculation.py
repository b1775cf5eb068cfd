"""Speculation changes when a branch begins, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from teola import Aggregate, Condition, Search
from teola.engine import EngineResult, Request, Scope
from teola.graph import Graph, Op
from teola.graph.ops import SPECULATIVE
from teola.passes import PIPELINE, optimise
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashEmbedder, MemoryStore, hash_engines
from teola.testing.pass_contract import parts_by, profile_of
from teola.testing.templates import RandomTemplate
from teola.workflow.build import Builder
from teola.workflow.components import Embedding, Function
from teola.workflow.kinds import Kind
from tests.properties.drawn import grown
from tests.properties.test_passes import answer, passes
from tests.recording import Bench, check


def conditions(builder: Builder) -> list[str]:
    return [c.name for c in builder.template.components if isinstance(c, Condition)]


@pytest.mark.property
@settings(max_examples=30)
@given(made=grown(), names=passes, models=st.integers(1, 2))
def test_speculation_gives_the_same_answers(
    made: RandomTemplate, names: list[str], models: int
) -> None:
    asked = conditions(made.builder)
    assume(asked)
    plain = made.builder.build(made.builder.configure({}), made.sizes)
    told, _ = asyncio.run(answer(plain, made.inputs, parts_by([], profile_of())))
    made.effects.clear()
    overrides: dict[str, dict[str, Any]] = {name: {"speculate": True} for name in asked}
    guessing = made.builder.build(made.builder.configure(overrides), made.sizes)
    guessing.validate()
    for chosen in ([], list(PIPELINE), names):
        graph = optimise(guessing, profile_of(), chosen, debug=True).e_graph
        for p in graph.primitives:
            pure = p.op in SPECULATIVE or p.op is Op.PARTIAL_PREFILLING
            assert pure or not any(g.speculative for g in p.guards)
        parts = parts_by(chosen, profile_of())
        ending, log = asyncio.run(answer(graph, made.inputs, parts, models=models))
        made.effects.clear()
        assert ending.error is None or told.error is not None, ending.error
        assert (ending.state, ending.outputs) == (told.state, told.outputs)
        check(log)


# --- one search behind a judge that takes its time --------------------------------------------


class SlowStore(MemoryStore):
    """Tells when it is asked, and answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        self.asked.set()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        found = super().execute(requests)
        return await found if asyncio.iscoroutine(found) else found


def searching(judge: Function, *, speculate: bool) -> Graph:
    """question ─▶ embed ─▶ judge ─ then ─▶ search ─▶ found"""
    template = (
        Embedding(inputs={"texts": "question"})
        >> judge
        >> Condition(bool, reads=["judge"], then=Search(top_k=2), speculate=speculate)
        >> Aggregate(["hits", "question"], output="found", mode="first")
    )
    kinds = {"question": Kind.TEXT, "documents": Kind.DOCUMENTS}
    builder = Builder("guess", template, kinds, {"found": "found"})
    graph = builder.build(builder.configure({}), {"chunks": 1})
    return optimise(graph, profile_of(), list(PIPELINE), debug=True).e_graph


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("early", [True, False])
async def test_the_search_runs_while_the_judge_decides(wanted: bool, early: bool) -> None:
    """early: the search has ended before the judge has decided."""
    store, decide = SlowStore(), asyncio.Event()

    async def judge(question: str) -> bool:
        await decide.wait()
        return wanted

    verdict = Function(judge)
    graph = searching(verdict, speculate=True)
    all_engines = {**hash_engines(), "vectorstore": store, "embedding": HashEmbedder()}
    async with Bench(all_engines) as bench:
        inputs = {"question": "why?", "chunks": [], "scope": Scope("default", "c")}
        task = bench.start(Plan(graph), inputs, deadline_s=5)
        await asyncio.wait_for(store.asked.wait(), 2)
        assert not task.done()
        if early:
            store.let.set()
            await asyncio.sleep(0.02)
        decide.set()
        if wanted:
            store.let.set()
        ending = await task
        await bench.settle()
        bench.assert_idle()
        assert bench.left == []
        states = {s.primitive: s.state for s in ending.trace.spans if s.op == Op.SEARCHING.value}
        assert store.cancelled is (not wanted and not early)
        if wanted:
            assert set(states.values()) == {"done"}
        else:
            assert ending.outputs == {"found": "why?"}


async def test_without_it_the_search_waits() -> None:
    store = SlowStore()

    async def judge(question: str) -> bool:
        await asyncio.sleep(0.05)
        assert not store.asked.is_set()
        store.let.set()
        return True

    verdict = Function(judge)
    async with Bench({**hash_engines(), "vectorstore": store}) as bench:
        inputs = {"question": "why?", "chunks": [], "scope": Scope("default", "c")}
        ending = await bench.run(Plan(searching(verdict, speculate=False)), inputs, deadline_s=5)
        assert ending.error is None


async def test_who_needs_what_was_undone_is_skipped() -> None:
    """As without speculation: what lies behind the branch is absent, although it was there."""
    store, decide = SlowStore(), asyncio.Event()
    store.let.set()

    async def judge(question: str) -> bool:
        await decide.wait()
        return False

    async def say(hits: list[Any]) -> str:
        return f"{len(hits)} hits"

    template = (
        Embedding(inputs={"texts": "question"})
        >> Function(judge)
        >> Condition(bool, reads=["judge"], then=Search(top_k=2), speculate=True)
        >> Function(say)
    )
    kinds = {"question": Kind.TEXT, "documents": Kind.DOCUMENTS}
    builder = Builder("guess", template, kinds, {"said": "say"})
    graph = builder.build(builder.configure({}), {"chunks": 1})
    plan = Plan(optimise(graph, profile_of(), list(PIPELINE), debug=True).e_graph)
    async with Bench({**hash_engines(), "vectorstore": store}) as bench:
        inputs = {"question": "why?", "chunks": [], "scope": Scope("default", "c")}
        task = bench.start(plan, inputs, deadline_s=5)
        await asyncio.wait_for(store.asked.wait(), 2)
        await asyncio.sleep(0.02)
        decide.set()
        ending = await task
        assert ending.error is None
        assert ending.outputs == {"said": None}
