"""Agents whose calls wait for people in a journal: another process goes on with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from teola import Agent, App, Runtime
from teola.tools import ToolContext, tool
from tests.query.mail import LOG
from tests.serve.databases import rows
from tests.workflow.test_agent import Writes, answer, calls


@tool(approval=True)
def send_by(text: str, context: ToolContext) -> str:
    """Send a message.

    Args:
        text: what it says
    """
    LOG.append(f"{text} by {context.secret('POST_KEY')}")
    return "sent"


@contextmanager
def clerk(dsn: str, *replies: str) -> Iterator[tuple[App, Writes]]:
    """One process with an agent."""
    model = Writes(*replies)
    with Runtime({"llm": lambda: model}, learn=False, journal=dsn) as runtime:
        inputs, outputs = {"question": "text"}, {"answer": "answer"}
        yield App("clerk", Agent([send_by]), inputs=inputs, outputs=outputs, runtime=runtime), model


def test_an_agents_call_waits_for_another_process(dsn: str) -> None:
    """What the model has written is not written again, and secrets are given anew."""
    with clerk(dsn, calls(("send_by", {"text": "hello"}))) as (app, model):
        waiting = app.run(question="write", secrets={"POST_KEY": "sesame"})
        assert len(model.calls) == 1
    with clerk(dsn, answer("done")) as (app, model):
        done = app.resume(waiting.query_id, {"do": "approve"}, secrets={"POST_KEY": "sesame"})
        assert done["answer"] == "done"
        assert len(model.calls) == 1
        assert "send_by" in model.prompt(0)
    assert LOG == ["hello by sesame"]
    kept = rows(dsn, "SELECT request, result FROM teola_journal.queries")
    assert "sesame" not in str(kept)


def test_another_process_sends_what_people_were_shown(dsn: str) -> None:
    """That is what the journal has, whatever is made of the model's call anew."""
    key = {"POST_KEY": "sesame"}
    with clerk(dsn, calls(("send_by", {"text": "$$1"}))) as (app, _):
        waiting = app.run(question="write", secrets=key)
        assert waiting.asks[0].about["arguments"] == {"text": "$1"}
    shown = """replace(told, '"text": "$1"', '"text": "$$1 as shown"')"""
    rows(dsn, f"UPDATE teola_journal.asks SET told = {shown}")
    with clerk(dsn, answer("done")) as (app, _):
        app.resume(waiting.query_id, {"do": "approve"}, secrets=key)
    assert LOG == ["$$1 as shown by sesame"]
