"""What engines give: which outputs are refused, and what is said of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from teola.engine import Call, Delta, Hit, LanguageModel, QueryContext, SequenceHandle
from teola.errors import OutputError
from teola.graph import DecodeParams, Op, Primitive
from teola.runtime.outputs import (
    SHOWN,
    misnumbered,
    misshapen,
    no_delta,
    no_handle,
    opened_stream,
)
from teola.runtime.values import RemoteList
from tests.schedule.plans import tool

HIT = Hit("1", "a.md", "text", 0.5)


def primitive(op: Op = Op.TOOL_CALL, *ports: str, batchable: bool = False) -> Primitive:
    return replace(tool("a", batchable=batchable), op=op, outputs=ports or ("out",), engine="e")


def said(p: Primitive, items: int, given: Any, *shown: str) -> str:
    error = misshapen(p, items, given, frozenset(shown))
    return "" if error is None else str(error)


# --- ports ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"out": 1, "more": None}, ""),
        ({"out": 1, "more": 2, "besides": 3}, ""),
        (MappingProxyType({"out": 1, "more": 2}), ""),
        ({"out": 1}, "engine 'e' gave out, not out, more"),
        ({}, "engine 'e' gave nothing, not out, more"),
        ([1, 2], "engine 'e' gave list, not out, more"),
        (None, "engine 'e' gave NoneType, not out, more"),
    ],
)
def test_an_engine_gives_each_output_by_its_name(given: Any, told: str) -> None:
    assert said(primitive(Op.TOOL_CALL, "out", "more"), 1, given) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([1, 2], ""),
        (RemoteList([([1, 2, 3], 1, 3)]), ""),
        ([1], "1 for 2 items of 'more'"),
        ([1, 2, 3], "3 for 2 items of 'more'"),
        ((1, 2), "tuple for 2 items of 'more'"),
        ("ab", "str for 2 items of 'more'"),
    ],
)
def test_there_is_one_of_each_output_for_each_item(value: Any, told: str) -> None:
    """Also of the second output; of what is not cut any value will do."""
    told = told and f"engine 'e' gave {told}, not a list with one for each"
    given = {"out": [0, 0], "more": value}
    for op in (Op.TOOL_CALL, Op.INGESTION):
        assert said(primitive(op, "out", "more", batchable=True), 2, given) == told
    assert said(primitive(Op.TOOL_CALL, "out", "more"), 2, given) == ""
    assert said(primitive(Op.EMBEDDING, "out"), 2, {"out": [[1.0]]}) != ""


@pytest.mark.parametrize(
    ("op", "fits", "wrong"),
    [
        (
            Op.EMBEDDING,
            ([[0.5, 1]], [(1,)], [[Fraction(1, 2)]], [SimpleNamespace(tolist=list)]),
            ([[]], ["text"], [["a"]], [0.5], [None], [{"x": 1}]),
        ),
        (Op.RERANKING, ([0.5], [1], [Fraction(1, 2)]), (["0.5"], [True], [None], [[0.5]])),
        (Op.SEARCHING, ([[HIT]], [[]], [(HIT, HIT)]), ([HIT], [["text"]], [[HIT, None]], [None])),
        (Op.WEB_SEARCH, ([[HIT]], [[]]), ([HIT], [["text"]], [[None, HIT]])),
        (Op.INGESTION, (["text"], [None]), ()),
    ],
)
def test_an_item_is_what_its_operation_gives(op: Op, fits: Any, wrong: Any) -> None:
    p = primitive(op, batchable=True)
    for given in fits:
        assert said(p, 1, {"out": given}) == ""
        assert said(p, 3, {"out": given * 3}) == ""
    for given in wrong:
        good = fits[0][0]
        told = said(p, 3, {"out": [good, given[0], good]})
        assert told.startswith(f"engine 'e' gave {given[0]!r}"[:60])
        assert " as out[1], not a " in told


def test_what_is_shown_to_others_than_functions_can_be_read() -> None:
    strange = {"out": object(), "more": object()}
    p = primitive(Op.TOOL_CALL, "out", "more")
    assert said(p, 1, strange) == ""
    assert "it gives 'more' as object" in said(p, 1, strange, "more")
    assert "it gives 'out' as object" in said(p, 1, strange, "more", "out")
    assert said(p, 1, {**strange, "more": "x"}, "more") == ""


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([1, 2], ""),
        ((1, 2), ""),
        ([1], "gave 1 results for 2 requests, not one for each"),
        ([1, 2, 3], "gave 3 results for 2 requests, not one for each"),
        ((), "gave 0 results for 2 requests, not one for each"),
        ("ab", "gave str for 2 requests, not a list with a result for each"),
        ({1: 2, 3: 4}, "gave dict for 2 requests, not a list with a result for each"),
        (None, "gave NoneType for 2 requests, not a list with a result for each"),
    ],
)
def test_there_is_a_result_for_each_request(results: Any, told: str) -> None:
    error = misnumbered("e", results, 2)
    assert str(error or "") == (told and f"engine 'e' {told}")


# --- streams ----------------------------------------------------------------------------------


CALL = Call(QueryContext("q"), (), DecodeParams())


class Model:
    """Gives whatever `made` gives for a call."""

    spec = SimpleNamespace(name="e")

    def __init__(self, made: Any) -> None:
        self.generate = made


async def _stream(call: Call) -> AsyncIterator[Delta]:
    yield Delta("x")


async def _answer(call: Call) -> str:
    return "text"


async def test_a_call_gives_a_stream_that_can_be_closed() -> None:
    stream = opened_stream(cast("LanguageModel", Model(_stream)), CALL)
    assert [delta.text async for delta in stream] == ["x"]
    for made, kind in (
        (_answer, "coroutine"),
        (lambda call: ["x"], "list"),
        (lambda call: SimpleNamespace(aclose=None), "SimpleNamespace"),
    ):
        with pytest.raises(OutputError) as raised:
            opened_stream(cast("LanguageModel", Model(made)), CALL)
        assert str(raised.value) == (
            f"engine 'e' gave {kind} for a call, not a stream: let `generate` be an async "
            "generator (`async def` with `yield`)"
        )


@pytest.mark.parametrize("more", [0, 1])
def test_of_what_is_no_piece_or_handle_the_beginning_is_told(more: int) -> None:
    given = "x" * (SHOWN - 2 + more)
    told = repr(given)[:SHOWN] + "..." * more
    assert str(no_delta("e", given)) == (
        f"engine 'e' streamed {told}, not a teola.engine.Delta(text)"
    )
    assert str(no_handle("e", given)) == (
        f"engine 'e' gave {told} for a prefix, not a teola.engine.SequenceHandle"
    )
    assert no_handle("e", SequenceHandle("e", 0, ())) is None
