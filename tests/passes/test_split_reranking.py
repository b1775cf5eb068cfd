"""Split reranking: hits are scored as they come, and nothing about the answer changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from teola import App, Embedding, Indexing, QueryExpansion, Rerank, Search
from teola.engine import Chunk, EngineResult, Request, Scope
from teola.graph import AggregateParams, Aggregation, Graph, Op, Primitive, Ref
from teola.passes import PIPELINE, Optimised, optimise
from teola.profile import Cost, Profile, paper
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashEmbedder, HashModel, HashReranker, MemoryStore
from teola_apps.advanced_rag import app as advanced_rag
from tests.forgetful import forgetful
from tests.planted import catches, edited
from tests.recording import Bench, check

OTHERS = tuple(name for name in PIPELINE if name != "split_reranking")


def optimised(
    app: App = advanced_rag,
    chunks: int = 48,
    profile: Profile | None = None,
    passes: Sequence[str] | None = None,
) -> Optimised:
    graph = app.builder.build(app.builder.configure({}), {"chunks": chunks})
    return optimise(graph, profile or paper("13b"), passes, debug=True)


def rerankings(graph: Graph) -> list[Primitive]:
    return [p for p in graph.primitives if p.op is Op.RERANKING]


def refusal(made: Optimised) -> str:
    (found,) = [r for r in made.rewrites if r.pass_name == "split_reranking"]
    assert not found.applied
    return found.reason


def rag(rerank: Rerank, outputs: dict[str, str], expand: bool = True) -> App:
    embed = Embedding(inputs={"texts": "queries" if expand else "question"})
    head = Indexing() >> QueryExpansion(n=3) >> embed if expand else Indexing() >> embed
    return App(
        "rag",
        template=head >> Search(top_k=5) >> rerank,
        inputs={"question": "text", "documents": "documents"},
        outputs=outputs,
    )


RAG = rag(Rerank(top_k=4), {"context": "context"})


# --- the graph --------------------------------------------------------------------------------


def test_each_search_has_a_reranking_that_waits_for_no_later_one() -> None:
    graph = optimised().e_graph
    pieces = rerankings(graph)
    assert [p.items for p in pieces] == [16, 16, 16]
    searches = [p.id for p in graph.primitives if p.op is Op.SEARCHING]
    for i, piece in enumerate(pieces):
        assert graph.ancestors[piece.id].isdisjoint(searches[i + 1 :])
        assert searches[i] in graph.ancestors[piece.id]
    (best,) = [p for p in graph.primitives if p.id == "rerank.best"]
    assert {p.id for p in pieces} <= graph.ancestors[best.id]
    assert best.input("hits") == Ref("search.union", "out")


def test_it_follows_the_guards_of_what_it_cuts() -> None:
    graph = optimised(passes=OTHERS).e_graph
    (whole,) = rerankings(graph)
    made = optimised().e_graph
    for p in made.primitives:
        if p.component == "rerank":
            assert p.guards == whole.guards
    assert not [p for p in made.primitives if p.id == whole.id]


def test_pieces_of_an_uneven_number_of_hits_add_up() -> None:
    app = rag(Rerank(), {"context": "context"})
    graph = app.builder.build(
        app.builder.configure({"expand": {"n": 3}, "search": {"top_k": 5}}), {"chunks": 8}
    )
    (whole,) = rerankings(graph)
    changed = [replace(p, items=14) if p is whole else p for p in graph.primitives]
    uneven = Graph(graph.name, changed, graph.outputs, graph.inputs)
    made = optimise(uneven, paper("13b"), debug=True).e_graph
    assert [p.items for p in rerankings(made)] == [5, 5, 4]


# --- when it declines -------------------------------------------------------------------------


def test_hits_of_one_search_come_at_once() -> None:
    single = rag(Rerank(), {"context": "context"}, expand=False)
    assert refusal(optimised(single)) == "its hits come all at once"
    without = ("prune_dependencies", "split_reranking")
    assert refusal(optimised(passes=without)) == "its hits come all at once"


def test_an_optional_reranking_stays_whole() -> None:
    app = rag(Rerank(optional=True), {"context": "context", "hits": "hits"})
    made = optimised(app, profile=Profile("free", {}))
    assert refusal(made).startswith("it is optional")


def test_scores_that_something_else_reads_stay_aligned_with_their_hits() -> None:
    graph = optimised(passes=OTHERS).e_graph
    (whole,) = rerankings(graph)
    given = Graph(
        graph.name,
        graph.primitives,
        {**graph.outputs, "scores": Ref(whole.id, "scores")},
        graph.inputs,
    )
    assert "more than the choice of the best" in refusal(
        optimise(given, paper("13b"), ["split_reranking"], debug=True)
    )
    reader = Primitive(
        "all",
        Op.AGGREGATE,
        "all",
        "",
        (("parts", (Ref(whole.id, "scores"),)),),
        ("out",),
        AggregateParams(Aggregation.CONCAT),
    )
    read = Graph(graph.name, [*graph.primitives, reader], graph.outputs, graph.inputs)
    assert "more than the choice of the best" in refusal(
        optimise(read, paper("13b"), ["split_reranking"], debug=True)
    )


def with_base(seconds: float) -> Profile:
    """The paper's testbed with a reranker whose batches cost so much each."""
    return with_costs(replace(paper("13b").engines["rerank"].costs[Op.RERANKING], base_s=seconds))


