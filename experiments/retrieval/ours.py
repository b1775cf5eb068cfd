"""Teola's searches and applications, on a collection that holds all passages.

A question whose article is taken away is asked with a filter that leaves its passages out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from experiments.retrieval.found import CANDIDATES, RANKS, Found, each_once
from experiments.retrieval.questions import Passage, Question
from teola import App, Embedding, Indexing, Rerank, Result, Runtime, Search
from teola.collections import index
from teola.graph import AggregateParams, Aggregation
from teola.runtime.gathering import gather
from teola_apps import advanced_rag, naive_rag
from teola_engines.llm.extractive import NOTHING

COLLECTION: Final = "passages"
BY_VECTORS: Final = {"search.mode": "vector"}
HYBRID: Final = "reranked hybrid"


@dataclass(frozen=True, slots=True)
class TeolaSystem:
    """An application that gives `sources`, and an `answer` if it has a reader."""

    name: str
    app: App
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        return "answer" in self.app.outputs

    def ask(self, questions: Sequence[Question], *, alone: bool = False) -> list[Found]:
        """See `System`."""
        asked = [
            {
                "question": one.text,
                "collection": COLLECTION,
                "filters": {"article": {"$ne": one.passage.article}} if alone else {},
            }
            for one in questions
        ]
        results = self.app.batch(asked, overrides=self.overrides)
        return [self._found(result.checked()) for result in results]

    def _found(self, result: Result) -> Found:
        hits = tuple(result["sources"])
        declined = result["answer"] == NOTHING if self.reads else None
        return Found(each_once(hit.document for hit in hits), hits, declined)


def stored(passages: Sequence[Passage], runtime: Runtime) -> None:
    """Index all passages, each as a document of its own."""
    documents = [
        {"name": one.name, "text": one.text, "metadata": {"article": one.article}}
        for one in passages
    ]
    done = index(documents, collection=COLLECTION, runtime=runtime)
    if done["failed"]:
        raise AssertionError(f"not every passage was indexed: {done['failed'][:3]}")


def searches(runtime: Runtime) -> list[TeolaSystem]:
    """Searches alone, and with the reranker behind them."""
    vectors, words = Search(top_k=CANDIDATES), Search(mode="hybrid", top_k=CANDIDATES)
    rerank = Rerank(top_k=RANKS)
    return [
        _searching("search", runtime, vectors, gives="hits"),
        _searching("hybrid", runtime, words, gives="hits"),
        _searching("reranked", runtime, vectors >> rerank, gives="context"),
    ]


def reranked_hybrid(runtime: Runtime, weight: float, ranks: int = RANKS) -> TeolaSystem:
    """Hybrid candidates, whose lexical scores the reranker adds with this weight."""
    both = Search(mode="hybrid", top_k=CANDIDATES) >> Rerank(top_k=ranks, lexical_weight=weight)
    return _searching(HYBRID, runtime, both, gives="context")


def reweighed(found: Found, weight: float) -> Found:
    """What a reranker of this weight makes of candidates that one without any has scored."""
    params = AggregateParams(Aggregation.TOP_K, RANKS, weight)
    hits = gather(params, [list(found.hits), [hit.score for hit in found.hits]])
    return Found(each_once(hit.document for hit in hits))


def applications(runtime: Runtime) -> list[TeolaSystem]:
    """The applications as they are; the advanced one also with candidates by vectors alone."""
    naive, advanced = _on(runtime, naive_rag.app), _on(runtime, advanced_rag.app)
    return [
        TeolaSystem(naive.name, naive),
        TeolaSystem(advanced.name, advanced),
        TeolaSystem(f"{advanced.name}, by vectors", advanced, BY_VECTORS),
    ]


def _searching(name: str, runtime: Runtime, template: Any, *, gives: str) -> TeolaSystem:
    app = App(
        name.replace(" ", "-"),
        template=Indexing() >> Embedding(inputs={"texts": "question"}) >> template,
        inputs={"question": "text", "documents": "documents"},
        outputs={"sources": gives},
        runtime=runtime,
    )
    return TeolaSystem(name, app)


def _on(runtime: Runtime, app: App) -> App:
    found = copy(app)
    found.runtime = runtime
    return found
