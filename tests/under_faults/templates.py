"""The applications that are simulated, and their plans with and without passes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from typing import Any, Final

from teola import (
    Aggregate,
    Condition,
    Embedding,
    Generate,
    Indexing,
    QueryExpansion,
    Rerank,
    Search,
)
from teola.engine import Chunk, Scope
from teola.graph import Op
from teola.passes import PIPELINE, optimise
from teola.profile import Cost, EngineProfile, StepTime, default
from teola.schedule.plan import Plan
from teola.testing.hash_engines import hash_number
from teola.workflow.build import Builder
from teola.workflow.component import Template
from teola.workflow.components import Function
from teola.workflow.kinds import Kind
from tests.under_faults.engines import (
    TOKEN_S,
    Database,
    Embedder,
    Model,
    Python,
    Reranker,
    Store,
)

CHUNKS, NOTES = 9, 5
READS = {"question": Kind.TEXT, "notes": Kind.TEXTS, "documents": Kind.DOCUMENTS}
DATABASE = Database()
"""Where effects are counted: plans are shared by all runs, so each run empties it first."""


async def record(question: str) -> str:
    """An effect without a key."""
    DATABASE.effects[question, "record"] += 1
    return f"recorded {hash_number(question) % 1000}"


async def report(answer: str, question: str) -> str:
    """An effect after an answer."""
    DATABASE.effects[question, "report"] += 1
    return f"{question} {hash_number(answer) % 1000}"


async def shorten(notes: list[str]) -> list[str]:
    """A function over each item."""
    return [f"{note[:12]} {hash_number(note) % 1000}" for note in notes]


async def comment(question: str) -> str:
    """A component that the answer can do without."""
    return f"{question} comment {hash_number(question) % 1000}"


def _advanced() -> Any:
    found = Indexing() >> QueryExpansion(n=3) >> Embedding(inputs={"texts": "queries"})
    return found >> Search(top_k=4) >> Rerank(top_k=3) >> Generate(mode="refine")


def _tree() -> Any:
    found = Indexing() >> Embedding(inputs={"texts": "question"}) >> Search(top_k=3)
    return found >> Generate(mode="tree", inputs={"context": "hits"})


def _choice() -> Any:
    known = Function(record, effect=True, outputs="remark") >> Generate(
        "short", inputs={"context": "remark"}
    )
    other = Function(shorten, batched="notes", pure=True, outputs="remarks") >> Generate(
        "long", mode="tree", inputs={"context": "remarks"}
    )
    return Condition(
        lambda question: hash_number(question) % 2 == 0,
        reads=["question"],
        then=known,
        otherwise=other,
    )


def _effects() -> Any:
    first = Function(record, effect=True, outputs="remark") >> Generate(
        inputs={"context": "remark"}
    )
    return first >> Function(report, effect=True, outputs="end")


def _optional() -> Any:
    sides = Template.beside(
        [
            Function(comment, outputs="extra", optional=True),
            Function(shorten, batched="notes", pure=True, outputs="remarks"),
        ]
    )
    gather = Aggregate(["extra", "remarks"], output="all", mode="concat", name="gather")
    return sides >> gather >> Generate(mode="simple", inputs={"context": "all"})


async def weigh(question: str) -> int:
    """Decides sooner or later than what is begun on a guess has ended."""
    await asyncio.sleep(0.1 * (hash_number(question, "time") % 8))
    return hash_number(question, "verdict")


def _guess() -> Any:
    begun = Indexing() >> Embedding(inputs={"texts": "question"}) >> Function(weigh, pure=True)
    found = Condition(
        lambda verdict: verdict % 2 == 0,
        reads=["weigh"],
        then=Search(top_k=3) >> Rerank(top_k=2),
        speculate=True,
    )
    known = Aggregate(["context", "question"], output="known", mode="first", name="known")
    return begun >> found >> known >> Generate(inputs={"context": "known"})


TEMPLATES = {
    "advanced": (_advanced, "answer", ("documents",)),
    "tree": (_tree, "answer", ("documents",)),
    "choice": (_choice, "answer", ("notes",)),
    "effects": (_effects, "end", ()),
    "guess": (_guess, "answer", ("documents",)),
    "optional": (_optional, "answer", ("notes",)),
}


TIMES: Final = {
    "embedding": EngineProfile({Op.EMBEDDING: Cost(base_s=0.1)}, max_batch=4),
    "vectorstore": EngineProfile(
        {op: Cost(base_s=0.1) for op in (Op.INGESTION, Op.SEARCHING)}, max_batch=4
    ),
    "rerank": EngineProfile({Op.RERANKING: Cost(base_s=0.1)}, max_batch=4),
    "python": EngineProfile({Op.TOOL_CALL: Cost(base_s=0.1)}, concurrency=4),
    "llm": EngineProfile(
        step=StepTime(base_s=TOKEN_S, per_token_s=0.001), max_batch=256, prefix_reuse=True
    ),
}
"""Where it matters that times are known."""


@cache
def plan(name: str, passes: bool, timed: bool = False) -> Plan:
    """The plan of an application."""
    make, output, reads = TEMPLATES[name]
    kinds = {key: READS[key] for key in ("question", *reads)}
    builder = Builder(name, make(), kinds, {output: output})
    sizes = {"chunks": CHUNKS, "notes": NOTES}
    graph = builder.build(builder.configure({}), sizes)
    specs = [Embedder().spec, Store(database=DATABASE).spec, Reranker().spec]
    declared = default([*specs, Model().spec, Python().spec])
    profile = replace(declared, engines=TIMES) if timed else declared
    names = list(PIPELINE) if passes else []
    return Plan(optimise(graph, profile, names).e_graph, profile)


def inputs(question: str, tenant: str, collection: str) -> dict[str, Any]:
    """What a query is given; all of it names its tenant."""
    chunks = [Chunk("d", i, f"{tenant}: chunk {i} for {question}", "d") for i in range(CHUNKS)]
    return {
        "question": question,
        "notes": [f"{tenant}: note {i}" for i in range(NOTES)],
        "chunks": chunks,
        "scope": Scope(tenant, collection),
    }
