"""Queries that ask people: they wait, are answered, and go on.

Long because each way in which a question may end is a test of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from teola import App, Ask, Condition, Each, Loop, Runtime, component
from teola.engine import Hit
from teola.errors import DeadlineExceeded, InputError, QueryFailed, TemplateError, UnknownName
from teola.graph import Inquiry
from teola.policies.work import Work
from teola.query.desk import desk_of
from teola.query.result import Result
from teola.runtime.live.people import AsksPeople, People, chosen
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.graph_run import GraphRun
from teola.workflow.component import Template
from tests.planted import catches, edited


@component(outputs="draft", pure=True)
def draft(topic: str) -> str:
    return f"About {topic}."


@component(outputs="sent")
def send(draft: str, verdict: str) -> str:
    return f"{verdict}: {draft}"


@component(outputs="slow", pure=True)
async def slow(topic: str) -> str:
    await asyncio.sleep(0.3)
    return topic


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(learn=False) as made:
        yield made


VERDICT = Ask("Send?\n{draft}", schema={"enum": ["yes", "no"]}, gives="verdict")
MANY = Each(
    draft >> Ask("{draft} Well?", gives="said"), over="topics", item="topic", gives={"all": "said"}
)


@pytest.fixture(scope="module")
def mail(runtime: Runtime) -> App:
    return App(
        "mail",
        draft >> VERDICT >> send,
        inputs={"topic": "text"},
        outputs={"sent": "sent"},
        runtime=runtime,
    )


@pytest.fixture(scope="module")
def survey(runtime: Runtime) -> App:
    return App("survey", MANY, inputs={"topics": "texts"}, outputs={"all": "all"}, runtime=runtime)


def test_a_query_waits_and_goes_on_with_the_answer(mail: App) -> None:
    waiting = mail.run(topic="tides")
    (asked,) = waiting.asks
    assert (waiting.state, asked.id, asked.kind) == ("waiting", "ask.ask", "ask")
    assert asked.question == "Send?\nAbout tides."
    assert waiting.to_json()["asks"][0]["schema"] == {"enum": ["yes", "no"]}
    done = mail.resume(waiting.query_id, "yes")
    assert (done.state, done.query_id, done["sent"]) == (
        "ok",
        waiting.query_id,
        "yes: About tides.",
    )


def test_an_answer_that_does_not_fit_leaves_the_question_open(mail: App) -> None:
    waiting = mail.run(topic="tides")
    with pytest.raises(InputError, match="'maybe' is not one of"):
        mail.resume(waiting.query_id, "maybe")
    with pytest.raises(InputError, match="no JSON value"):
        mail.resume(waiting.query_id, {1, 2})
    with pytest.raises(UnknownName, match=r"ask\.ask"):
        mail.resume(waiting.query_id, "yes", ask="ask.aks")
    assert mail.resume(waiting.query_id, "no")["sent"] == "no: About tides."


def test_the_second_answer_finds_nobody(mail: App) -> None:
    waiting = mail.run(topic="tides")
    mail.resume(waiting.query_id, "yes")
    with pytest.raises(UnknownName, match="query that waits"):
        mail.resume(waiting.query_id, "no")


def test_somebody_answers_at_once(mail: App) -> None:
    heard: list[Inquiry] = []

    def answer(asked: Inquiry) -> str:
        heard.append(asked)
        return "no"

    assert mail.run(topic="wind", on_ask=answer)["sent"] == "no: About wind."
    assert [one.question for one in heard] == ["Send?\nAbout wind."]


async def test_somebody_answers_at_once_asynchronously(mail: App) -> None:
    async def answer(asked: Inquiry) -> str:
        await asyncio.sleep(0.01)
        return "yes"

    assert (await mail.arun(topic="wind", on_ask=answer))["sent"] == "yes: About wind."


def test_whoever_answers_may_fail(mail: App) -> None:
    def answer(asked: Inquiry) -> str:
        raise ValueError("gone home")

    with pytest.raises(QueryFailed, match="gone home"):
        mail.run(topic="wind", on_ask=answer)
    with pytest.raises(QueryFailed, match="does not fit"):
        mail.run(topic="wind", on_ask=lambda asked: "perhaps")


def test_several_questions_are_open_at_once(survey: App) -> None:
    waiting = survey.run(topics=["a", "b", "c"])
    assert sorted(one.id for one in waiting.asks) == [f"each/item/{k}/ask.ask" for k in range(3)]
    with pytest.raises(InputError, match="say which question"):
        survey.resume(waiting.query_id, "x")
    for asked in waiting.asks[:2]:
        waiting = survey.resume(waiting.query_id, asked.question, ask=asked.id)
        assert waiting.state == "waiting"
    done = survey.resume(waiting.query_id, waiting.asks[0].question)
    assert done["all"] == [f"About {x}. Well?" for x in "abc"]


@pytest.mark.parametrize(
    ("open_ones", "named"), [([], "nothing is open"), (["a", "b"], "'a', 'b'")]
)
def test_who_does_not_say_what_it_answers_is_told_what_is_open(
    open_ones: list[str], named: str
) -> None:
    with pytest.raises(InputError) as raised:
        chosen({id: {} for id in open_ones}, None, "yes")
    assert str(raised.value) == f"say which question is answered: {named}"
    assert chosen({"a": {}}, None, "yes") == "a"


def test_a_loop_asks_again_and_again(runtime: Runtime) -> None:
    body = draft >> Ask("{draft}", gives="more")
    loop = Loop(
        body,
        carry={"topic": "more"},
        until=lambda more: more == "",
        reads=["more"],
        gives=["draft"],
        at_most=9,
    )
    app = App("talk", loop, inputs={"topic": "text"}, outputs={"draft": "draft"}, runtime=runtime)
    result = app.run(topic="tides")
    for turn, word in enumerate(["wind", "rain", ""], 1):
        assert [one.id for one in result.asks] == [f"loop/turn/{turn}/ask.ask"]
        result = app.resume(result.query_id, word)
    assert result["draft"] == "About rain."


def test_it_waits_only_when_nothing_else_can_run(runtime: Runtime) -> None:
    app = App(
        "both",
        Template.beside([Ask("{topic}?", gives="said"), slow]),
        inputs={"topic": "text"},
        outputs={"said": "said", "slow": "slow"},
        runtime=runtime,
    )
    began = time.monotonic()
    waiting = app.run(topic="tides")
    assert time.monotonic() - began >= 0.3
    assert waiting.state == "waiting"
    assert app.resume(waiting.query_id, "yes").outputs == {"said": "yes", "slow": "tides"}


class Mute:
    """A query of which nothing runs."""

    callers = ()
    run = SimpleNamespace(status=())
    context = SimpleNamespace(deadline=1e9)

    def stand_still(self) -> None: ...

    def postpone(self, by_s: float) -> None: ...


@catches(
    "goes-on-unheard",
    "a query that was answered still counts as one that waits",
    edited(People._go_on, "self.on_wait(False)", "pass"),
)
async def test_it_is_told_when_a_query_waits_and_goes_on_and_waits_again() -> None:
    people, heard = People("q"), list[bool]()
    query: Any = Mute()
    people.on_wait = heard.append
    people.queries.add(query)
    for id in "ab":
        inquiry = Inquiry(id, "q", "ask", "c", "Well?", {})
        people.ask(inquiry, query, 60.0, lambda answer: None, lambda error: None)
        people._looked()
        people.answer(id, "yes")
    assert heard == [True, False, True, False]


@catches(
    "waits-for-the-last",
    "a query waits until the last question's time, though the first one ends it",
    edited(People.wait_s.fget, "min(one.late", "max(one.late"),
)
async def test_people_have_as_long_as_the_first_question_that_nobody_answers() -> None:
    people, nobody = People("q"), cast(AsksPeople, None)
    lost = list[str]()
    for id, wait_s in (("a", 60.0), ("b", 10.0), ("c", 6000.0)):
        inquiry = Inquiry(id, "q", "ask", "c", "Well?", {})
        people.ask(inquiry, nobody, wait_s, lost.append, lambda _, id=id: lost.append(id))
    assert people.wait_s == pytest.approx(10.0, abs=5.0)
    people.answer("b", "yes")
    assert people.wait_s == pytest.approx(60.0, abs=5.0)
    people.give_up("a", QueryFailed("nobody"))
    assert people.wait_s == pytest.approx(6000.0, abs=5.0)
    people.give_up("c", QueryFailed("nobody"))
    assert lost == ["yes", "a", "c"]


@catches(
    "works-not-postponed",
    "works are in a hurry as if nobody had waited for people",
    edited(GraphRun._postponed, "+= event.by_s", "+= 0.0"),
)
def test_its_deadline_stands_still_while_it_waits(
    mail: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does that by which its works are ordered."""
    submit, deadlines = EngineQueue.submit, list[float]()

    def noted(queue: EngineQueue, work: Work, now: float, out: Any = None) -> None:
        deadlines.append(work.deadline - work.began)
        submit(queue, work, now, out)

    monkeypatch.setattr(EngineQueue, "submit", noted)
    waiting = mail.run(topic="tides", deadline_s=0.4)
    time.sleep(0.7)
    assert mail.resume(waiting.query_id, "yes").state == "ok"
    before, after = deadlines
    assert before == pytest.approx(0.4, abs=0.1)
    assert after - before == pytest.approx(0.7, abs=0.3)


