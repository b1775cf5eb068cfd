"""One LLM call, piece by piece: what is delivered when, against its text read anew each time.

Long because its stream, its list and its value come out of one text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from teola.engine import LONGEST_ANSWER, Call, Delta, QueryContext, TextPart, Usage
from teola.errors import EngineError, OutputError
from teola.graph import DecodeParams, Primitive, Role
from teola.runtime.hosts import call as module
from teola.runtime.hosts import structured
from teola.runtime.hosts.call import PIECE, CallOutput, Listener, run_call
from teola.runtime.hosts.parsers import make_parser
from teola.runtime.hosts.structured import Misfit
from teola.runtime.observe.noting import working_for
from teola.testing.hash_engines import HashModel
from tests.schedule.plans import call

CALL = Call(QueryContext("q"), (TextPart(Role.QUESTION, "why?"),), DecodeParams())


class Writes(HashModel):
    """Writes these deltas, or raises. read: how many were taken. closed: its stream is."""

    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__()
        self.script, self.read, self.closed = script, 0, False
        self.calls: list[tuple[Call, tuple[str, ...]]] = []

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.calls.append((call, working_for.get()))
        try:
            for piece in self.script:
                if isinstance(piece, Exception):
                    raise piece
                self.read += 1
                yield piece
        finally:
            self.closed = True


def decoding(*outputs: str, **params: Any) -> Primitive:
    """What an answer is delivered by."""
    return replace(call("m")[1], outputs=outputs, params=DecodeParams(**params))


def partials(count: int, last: Sequence[str] = ("items",), **params: Any) -> list[Primitive]:
    """One for each item of a list; the last one gives these outputs."""
    outputs = [("items", "sequence")] * (count - 1) + [tuple(last)]
    return [
        decoding(*outputs[k], items=count, parser="lines", item=k, **params) for k in range(count)
    ]


class Heard:
    """All that a call tells, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def listener(self, *, token: bool = True, item: bool = True, again: bool = False) -> Listener:
        def tell(what: str) -> Any:
            return lambda *more: self.said.append((what, *more))

        return Listener(
            tell("first"),
            tell("delivers"),
            tell("token") if token else None,
            tell("ends"),
            tell("item") if item else None,
            tell("over"),
            tell("finished"),
            again,
        )

    def of(self, what: str) -> list[tuple[Any, ...]]:
        return [one[1:] for one in self.said if one[0] == what]


async def ran(
    script: Sequence[Any],
    members: Sequence[Primitive],
    *,
    wanted: bool = True,
    error: type[Exception] | None = None,
    **more: bool,
) -> tuple[Heard, Writes, Any]:
    """What was told, the model, and the usage or what was raised."""
    heard, model = Heard(), Writes(script)
    work = run_call(model, CALL, members, heard.listener(**more), wanted)
    if error is None:
        return heard, model, await work
    with pytest.raises(error) as raised:
        await work
    assert type(raised.value) is error
    return heard, model, raised.value


# --- the stream -------------------------------------------------------------------------------


async def test_a_call_is_told_in_the_order_in_which_it_happens() -> None:
    usage = Usage(9, 2, 4)
    script = [Delta(""), Delta("It ", usage=Usage(9, 1)), Delta("rains. ", "stop", usage)]
    heard, model, used = await ran(script, [decoding("text", "sequence")])
    assert heard.said == [
        ("first",),
        ("token", "It "),
        ("token", "rains. "),
        ("finished", "stop"),
        ("over", 10, usage),
        ("delivers", 0, {"text": "It rains.", "sequence": True}),
    ]
    assert used == usage
    assert (model.read, model.closed, model.calls) == (3, True, [(CALL, ("q",))])


@pytest.mark.parametrize("reason", [None, "stop", "tool_calls", "length", "refusal"])
@pytest.mark.parametrize("text", ["rain", " \n", ""])
async def test_who_listens_hears_once_that_a_text_did_not_end_as_it_should(
    reason: str | None, text: str
) -> None:
    script = [Delta(""), Delta(text), Delta("", reason), Delta(" ")]
    heard, _, used = await ran(script, [decoding("text")])
    told = reason in ("length", "refusal")
    ends = [(reason,)] if told else [] if text.strip() else [("empty",)]
    assert heard.of("ends") == ends
    assert heard.of("finished") == ([(reason,)] if reason else [])
    assert heard.of("over") == [(len(text) + 1, Usage())]
    assert (used, heard.of("delivers")) == (Usage(), [(0, {"text": text.strip()})])
    again, _, _ = await ran(
        script,
        [decoding("text")],
        again=True,
        error=OutputError if ends == [("empty",)] else None,
    )
    assert again.of("ends") == ([] if ends == [("empty",)] else ends)


async def test_an_empty_text_is_asked_for_again_only_where_a_text_is_read() -> None:
    heard, _, error = await ran([Delta(" ")], [decoding("text")], again=True, error=OutputError)
    assert (str(error), error.retryable) == ("the answer is empty", True)
    assert heard.of("delivers") == []
    heard, _, _ = await ran([Delta(" ")], partials(1), wanted=False, again=True)
    assert heard.of("delivers") == [(0, {"items": []})]
    assert heard.of("ends") == []


