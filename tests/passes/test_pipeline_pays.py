"""Pipeline decoding goes by the profile: pieces cost batches; and it sees through what gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from teola import (
    Aggregate,
    App,
    Embedding,
    Generate,
    Indexing,
    QueryExpansion,
    Rerank,
    Search,
)
from teola.engine import Chunk, Scope
from teola.graph import Graph, Guard, Op, Primitive, Ref
from teola.passes import PIPELINE, Optimised, optimise
from teola.passes.decompose_stages import _match
from teola.passes.pipeline_decoding import _followers, _gather, _Pieces
from teola.passes.split_reranking import _in_time, _united
from teola.passes.timetable import timetable
from teola.profile import Profile, paper
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashEmbedder, HashModel, HashReranker, MemoryStore
from teola.workflow.component import Template
from teola_apps.advanced_rag import app as advanced_rag
from tests.planted import catches, edited
from tests.recording import Bench, check
from tests.schedule.plans import tool

FREE = Profile("free", {})


def optimised(
    app: App,
    n: int,
    profile: Profile = FREE,
    chunks: int = 20,
    passes: Sequence[str] | None = None,
) -> Optimised:
    graph = app.builder.build(app.builder.configure({"expand": {"n": n}}), {"chunks": chunks})
    return optimise(graph, profile, passes, debug=True)


def with_base(seconds: float) -> Profile:
    """The paper's testbed with an embedder whose batches cost so much each."""
    bed = paper("13b")
    embed = replace(bed.engines["embedding"].costs[Op.EMBEDDING], base_s=seconds)
    embedder = replace(bed.engines["embedding"], costs={Op.EMBEDDING: embed})
    return replace(bed, engines={**bed.engines, "embedding": embedder})


def of(graph: Graph, op: Op, component: str = "") -> list[Primitive]:
    return [p for p in graph.primitives if p.op is op and component in ("", p.component)]


def told(made: Optimised) -> str:
    (found,) = [
        r.reason
        for r in made.rewrites
        if (r.pass_name, r.primitive) == ("pipeline_decoding", "expand.decode")
    ]
    return found


# --- what pieces cost -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_s", "pieces", "reason"),
    [
        (0.05, 16, "16 items go on one by one to embed.embed, search.search"),
        (0.6, 8, "16 items go on 2 at a time to embed.embed, search.search"),
        (60.0, 1, "by the profile its items would cost more batches than they save time"),
    ],
)
def test_there_are_as_many_pieces_as_pay(base_s: float, pieces: int, reason: str) -> None:
    made = optimised(advanced_rag, 16, with_base(base_s), chunks=0)
    assert told(made) == reason
    assert len(of(made.e_graph, Op.EMBEDDING, "embed")) == pieces
    assert len(of(made.e_graph, Op.RERANKING)) == pieces


@pytest.mark.parametrize("n", [2, 3, 5, 16])
@pytest.mark.parametrize("chunks", [0, 20, 97])
def test_no_query_is_later_by_it(n: int, chunks: int) -> None:
    bed = paper("13b")
    whole = optimised(advanced_rag, n, bed, chunks, [p for p in PIPELINE if "decoding" not in p])
    made = optimised(advanced_rag, n, bed, chunks)
    assert timetable(made.e_graph, bed).length_s <= timetable(whole.e_graph, bed).length_s + 1e-9

    assert took(made, bed, chunks) <= took(whole, bed, chunks) * 1.02


def took(which: Optimised, bed: Profile, chunks: int) -> float:
    """Simulated seconds of a query."""
    sim = Sim(bed)
    given = {"question": Tokens(16), "chunks": [Tokens(256)] * chunks, "scope": Tokens(0)}
    sim.submit(Plan(which.e_graph, bed, which), given)
    (result,) = sim.run()
    return result.finished


# --- what reads single items -------------------------------------------------------------------


def app_of(template: Template, output: str, *more: str) -> App:
    given = {"question": "text", "documents": "documents", **dict.fromkeys(more, "text")}
    return App("made", template=template, inputs=given, outputs={output: output})


EACH = app_of(QueryExpansion() >> Generate(mode="tree", inputs={"context": "queries"}), "answer")
FUSED = app_of(
    Indexing()
    >> QueryExpansion()
    >> Aggregate(["question", "queries", "hint"], output="asked")
    >> Embedding(inputs={"texts": "asked"})
    >> Search(top_k=2)
    >> Rerank(top_k=4),
    "context",
    "hint",
)
HYBRID = app_of(
    Indexing()
    >> QueryExpansion()
    >> Embedding(inputs={"texts": "queries"})
    >> Template.beside(
        [
            Search("near", top_k=2, outputs={"hits": "near"}),
            Search("far", top_k=3, outputs={"hits": "far"}),
        ]
    )
    >> Aggregate(["near", "far"], output="hits", mode="union")
    >> Rerank(top_k=4),
    "context",
)

BOTH = app_of(
    Indexing()
    >> QueryExpansion()
    >> Aggregate(["question", "queries"], output="asked", name="asked")
    >> Embedding(inputs={"texts": "asked"})
    >> Template.beside(
        [
            Search("near", top_k=2, outputs={"hits": "near"}),
            Search("far", top_k=3, outputs={"hits": "far"}),
        ]
    )
    >> Aggregate(["near", "far"], output="hits", mode="union")
    >> Rerank(top_k=4)
    >> Generate(mode="refine"),
    "answer",
)
"""Advanced RAG with the question itself among its rewritings, and two searches for each."""