def test_people_have_so_long(runtime: Runtime) -> None:
    ask = Ask("{topic}?", gives="said", wait_s=0.2)
    app = App("hasty", ask, inputs={"topic": "text"}, outputs={"said": "said"}, runtime=runtime)
    waiting = app.run(topic="tides")
    time.sleep(0.5)
    with pytest.raises(UnknownName):
        app.resume(waiting.query_id, "yes")
    assert not desk_of(runtime).running
    lenient = App(
        "lenient",
        Template.beside([Ask("{topic}?", gives="said", wait_s=0.1, optional=True), draft]),
        inputs={"topic": "text"},
        outputs={"said": "said", "draft": "draft"},
        runtime=runtime,
    )
    answers = lenient.run(topic="tides", on_ask=lambda asked: time.sleep(0.4))
    assert (answers.state, answers.missing) == ("partial", ("ask",))
    assert "nobody answered 'ask.ask' within 0.1 s" in answers.reasons["ask"]


def test_a_query_that_waits_can_be_given_up(runtime: Runtime, survey: App) -> None:
    waiting = survey.run(topics=["a", "b"])
    survey.cancel(waiting.query_id)
    with pytest.raises(UnknownName):
        survey.resume(waiting.query_id, "x", ask=waiting.asks[0].id)
    assert not desk_of(runtime).running


