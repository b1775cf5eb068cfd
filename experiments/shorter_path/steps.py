"""The steps: for each, two ways of running the same queries that differ in that step alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from experiments.baselines.systems import TEOLA, Cache, System
from experiments.common.simulate import Setting
from experiments.common.testbed import Testbed, testbed
from experiments.common.workloads import APPS, Drawn, example
from teola.passes import PIPELINE

LLM: Final = "13b"
RAG: Final = ("naive-rag", "advanced-rag")
ALL: Final = tuple(PIPELINE)


@dataclass(frozen=True)
class Way:
    """How queries are run. passes: which. cached: instructions are in the engines' prefix cache.
    known: documents are in the collection already. overrides: component -> parameter -> value."""

    passes: tuple[str, ...] = ALL
    cached: bool = True
    known: bool = False
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def system(self) -> System:
        """Teola with these passes."""
        cache = Cache.ALL if self.cached else Cache.QUERY
        return replace(TEOLA, cache=cache, passes=self.passes)

    def setting(self, app: str, queries: int, seed: int, data: Any) -> Setting:
        """The workload of an application."""
        return Setting(app, self._testbed(), queries, seed, data, overrides=self.overrides)

    def one(self, app: str) -> Drawn:
        """The paper's example query; the search agent's wants a search."""
        found = example(app)
        return replace(found, chunks=0) if self.known else found

    def _testbed(self) -> Testbed:
        bed = testbed(LLM)
        if not self.known:
            return bed
        return replace(bed, values=replace(bed.values, chunks_min=0, chunks_max=0))


@dataclass(frozen=True)
class Step:
    """One step on one application."""

    key: str
    what: str
    app: str
    before: Way
    after: Way


def _without(name: str) -> tuple[str, ...]:
    return tuple(other for other in ALL if other != name)


def _steps() -> list[Step]:
    whole = _without("split_prefilling")
    last = {"generate": {"answer_last": True}}
    guess = {"judge": {"speculate": True}}
    return [
        *(
            Step("instructions", "instructions kept in the prefix cache", app, *ways)
            for app in APPS
            for ways in [(Way(cached=False), Way())]
        ),
        *(
            Step("documents", "documents kept in the collection", app, Way(), Way(known=True))
            for app in RAG
        ),
        *(
            Step("prefixes", "instructions computed, but ahead", app, *ways)
            for app in APPS
            for ways in [(Way(whole, cached=False), Way(cached=False))]
        ),
        Step(
            "reranking",
            "hits of each search reranked as they come",
            "advanced-rag",
            Way(_without("split_reranking")),
            Way(),
        ),
        Step(
            "reranking, known",
            "the same, the document being in the collection",
            "advanced-rag",
            Way(_without("split_reranking"), known=True),
            Way(known=True),
        ),
        Step(
            "rounds",
            "context prefilled in the round before",
            "advanced-rag",
            Way(whole, overrides=last),
            Way(overrides=last),
        ),
        Step(
            "speculation",
            "search begun before the judge decides",
            "search-agent",
            Way(whole),
            Way(whole, overrides=guess),
        ),
        Step(
            "guessed prefix",
            "and what it found prefilled",
            "search-agent",
            Way(whole, overrides=guess),
            Way(overrides=guess),
        ),
    ]


STEPS: Final = tuple(_steps())
