"""Operations as the GenAI conventions name them, and what is told of each."""

from __future__ import annotations

from typing import Any

import pytest

from teola.engine import Usage
from teola.runtime.observe.trace import Span
from teola.serve.observe.operations import Maker, Operation, _operation

MODEL = Maker("vllm", "a-model")
CALL = {"gen_ai.request.max_tokens": 9}


def span(op: str, **more: Any) -> Span:
    times = {
        name: more.pop(name, at) for name, at in (("queued", 0.5), ("start", 1.0), ("end", 2.0))
    }
    return Span(more.pop("primitive", "a"), op, "say", "an-engine", **times, **more)


def of(
    *spans: Span, maker: Maker = MODEL, call: bool = False, usage: Usage | None = None
) -> Operation:
    return _operation("a", [*spans], maker, usage, CALL if call else {})


@pytest.mark.parametrize(
    ("op", "maker", "call", "kind", "name"),
    [
        ("prefilling", MODEL, True, "chat", "chat a-model"),
        ("prefilling", Maker("vllm", None), True, "chat", "chat"),
        ("full_prefilling", Maker("vllm", "m", "text_completion"), True, "text_completion",
         "text_completion m"),
        ("prefilling", MODEL, False, "prefilling", "prefilling say"),
        ("embedding", MODEL, False, "embeddings", "embeddings a-model"),
        ("searching", MODEL, False, "retrieval", "retrieval an-engine"),
        ("web_search", MODEL, False, "execute_tool", "execute_tool an-engine"),
        ("sql", MODEL, False, "execute_tool", "execute_tool an-engine"),
        ("reranking", MODEL, False, "reranking", "reranking say"),
    ],
)  # fmt: skip
def test_an_operation_has_the_name_of_the_conventions_or_its_components(
    op: str, maker: Maker, call: bool, kind: str, name: str
) -> None:
    found = of(span(op), maker=maker, call=call)
    assert (found.kind, found.name, found.maker) == (kind, name, maker)


def test_the_conventions_attributes_are_told_of_what_they_know() -> None:
    def words(op: str, maker: Maker = MODEL, call: bool = False) -> dict[str, Any]:
        attributes = of(span(op), maker=maker, call=call).attributes
        return {key: value for key, value in attributes.items() if key.startswith("gen_ai.")}

    chat = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm"}
    assert words("prefilling", call=True) == {**chat, "gen_ai.request.model": "a-model", **CALL}
    assert words("prefilling", Maker("vllm"), call=True) == {**chat, **CALL}
    assert words("searching")["gen_ai.data_source.id"] == "an-engine"
    sql = words("sql", Maker("databases"))
    assert (sql["gen_ai.tool.name"], sql["gen_ai.tool.type"]) == ("an-engine", "datastore")
    assert words("reranking") == {}


def test_where_and_when_it_ran_is_told_over_all_slices() -> None:
    first = span("embedding", instance=1, lo=0, hi=4, batch_size=2, state="failed", why="alone")
    again = span("embedding", start=3.0, end=5.0, instance=0, lo=0, hi=4, batch_size=7, why="idle")
    last = span("embedding", start=2.5, end=4.0, instance=1, lo=4, hi=6, batch_size=3, state="done")
    found = of(first, again, last)
    assert (found.start, found.end, found.failed) == (1.0, 5.0, False)
    wanted = {
        "teola.primitive": "a", "teola.component": "say", "teola.op": "embedding",
        "teola.engine": "an-engine", "teola.instances": [0, 1], "teola.queued_s": 0.5,
        "teola.batch_size": 7, "teola.slices": 3, "teola.items": 6,
    }  # fmt: skip
    assert found.attributes.items() >= wanted.items()
    assert "teola.why" not in found.attributes, "of the last try"
    assert of(first, again).attributes["teola.why"] == "idle"
    early = span("embedding", queued=2.0, start=1.0)
    assert of(early).attributes["teola.queued_s"] == 0.0
    assert of(first).failed


def test_what_the_head_of_a_call_did_is_told_of_the_call() -> None:
    head = span("prefilling", instance=0)
    piece = span("decoding", primitive="a.decode", start=2.0, end=9.0, instance=5, state="failed")
    found = of(head, piece, call=True)
    assert (found.start, found.end, found.failed) == (1.0, 9.0, False)
    assert (found.attributes["teola.instances"], found.attributes["teola.slices"]) == ([0], 1)
    only = of(piece, call=True)
    assert (only.failed, only.attributes["teola.instances"]) == (False, [5])


def test_tokens_are_told_where_there_are_any() -> None:
    read, wrote = Usage(prompt_tokens=3), Usage(completion_tokens=1)
    assert of(span("prefilling"), call=True, usage=read).usage == read
    assert of(span("prefilling"), call=True, usage=wrote).usage == wrote
    assert of(span("prefilling"), call=True, usage=Usage()).usage is None
    assert of(span("prefilling"), call=True).usage is None