def test_what_is_skipped_asks_no_more(runtime: Runtime) -> None:
    """A branch that was not taken asks nothing."""
    branch = Condition(
        lambda topic: topic == "ask", reads=["topic"], then=Ask("{topic}?", gives="said")
    )
    app = App("branch", branch, inputs={"topic": "text"}, outputs={"said": "said"}, runtime=runtime)
    assert app.run(topic="no").outputs == {"said": None}
    waiting = app.run(topic="ask")
    assert app.resume(waiting.query_id, "x").outputs == {"said": "x"}


def test_a_query_inside_asks_for_the_one_around_it(runtime: Runtime, mail: App) -> None:
    @component(outputs="whole")
    async def around(topic: str) -> str:
        return f"[{(await mail.arun(topic=topic))['sent']}]"

    app = App(
        "around", around, inputs={"topic": "text"}, outputs={"whole": "whole"}, runtime=runtime
    )
    waiting = app.run(topic="tides")
    assert (waiting.state, len(waiting.asks)) == ("waiting", 1)
    asked = [one.query_id for one in (*app.waiting(), *mail.waiting())]
    assert asked.count(waiting.query_id) == 1, "the one around it asks, and nobody else"
    assert app.resume(waiting.query_id, "yes")["whole"] == "[yes: About tides.]"


def test_a_query_waits_after_one_inside_it_has_ended(runtime: Runtime) -> None:
    plain = App("plain", draft, inputs={"topic": "text"}, outputs={"draft": "draft"})

    @component(outputs="draft")
    async def around(topic: str) -> str:
        return f"[{(await plain.arun(topic=topic))['draft']}]"

    app = App(
        "asks-later",
        around >> VERDICT >> send,
        inputs={"topic": "text"},
        outputs={"sent": "sent"},
        runtime=runtime,
    )
    waiting = app.run(topic="tides")
    assert waiting.state == "waiting"
    assert app.resume(waiting.query_id, "yes")["sent"] == "yes: [About tides.]"