@pytest.mark.parametrize(
    ("script", "kind", "message", "retryable", "over"),
    [
        ([], OutputError, "the engine ended the stream before its first token", True, (0, Usage())),
        ([EngineError("no")], EngineError, "no", False, (0, Usage())),
        ([Delta("ab", usage=Usage(9)), EngineError("no")], EngineError, "no", False, (2, Usage(9))),
        (
            [Delta("ab"), "text"],
            OutputError,
            "engine 'llm' streamed 'text', not a teola.engine.Delta(text)",
            False,
            (2, Usage()),
        ),
    ],
)
async def test_what_a_stream_that_broke_off_has_brought_is_told(
    script: Sequence[Any],
    kind: type[Exception],
    message: str,
    retryable: bool,
    over: tuple[int, Usage],
) -> None:
    heard, model, error = await ran(script, [decoding("text")], error=kind)
    assert (str(error), getattr(error, "retryable", None)) == (message, retryable)
    assert (heard.of("over"), heard.of("delivers"), model.closed) == ([over], [], True)
    assert heard.of("first") == [()] * bool(over[0])


@pytest.mark.parametrize("more", [0, 1])
async def test_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(module, "LONGEST_ANSWER", 10)
    assert LONGEST_ANSWER > 10
    script = [Delta("x" * 6), Delta("y" * (4 + more)), Delta("")]
    heard, _, end = await ran(script, [decoding("text")], error=OutputError if more else None)
    if more:
        assert str(end).startswith("llm writes an answer of more than 10 characters")
        assert heard.of("token") == [("x" * 6,)], "nobody is shown what is too much"
    assert heard.of("over") == [(10 + more, Usage())]


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("limit", [1, 2])
async def test_a_list_is_read_until_all_items_are_there_that_anybody_waits_for(
    limit: int, wanted: bool
) -> None:
    script = [Delta(text) for text in ("a", "\nb", "\n", "c\nd", "\n")]
    heard, model, _ = await ran(script, partials(limit), wanted=wanted)
    assert model.read == (5 if wanted else 1 + limit)
    assert model.closed
    assert heard.of("item") == [("a",), ("b",)][:limit]
    assert [one[1]["items"] for one in heard.of("delivers")] == [["a"], ["b"]][:limit]


async def test_nobody_need_listen_to_pieces_and_items() -> None:
    heard, _, _ = await ran([Delta("a\nb\n")], partials(2), token=False, item=False)
    assert [one[0] for one in heard.said] == ["first", "delivers", "delivers", "over"]


