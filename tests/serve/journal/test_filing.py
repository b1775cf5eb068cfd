"""Programs whose queries wait in a journal: another process goes on with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from teola import Agent, App, Ask, Runtime, component
from teola.errors import CodeChanged, InputError, UnknownName
from teola.journal.lost import Answered
from teola.tools import ToolContext, tool
from tests.serve.databases import rows
from tests.workflow.test_agent import Writes, answer, calls

LOG: list[str] = []
Program = Callable[..., "contextmanager[App]"]


@component(outputs="draft")
def draft(topic: str) -> str:
    LOG.append(f"draft {topic}")
    return f"About {topic}."


@component(outputs="sent")
def send(draft: str, verdict: str, again: str) -> str:
    LOG.append(f"send {verdict}")
    return f"{verdict} {again}: {draft}"


@pytest.fixture(autouse=True)
def log() -> None:
    LOG.clear()


@contextmanager
def program(dsn: str, version: str = "", key: str | None = None) -> Iterator[App]:
    """One process."""
    ask = Ask("Send?\n{draft}", schema={"enum": ["yes", "no"]}, gives="verdict", name="first")
    sure = Ask("Sure? {verdict}", gives="again", name="second")
    with Runtime(learn=False, journal=dsn, journal_key=key) as runtime:
        yield App(
            "mail",
            draft >> ask >> sure >> send,
            inputs={"topic": "text"},
            outputs={"sent": "sent"},
            runtime=runtime,
            version=version,
        )


def test_another_process_goes_on(dsn: str) -> None:
    with program(dsn) as app:
        id = app.run(topic="tides", session="s").query_id
    with program(dsn) as app:
        (asked,) = app.waiting()
        assert (asked.query_id, asked.question) == (id, "Send?\nAbout tides.")
        waiting = app.resume(id, "yes")
        assert (waiting.state, waiting.asks[0].id) == ("waiting", "second.ask")
    with program(dsn) as app:
        assert app.resume(id, "quite")["sent"] == "yes quite: About tides."
        assert app.waiting() == []
    assert LOG == ["draft tides", "send yes"]
    assert rows(dsn, "SELECT state, holder FROM teola_journal.queries") == [("ok", None)]
    assert rows(dsn, "SELECT count(*) FROM teola_journal.steps") == [(0,)]


def test_the_same_process_goes_on_and_nothing_is_written_before(dsn: str) -> None:
    with program(dsn) as app:
        waiting = app.run(topic="tides")
        again = app.resume(waiting.query_id, "no")
        assert app.resume(waiting.query_id, "well")["sent"] == "no well: About tides."
        assert again.asks[0].question == "Sure? no"
        with pytest.raises(UnknownName):
            app.resume("0" * 32, "yes")
    assert LOG == ["draft tides", "send no"]


def test_of_two_processes_one_answers(dsn: str) -> None:
    with program(dsn) as one, program(dsn) as other, ThreadPoolExecutor(2) as pool:
        id = one.run(topic="tides").query_id

        def say(app: App) -> str:
            try:
                return app.resume(id, "yes", ask="first.ask").state
            except Answered:
                return "late"

        assert sorted(pool.map(say, (one, other))) == ["late", "waiting"]
    assert LOG == ["draft tides"]


def test_another_version_is_refused_and_leaves_it_as_it_was(dsn: str) -> None:
    with program(dsn) as app:
        id = app.run(topic="tides").query_id
    with program(dsn, version="2") as app, pytest.raises(CodeChanged, match="begun by application"):
        app.resume(id, "yes")
    with program(dsn) as app:
        assert app.resume(id).asks[0].id == "second.ask", "the answer is there"


def test_a_filed_query_is_given_up(dsn: str) -> None:
    with program(dsn) as app:
        id = app.run(topic="tides").query_id
    with program(dsn) as app:
        app.cancel(id)
        assert app.waiting() == []
        with pytest.raises((Answered, UnknownName)):
            app.resume(id, "yes")


def test_answers_that_do_not_fit_are_refused(dsn: str) -> None:
    with program(dsn, key="a key that nobody guesses") as app:
        id = app.run(topic="tides").query_id
        with pytest.raises(InputError, match="does not fit"):
            app.resume(id, "perhaps")
        assert not any(
            "tides" in told for (told,) in rows(dsn, "SELECT told FROM teola_journal.asks")
        )
        assert app.resume(id, "yes").state == "waiting"


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
