"""`chunks` are what is new of a query's documents: an answer made of them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from teola import Aggregate, App, Condition, Each, Embedding, Generate, Indexing, Search, component
from teola.errors import TemplateError

FOUND = Embedding(inputs={"texts": "question"}) >> Search()
INPUTS = {"question": "text", "documents": "documents"}


@component(outputs="matches", pure=True)
def keywords(question: str, chunks: list[Any]) -> list[Any]:
    return [chunk.text for chunk in chunks if question in chunk.text]


@component(outputs="titled", pure=True)
def titled(chunks: list[Any]) -> list[Any]:
    return chunks


@component(outputs="kept", effect=True)
def keep(chunks: list[Any]) -> int:
    return len(chunks)


def app(template: Any, **outputs: str) -> App:
    return App("x", template, inputs=INPUTS, outputs={"answer": "answer", **outputs})


@pytest.mark.parametrize(
    ("template", "outputs", "told"),
    [
        (
            Indexing()
            >> [FOUND, keywords]
            >> Aggregate(["hits", "matches"], output="context", mode="concat")
            >> Generate(),
            {},
            "component 'keywords' reads 'chunks', .*: output 'answer' would lack",
        ),
        (
            Indexing() >> [FOUND >> Generate(inputs={"context": "hits"}), keywords],
            {"matches": "matches"},
            "component 'keywords' reads 'chunks', .*: output 'matches' would lack",
        ),
        (Generate(inputs={"context": "chunks"}), {}, "component 'generate' reads 'chunks'"),
        (
            Each(
                Generate(inputs={"context": "chunk"}),
                over="chunks",
                item="chunk",
                gives={"answer": "answer"},
            ),
            {},
            "component 'each' reads 'chunks'",
        ),
        (Generate(), {"new": "chunks"}, "output 'new' is 'chunks'"),
    ],
)
def test_an_answer_made_of_what_is_new_is_refused(
    template: Any, outputs: dict[str, str], told: str
) -> None:
    with pytest.raises(TemplateError, match=f"{told}.*Read what a Search finds"):
        app(template, **outputs)


@pytest.mark.parametrize(
    ("template", "outputs"),
    [
        (titled >> Indexing(inputs={"chunks": "titled"}), {}),
        (Indexing(), {"stored": "stored"}),
        (keep, {"kept": "kept"}),
        (Condition(lambda chunks: bool(chunks), reads=["chunks"], then=Indexing()), {}),
    ],
)
def test_what_stores_or_counts_what_is_new_may_read_it(
    template: Any, outputs: dict[str, str]
) -> None:
    answers = FOUND >> Generate(inputs={"context": "hits"})
    assert app(template >> answers, **outputs)