async def test_long_pieces_are_read_in_turns_of_the_event_loop_and_whole() -> None:
    """Items of a piece of the piece, too."""
    text = "".join(f"{k:0>99}\n" for k in range(2 * PIECE // 100 + 1))
    assert 2 * PIECE < len(text) < 3 * PIECE
    count = text.count("\n")
    listed = decoding("items", "text", parser="lines", items=count + 1)
    heard, _, _ = await ran([Delta(text)], [listed])
    assert [one for (one,) in heard.of("item")] == text.split()
    assert heard.of("delivers") == [(0, {"items": text.split(), "text": text.strip()})]
    assert heard.of("token") == [(text,)]


# --- what is delivered when -------------------------------------------------------------------


def expected(pieces: Sequence[str], members: Sequence[Primitive], limit: int | None) -> list[Any]:
    """What each piece, and then the end, brings: read anew from the beginning each time."""

    def items(upto: int, end: bool) -> list[str]:
        parser = make_parser("lines")
        found = parser.feed("".join(pieces[:upto]))
        if end and (limit is None or len(found) < limit):
            found = [*found, *parser.close()]
        return found if limit is None else found[:limit]

    told: list[Any] = []
    known = given = 0
    for upto in range(1, len(pieces) + 2):
        end = upto > len(pieces)
        there = items(min(upto, len(pieces)), end)
        told += [("item", one) for one in there[known:]]
        known = len(there)
        while given < len(members):
            params, ports = members[given].params, members[given].outputs
            assert isinstance(params, DecodeParams)
            item = params.item
            early = item is not None and item < known and "text" not in ports
            if not (early or end):
                break
            made = {
                "items": there if item is None else there[item : item + 1],
                "text": "".join(pieces).strip(),
                "sequence": True,
            }
            told.append(("delivers", given, {port: made[port] for port in ports}))
            given += 1
    return told


@pytest.mark.parametrize("seed", range(60))
def test_each_decoding_has_its_own_as_soon_as_it_is_there(seed: int) -> None:
    chance = Random(seed)
    count = chance.randint(1, 4)
    whole = chance.random() < 0.3
    members = (
        [decoding("items", parser="lines", items=chance.choice([None, count]))]
        if whole
        else partials(count, chance.choice([("items",), ("items", "text"), ("items", "sequence")]))
    )
    first = members[0].params
    assert isinstance(first, DecodeParams)
    lines = ["".join(chance.choices("ab ", k=chance.randint(0, 4))) for _ in range(6)]
    text = "\n".join(lines[: chance.randint(0, 6)]) + "\n" * chance.randint(0, 1)
    cuts = sorted(chance.choices(range(len(text) + 1), k=4))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    told: list[Any] = []

    def deliver(k: int, outputs: Any) -> None:
        told.append(("delivers", k, {**outputs}))

    def item(one: Any) -> None:
        told.append(("item", one))

    output = CallOutput(members, deliver, item)
    for piece in pieces:
        output.feed(piece)
    assert output.blank == (not text.strip())
    before = output.complete
    output.close()
    assert told == expected(pieces, members, first.items)
    assert before == (first.items is not None and text_items(text) >= first.items)
    output.close()
    assert len(told) == len(expected(pieces, members, first.items)), "once"


def text_items(text: str) -> int:
    return len(make_parser("lines").feed(text))


# --- what is held to a schema -----------------------------------------------------------------

NUMBER, ANY = '{"type": "integer"}', "{}"


def fresh(schema: str) -> str:
    """The same schema, which nobody has checked before."""
    fresh.count += 1  # type: ignore[attr-defined]
    return json.dumps({**json.loads(schema), "$comment": str(fresh.count)})  # type: ignore[attr-defined]


fresh.count = 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("params", "text", "value"),
    [
        ({}, '{"a": [1]}', {"a": [1]}),
        ({"schema": NUMBER}, " 7 ", 7),
        ({"schema": '{"type": "string"}', "check": NUMBER}, "7", 7),
        ({"bare": True, "field": "said"}, " so it is ", {"said": "so it is"}),
        ({"bare": True, "field": "said"}, '{"said": 1}', {"said": 1}),
        ({"bare": True, "field": "said"}, '```json\n{"said": 1}\n```', {"said": 1}),
        ({"bare": True}, '{"a": 1}', {"a": 1}),
        ({"field": "said"}, '{"said": 1}', {"said": 1}),
    ],
)
async def test_a_value_is_the_json_that_was_written_or_the_field_that_it_stands_for(
    params: dict[str, Any], text: str, value: Any
) -> None:
    heard, _, _ = await ran([Delta(text)], [decoding("value", "text", **params)])
    assert heard.of("delivers") == [(0, {"value": value, "text": text.strip()})]


@pytest.mark.parametrize("reason", ["stop", "length", "refusal"])
@pytest.mark.parametrize("params", [{"schema": NUMBER}, {"schema": ANY, "check": NUMBER}, {}])
@pytest.mark.parametrize("text", ["no json", '"7"'])
async def test_what_does_not_fit_says_so_and_that_it_was_cut_off_if_it_was(
    text: str, params: dict[str, Any], reason: str
) -> None:
    fits = not params and text != "no json"
    members = [decoding("value", max_tokens=5, **params)]
    script = [Delta(text), Delta("", reason)]
    heard, _, error = await ran(script, members, error=None if fits else Misfit)
    if fits:
        assert heard.of("delivers") == [(0, {"value": "7"})]
        return
    why = (
        f"expected JSON, found none; the output begins {text!r}"
        if text == "no json"
        else "the output does not fit its JSON schema at $: '7' is not of type 'integer'"
    )
    cut = "the JSON was cut off after max_tokens=5: raise max_tokens, or ask for less"
    assert str(error) == (f"{cut} ({why})" if reason == "length" else why)
    assert heard.of("delivers") == []


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_a_list_that_does_not_end_says_so_and_that_it_was_cut_off_if_it_was(
    reason: str,
) -> None:
    members = [decoding("items", items=3, parser="json_list", max_tokens=5)]
    script = [Delta('["a", "b'), Delta("", reason)]
    heard, _, error = await ran(script, members, error=OutputError)
    told = "the list was cut off after max_tokens=5: raise max_tokens, or ask for less ("
    assert str(error).startswith(told) == (reason == "length")
    assert 'the output begins \'["a", "b\'' in str(error)
    assert heard.of("item") == [("a",)]


@pytest.mark.parametrize(
    ("count", "known", "aside"),
    [(9, True, False), (9, False, True), (PIECE, True, False), (PIECE + 1, True, True)],
)
async def test_a_value_is_checked_beside_the_event_loop_where_that_takes_long(
    count: int, known: bool, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the text is long, or its schema new; each value once, and not where none is read."""
    monkeypatch.setattr(module, "prepare", lambda schema: prepared.append(schema))
    prepared = list[str]()
    there = list[bool]()
    validate = structured.validate_schema

    def noted(text: str, schema: str) -> Any:
        there.append(threading.current_thread() is threading.main_thread())
        return validate(text, schema)

    monkeypatch.setattr(module, "validate_schema", noted)
    schema = fresh('{"type": "string"}')
    if known:
        structured.check_schema(schema)
    text = '"' + "x" * (count - 2) + '"'
    plain = [decoding("text", schema=schema)]
    await ran([Delta(text)], plain)
    assert (there, prepared) == ([], [schema])
    heard, _, _ = await ran([Delta(text)], [decoding("value", schema=ANY, check=schema)])
    assert heard.of("delivers") == [(0, {"value": "x" * (count - 2)})]
    assert there == [not aside]
    assert prepared == [schema, schema]
