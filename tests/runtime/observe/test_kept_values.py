"""What stays of what primitives read and gave, for whoever looks at them later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola import App, Each, EngineConfig, Generate, Runtime, component
from teola.engine import Hit, TextPart
from teola.errors import InputError, QueryFailed, UnknownName
from teola.graph import QUERY, Graph, Op, Primitive, Ref, Role
from teola.graph.ops import EmbeddingParams
from teola.run_secrets import Secrets
from teola.runtime.observe.kept_values import (
    MOST_BYTES,
    QUERY_BYTES,
    KeptValues,
    ValueRoom,
    room_for,
)
from teola.runtime.tally import MOST_RECORDED
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited

SECRET = "correct-horse-battery"


def kept(level: Any = "small", secrets: Secrets | None = None, **inputs: Any) -> KeptValues:
    room = room_for(level, secrets or Secrets())
    assert room is not None
    return KeptValues(room, inputs)


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


@pytest.mark.parametrize("level", ["small", "all"])
@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        "ü" * 1_000_000,
        ["word"] * 1_000_000,
        {str(k): "v" for k in range(200_000)},
        [Hit("1", "a.md", "t" * 900, 0.5)] * 5_000,
        [[0.5] * 1_000] * 1_000,
        [[[[[[[[[["deep"]]]]]]]]]],
    ],
    ids=["text", "bytes", "list", "mapping", "hits", "vectors", "deep"],
)
def test_of_a_value_the_beginning_is_kept(level: Any, value: Any) -> None:
    found = kept(level)
    found.gave(0, {"out": value})
    outputs = found.outputs(0)
    assert outputs is not None
    most = MOST_BYTES[level]
    assert 0 < size(outputs["out"]) <= 4 * most  # as JSON, quotes and commas come on top
    assert found.bytes <= most
    assert found.room.left == QUERY_BYTES - found.bytes


def test_small_values_are_kept_as_they_are() -> None:
    found, text = kept(), "How tall is it?"
    found.gave(0, {"text": text, "k": 3, "vectors": [[0.5, 1.0]], "sequence": object()})
    outputs = found.outputs(0)
    assert outputs == {"text": text, "k": 3, "vectors": [[0.5, 1.0]]}
    assert outputs["text"] is text


@catches(
    "half-a-secret",
    "a secret that the cut goes through is kept by half",
    edited(ValueRoom.__init__, "MOST_BYTES[level], hide", "MOST_BYTES[level], None"),
)
@pytest.mark.parametrize("before", [0, 100, 2_030, 2_040])
def test_secrets_are_not_kept_nor_halves_of_them(before: int) -> None:
    text = "x" * before + SECRET + " and more" * 400
    found = kept(secrets=Secrets({"password": SECRET}), text=text)
    found.gave(0, {"text": text, "listed": [{"deep": text}]})
    found.read(0, {"text": text})
    found.prompted(0, (), [TextPart(Role.CONTEXT, text)])
    told = str([found.outputs(0), found.prompt(0), found._pieces, found._given])
    assert not any(SECRET[:k] in told for k in range(6, len(SECRET)))


def test_a_query_keeps_no_more_than_its_room() -> None:
    found = kept("all")
    for i in range(500):
        found.gave(i, {"text": "x" * 2**16})
    assert found.bytes <= QUERY_BYTES
    assert found.room.state == "full"
    assert found.outputs(0) is not None
    assert found.outputs(499) is None
    found.forget()
    assert (found.bytes, found.room.left) == (0, QUERY_BYTES)


def test_what_was_forgotten_stays_so_whatever_else_is_dropped() -> None:
    first = kept()
    second = KeptValues(first.room, {})
    second.gave(0, {"text": "x"})
    first.room.close()
    second.forget()
    first.gave(0, {"text": "x"})
    first.prompted(0, (), [TextPart(Role.QUESTION, "why?")])
    assert (first.outputs(0), first.prompt(0), first.bytes) == (None, None, 0)
    assert first.room.state == "forgotten"


def test_the_stream_of_a_call_is_no_value() -> None:
    found = kept()
    found.gave(0, {"sequence": True})
    assert found.outputs(0) == {}


def test_a_further_try_reads_the_same() -> None:
    found = kept()
    for _ in range(100):
        found.prompted(0, (), [TextPart(Role.QUESTION, "why?")])
        found.read(0, {"text": "x" * 1000})
    assert found.bytes == 1004


def test_a_prompt_says_what_an_earlier_primitive_has_prefilled() -> None:
    first, second, third = (TextPart(Role.CONTEXT, text) for text in "abc")
    found = kept()
    found.prompted(0, [first, second], [third])
    found.prompted(1, [], [first])
    told = [found.prompt(i) or () for i in (0, 1)]
    assert [[(part.text, part.before) for part in parts] for parts in told] == [
        [("a", True), ("b", True), ("c", False)],
        [("a", False)],
    ]


def test_a_piece_of_a_list_is_not_the_list() -> None:
    piece = Ref(QUERY, "words", (2, 4))
    read = Primitive(
        "e", Op.EMBEDDING, "e", "embedding", (("texts", piece),), ("vectors",), EmbeddingParams()
    )
    plan = Plan(Graph("g", [read], {"out": Ref("e", "vectors")}, ["words"]))
    assert plan.pieces == {0}
    found = kept(words=list("abcd"))
    assert found.inputs(plan, 0) is None
    found.read(0, {"texts": ["c", "d"]})
    assert found.inputs(plan, 0) == {"texts": ["c", "d"]}


# --- of real queries ------------------------------------------------------------------------


@component(outputs="facts", pure=True)
def look(question: str) -> str:
    if question == "fail":
        raise ValueError("bad luck")
    return f"facts on {question}"


@component(outputs="length", pure=True)
def measure(word: str) -> int:
    return len(word)


@pytest.fixture(scope="module")
def app() -> Any:
    generate = Generate(inputs={"context": "facts"})
    app = App("ask", look >> generate, inputs={"question": "text"}, outputs={"answer": "answer"})
    with Runtime({"llm": EngineConfig(HashModel)}) as app.runtime:
        yield app


def test_a_trace_tells_prompt_inputs_outputs_and_tokens(app: App) -> None:
    result = app.run(question="towers")
    call = result.trace.primitive("look.call")
    assert (call["inputs"], call["outputs"]) == (
        {"question": "towers"},
        {"facts": "facts on towers"},
    )
    assert (call["state"], call["kept"], len(call["tries"])) == ("done", "small", 1)
    ids = result.trace.plan.ids
    prompts = [result.trace.primitive(id) for id in ids if "prefill" in id]
    parts = [part for one in prompts for part in one["prompt"] if not part["before"]]
    assert {"question", "context"} <= {part["role"] for part in parts}
    assert "facts on towers" in "".join(part["text"] for part in parts)
    decode = result.trace.primitive("generate.decode")
    assert decode["outputs"] == {"text": result.answer}
    assert set(decode["tokens"]) == {"in", "cached", "out"}
    assert decode["tokens"]["out"] > 0
    with pytest.raises(UnknownName, match="did you mean 'look"):
        result.trace.primitive("look.cal")


def test_what_failed_tells_what_it_read_and_why(app: App) -> None:
    with pytest.raises(QueryFailed) as caught:
        app.run(question="fail")
    found = caught.value.result.trace.primitive("look.call")
    assert found["inputs"] == {"question": "fail"}
    assert found["outputs"] is None
    assert [one["state"] for one in found["tries"]] == ["failed"] * len(found["tries"])
    assert "bad luck" in found["tries"][0]["error"]


def test_parts_are_found_by_their_paths(app: App) -> None:
    each = Each(measure, over="words", item="word", gives={"lengths": "length"})
    grown = App("grown", each, inputs={"words": "texts"}, outputs={"answer": "lengths"})
    grown.runtime = app.runtime
    result = grown.run(words=["a", "abc"])
    found = result.trace.primitive("each/item/1/measure.call")
    assert (found["inputs"], found["outputs"]) == ({"word": "abc"}, {"length": 3})
    assert found["primitive"] == "each/item/1/measure.call"


def test_of_parts_that_nobody_can_look_at_nothing_is_kept(app: App) -> None:
    each = Each(measure, over="words", item="word", gives={"lengths": "length"})
    grown = App("many", each, inputs={"words": "texts"}, outputs={"answer": "lengths"})
    grown.runtime = app.runtime
    trace = grown.run(words=["a"] * (MOST_RECORDED + 50)).trace
    assert trace.more == 50
    assert QUERY_BYTES - trace.values.room.left == trace.kept_bytes


def test_nothing_is_kept_where_that_is_wanted() -> None:
    with Runtime({"llm": EngineConfig(HashModel)}, keep_values="off") as runtime:
        app = App("ask", look, inputs={"question": "text"}, outputs={"answer": "facts"})
        app.runtime = runtime
        found = app.run(question="towers").trace.primitive("look.call")
    assert (found["inputs"], found["outputs"], found["kept"]) == (None, None, "off")
    with pytest.raises(InputError, match="valid: all, off, small"):
        Runtime(keep_values="some")  # type: ignore[arg-type]
