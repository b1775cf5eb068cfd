"""Search-engine empowered generation: whatever passes run, the same answer, by either branch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola import Generate, QueryExpansion, WebSearch
from teola.engine import Engine, EngineKind, EngineResult, Hit, Request
from teola.graph import DecodeParams, Graph, Op, WebSearchParams
from teola.passes import PIPELINE, optimise
from teola.profile import default
from teola.runtime.live.query import Ending
from teola.schedule.plan import Plan
from teola.testing.hash_engines import CountsStarts, HashModel, hash_number, spec
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from teola_apps.search_agent import app
from tests.properties.test_passes import passes
from tests.recording import Bench, Log, check


class HashWeb(CountsStarts):
    """Finds pages hashed from the query, some queries fewer than asked for, or none."""

    def __init__(self, name: str = "websearch", max_batch: int = 2) -> None:
        kind, ops = EngineKind.WEBSEARCH, {Op.WEB_SEARCH}
        self.spec = spec(name, kind, ops, max_batch=max_batch, concurrency=2)
        self.asked: list[str] = []

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        await asyncio.sleep(0)
        return [{"hits": [self._hits(r, q) for q in r.inputs["queries"]]} for r in requests]

    def _hits(self, request: Request, query: str) -> list[Hit]:
        self.asked.append(query)
        assert isinstance(request.params, WebSearchParams)
        count = min(hash_number(query, "count") % 6, request.params.top_k)
        pages = [hash_number(query, i) % 9 for i in range(count)]
        return [Hit(f"https://x.example/{n}", f"Page {n}", f"text {n}", n / 9) for n in pages]


class HashJudge(HashModel):
    """Says yes, no, or nothing clear."""

    def text(self, prompt: str, decode: DecodeParams) -> str:
        return ("Yes.", "no", "Hm")[hash_number(prompt) % 3]


def engines() -> dict[str, Engine | Sequence[Engine]]:
    models = {name: HashModel(name) for name in ("proxy", "llm")}
    return {**models, "judge": HashJudge("judge"), "websearch": HashWeb()}


async def answer(graph: Graph, inputs: dict[str, Any]) -> tuple[Ending, Log, list[str]]:
    made = engines()
    web = made["websearch"]
    assert isinstance(web, HashWeb)
    async with Bench(made) as bench:
        ending = await bench.run(Plan(graph), inputs, deadline_s=20)
        await bench.settle()
        bench.assert_idle()
        assert bench.left == []
        return ending, bench.core.log, web.asked


def same_with_any_passes(
    builder: Builder, question: str, orders: list[list[str]], overrides: Any = None
) -> tuple[Ending, list[str]]:
    before = builder.build(builder.configure(overrides or {}), {})
    told, _, asked = asyncio.run(answer(before, {"question": question}))
    assert told.error is None
    specs = {name: one.spec for name, one in engines().items() if not isinstance(one, Sequence)}
    for tokens in (4, 40):
        known = default(replace(s, block_tokens=tokens) for s in specs.values())
        for names in [list(PIPELINE), *orders]:
            graph = optimise(before, known, names, debug=True).e_graph
            ending, log, again = asyncio.run(answer(graph, {"question": question}))
            assert (ending.state, ending.outputs) == (told.state, told.outputs)
            assert sorted(again) == sorted(asked), "each search is paid for"
            check(log)
    return told, asked


@pytest.mark.property
@settings(max_examples=15)
@given(question=st.text(min_size=1, max_size=40), orders=st.lists(passes, max_size=2))
def test_the_search_agent(question: str, orders: list[list[str]]) -> None:
    told, asked = same_with_any_passes(app.builder, question, orders)
    assert asked in ([], [question])
    assert (told.outputs["sources"] is None) == (asked == [])
    assert told.outputs["answer"].startswith("answer ")


expanded = Builder(
    "expanded",
    QueryExpansion(n=5)
    >> WebSearch(top_k=3)
    >> Generate(mode="refine", inputs={"context": "hits"}, context_required=False),
    {"question": Kind.TEXT},
    {"answer": "answer", "hits": "hits"},
)


@pytest.mark.property
@settings(max_examples=15)
@given(question=st.text(min_size=1, max_size=40), orders=st.lists(passes, max_size=2))
def test_rewritings_are_searched_for_one_by_one(question: str, orders: list[list[str]]) -> None:
    told, asked = same_with_any_passes(expanded, question, orders)
    assert len(asked) <= 5
    urls = [hit.id for hit in told.outputs["hits"] or []]
    assert len(urls) == len(set(urls))
    if len(set(urls)) > 1:
        scores = [hit.score for hit in told.outputs["hits"]]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.property
@settings(max_examples=15)
@given(question=st.text(min_size=1, max_size=40), names=passes)
def test_speculation_searches_too_much_and_answers_the_same(
    question: str, names: list[str]
) -> None:
    before = app.builder.build(app.builder.configure({}), {})
    guessing = app.builder.build(app.builder.configure({"judge": {"speculate": True}}), {})
    told, _, asked = asyncio.run(answer(before, {"question": question}))
    specs = [one.spec for one in engines().values() if not isinstance(one, Sequence)]
    for chosen in ([], names, list(PIPELINE)):
        graph = optimise(guessing, default(specs), chosen, debug=True).e_graph
        ending, log, guessed = asyncio.run(answer(graph, {"question": question}))
        assert (ending.state, ending.outputs) == (told.state, told.outputs)
        assert set(asked) <= set(guessed) <= {question}
        check(log)