def test_a_stream_ends_with_what_it_waits_for(mail: App) -> None:
    *_, last = mail.stream(topic="tides")
    assert last.state == "waiting"  # type: ignore[union-attr]
    assert mail.resume(last.query_id, "yes").state == "ok"  # type: ignore[union-attr]


def test_a_batch_waits_each_for_itself(mail: App) -> None:
    results = mail.batch([{"topic": "a"}, {"topic": "b"}])
    assert [one.state for one in results] == ["waiting", "waiting"]
    assert [mail.resume(one.query_id, "yes")["sent"] for one in results] == [
        "yes: About a.",
        "yes: About b.",
    ]


@pytest.mark.parametrize("question", ["", "  ", "{", "{0}", "{a b}", None])
def test_a_question_that_cannot_be_asked_is_refused(question: str) -> None:
    with pytest.raises(TemplateError, match="Ask: "):
        Ask(question)


def test_hits_are_shown_by_their_texts(runtime: Runtime) -> None:
    @component(outputs="found", pure=True)
    def search(topic: str) -> list[Hit]:
        return [Hit("1", "notes", "The tide rises.", 0.5)]

    ask = Ask("Enough?\n{found}", gives="said")
    app = App(
        "hits", search >> ask, inputs={"topic": "text"}, outputs={"said": "said"}, runtime=runtime
    )
    waiting = app.run(topic="tides")
    assert "The tide rises." in waiting.asks[0].question
    app.cancel(waiting.query_id)


def test_a_deadline_passes_before_it_waits(runtime: Runtime) -> None:
    app = App(
        "late",
        slow >> Ask("{slow}?", gives="said"),
        inputs={"topic": "text"},
        outputs={"said": "said"},
        runtime=runtime,
    )
    with pytest.raises(DeadlineExceeded):
        app.run(topic="tides", deadline_s=0.1)


# --- streams that go on ---------------------------------------------------------------------


def test_a_stream_goes_on_with_the_answers_of_its_thread(survey: App) -> None:
    threads: set[int] = set()

    def answer(asked: Inquiry) -> str:
        threads.add(threading.get_ident())
        return asked.id

    *events, last = survey.stream(topics=["a", "b"], on_ask=answer)
    assert isinstance(last, Result)
    assert last["all"] == ["each/item/0/ask.ask", "each/item/1/ask.ask"]
    assert threads == {threading.get_ident()}
    assert events


async def test_an_async_stream_goes_on(mail: App) -> None:
    async def answer(asked: Inquiry) -> str:
        await asyncio.sleep(0)
        return "yes"

    found = [event async for event in mail.astream(topic="wind", on_ask=answer)]
    assert isinstance(found[-1], Result)
    assert found[-1]["sent"] == "yes: About wind."


@pytest.mark.parametrize("answer", ["perhaps", KeyboardInterrupt()])
def test_a_stream_that_nobody_answers_leaves_nothing(
    mail: App, runtime: Runtime, answer: str | KeyboardInterrupt
) -> None:
    def told(asked: Inquiry) -> str:
        if isinstance(answer, str):
            return answer
        raise answer

    with pytest.raises((InputError, KeyboardInterrupt)):
        list(mail.stream(topic="wind", on_ask=told))
    assert not desk_of(runtime).running


def test_an_answer_that_comes_too_late_is_not_waited_for(runtime: Runtime) -> None:
    """One of two questions runs out while somebody thinks; the other stays open."""
    hasty = Ask("{topic}?", gives="said", wait_s=0.2, optional=True)
    patient = Ask("{topic}!", gives="told", name="patient")
    app = App(
        "two",
        Template.beside([hasty, patient]),
        inputs={"topic": "text"},
        outputs={"said": "said", "told": "told"},
        runtime=runtime,
    )

    def answer(asked: Inquiry) -> str:
        if asked.id == "ask.ask":
            time.sleep(0.5)
        return "yes"

    *_, last = app.stream(topic="tides", on_ask=answer)
    assert (last.outputs, last.missing) == ({"said": None, "told": "yes"}, ("ask",))  # type: ignore[union-attr]


def test_a_question_that_nobody_asks_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownName) as raised:
        chosen({"first": {}, "second": {}}, "frist", True)
    assert str(raised.value).startswith("unknown question 'frist'")
    assert "first" in str(raised.value)
