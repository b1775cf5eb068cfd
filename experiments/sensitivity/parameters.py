"""The figures of the testbed that were derived or assumed, and how to change one of them.

What the paper gives or what was measured as it is used is not here, except for how long TO waits:
it is the published prototype's configuration and not the paper's. Nor is the KV block of 16 tokens:
a prefix is worth a prefill of its own from 38 tokens on, so neither 8 nor 32 would change a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from experiments.common.testbed import Testbed
from experiments.common.workloads import APPS
from teola.graph import Op
from teola.profile import EngineProfile

Change = Callable[[Testbed, float], Testbed]
RAG: Final = ("naive-rag", "advanced-rag")
AGENT: Final = ("search-agent",)
ADVANCED: Final = ("advanced-rag",)


@dataclass(frozen=True, slots=True)
class Parameter:
    """change: the testbed with the value multiplied. apps: which it concerns; llm: with which.
    factors: by what it is multiplied."""

    key: str
    what: str
    source: str
    change: Change
    apps: tuple[str, ...] = APPS
    llm: str = "13b"
    factors: tuple[float, ...] = (0.5, 2.0)


def _engines(
    testbed: Testbed, names: Iterable[str], of: Callable[[EngineProfile], EngineProfile]
) -> Testbed:
    engines = dict(testbed.profile.engines)
    for name in names:
        engines[name] = of(engines[name])
    return replace(testbed, profile=replace(testbed.profile, engines=engines))


def _cost(names: Iterable[str], op: Op, *fields: str) -> Change:
    """Multiplies fields of the cost of an op."""

    def change(testbed: Testbed, factor: float) -> Testbed:
        def of(engine: EngineProfile) -> EngineProfile:
            cost = engine.costs[op]
            new = replace(cost, **{name: getattr(cost, name) * factor for name in fields})
            return replace(engine, costs={**engine.costs, op: new})

        return _engines(testbed, names, of)

    return change


def _prefill(names: Iterable[str]) -> Change:
    """Multiplies the time of a prefilling."""

    def change(testbed: Testbed, factor: float) -> Testbed:
        def of(engine: EngineProfile) -> EngineProfile:
            step = engine.step
            base = (step.base_s + step.prefill_s) * factor - step.base_s
            new = replace(step, prefill_s=base, per_token_s=step.per_token_s * factor)
            return replace(engine, step=new)

        return _engines(testbed, names, of)

    return change


def _step(names: Iterable[str], field: str) -> Change:
    """Multiplies a field of the time of a decoding step."""

    def change(testbed: Testbed, factor: float) -> Testbed:
        def of(engine: EngineProfile) -> EngineProfile:
            step = engine.step
            new = {field: getattr(step, field) * factor}
            if field == "base_s":  # prefilling takes as long as before
                new["prefill_s"] = step.prefill_s + step.base_s - new["base_s"]
            return replace(engine, step=replace(step, **new))

        return _engines(testbed, names, of)

    return change


def _limit(names: Iterable[str], field: str) -> Change:
    """Multiplies a limit of engines, a whole number."""

    def change(testbed: Testbed, factor: float) -> Testbed:
        def of(engine: EngineProfile) -> EngineProfile:
            return replace(engine, **{field: round(getattr(engine, field) * factor)})

        return _engines(testbed, names, of)

    return change


def _value(*fields: str) -> Change:
    """Multiplies values of the workloads; lengths stay whole, fractions stay below 1."""

    def change(testbed: Testbed, factor: float) -> Testbed:
        new: dict[str, float] = {}
        for field in fields:
            old = getattr(testbed.values, field)
            new[field] = max(1, round(old * factor)) if isinstance(old, int) else old * factor
        if "searches" in new:
            new["searches"] = min(1.0, new["searches"])
        return replace(testbed, values=replace(testbed.values, **new))

    return change


def _waits(testbed: Testbed, factor: float) -> Testbed:
    return replace(
        testbed, wait_s=testbed.wait_s * factor, wait_store_s=testbed.wait_store_s * factor
    )


SEVEN: Final = ("proxy",)
PARAMETERS: Final = (
    Parameter(
        "rerank_base",
        "rerank, 0.05 a batch",
        "derived",
        _cost(("rerank",), Op.RERANKING, "base_s"),
        ADVANCED,
    ),
    Parameter(
        "rerank_pair",
        "rerank, 0.028 a pair",
        "derived",
        _cost(("rerank",), Op.RERANKING, "per_item_s"),
        ADVANCED,
    ),
    Parameter(
        "prefill_7b",
        "prefill of 7B, 0.9 of 13B",
        "derived",
        _prefill(SEVEN),
        AGENT,
    ),
    Parameter(
        "prefill_30b",
        "prefill of 30B, 0.12 + 0.17 n/512",
        "derived",
        _prefill(("llm",)),
        llm="30b",
    ),
    Parameter("step_7b", "decoding step of 7B, 0.018", "derived", _step(SEVEN, "base_s"), AGENT),
    Parameter("step_13b", "decoding step of 13B, 0.0215", "derived", _step(("llm",), "base_s")),
    Parameter(
        "step_30b", "decoding step of 30B, 0.0246", "derived", _step(("llm",), "base_s"), llm="30b"
    ),
    Parameter(
        "sequence_7b",
        "a sequence more in a step, 7B, 0.00015",
        "derived",
        _step(SEVEN, "per_sequence_s"),
        AGENT,
    ),
    Parameter(
        "sequence_13b",
        "a sequence more in a step, 13B, 0.0002",
        "derived",
        _step(("llm",), "per_sequence_s"),
    ),
    Parameter(
        "sequence_30b",
        "a sequence more in a step, 30B, 0.0002",
        "derived",
        _step(("llm",), "per_sequence_s"),
        llm="30b",
    ),
    Parameter(
        "sequences",
        "32 sequences decode at once",
        "assumed",
        _limit(("llm", *SEVEN), "max_sequences"),
    ),
    Parameter(
        "rerank_batch",
        "rerank, 32 pairs a batch",
        "derived",
        _limit(("rerank",), "max_batch"),
        ADVANCED,
    ),
    Parameter(
        "ingest",
        "ingest, 0.002 + 0.0001 a chunk",
        "measured, scaled",
        _cost(("vectorstore",), Op.INGESTION, "base_s", "per_item_s"),
        RAG,
    ),
    Parameter(
        "vector_search",
        "vector search, 0.003",
        "measured, scaled",
        _cost(("vectorstore",), Op.SEARCHING, "per_item_s"),
        RAG,
    ),
    Parameter(
        "store_batch",
        "database, 256 items a batch",
        "assumed",
        _limit(("vectorstore",), "max_batch"),
        RAG,
    ),
    Parameter(
        "web_at_once",
        "64 web searches at once",
        "assumed",
        _limit(("websearch",), "concurrency"),
        AGENT,
    ),
    Parameter(
        "web_median",
        "web search, median 0.45",
        "assumed",
        _cost(("websearch",), Op.WEB_SEARCH, "base_s"),
        AGENT,
    ),
    Parameter(
        "web_sigma",
        "web search, sigma 0.3",
        "assumed",
        _cost(("websearch",), Op.WEB_SEARCH, "sigma"),
        AGENT,
    ),
    Parameter(
        "chunks_sigma", "chunks of a document, sigma 0.5", "assumed", _value("chunks_sigma"), RAG
    ),
    Parameter(
        "chunks_clip",
        "chunks of a document, 8 to 192",
        "assumed",
        _value("chunks_min", "chunks_max"),
        RAG,
    ),
    Parameter("expansion", "prompt of an expansion, 80", "assumed", _value("expansion"), ADVANCED),
    Parameter(
        "rewriting", "a rewriting, 1.2 of the question", "assumed", _value("rewriting"), ADVANCED
    ),
    Parameter(
        "answer_extra", "an answer, 4 more than the data set's", "assumed", _value("answer_extra")
    ),
    Parameter("draft", "draft of an answer, 40", "assumed", _value("draft"), AGENT),
    Parameter("judge", "prompt of the judge, 120", "assumed", _value("judge"), AGENT),
    Parameter("verdict", "verdict of the judge, 4", "assumed", _value("verdict"), AGENT),
    Parameter(
        "searches", "questions that are searched for, 70 %", "assumed", _value("searches"), AGENT
    ),
    Parameter("snippet", "snippet of a web page, 120", "assumed", _value("snippet"), AGENT),
    Parameter(
        "waits",
        "TO waits 0.1, for the database 0.05",
        "prototype",
        _waits,
        factors=(0.0, 0.5, 2.0),
    ),
)
BY_KEY: Final = {parameter.key: parameter for parameter in PARAMETERS}
