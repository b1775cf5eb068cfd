"""What grows keeps the order of searches and what is stored, as if it stood there."""

from __future__ import annotations

from teola import Each, Embedding, Indexing, Search
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind

INPUTS = {"topics": Kind.TEXTS, "documents": Kind.DOCUMENTS}


def looking() -> Each:
    body = Embedding(inputs={"texts": "topic"}) >> Search()
    return Each(body, over="topics", item="topic", gives={"found": "hits"})


def after(template: object) -> dict[str, set[str]]:
    builder = Builder("stores", template, INPUTS, {"found": "found"})  # type: ignore[arg-type]
    graph = builder.build(builder.configure({}), {"topics": 3, "chunks": 3})
    return {p.id: {order.producer for order in p.after if order.effect} for p in graph.primitives}


def test_parts_search_what_was_stored_before() -> None:
    assert "index.ingest" in after(Indexing() >> looking())["each.grow"]


def test_nothing_is_stored_before_parts_have_searched() -> None:
    assert "each.grow" in after(looking() >> Indexing())["index.ingest"]
