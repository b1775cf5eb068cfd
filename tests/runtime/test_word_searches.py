"""Hybrid searches from template to ranking: what they read, who refuses them, what a score adds."""

from __future__ import annotations

from typing import Any

import pytest

from teola import App, Embedding, Indexing, Rerank, Runtime, Search
from teola.engine import Hit
from teola.errors import InputError, TemplateError
from teola.graph import AggregateParams, Aggregation, Op
from teola.graph.ops import SearchParams
from teola.query.spec import QuerySpec
from teola.runtime.gathering import gather
from teola.runtime.live.steps import packed, unpacked
from teola.testing.hash_engines import HashEmbedder, HashReranker, MemoryStore

QUESTION = {"question": "Why?", "documents": {"name": "a.txt", "text": "Because."}}
HITS = [Hit("a", "d", "a", 0.9, lexical=0.0), Hit("b", "d", "b", 0.8, lexical=4.0)]
HITS += [Hit("c", "d", "c", 0.7, lexical=1.0), Hit("w", "web", "w", 0.1)]


def app(runtime: Runtime | None = None, **options: Any) -> App:
    embed = Embedding(inputs={"texts": "question"})
    return App(
        "words",
        template=Indexing() >> embed >> Search(**options) >> Rerank(top_k=1),
        inputs={"question": "text", "documents": "documents"},
        outputs={"context": "context"},
        runtime=runtime,
    )


def searching(made: App, **overrides: Any) -> Any:
    graph = made.builder.build(made.builder.configure({"search": overrides}), {"chunks": 2})
    (search,) = (p for p in graph.primitives if p.op is Op.SEARCHING)
    return search


def test_a_hybrid_search_reads_the_question_and_one_by_vectors_does_not() -> None:
    assert dict(searching(app()).inputs).keys() == {"vectors", "scope"}
    hybrid = searching(app(mode="hybrid", language="german"))
    assert hybrid.params == SearchParams(4, "german")
    assert "question" in dict(hybrid.inputs)
    by_vectors = searching(app(mode="hybrid"), mode="vector")
    assert by_vectors.params == SearchParams(4)
    assert "question" not in dict(by_vectors.inputs)


def test_wrong_modes_are_refused_early() -> None:
    with pytest.raises(InputError, match=r'declare it as Search\(mode="hybrid"\)'):
        searching(app(), mode="hybrid")
    with pytest.raises(InputError, match=r"search\.mode: .*'vector', 'hybrid' or 'auto'"):
        Search(mode="both")
    with pytest.raises(InputError, match=r"search\.language: "):
        Search(mode="hybrid", language="x'; --")
    embed = Embedding(inputs={"texts": "words"})
    template = Indexing() >> embed >> Search(mode="hybrid")
    inputs = {"words": "text", "documents": "documents"}
    with pytest.raises(TemplateError, match="component 'search' needs 'question'"):
        App("x", template=template, inputs=inputs, outputs={"hits": "hits"})


def test_an_engine_without_full_text_refuses_before_anything_runs() -> None:
    engines = {"embedding": HashEmbedder, "vectorstore": MemoryStore, "rerank": HashReranker}
    with Runtime(engines) as runtime:
        made = app(runtime, mode="hybrid")
        told = "'search' of application 'words' searches by words.* engine 'vectorstore' does not"
        with pytest.raises(InputError, match=told):
            made.run(QUESTION)
        made.job(QuerySpec(QUESTION, {"search.mode": "vector"}))


def test_what_is_left_open_is_by_words_where_the_engine_can() -> None:
    engines = {"embedding": HashEmbedder, "vectorstore": MemoryStore, "rerank": HashReranker}
    made, asked = app(mode="auto"), QuerySpec(QUESTION, {"search.top_k": 2})
    assert searching(made).params == SearchParams(4, "simple")
    with Runtime() as runtime:
        made.runtime = runtime
        assert made.job(asked).overrides == {"search": {"top_k": 2}}
    with Runtime(engines) as runtime:
        made.runtime = runtime
        assert made.job(asked).overrides == {"search": {"top_k": 2, "mode": "vector"}}
        with pytest.raises(InputError, match="searches by words"):
            made.job(QuerySpec(QUESTION, {"search.mode": "hybrid"}))


def test_the_lexical_score_is_added_by_its_weight() -> None:
    def best(weight: float, *scored: Any) -> list[tuple[str, float]]:
        params = AggregateParams(Aggregation.TOP_K, 3, weight)
        found = gather(params, [HITS, [0.5, 0.3, 0.1, 0.2], *scored])
        return [(hit.id, pytest.approx(hit.score)) for hit in found]

    assert best(0.0) == [("a", 0.5), ("b", 0.3), ("w", 0.2)]
    assert best(0.4) == [("b", 0.7), ("a", 0.5), ("c", 0.2)]
    split = [HITS[3], HITS[2], HITS[1], HITS[0]]  # as pieces of a reranking scored them
    params = AggregateParams(Aggregation.TOP_K, 3, 0.4)
    pieces = gather(params, [HITS, [0.2, 0.1, 0.3, 0.5], split])
    assert [hit.id for hit in pieces] == ["b", "a", "c"]
    kept = gather(AggregateParams(Aggregation.TOP_K, 1), [HITS[3:], [0.2]])
    assert kept[0].lexical is None


def test_a_kept_hit_comes_back_with_its_lexical_score() -> None:
    assert unpacked(packed(HITS, "step")) == HITS
    assert unpacked({"$hit": ["a", "d", "a", 0.9, {}]}) == Hit("a", "d", "a", 0.9)