def test_a_call_for_each_item_waits_for_that_one() -> None:
    graph = optimised(EACH, 3).e_graph
    for k in (1, 2, 3):
        before = graph.ancestors[f"generate.{k}.prefill"]
        assert {f"expand.decode.{j}" for j in (1, 2, 3)} & before == {
            f"expand.decode.{j}" for j in range(1, k + 1)
        }


@catches(
    "pieces-out-of-order",
    "what was gathered before a list is taken for what is behind it",
    edited(_Pieces._through, "refs.insert(0,", "refs.append("),
)
def test_what_is_gathered_with_the_list_is_a_piece_of_its_own() -> None:
    graph = optimised(FUSED, 3).e_graph
    pieces = of(graph, Op.EMBEDDING, "embed")
    assert [p.items for p in pieces] == [1, 1, 1, 1, 1]
    decodes = [{q for q in graph.ancestors[p.id] if "decode" in q} for p in pieces]
    assert [len(found) for found in decodes] == [0, 1, 2, 3, 0]
    assert len(of(graph, Op.SEARCHING)) == 5


def test_unions_of_unions_are_one() -> None:
    graph = optimised(HYBRID, 3, with_base(0.01), chunks=0).e_graph
    assert len(of(graph, Op.SEARCHING)) == len(of(graph, Op.RERANKING)) == 6


def before(graph: Graph, p: Primitive) -> set[str]:
    """Decodings of the expansion that `p` waits for."""
    return {q for q in graph.ancestors[p.id] if q.startswith("expand.decode")}


@catches(
    "searches-wait-for-all",
    "what is gathered with others is not seen as the list that it holds",
    edited(_followers, "_concatenates(q)", "False"),
)
@catches(
    "nested-unions",
    "a union of unions is taken for one list",
    edited(_united, "and inner.guards == union.guards", "and False"),
)
@catches(
    "lists-as-declared",
    "what is found first is scored behind what the union names before it",
    edited(_in_time, "if ends_s else", "if False else"),
)
def test_the_question_and_its_rewritings_are_searched_for_and_scored_one_by_one() -> None:
    """Through the Aggregate that gathers them and the unions of both searches: each rewriting is
    embedded, searched for twice, and what is found scored, as soon as it is written."""
    graph = optimised(BOTH, 3, paper("13b"), chunks=0).e_graph
    for component in ("embed", "near", "far"):
        pieces = [p for p in graph.primitives if p.component == component and p.batchable]
        assert [len(before(graph, p)) for p in pieces] == [0, 1, 2, 3]
    scored = [len(before(graph, p)) for p in of(graph, Op.RERANKING)]
    assert scored == [0, 0, 1, 1, 2, 2, 3, 3]


@catches(
    "stages-of-a-list-that-is-being-written",
    "a list is cut into stages before its items can go on one by one",
    edited(_match, "if _written(graph, p):", "if False:"),
)
@pytest.mark.parametrize("app", [BOTH, advanced_rag], ids=["both", "advanced"])
def test_no_pass_makes_it_later_where_an_embedder_gains_nothing_from_batches(app: App) -> None:
    """Its maximum efficient batch is then smaller than the list."""
    bed = with_base(0.003)
    made = took(optimised(app, 3, bed, 0), bed, 0)
    for name in PIPELINE:
        without = optimised(app, 3, bed, 0, [p for p in PIPELINE if p != name])
        assert made <= took(without, bed, 0) * 1.02
    assert made < 0.95 * took(optimised(app, 3, bed, 0, [*PIPELINE][:3]), bed, 0)


# --- the answer -------------------------------------------------------------------------------


def ask(app: App, question: str, n: int, passes: Sequence[str], profile: Profile) -> Any:
    inputs = {
        "question": question,
        "hint": "ask the keeper",
        "chunks": [Chunk("d", i, f"chunk {i}", "d") for i in range(9)],
        "scope": Scope("default", "c"),
    }
    graph = optimised(app, n, profile, 9, passes).e_graph

    async def run() -> Any:
        engines = {
            "embedding": HashEmbedder(),
            "vectorstore": MemoryStore(),
            "rerank": HashReranker(),
            "llm": HashModel(),
        }
        async with Bench(engines) as bench:
            ending = await bench.run(Plan(graph), inputs, deadline_s=20)
            check(bench.core.log)
            return ending.outputs

    return asyncio.run(run())


@pytest.mark.parametrize(
    "app", [EACH, FUSED, HYBRID, BOTH], ids=["each", "fused", "hybrid", "both"]
)
@pytest.mark.parametrize("base_s", [0.001, 0.6])
def test_the_answer_is_the_same(app: App, base_s: float) -> None:
    bed = with_base(base_s)
    bed = replace(bed, engines={**bed.engines, "rerank": FREE.engine("")})
    for question in ("why?", "who?", "how many are there?", "when?"):
        for n in (2, 5):
            told = ask(app, question, n, [], bed)
            assert ask(app, question, n, list(PIPELINE), bed) == told
            assert ask(app, question, n, ["pipeline_decoding"], bed) == told


def test_what_gathers_pieces_runs_only_where_they_do() -> None:
    """It stands in the place of the primitive that has become several."""
    guarded = tool("a", guards=(Guard("if", "then"),))
    assert _gather(guarded, "a.all", [Ref("a.1", "out")]).guards == guarded.guards
