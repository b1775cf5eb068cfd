"""What people are asked of calls that were cut off, may answer, and what that leads to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from teola import App, Runtime, component
from teola.errors import InputError
from teola.graph import ByHand, Inquiry, Op, Primitive, ToolParams
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.live.people import check_answer
from teola.runtime.live.steps import Steps
from teola.runtime.live.unknown_ends import (
    about_call,
    outputs_taken,
    schema_of_answer,
    unknown_end_question,
)
from tests.runtime.live.test_steps import Log
from tests.schedule.plans import nothing

NUMBER = {"type": "integer"}


def call(*outputs: str, batched: bool = False, **params: Any) -> Primitive:
    made = ToolParams(nothing, outputs, **params)
    return Primitive("c.call", Op.TOOL_CALL, "c", "python", (), outputs, made, batchable=batched)


# --- what may be answered -----------------------------------------------------------------------

WHAT = [None, True, 1, "x", [], [1], [1, 2], [1, "x"], {}, {"a": 1}, {"a": 1, "b": 2}]
WHAT += [{"a": 1, "b": "x"}, {"a": 1, "b": 2, "c": 3}, {"a": [1, 2], "b": [3, 4]}]
PAIRS: list[Any] = [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("primitive", "taken"),
    [
        (call("out"), WHAT),
        (call("out", schemas=(NUMBER,)), [1]),
        (call("out", batched=True), [[1, 2], [1, "x"]]),
        (call("a", "b", schemas=(NUMBER, NUMBER)), PAIRS),
        (call("a", "b", schemas=(NUMBER, {})), [*PAIRS, {"a": 1, "b": "x"}]),
        (call("a", "b"), [*PAIRS, {"a": 1, "b": "x"}, {"a": [1, 2], "b": [3, 4]}]),
        (call("a", "b", batched=True), [{"a": [1, 2], "b": [3, 4]}]),
    ],
)
def test_a_result_that_is_taken_is_one_that_the_call_could_have_given(
    primitive: Primitive, taken: list[Any]
) -> None:
    """Of two items, where it was made for some."""
    schema = schema_of_answer(primitive, 2)
    fits = []
    for value in WHAT:
        try:
            check_answer({"do": "take", "result": value}, schema)
        except InputError:
            continue
        fits.append(value)
    assert fits == taken
    assert schema["properties"]["result"]["description"] == "what it gave; with take"


@pytest.mark.parametrize("answer", [{"do": "repeat"}, {"do": "fail"}, {"do": "take", "result": 1}])
def test_a_call_is_repeated_taken_or_fails_and_a_result_belongs_to_one_that_is_taken(
    answer: Mapping[str, Any],
) -> None:
    schema = schema_of_answer(call("out"), 1)
    check_answer(answer, schema)
    others = [{**answer, "more": 1}, {**answer, "do": "other"}, [answer], answer["do"], None, {}]
    if answer["do"] == "take":
        others += [{"do": "take"}, {"result": 1}]
    else:
        others += [{**answer, "result": 1}]
    for other in others:
        with pytest.raises(InputError):
            check_answer(other, schema)


# --- what is asked ------------------------------------------------------------------------------


def by_hand() -> Primitive:
    """A call of the tool that its inputs name."""
    hand = ByHand(
        lambda inputs: (inputs["name"], {"to": inputs["to"]}),
        lambda inputs, value: f"{inputs['name']} gave {value}",
    )
    return call("out", by_hand=hand)


INPUTS = {"name": "send", "to": "secret me", "text": "x" * 10**5}


def test_people_are_told_of_a_call_what_it_was_made_with_without_secrets() -> None:
    def hide(text: str) -> str:
        return text.replace("secret", "***")

    about = about_call(call("out"), INPUTS, hide)
    assert {**about, "inputs": None} == {"component": "c", "inputs": None}
    assert [*about["inputs"]] == ["name", "to", "text"]
    assert (about["inputs"]["name"], about["inputs"]["to"]) == ("send", "*** me")
    assert len(about["inputs"]["text"]) < 10**5
    assert about_call(by_hand(), INPUTS, hide) == {"tool": "send", "arguments": {"to": "*** me"}}
    question = (
        "the server ended while {} was at work: what it does may have happened. Shall it be "
        "repeated, is its result to be taken, or is it to fail?"
    )
    assert unknown_end_question(call("out"), about) == question.format("'c'")
    tool = about_call(by_hand(), INPUTS, hide)
    assert unknown_end_question(by_hand(), tool) == question.format("tool 'send'")


def test_what_is_taken_is_what_the_call_gives() -> None:
    assert outputs_taken(call("out"), INPUTS, {"a": 1}) == {"out": {"a": 1}}
    assert outputs_taken(call("a", "b"), INPUTS, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert outputs_taken(by_hand(), INPUTS, 7) == {"out": "send gave 7"}


# --- what follows -------------------------------------------------------------------------------

RAN: list[str] = []


@component(outputs="done")
async def act(topic: str) -> str:
    RAN.append(topic)
    return f"acted on {topic}"


@component(outputs="long", batched="topics")
def lengthen(topics: list[str]) -> list[str]:
    RAN.extend(topics)
    return [topic * 2 for topic in topics]


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(learn=False) as made:
        yield made


def answered(
    runtime: Runtime, how: Any, kind: str = "ask", batched: bool = False, before: bool = False
) -> tuple[Result, list[Inquiry], Log]:
    """A query whose only call was cut off; people answer at once. before: they have, while it was
    nowhere."""
    function, output = (lengthen, "long") if batched else (act, "done")
    takes = {"topics": "texts"} if batched else {"topic": "text"}
    app = App("act", function, inputs=takes, outputs={output: output}, runtime=runtime)
    given: dict[str, Any] = {"topics": ["a", "b"]} if batched else {"topic": "a"}
    job, log, asked = Job(app, QuerySpec(given), id="q"), Log(), list[Inquiry]()
    name = "lengthen.call" if batched else "act.call"
    job.steps = Steps("q", {name: json.dumps({"answer": how}) if before else None}, log, kind)

    def told(inquiry: Inquiry) -> None:
        asked.append(inquiry)
        asyncio.get_running_loop().call_soon(job.people.answer, inquiry.id, how)

    job.people.on_ask = told
    RAN.clear()
    return runtime.start(job.run()).result(30), asked, log


def test_a_call_that_is_to_be_repeated_is(runtime: Runtime) -> None:
    result, (asked,), log = answered(runtime, {"do": "repeat"})
    assert (result.state, result.outputs, RAN) == ("ok", {"done": "acted on a"}, ["a"])
    assert (asked.id, asked.query_id, asked.kind, asked.component) == (
        *("act.call", "q", "unknown"),
        "act",
    )
    assert asked.about == {"component": "act", "inputs": {"topic": "a"}}
    assert asked.question == unknown_end_question(call("done"), asked.about).replace("'c'", "'act'")
    assert json.loads(log.found["act.call"] or "") == {"gives": {"done": "acted on a"}}


def test_a_result_that_is_taken_is_kept_as_the_calls(runtime: Runtime) -> None:
    result, _, log = answered(runtime, {"do": "take", "result": "seen"})
    assert (result.state, result.outputs, RAN) == ("ok", {"done": "seen"}, [])
    assert {key: json.loads(value or "") for key, value in log.told} == {
        "act.call": {"gives": {"done": "seen"}}
    }
    result, (asked,), _ = answered(runtime, {"do": "take", "result": ["c", "d"]}, batched=True)
    assert (result.state, result.outputs, RAN) == ("ok", {"long": ["c", "d"]}, [])
    assert (asked.schema["properties"]["result"]["minItems"], asked.id) == (2, "lengthen.call")


def test_a_call_that_is_to_fail_fails_its_query_and_is_not_made(runtime: Runtime) -> None:
    result, _, _ = answered(runtime, {"do": "fail"})
    assert (result.state, RAN) == ("failed", [])
    assert "it was cut off, and is not done again" in str(result.error)


@pytest.mark.parametrize(
    ("how", "outputs", "ran"),
    [
        ({"do": "take", "result": ["c", "d"]}, ["c", "d"], []),
        ({"do": "repeat"}, ["aa", "bb"], ["a", "b"]),
        ({"do": "fail"}, None, []),
        ({"do": "take", "result": ["c"]}, None, []),
    ],
)
def test_what_was_answered_while_the_query_was_nowhere_counts(
    runtime: Runtime, how: Any, outputs: list[str] | None, ran: list[str]
) -> None:
    """An older version may have let through a result of another length."""
    result, asked, log = answered(runtime, how, batched=True, before=True)
    assert (asked, RAN) == ([], ran)
    assert result.outputs.get("long") == outputs
    assert result.state == ("failed" if outputs is None else "ok")
    if outputs is None:
        assert "'lengthen'" in str(result.error)
        assert log.told == []


def test_nobody_is_asked_where_it_is_to_fail(runtime: Runtime) -> None:
    result, asked, _ = answered(runtime, {"do": "repeat"}, kind="fail")
    assert (result.state, asked, RAN) == ("failed", [], [])
    assert "may have happened, so it is not done again" in str(result.error)
