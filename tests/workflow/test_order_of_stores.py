"""What the template puts before a write of a store reads the store as it was before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from teola import Embedding, Generate, Indexing, QueryExpansion, Search
from teola.engine import Chunk, Scope
from teola.passes import PIPELINE, optimise
from teola.testing.pass_contract import profile_of
from teola.workflow.build import Builder
from teola.workflow.component import Component, Template
from teola.workflow.kinds import Kind
from tests.properties.test_passes import answer

INPUTS = {
    "question": "why?",
    "chunks": [Chunk("d", i, f"chunk {i}", "d") for i in range(9)],
    "scope": Scope("default", "c"),
}


def reading() -> Template:
    return (
        QueryExpansion(n=3)
        >> Embedding(inputs={"texts": "queries"})
        >> Search(top_k=2)
        >> Generate(inputs={"context": "hits"}, mode="simple")
    )


def built(template: Component | Template) -> Builder:
    inputs = {"question": Kind.TEXT, "documents": Kind.DOCUMENTS}
    return Builder("app", template, inputs, {"hits": "hits", "answer": "answer"})


def hits(template: Component | Template, passes: list[str]) -> Any:
    builder = built(template)
    graph = builder.build(builder.configure({}), {"chunks": 9})
    made = optimise(graph, profile_of(), passes, debug=True).e_graph
    ending, _ = asyncio.run(answer(made, INPUTS))
    return ending.outputs["hits"]


@pytest.mark.parametrize("passes", [[], list(PIPELINE), ["prune_dependencies"]])
def test_a_search_before_the_ingestion_does_not_find_what_it_stores(passes: list[str]) -> None:
    """Indexing takes one round of the engines, the way to the search takes three."""
    assert not hits(reading() >> Indexing(), passes)
    assert hits(Indexing() >> reading(), passes)


def test_the_edge_says_why() -> None:
    builder = built(reading() >> Indexing())
    graph = builder.build(builder.configure({}), {"chunks": 9})
    (order,) = [o for o in graph["index.ingest"].after if o.effect]
    assert (order.producer, order.reason) == ("search.search", "searches what was stored before")
