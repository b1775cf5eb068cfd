"""Plans whose stream breaks off after a call of them has begun, from a server of the OpenAI API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from teola import Agent, App, EngineConfig, Runtime
from teola.errors import EngineError, QueryFailed
from teola.graph import GrowParams
from teola.query.result import Result
from teola.tools import tool
from teola.tools.decision import PlannedCall
from teola.tools.tool_result import ToolResult
from teola.workflow.components.acting import BROKEN, Acting
from tests.fake_openai import FakeOpenAI, Says
from tests.planted import catches, edited

made: list[str] = []


@tool(pure=True)
def look(x: int) -> int:
    """Look."""
    made.append(f"look {x}")
    return x * 10


@tool(name="look", pure=True)
async def look_long(x: int) -> int:
    """Look, for longer than a stream takes."""
    made.append(f"look {x}")
    await asyncio.sleep(0.05)
    return x * 10


@tool
def charge(amount: int) -> str:
    """Charge the card."""
    made.append(f"charge {amount}")
    return "charged"


@tool(approval=True, pure=True)
def dig(x: int) -> int:
    """Dig, if a person agrees."""
    made.append(f"dig {x}")
    return x


def plan(*calls: tuple[str, dict[str, Any]], breaks: bool = False) -> Says:
    """A reply with these calls. breaks: it ends in the last one, without a reason."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for k, (name, args) in enumerate(calls):
        text = json.dumps(args)
        text = text[:3] if breaks and k == len(calls) - 1 else text
        call = {"index": k, "id": f"c{k}", "function": {"name": name, "arguments": text}}
        deltas.append({"tool_calls": [call]})
    return Says(deltas, None if breaks else "tool_calls")


def asked(
    *replies: Says, tools: Sequence[Any] = (look, charge), **more: Any
) -> tuple[Result, list[str]]:
    """What came of it, and the prompts."""
    made.clear()
    with FakeOpenAI("done", vllm=False) as server:
        server.script(*replies)
        with Runtime({"llm": EngineConfig("openai", {"url": server.url})}) as runtime:
            outputs = {"answer": "answer", "steps": "steps"}
            inputs = {"question": "text"}
            agent = Agent(tools, **more)
            app = App("a", agent, inputs=inputs, outputs=outputs, runtime=runtime)
            result = app.run(question="why?")
        prompts = [json.dumps(seen.body["messages"][1:]) for seen in server.calls]
    return result, prompts


LOOK, CHARGE = ("look", {"x": 1}), ("charge", {"amount": 5})


@catches(
    "plan-given-up",
    "a plan that broke off among its calls fails the query",
    edited(Acting.failed, 'key.startswith(f"{TURN}/") and self._broke_off(cause)', "False"),
)
def test_a_plan_that_breaks_off_is_written_again() -> None:
    whole = plan(LOOK, CHARGE)
    result, prompts = asked(plan(LOOK, CHARGE, breaks=True), whole, at_most=2)
    assert result.answer == "done"  # the broken turn is none of the two
    assert sorted(made) == ["charge 5", "look 1", "look 1"]
    assert [step["tool"] for step in result["steps"]] == ["look", "look", "charge"]
    assert "1. look" in prompts[1]  # what it gave is there to be used


@catches(
    "unbegun-kept",
    "a call that waited for others when its plan broke off is made all the same",
    edited(Acting._broke_off, "if number not in self.begun:", "if False:"),
)
def test_calls_that_had_not_begun_are_forgotten() -> None:
    waits = ("charge", {"amount": "$2"})
    cut = ("look", {"x": 2})
    broken = plan(LOOK, ("charge", {"amount": "$1"}), cut, breaks=True)
    result, _ = asked(broken, plan(cut, waits), tools=(look_long, charge))
    assert result.answer == "done"
    assert made == ["look 1", "look 2", "charge 20"]


@catches(
    "effect-redone",
    "a plan is written again though a call with an effect had begun",
    edited(Acting._broke_off, "any(map(self._changes, begun))", "False"),
)
def test_what_had_an_effect_is_not_done_again() -> None:
    with pytest.raises(QueryFailed, match="before the answer was complete"):
        asked(plan(CHARGE, LOOK, breaks=True), plan(CHARGE, LOOK))
    assert made in ([], ["charge 5"])  # its thread may not have been reached


@catches(
    "asked-twice",
    "a plan is written again while a person is asked about a call of it",
    edited(Acting._broke_off, "or begun & self.asked ", ""),
)
def test_nobody_is_asked_twice() -> None:
    dug = ("dig", {"x": 1})
    with pytest.raises(QueryFailed, match="before the answer was complete"):
        asked(plan(dug, LOOK, breaks=True), plan(LOOK), tools=[dig, look])
    assert made == []


def acting_on(tools: Sequence[Any], *calls: PlannedCall) -> Acting:
    """A run whose first turn has written these calls, of which all have begun, and breaks off."""
    outputs = {"answer": "answer"}
    app = App("a", Agent(tools), inputs={"question": "text"}, outputs=outputs)
    graph = app.builder.build(app.builder.configure({}), {})
    (grows,) = (p for p in graph.primitives if isinstance(p.params, GrowParams))
    acting = grows.params.grower.growth({"question": "why?"})
    assert isinstance(acting, Acting)
    for call in calls:
        acting.calls[call.number] = call
        acting.begun.add(call.number)
        acting._begun(call.number, call)
    return acting


@pytest.mark.parametrize("answer", [{"do": "approve", "arguments": {"x": 1}}, {"do": "reject"}])
def test_nor_where_the_person_has_answered_before_it_breaks_off(answer: dict[str, Any]) -> None:
    broke = EngineError("the stream broke", retryable=True)
    assert acting_on([dig, look], PlannedCall(1, "look", {"x": 1}))._broke_off(broke)
    acting = acting_on([dig, look], PlannedCall(1, "dig", {"x": 1}))
    acting._decided(1, answer)
    assert not acting._broke_off(broke)


def test_a_rejected_call_had_no_effect() -> None:
    @tool(approval=True)
    def sell(x: int) -> int:
        """Sell."""
        return x

    acting = acting_on([sell, look], *(PlannedCall(n, "sell", {"x": n}) for n in (1, 2)))
    acting._decided(1, {"do": "reject"})
    acting.results[2] = ToolResult("sold")
    assert [acting._made_here(n)["effect"] for n in (1, 2)] == [False, True]


def test_a_plan_breaks_off_so_often_and_no_more() -> None:
    broken = plan(LOOK, CHARGE, breaks=True)
    result, _ = asked(*[broken] * BROKEN)
    assert result.answer == "done"
    with pytest.raises(QueryFailed, match="before the answer was complete"):
        asked(*[broken] * (BROKEN + 1))