def with_costs(cost: Cost) -> Profile:
    """The paper's testbed with a reranker of such costs."""
    bed = forgetful(paper("13b"))
    rerank = replace(bed.engines["rerank"], costs={Op.RERANKING: cost})
    return replace(bed, engines={**bed.engines, "rerank": rerank})


def test_it_declines_where_a_batch_more_costs_more_than_the_wait() -> None:
    """Three batches instead of two cost 2 s more; the first search is 0.7 s ahead of the last."""
    others = [name for name in PIPELINE if name not in ("split_prefilling", "split_reranking")]
    three = optimised(profile=with_base(0.05), passes=others).e_graph
    made = optimise(three, with_base(2.0), ["split_reranking"], debug=True)
    assert refusal(made) == "by the profile its pieces would be done no sooner"
    assert len(rerankings(optimised(profile=with_base(0.05)).e_graph)) == 3


@catches(
    "ties-split",
    "a reranking is split although its pieces are done no sooner",
    edited("teola.passes.split_reranking:_pays", "return done < ready", "return done <= ready"),
)
def test_it_declines_where_nothing_is_won_or_lost() -> None:
    """Only searches take any time, so the last piece is done when the whole would be."""
    tie = replace(with_costs(Cost()), dispatch_s=0.0)
    assert refusal(optimised(profile=tie)) == "by the profile its pieces would be done no sooner"
    costs = replace(with_costs(Cost(per_item_s=0.001)), dispatch_s=0.0)
    assert len(rerankings(optimised(profile=costs).e_graph)) == 3


# --- the answer -------------------------------------------------------------------------------


class Even(HashReranker):
    """The same score for all: only the order tells them apart. seen: what was scored."""

    def __init__(self) -> None:
        super().__init__(max_batch=64)
        self.seen: list[str] = []

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        for request in requests:
            self.seen += [hit.id for hit in request.inputs["hits"]]
        return [{"scores": [0.5 for _ in r.inputs["hits"]]} for r in requests]


def ask(question: str, chunks: int, reranker: HashReranker, passes: Sequence[str]) -> Any:
    """The context that a question gets from a document of so many chunks, and its state."""
    engines = {
        "embedding": HashEmbedder(),
        "vectorstore": MemoryStore(),
        "rerank": reranker,
        "llm": HashModel(),
    }
    profile = paper("13b")
    graph = RAG.builder.build(RAG.builder.configure({}), {"chunks": chunks})
    made = optimise(graph, profile, passes, debug=True).e_graph
    if "split_reranking" in passes:
        assert len(rerankings(made)) == 3, "nothing is tested"
    given = [Chunk("d", i, f"chunk {i}", "d") for i in range(chunks)]
    inputs = {"question": question, "chunks": given, "scope": Scope("t", "c")}

    async def run() -> Any:
        async with Bench(engines) as bench:
            ending = await bench.run(Plan(made), inputs, deadline_s=20)
            await bench.settle()
            bench.assert_idle()
            assert bench.left == []
            check(bench.core.log)
            return ending.state, dict(ending.outputs or {})

    return asyncio.run(run())


@pytest.mark.parametrize("chunks", [0, 1, 3, 9])
@pytest.mark.parametrize("reranker", [HashReranker, Even])
def test_the_best_are_the_same_with_few_or_many_rewritings(
    chunks: int, reranker: type[HashReranker]
) -> None:
    """The model writes none to five rewritings with the same hits; ties keep their order."""
    for number in range(12):
        asked = f"question {number}"
        whole = ask(asked, chunks, reranker(), OTHERS)
        assert ask(asked, chunks, reranker(), tuple(PIPELINE)) == whole


def test_a_hit_that_several_searches_find_is_scored_once() -> None:
    scored = 0
    for number in range(6):
        reranker = Even()
        ask(f"question {number}", 6, reranker, tuple(PIPELINE))
        assert len(reranker.seen) == len(set(reranker.seen))
        scored += len(reranker.seen)
    assert scored > 6
