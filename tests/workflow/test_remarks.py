"""What a result says of how it came about: what failed on the way, was cut, or had to stop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola import Agent, App, Each, EngineConfig, Generate, Loop, Runtime, component
from teola.query.result import Result
from teola.tools import tool
from teola.workflow.components.each import Going
from tests.fake_openai import FakeOpenAI, Says
from tests.planted import catches, edited

BAD = "ValueError: bad is no good"


@component(outputs="out")
def fussy(x: Any) -> str:
    if x is None:
        return "none at all"
    if x.startswith("bad"):
        raise ValueError(f"{x} is no good")
    return x.upper()


def each(items: list[Any], **more: Any) -> Result:
    body = Each(fussy, over="items", item="x", gives={"outs": "out"}, on_error="none", **more)
    with Runtime({}) as runtime:
        app = App("e", body, inputs={"items": "any"}, outputs={"outs": "outs"}, runtime=runtime)
        return app.run(items=items)


@catches(
    "silent-failures",
    "items that fail are left out without a word",
    edited(Going.failed, "self.failures.add(why)", "pass"),
)
def test_items_that_failed_are_counted_with_their_reasons() -> None:
    result = each(["a", "bad", "bad", "bad b", "b"])
    assert (result.state, result["outs"]) == ("ok", ["A", None, None, None, "B"])
    told = result.reasons["each"]
    assert told == f"3 of 5 items failed: {BAD} (2 times); ValueError: bad b is no good"
    assert result.notices == (f"each: {told}",)
    assert result.to_json()["reasons"] == {"each": told}


def test_where_none_failed_nothing_is_said() -> None:
    result = each(["a"])
    assert (result.notices, result.reasons) == ((), {})


@catches(
    "none-is-nothing",
    "an item that is None is passed over",
    edited(Going._part, "if item is None", "if False"),
)
def test_an_item_that_is_none_is_an_item() -> None:
    result = each([None, "a", None])
    assert (result["outs"], result.notices) == (["none at all", "A", "none at all"], ())


def test_many_reasons_are_summed_up() -> None:
    told = each([f"bad {k}" for k in range(120)]).reasons["each"]
    assert told.startswith("120 of 120 items failed: other reasons (20 times); ")
    assert told.endswith("and 98 more reasons")


def test_what_a_part_says_is_said_of_the_query() -> None:
    inner = Each(fussy, over="row", item="x", gives={"outs": "out"}, on_error="none", name="inner")
    outer = Each(inner, over="rows", item="row", gives={"all": "outs"})
    with Runtime({}) as runtime:
        made = {"inputs": {"rows": "any"}, "outputs": {"all": "all"}, "runtime": runtime}
        result = App("nested", outer, **made).run(rows=[["bad"], ["a"], ["bad"]])
    assert result.reasons == {"inner": f"2 of 3 items failed: {BAD} (2 times)"}
    assert result.notices == (f"inner: 2 of 3 items failed: {BAD} (2 times)",)


# --- loops ------------------------------------------------------------------------------------


@component(outputs="better")
def better(draft: str) -> str:
    return draft + "!"


@pytest.mark.parametrize(("at_most", "told"), [(2, True), (3, False), (4, False)])
def test_a_loop_that_had_to_end_says_so(at_most: int, told: bool) -> None:
    loop = Loop(
        better,
        carry={"draft": "better"},
        until=lambda text: text.endswith("!!!"),
        reads=["better"],
        gives=["better"],
        at_most=at_most,
    )
    with Runtime({}) as runtime:
        made = {"inputs": {"draft": "text"}, "outputs": {"better": "better"}, "runtime": runtime}
        result = App("loop", loop, **made).run(draft="so")
    expected = (f"loop: `until` was not reached in {at_most} turns (at_most={at_most})",)
    assert result.notices == (expected if told else ())


# --- answers ----------------------------------------------------------------------------------


@tool(pure=True)
def look(x: int) -> int:
    """Look."""
    return x * 10


def generated(*said: Says, max_tokens: int = 9) -> Result:
    with FakeOpenAI("one two three four", vllm=False) as server:
        server.script(*said)
        with Runtime({"llm": EngineConfig("openai", {"url": server.url})}) as runtime:
            template = Generate(max_tokens=max_tokens)
            made = {"inputs": {"question": "text"}, "outputs": {"answer": "answer"}}
            return App("g", template, **made, runtime=runtime).run(question="why?")


def asked(*said: Says, **more: Any) -> tuple[Result, FakeOpenAI]:
    with FakeOpenAI("done", vllm=False) as server:
        server.script(*said)
        with Runtime({"llm": EngineConfig("openai", {"url": server.url})}) as runtime:
            made = {"inputs": {"question": "text"}, "runtime": runtime}
            outputs = {"answer": "answer", "steps": "steps"}
            app = App("a", Agent([look], **more), outputs=outputs, **made)
            return app.run(question="why?"), server


def calling(*arguments: Any, content: str | None = None) -> Says:
    calls = [
        {"index": k, "id": f"c{k}", "function": {"name": "look", "arguments": json.dumps(one)}}
        for k, one in enumerate(arguments)
    ]
    return Says([{"role": "assistant", "content": content}, {"tool_calls": calls}], "tool_calls")


CUT = "the answer is cut off"
NO = Says([{"content": None, "refusal": "I can't."}])


def test_an_answer_that_is_cut_says_so() -> None:
    result = generated(max_tokens=2)
    assert (result.state, result.answer) == ("ok", "one two")
    assert [told[: len(CUT)] for told in result.notices] == [CUT]
    result, _ = asked(Says([{"content": "one tw"}], "length"))
    assert result.answer == "one tw"
    assert [told[: len(CUT)] for told in result.notices] == [CUT]
    assert result.trace is not None
    assert result.trace.cut


def test_what_was_cut_on_the_way_is_not_the_answer() -> None:
    first = Says([*calling({"x": 1}).deltas], "length")
    assert asked(first)[0].notices == ()


def test_a_refusal_is_told_with_its_words() -> None:
    for result in (generated(NO), asked(NO)[0]):
        assert result.answer == "I can't."
        assert [told for told in result.notices if "refused" in told]


def test_an_empty_answer_says_so() -> None:
    for result in (generated(Says([{"content": " "}])), asked(Says([{"content": ""}]))[0]):
        assert result.answer == ""
        assert [told for told in result.notices if "empty" in told]


def test_an_agent_that_had_to_answer_says_so() -> None:
    last = Says([{"content": json.dumps({"answer": "so far"})}])
    result, _ = asked(calling({"x": 1}), last, at_most=2)
    assert result.answer == "so far"
    assert result.notices == ("agent: it had to answer: at_most=2 turns",)
