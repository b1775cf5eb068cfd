"""Figure 6 of the paper, by structure and not by ids: advanced RAG over 48 chunks (paper-13b, with
LLMs that keep no instructions, as the paper's did).

It is what the paper's four passes make; passes of ours come after them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from teola import App
from teola.graph import QUERY, Graph, Op, Primitive, Prompt
from teola.graph.ops import CONTROL
from teola.passes import Optimised, optimise
from teola.profile import paper
from teola_apps.advanced_rag import app as advanced_rag
from teola_apps.naive_rag import app as naive_rag
from tests.forgetful import forgetful

CHUNKS = 48
PAPER = ("prune_dependencies", "decompose_stages", "split_prefilling", "pipeline_decoding")
"""Its passes (section 5.2)."""
EMBED_BATCH = 32
"""The maximum efficient batch of the paper's embedding engine (specs, section 11)."""


def optimised(app: App = advanced_rag, passes: Sequence[str] = PAPER) -> Optimised:
    builder = app.builder
    graph = builder.build(builder.configure({}), {"chunks": CHUNKS})
    return optimise(graph, forgetful(paper("13b")), passes, debug=True)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return optimised().e_graph


def of(graph: Graph, op: Op, component: str | None = None) -> list[Primitive]:
    return [
        p
        for p in graph.primitives
        if p.op is op and (component is None or p.component == component)
    ]


def only_reader(graph: Graph, p: Primitive, op: Op) -> Primitive:
    (reader,) = [c for c in graph.consumers(p.id) if c.op is op]
    return reader


def roots(graph: Graph) -> set[str]:
    return {id for id, parents in graph.parents.items() if not parents}


def test_each_partial_decoding_feeds_its_own_embedding_and_searching(graph: Graph) -> None:
    partials = of(graph, Op.PARTIAL_DECODING)
    assert len(partials) == 3
    assert of(graph, Op.DECODING, "expand") == []
    embeddings = [only_reader(graph, p, Op.EMBEDDING) for p in partials]
    searchings = [only_reader(graph, e, Op.SEARCHING) for e in embeddings]
    assert len({e.id for e in embeddings}) == len({s.id for s in searchings}) == 3
    assert all(p.items == 1 for p in embeddings + searchings)
    for partial, embedding in zip(partials, embeddings, strict=True):
        others = {p.id for p in partials} - {partial.id}
        later = {p.id for p in partials[partials.index(partial) + 1 :]}
        assert not graph.ancestors[embedding.id] & later, "it waits for a later rewriting"
        assert not {r.producer for r in embedding.refs()} & others


def test_the_instruction_of_every_round_is_prefilled_from_the_start(graph: Graph) -> None:
    rounds = of(graph, Op.FULL_PREFILLING, "generate")
    assert len(rounds) == 3
    ready = roots(graph)
    for full in rounds:
        sequence = full.input("sequence")
        first = graph[sequence.producer]  # type: ignore[union-attr]
        while "sequence" in dict(first.inputs):
            first = graph[first.input("sequence").producer]  # type: ignore[union-attr]
        assert first.op is Op.PARTIAL_PREFILLING
        assert first.id in ready
        assert {r.producer for r in first.refs()} == {QUERY}


def test_three_rounds_of_synthesis_each_improve_the_answer_before(graph: Graph) -> None:
    answers = of(graph, Op.DECODING, "generate")
    assert len(answers) == 3
    by_depth = sorted(answers, key=lambda p: -graph.depth[p.id])
    for earlier, later in itertools.pairwise(by_depth):
        assert earlier.id in graph.ancestors[later.id]
        full = graph[later.input("sequence").producer]  # type: ignore[union-attr]
        assert full.op is Op.FULL_PREFILLING
        read: set[str] = set()
        p: Primitive | None = full
        while p is not None:  # the call's prompt, in whatever pieces
            prompt = p.input("prompt")
            assert isinstance(prompt, Prompt)
            read |= {ref.producer for ref in prompt.refs()}
            before = dict(p.inputs).get("sequence")
            p = graph[before.producer] if before else None  # type: ignore[union-attr]
        assert earlier.id in read


