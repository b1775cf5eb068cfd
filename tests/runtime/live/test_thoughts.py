"""Reasoning that a model writes before its answer is left out, also where it comes in pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.engine import Call, Delta, QueryContext, TextPart, Usage
from teola.graph import DecodeParams, Role
from teola.runtime.live.query import Token
from teola.runtime.live.thoughts import Spoken, WithoutThoughts
from tests.planted import catches, edited
from tests.recording import Bench
from tests.runtime.faults import Scripted
from tests.runtime.live.test_live_answers import CUT, ended, refining

DONE = Delta("", "stop", Usage())
TOOK = Delta("", None, Usage(3, 1))


CASES = {
    "<think>Because it is. </think>\n\nIt is so.": "It is so.",
    " \n<think></think>It is <think>so</think>.": "It is <think>so</think>.",
    "<think>a</think> <think>b</think> c ": "<think>b</think> c ",
    "<think>a < b </ think> </thin </think>c": "c",
    "<think>no end": "",
    "<think>all</think>\n": "",
    "": "",
    "<thi": "<thi",
    "  <thinking>is a word</thinking>": "  <thinking>is a word</thinking>",
    "So <think>not</think>": "So <think>not</think>",
    "</think>a": "</think>a",
    " " * 70 + "<think>late</think>": " " * 70 + "<think>late</think>",
}


@catches(
    "a-closing-tag-in-pieces",
    "a closing tag that comes in pieces is not seen",
    edited(Spoken.feed, "self._held[-len(CLOSES) + 1 :]", '""'),
)
@catches(
    "an-opening-tag-in-pieces",
    "an opening tag that comes in pieces is not seen",
    edited(Spoken.feed, "not OPENS.startswith(begun)", "begun"),
)
def test_what_is_left() -> None:
    for written, said in CASES.items():
        for size in (1, 2, 3, 7, 100):
            spoken = Spoken()
            pieces = [spoken.feed(written[i : i + size]) for i in range(0, len(written), size)]
            assert "".join([*pieces, spoken.end()]) == said, (written, size)


def test_an_answer_is_not_held_back() -> None:
    spoken = Spoken()
    assert [spoken.feed(text) for text in ("It", " is", "<think>")] == ["It", " is", "<think>"]


@pytest.mark.parametrize(
    ("pieces", "passed"),
    [
        (["<th", "ink>why", "</", "think>", "\n\nIt", " is", DONE], ["", "It", " is", DONE]),
        (["", "", "It", "", " is", DONE], ["", "It", " is", DONE]),
        (["<think>so", " and so", DONE], ["", DONE]),
        (["It", TOOK, DONE], ["It", TOOK, DONE]),
        (["<thi", replace(TOOK, text="nk>so"), DONE], ["", TOOK, DONE]),
        (["<thi", DONE], ["", Delta("<thi", "stop", Usage())]),
    ],
)
async def test_what_says_nothing_is_passed_on_once_and_what_says_how_it_ends_or_took_always(
    pieces: list[str | Delta], passed: list[str | Delta]
) -> None:
    """The first one tells that the answer has begun."""
    call = Call(QueryContext("q"), (TextPart(Role.QUESTION, "why?"),), DecodeParams())
    found = [delta async for delta in WithoutThoughts(Scripted(pieces)).generate(call)]
    assert found == [Delta(one) if isinstance(one, str) else one for one in passed]


async def test_a_watcher_and_the_answer_get_what_is_left() -> None:
    model, told = Scripted(["<th", "ink>why", "</", "think>", "\n\nIt", " is", DONE]), []
    async with Bench({"llm": model}) as bench:
        ending = await bench.run(
            refining(1), {"question": "why?", "notes": ["a"]}, watcher=told.append
        )
    assert ending.outputs["answer"] == "It is"
    assert [event.text for event in told if isinstance(event, Token)] == ["It", " is"]
    assert not ending.trace.ends


async def test_the_next_prompt_is_without_reasoning() -> None:
    model = Scripted(["<think>hm</think>one"], ["two"])
    ending = await ended(model, refining(2), "a", "b")
    assert ending.outputs["answer"] == "two"
    assert "one" in [part.text for part in model.calls[1].parts]


@pytest.mark.parametrize(("end", "told"), [(DONE, "empty"), (CUT, "length")])
async def test_nothing_but_reasoning_is_an_empty_answer(end: Delta, told: str) -> None:
    ending = await ended(Scripted(["<think>so", " and so", end]), refining(1), "a")
    assert ending.outputs["answer"] == ""
    assert ending.trace.ends == {told}


async def test_reasoning_may_be_kept() -> None:
    written = "<think>hm</think>one"
    ending = await ended(Scripted([written]), refining(1, keep_thoughts=True), "a")
    assert ending.outputs["answer"] == written
    ending = await ended(
        Scripted(["<think>hm</think>[1]"]),
        refining(1, keep_thoughts=True, json_schema={"type": "array"}),
        "a",
    )
    assert ending.outputs["answer"] == [1]
