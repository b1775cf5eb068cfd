"""Calls that a person has to agree to: made, made otherwise, or not made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from teola import Agent, App, Runtime
from teola.errors import InputError
from teola.tools import Tool, tool
from teola.validators import Draft202012Validator
from teola.workflow.components.agent import not_called
from teola.workflow.components.agent_calls import approval
from tests.workflow.test_agent import Writes, answer, calls

SENT: list[str] = []


@pytest.fixture(autouse=True)
def sent() -> None:
    SENT.clear()


@tool(approval=True)
def send(text: str, copies: int = 1) -> str:
    """Send a message.

    Args:
        text: what it says
        copies: how many
    """
    SENT.extend([text] * copies)
    return f"sent {text}"


@tool(approval=lambda arguments: arguments["amount"] > 100)
def pay(amount: int) -> str:
    """Pay somebody.

    Args:
        amount: how much
    """
    SENT.append(f"paid {amount}")
    return "paid"


ANSWER = answer("done")


@contextmanager
def agent(*replies: str, **config: Any) -> Iterator[tuple[App, Writes]]:
    model = Writes(*replies)
    with Runtime({"llm": lambda: model}, learn=False) as runtime:
        made = Agent([send, pay], **config)
        inputs, outputs = {"question": "text"}, {"answer": "answer", "steps": "steps"}
        yield App("clerk", made, inputs=inputs, outputs=outputs, runtime=runtime), model


def test_a_call_waits_and_is_made_when_somebody_agrees() -> None:
    with agent(calls(("send", {"text": "hello"})), ANSWER) as (app, model):
        waiting = app.run(question="write")
        (asked,) = waiting.asks
        assert (asked.kind, asked.id) == ("approve", "agent/approve/1/agent-approve.ask")
        assert asked.about == {"tool": "send", "arguments": {"text": "hello"}}
        assert SENT == []
        done = app.resume(waiting.query_id, {"do": "approve"})
        assert done["answer"] == "done"
        assert SENT == ["hello"]
        assert "edited" not in done["steps"][0]
        assert "a person has changed" not in model.prompt(1)


def test_a_call_is_made_with_other_arguments_that_have_to_fit() -> None:
    with agent(calls(("send", {"text": "hello"})), ANSWER) as (app, model):
        waiting = app.run(question="write")
        for wrong in ({"text": 5}, {"words": "x"}, "x"):
            with pytest.raises(InputError, match="does not fit"):
                app.resume(waiting.query_id, {"do": "approve", "arguments": wrong})
        edited = {"text": "costs $5", "copies": 2}
        done = app.resume(waiting.query_id, {"do": "approve", "arguments": edited})
        assert SENT == ["costs $5"] * 2
        assert done["steps"][0]["args"] == edited
        assert done["steps"][0]["edited"] is True
        changed = '1. send({"text": "costs $5", "copies": 2}), with arguments that a person has'
        assert changed in model.prompt(1), "its model is told"
        assert "costs $5" in model.prompt(1)


@pytest.mark.parametrize(
    ("schema", "fits", "wrong"),
    [
        ({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}, 1, "x"),
        (
            {"properties": {"b": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"const": 1}}},
            *(1, 2),
        ),
        ({"properties": {"b": {"$ref": "#"}}}, {"b": {}}, {"b": 1}),
    ],
)
def test_changed_arguments_have_to_fit_what_the_tools_schema_refers_to(
    schema: dict[str, Any], fits: Any, wrong: Any
) -> None:
    asked = Tool("t", "Does it.", {"type": "object", **schema}, not_called)
    checks = Draft202012Validator(approval(asked))
    for value in (fits, wrong):
        said = {"do": "approve", "arguments": {"b": value}}
        assert checks.is_valid(said) is (value is fits)


def test_a_call_that_is_rejected_is_not_made_and_the_model_hears_why() -> None:
    with agent(calls(("send", {"text": "hello"})), ANSWER) as (app, model):
        waiting = app.run(question="write")
        done = app.resume(waiting.query_id, {"do": "reject", "reason": "not on Sundays"})
        assert done["answer"] == "done"
        assert SENT == []
        assert "a person rejected it: not on Sundays" in model.prompt(1)
        assert done["steps"][0]["failed"]


def test_only_calls_of_which_the_tool_says_so_are_asked_about() -> None:
    told = calls(("pay", {"amount": 5}), ("pay", {"amount": 500}))
    with agent(told, ANSWER) as (app, _):
        waiting = app.run(question="pay")
        assert SENT == ["paid 5"]
        (asked,) = waiting.asks
        assert asked.about["arguments"] == {"amount": 500}
        app.resume(waiting.query_id, {"do": "approve"})
        assert SENT == ["paid 5", "paid 500"]


def test_a_call_that_cannot_be_made_asks_nobody() -> None:
    with agent(calls(("send", {"text": 7})), ANSWER) as (app, _):
        assert app.run(question="write").state == "ok"
        assert SENT == []


def test_several_calls_are_decided_on_in_any_order() -> None:
    told = calls(("send", {"text": "a"}), ("send", {"text": "b"}))
    with agent(told, ANSWER) as (app, model):
        waiting = app.run(question="write")
        second, first = sorted(waiting.asks, key=lambda one: one.id, reverse=True)
        still = app.resume(waiting.query_id, {"do": "approve"}, ask=second.id)
        assert (still.state, SENT) == ("waiting", ["b"])
        app.resume(waiting.query_id, {"do": "reject"}, ask=first.id)
        assert SENT == ["b"]
        assert "no reason was given" in model.prompt(1)


def test_a_call_that_reads_one_that_was_rejected_is_not_made() -> None:
    told = calls(("send", {"text": "a"}), ("send", {"text": "$1"}))
    with agent(told, ANSWER) as (app, _):
        waiting = app.run(question="write")
        assert len(waiting.asks) == 1
        assert app.resume(waiting.query_id, {"do": "reject"}).state == "ok"
        assert SENT == []


@tool(pure=True)
def price(what: str) -> str:
    """Tell what something costs.

    Args:
        what: its name
    """
    return f"{what} costs $$1, or $1"


def test_what_was_approved_is_sent_as_it_was_shown() -> None:
    """Neither a result nor what a person wrote is looked through for references."""
    told = calls(("price", {"what": "tea"}), ("send", {"text": "$1"}), ("send", {"text": "$$1"}))
    model = Writes(told, ANSWER)
    with Runtime({"llm": lambda: model}, learn=False) as runtime:
        inputs, outputs = {"question": "text"}, {"answer": "answer", "steps": "steps"}
        agent = Agent([send, price])
        app = App("clerk", agent, inputs=inputs, outputs=outputs, runtime=runtime)
        waiting = app.run(question="write")
        by_text = {asked.about["arguments"]["text"]: asked for asked in waiting.asks}
        assert set(by_text) == {"tea costs $$1, or $1", "$1"}
        app.resume(waiting.query_id, {"do": "approve"}, ask=by_text["tea costs $$1, or $1"].id)
        assert SENT == ["tea costs $$1, or $1"]
        edited = {"text": "$$1 and ${1} and $1"}
        asked = by_text["$1"]
        done = app.resume(waiting.query_id, {"do": "approve", "arguments": edited}, ask=asked.id)
        assert SENT[1:] == ["$$1 and ${1} and $1"]
        sent = [{"text": "tea costs $$1, or $1"}, edited]
        assert [step["args"] for step in done["steps"][1:]] == sent


def test_an_unedited_dollar_is_sent_as_it_was_shown() -> None:
    with agent(calls(("send", {"text": "$$1"})), ANSWER) as (app, _):
        waiting = app.run(question="write")
        (asked,) = waiting.asks
        app.resume(waiting.query_id, {"do": "approve"})
        assert SENT == [asked.about["arguments"]["text"]] == ["$1"]


@pytest.mark.parametrize("changed", [[], [1], [2], [1, 3]])
def test_what_a_person_changed_before_the_client_was_asked_is_told_afterwards(
    changed: list[int],
) -> None:
    done = [
        {"tool": "send", "args": {"text": str(n)}, "result": f"sent {n}", "edited": n in changed}
        for n in (1, 2, 3)
    ]
    model, inputs = Writes(ANSWER), {"question": "text", "client_tools": "any"}
    with Runtime({"llm": lambda: model}, learn=False) as runtime:
        out = {"answer": "answer"}
        app = App("clerk", Agent([send]), inputs=inputs, outputs=out, runtime=runtime)
        client = {"tools": [], "exchange": [*done, {"thought": "so far"}]}
        assert app.run(question="write", client_tools=client)["answer"] == "done"
    for n in (1, 2, 3):
        (line,) = (line for line in model.prompt(0).splitlines() if line.startswith(f"{n}. send("))
        assert ("a person has changed" in line) is (n in changed)
