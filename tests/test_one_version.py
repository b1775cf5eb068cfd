"""A query of an application sees one version of a collection, until it waits for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from teola import App, Ask, Embedding, Runtime, Search, collections, component
from teola.engine import Hit

FIRST = Embedding("embed", inputs={"texts": "question"}) >> Search(top_k=2)
SECOND = Embedding("embed2", inputs={"texts": "again"}, outputs={"vectors": "vectors2"}) >> Search(
    "search2", top_k=2, inputs={"vectors": "vectors2"}, outputs={"hits": "hits2"}
)


@component(outputs="draft")
def between(hits: list[Hit]) -> str:
    """What happens between both searches."""
    for event in happens:
        event()
    return f"The keeper is {hits[0].text}."


@component(outputs="again")
def go_on(draft: str) -> str:
    return draft


happens: list[Callable[[], Any]] = []


def keeper(runtime: Runtime, tenant: str, name: str) -> None:
    text = {"name": "keeper.txt", "text": f"The keeper is {name}."}
    collections.index(text, collection="c", runtime=runtime, tenant=tenant)


@pytest.mark.parametrize("waits", [False, True])
def test_searches_of_a_query(
    waits: bool, runtime: Runtime, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = str(request.node.name)
    keeper(runtime, tenant, "Olga")
    monkeypatch.setitem(globals(), "happens", [lambda: keeper(runtime, tenant, "Moa")])
    app = App(
        "twice",
        FIRST >> between >> (Ask("Well? {draft}", gives="again") if waits else go_on) >> SECOND,
        inputs={"question": "text", "documents": "documents"},
        outputs={"hits": "hits", "hits2": "hits2"},
        runtime=runtime,
    )
    result = app.run(question="Who is the keeper?", collection="c", tenant=tenant)
    if waits:
        assert result.state == "waiting"
        result = app.resume(result.query_id, "Who is it?", tenant=tenant)
    found = [[hit.text for hit in result[name]] for name in ("hits", "hits2")]
    assert found == [["The keeper is Olga."], [f"The keeper is {'Moa' if waits else 'Olga'}."]]
    assert not runtime.host("vectorstore").engine._started.pins._pins
