"""Graphs that grow: which parts there are, what they give, and how they end with their query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from teola import App, Component, Condition, Each, Generate, Loop, Runtime, component
from teola.errors import QueryFailed, TemplateError
from teola.query.spec import Bounds, QuerySpec
from teola.runtime.driver import Driver
from teola.runtime.live.query import Token
from teola.workflow.component import Template
from teola.workflow.components.each import Going
from teola.workflow.components.loop import Turning
from teola.workflow.part_template import PartTemplate
from tests.planted import catches, edited
from tests.runtime.faults import Scripted

ran: list[str] = []


@component(outputs="better", pure=True)
def better(draft: str, more: str) -> str:
    ran.append(draft)
    return draft + more


@component(outputs="note", pure=True)
async def note(topic: str, question: str) -> str:
    if topic == "bad":
        raise ValueError("not this one")
    return f"{topic}: {question}"


def loop(until: Callable[[str], object], body: Any = better, **more: Any) -> Loop:
    return Loop(
        body, carry={"draft": "better"}, until=until, reads=["better"], gives=["better"], **more
    )


def refining(template: Component | Template, runtime: Runtime | None = None) -> App:
    inputs = {"draft": "text", "more": "text"}
    return App("refining", template, inputs=inputs, outputs={"better": "better"}, runtime=runtime)


def noting(**more: Any) -> App:
    template = Each(note, over="topics", item="topic", gives={"notes": "note"}, **more)
    inputs = {"topics": "texts", "question": "text"}
    return App("noting", template, inputs=inputs, outputs={"notes": "notes"})


# --- loops ----------------------------------------------------------------------------------


@catches(
    "carries-nothing",
    "a turn begins with what the first one had",
    edited(Turning._next, "**carried", ""),
)
def test_a_loop_goes_on_until_it_is_good_enough() -> None:
    ran.clear()
    result = refining(loop(lambda text: len(text) > 5)).run(draft="a", more="bc")
    assert result["better"] == "abcbcbc"
    assert ran == ["a", "abc", "abcbc"]


@catches(
    "first-turn-decides",
    "later turns do not read what the first one has not",
    edited(PartTemplate.builder, "self._given | self._carried", "self._given"),
)
def test_a_turn_may_read_what_there_is_not_before_the_first() -> None:
    @component(outputs="better", pure=True)
    def write(topic: str, before: str | None = None) -> str:
        return f"{before or topic}!"

    body = Loop(
        write,
        carry={"before": "better"},
        until=lambda text: len(text) > 3,
        reads=["better"],
        gives=["better"],
    )
    app = App("writing", body, inputs={"topic": "text"}, outputs={"better": "better"})
    assert app.run(topic="a")["better"] == "a!!!"


@catches(
    "no-end",
    "a loop goes on beyond its last turn",
    edited(Turning.ended, "self.turn >= loop.at_most", "self.turn >= loop.at_most + 1"),
)
def test_a_loop_ends_after_its_last_turn() -> None:
    app = refining(loop(lambda text: False, at_most=3))
    assert app.run(draft="a", more="x")["better"] == "axxx"
    assert app.run(draft="a", more="x", overrides={"loop.at_most": 1})["better"] == "ax"


def test_each_turn_is_a_part_with_a_key_of_its_own() -> None:
    result = refining(loop(lambda text: len(text) > 4)).run(draft="a", more="xy")
    assert result.trace is not None
    assert [part.query_id for part in result.trace.inner] == [
        f"{result.query_id}/loop/turn/1",
        f"{result.query_id}/loop/turn/2",
    ]
    assert [part.parent for part in result.trace.inner] == [(result.query_id, "loop.grow")] * 2


def test_what_until_raises_is_told() -> None:
    with pytest.raises(QueryFailed, match="component 'loop', grow: its `until` raised ValueError"):
        refining(loop(lambda text: int(text) > 0)).run(draft="a", more="b")


# --- lists ----------------------------------------------------------------------------------


@catches(
    "as-they-end",
    "results come in the order in which parts end",
    edited(Going.result, "outputs.get(k, nothing)", "[*outputs.values()][k]"),
)
def test_results_are_in_the_order_of_the_items() -> None:
    waits = {"a": 0.03, "b": 0.0, "c": 0.015}

    @component(outputs="slow", pure=True)
    async def slow(topic: str) -> str:
        await asyncio.sleep(waits[topic])
        return topic.upper()

    template = Each(slow, over="topics", item="topic", gives={"notes": "slow"})
    app = App("slow", template, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    assert app.run(topics=["a", "b", "c"])["notes"] == ["A", "B", "C"]


def test_no_items_make_an_empty_list() -> None:
    assert noting().run(topics=[], question="why?")["notes"] == []


def test_a_part_that_fails_fails_the_query_or_leaves_a_gap() -> None:
    topics = ["a", "bad", "c"]
    with pytest.raises(QueryFailed, match="'each', grow: component 'note', tool_call: ValueError"):
        noting().run(topics=topics, question="why?")
    found = noting(on_error="none").run(topics=topics, question="why?")["notes"]
    assert found == ["a: why?", None, "c: why?"]


def test_too_many_items_are_refused_before_anything_runs() -> None:
    with pytest.raises(QueryFailed, match="'topics' has 3 items, and at most 2 are allowed"):
        noting(at_most=2).run(topics=["a", "b", "c"], question="why?")


@catches(
    "all-at-once",
    "more parts run at once than may",
    edited(Driver._follow, "len(running) < growing.at_once", "True"),
)
def test_no_more_parts_run_at_once_than_may() -> None:
    now, most = 0, 0

    @component(outputs="seen", pure=True)
    async def seen(topic: str) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return most

    template = Each(seen, over="topics", item="topic", gives={"notes": "seen"}, at_once=3)
    app = App("few", template, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    assert len(app.run(topics=list("abcdefgh"))["notes"]) == 8
    assert most == 3


# --- in each other, and in branches -------------------------------------------------------------


def test_loops_in_lists_in_branches() -> None:
    inner = Each(
        loop(lambda text: len(text) > 3), over="drafts", item="draft", gives={"all": "better"}
    )
    app = App(
        "nested",
        Condition(lambda more: more == "go", reads=["more"], then=inner),
        inputs={"drafts": "texts", "more": "text"},
        outputs={"all": "all"},
    )
    result = app.run(drafts=["a", "bbb"], more="go")
    assert result["all"] == ["agogo", "bbbgo"]
    stopped = app.run(drafts=["a", "bbb"], more="stop")
    assert stopped["all"] is None
    assert stopped.trace is not None
    assert stopped.trace.inner == []


# --- how they end -----------------------------------------------------------------------------


@catches(
    "orphans",
    "parts outlive their query",
    edited(Driver._stop_growth, "self.end(part.id, Cancelled(), now)", "pass"),
)
def test_who_leaves_takes_the_parts_along() -> None:
    begun, ended = asyncio.Event(), []

    @component(outputs="never")
    async def never(topic: str) -> str:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(topic)
        return ""

    template = Each(never, over="topics", item="topic", gives={"notes": "never"})
    with Runtime() as runtime:
        app = App(
            "left",
            template,
            inputs={"topics": "texts"},
            outputs={"notes": "notes"},
            runtime=runtime,
        )

        async def leave() -> None:
            task = asyncio.ensure_future(app.arun(topics=["a", "b"]))
            await asyncio.wait_for(begun.wait(), 10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for _ in range(50):
                await asyncio.sleep(0.01)
                if len(ended) == 2:
                    break
            assert sorted(ended) == ["a", "b"]
            assert not runtime.live.queries
            assert not runtime.live.core.runs

        runtime.start(leave()).result(timeout=30)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (Bounds(most_parts=2), "more parts than a query may have"),
        (Bounds(most_primitives=2), "(3 more; max_primitives)"),
    ],
)
def test_a_query_grows_no_larger_than_it_may(bounds: Bounds, told: str) -> None:
    loud = component(lambda note: note.upper(), outputs="loud", name="loud")
    soft = component(lambda loud: loud.lower(), outputs="soft", name="soft")
    template = Each(note >> loud >> soft, over="topics", item="topic", gives={"notes": "soft"})
    inputs = {"topics": "texts", "question": "text"}
    app = App("noting", template, inputs=inputs, outputs={"notes": "notes"})
    job = app.job(QuerySpec({"topics": ["a", "b", "c"], "question": "why?"}, bounds=bounds))
    result = app.home.start(job.run()).result(timeout=30)
    assert result.state == "failed"
    assert told in str(result.error)


def test_the_last_turns_answer_streams() -> None:
    model = Scripted(["one ", "two"])
    body = Generate("write", inputs={"context": "draft"}, outputs={"answer": "better"})
    with Runtime({"llm": lambda: model}) as runtime:
        app = App(
            "writing",
            loop(lambda text: False, body=body, at_most=1),
            inputs={"draft": "text", "question": "text"},
            outputs={"better": "better"},
            runtime=runtime,
        )
        *events, result = app.stream(draft="a", question="why?")
        assert [event.text for event in events if isinstance(event, Token)] == ["one ", "two"]
        assert result["better"] == "one two"  # type: ignore[index]


# --- declared wrongly -----------------------------------------------------------------------------


def test_templates_that_cannot_grow_are_refused_when_they_are_declared() -> None:
    with pytest.raises(TemplateError, match="carries 'text', which nothing in its body reads"):
        Loop(better, carry={"text": "better"}, until=bool, reads=["better"], gives=["better"])
    with pytest.raises(TemplateError, match="wants 'best' of its body, which nothing there gives"):
        Loop(better, carry={"draft": "better"}, until=bool, reads=["best"], gives=["better"])
    with pytest.raises(TemplateError, match="nothing in its body reads 'theme'"):
        Each(note, over="topics", item="theme", gives={"notes": "note"})
    with pytest.raises(TemplateError, match="needs 'more', which nothing upstream gives"):
        App("x", loop(bool), inputs={"draft": "text"}, outputs={"better": "better"})
    with pytest.raises(TemplateError, match="two components of 'refining' are called 'better'"):
        refining(component(lambda draft: draft, outputs="draft", name="better") >> loop(bool))


def test_a_parameter_of_a_body_can_be_overridden() -> None:
    model = Scripted(["one ", "two"])
    body = Generate("write", inputs={"context": "draft"}, outputs={"answer": "better"})
    with Runtime({"llm": lambda: model}) as runtime:
        app = App(
            "writing",
            loop(bool, body=body),
            inputs={"draft": "text", "question": "text"},
            outputs={"better": "better"},
            runtime=runtime,
        )
        app.run(draft="a", question="why?", overrides={"write.max_tokens": 7})
    assert [call.decode.max_tokens for call in model.calls] == [7]