def test_indexing_is_staged_beside_the_expansion(graph: Graph) -> None:
    embeddings, ingestions = of(graph, Op.EMBEDDING, "index"), of(graph, Op.INGESTION)
    assert sorted(p.items for p in embeddings) == [CHUNKS - EMBED_BATCH, EMBED_BATCH]
    assert sorted(p.items for p in ingestions) == [CHUNKS - EMBED_BATCH, EMBED_BATCH]
    for embedding in embeddings:
        ingestion = only_reader(graph, embedding, Op.INGESTION)
        assert ingestion.items == embedding.items
        assert graph.ancestors[ingestion.id] == {embedding.id}, "it waits for another stage"
    indexing = {p.id for p in embeddings + ingestions}
    expansion = {p.id for p in graph.primitives if p.component == "expand"}
    assert not any(graph.ancestors[id] & expansion for id in indexing)
    assert not any(graph.ancestors[id] & indexing for id in expansion)
    assert {p.id for p in embeddings} <= roots(graph)


def test_every_searching_waits_for_all_that_is_ingested(graph: Graph) -> None:
    ingestions = {p.id for p in of(graph, Op.INGESTION)}
    for searching in of(graph, Op.SEARCHING):
        assert ingestions <= graph.ancestors[searching.id]
        kinds = {e.kind for e in graph.edges() if e.target == searching.id}
        assert kinds == {"data", "order"}


def test_reranking_joins_everything(graph: Graph) -> None:
    (rerank,) = of(graph, Op.RERANKING)
    assert {p.id for p in of(graph, Op.SEARCHING)} <= graph.ancestors[rerank.id]
    assert rerank.items == 48
    for full in of(graph, Op.FULL_PREFILLING, "generate"):
        assert rerank.id in graph.ancestors[full.id]


def test_nothing_else_is_there(graph: Graph) -> None:
    counts = {op: len(of(graph, op)) for op in Op if of(graph, op)}
    partial = counts.pop(Op.PARTIAL_PREFILLING)
    assert partial in (3, 5), "one for each round, and one more where an answer comes last"
    assert counts == {
        Op.EMBEDDING: 5,
        Op.INGESTION: 2,
        Op.SEARCHING: 3,
        Op.PREFILLING: 1,
        Op.PARTIAL_DECODING: 3,
        Op.RERANKING: 1,
        Op.FULL_PREFILLING: 3,
        Op.DECODING: 3,
        Op.AGGREGATE: 3,
    }


def test_without_passes_it_is_a_chain_of_modules() -> None:
    graph = optimised(passes=[]).e_graph
    assert graph is optimised(passes=[]).p_graph or graph.primitives
    path = [p for p in graph.primitives if p.op not in CONTROL]
    assert [p.op for p in path] == [
        Op.EMBEDDING,
        Op.INGESTION,
        Op.PREFILLING,
        Op.DECODING,
        Op.EMBEDDING,
        Op.SEARCHING,
        Op.RERANKING,
        *[Op.PREFILLING, Op.DECODING] * 3,
    ]
    for before, after in itertools.pairwise(path):
        assert before.id in graph.ancestors[after.id], f"{after.id} does not wait for {before.id}"


def test_every_pass_says_what_it_did() -> None:
    applied = {r.pass_name for r in optimised().rewrites if r.applied}
    assert applied == set(PAPER)
    assert all(r.reason for r in optimised().rewrites)


def test_naive_rag_is_a_tree() -> None:
    graph = optimised(naive_rag).e_graph
    full = of(graph, Op.FULL_PREFILLING)
    assert len(full) == 4
    (merge,) = [p for p in full if graph.depth[p.id] == min(graph.depth[q.id] for q in full)]
    leaves = [p for p in full if p is not merge]
    assert len({graph.depth[p.id] for p in leaves}) == 1
    assert all(p.id in graph.ancestors[merge.id] for p in leaves)
    ready = roots(graph)
    assert sum(p.id in ready for p in of(graph, Op.PARTIAL_PREFILLING)) == 4
