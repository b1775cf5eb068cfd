"""Functions as components, live: streams, time limits, further tries, interrupts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from teola import App, Condition, Runtime, Token, component
from teola.errors import DeadlineExceeded, QueryFailed


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        yield made


def app(runtime: Runtime, template: Any, output: str = "answer") -> App:
    return App(
        "test", template, inputs={"question": "text"}, outputs={"answer": output}, runtime=runtime
    )


def answering(runtime: Runtime, function: Callable[..., Any], **options: Any) -> App:
    return app(runtime, component(function, outputs="answer", name="does", **options))


# --- streams --------------------------------------------------------------------------------


def yields(question: str) -> Iterator[str]:
    yield "one "
    yield ""
    yield f"{question} "
    yield "three"


async def yields_softly(question: str) -> AsyncIterator[str]:
    for piece in yields(question):
        await asyncio.sleep(0)
        yield piece


@pytest.mark.parametrize("function", [yields, yields_softly])
def test_what_a_function_yields_is_streamed_and_is_its_answer(
    runtime: Runtime, function: Callable[..., Any]
) -> None:
    events = list(answering(runtime, function).stream(question="two"))
    assert [e.text for e in events if isinstance(e, Token)] == ["one ", "two ", "three"]
    assert events[-1].answer == "one two three"  # type: ignore[union-attr]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_its_pieces_come_before_it_has_ended(runtime: Runtime, asynchronous: bool) -> None:
    go = threading.Event()

    def waits(question: str) -> Iterator[str]:
        yield "first"
        go.wait(30)
        yield "second"

    async def waits_softly(question: str) -> AsyncIterator[str]:
        yield "first"
        await asyncio.to_thread(go.wait, 30)
        yield "second"

    events = answering(runtime, waits_softly if asynchronous else waits).stream(question="why?")
    assert next(e.text for e in events if isinstance(e, Token)) == "first"
    go.set()
    assert [e.text for e in events if isinstance(e, Token)] == ["second"]


def test_only_the_branch_that_is_taken_is_streamed(runtime: Runtime) -> None:
    other = component(lambda question: "other", outputs="answer", name="other")
    this = component(yields, outputs="answer")
    branches = Condition(lambda q: q == "two", reads=["question"], then=this, otherwise=other)
    told = [e.text for e in app(runtime, branches).stream(question="two") if isinstance(e, Token)]
    assert "".join(told) == "one two three"


def test_the_next_component_reads_the_whole_text(runtime: Runtime) -> None:
    loud = component(lambda draft: draft.upper(), outputs="answer", name="loud")
    told = list(app(runtime, component(yields, outputs="draft") >> loud).stream(question="two"))
    assert [e.text for e in told if isinstance(e, Token)] == ["ONE TWO THREE"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_pieces_must_be_texts(runtime: Runtime, asynchronous: bool) -> None:
    def numbers(question: str):  # type: ignore[no-untyped-def]
        yield 1

    async def numbers_softly(question: str):  # type: ignore[no-untyped-def]
        yield 1

    with pytest.raises(QueryFailed, match="must yield texts, and yielded int"):
        answering(runtime, numbers_softly if asynchronous else numbers).run(question="why?")


def test_a_generator_object_is_no_answer(runtime: Runtime) -> None:
    with pytest.raises(QueryFailed, match="it returned a generator, which is no value"):
        answering(runtime, lambda question: (c for c in question)).run(question="why?")
    with pytest.raises(QueryFailed, match="it returned a generator, which is no value"):
        answering(runtime, lambda question: yields_softly(question)).run(question="why?")


def test_a_coroutine_object_is_awaited(runtime: Runtime) -> None:
    async def soft(question: str) -> str:
        return f"{question}!"

    assert answering(runtime, lambda question: soft(question)).run(question="why").answer == "why!"


def test_a_stream_that_is_left_stops_the_function(runtime: Runtime) -> None:
    closed = threading.Event()

    def endless(question: str) -> Iterator[str]:
        try:
            while True:
                yield "more"
                time.sleep(0.001)
        finally:
            closed.set()

    for event in answering(runtime, endless).stream(question="why?"):
        if isinstance(event, Token):
            break
    assert closed.wait(30)


def test_what_has_been_streamed_is_not_begun_again(runtime: Runtime) -> None:
    tries = []

    def breaks(question: str) -> Iterator[str]:
        tries.append(question)
        yield "some"
        raise ValueError("broken")

    failing = answering(runtime, breaks, pure=True, retries=3)
    with pytest.raises(QueryFailed, match="ValueError: broken"):
        list(failing.stream(question="why?"))
    assert len(tries) == 1
    with pytest.raises(QueryFailed, match="ValueError: broken"):
        failing.run(question="why?")
    assert len(tries) == 5, "nobody watched, so it could be tried again"


# --- time and tries -------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_timeout_ends_a_call(runtime: Runtime, asynchronous: bool) -> None:
    go = threading.Event()

    def hangs(question: str) -> str:
        go.wait(60)
        return question

    async def hangs_softly(question: str) -> str:
        await asyncio.sleep(60)
        return question

    slow = answering(runtime, hangs_softly if asynchronous else hangs, timeout=0.05)
    told = "component 'does', tool_call: it took longer than its timeout of 0.05 s"
    with pytest.raises(QueryFailed, match=told):
        slow.run(question="why?", deadline_s=30.0)
    go.set()


def test_a_timeout_of_the_functions_own_is_its_error(runtime: Runtime) -> None:
    async def gives_up(question: str) -> str:
        raise TimeoutError("the far end is slow")

    with pytest.raises(QueryFailed, match="TimeoutError: the far end is slow"):
        answering(runtime, gives_up, timeout=30.0).run(question="why?")


def test_a_pure_function_is_called_again_as_often_as_it_says(runtime: Runtime) -> None:
    tries: list[str] = []

    def flaky(question: str) -> str:
        tries.append(question)
        if len(tries) < 4:
            raise ValueError("not yet")
        return question

    assert answering(runtime, flaky, pure=True, retries=3).run(question="why?").answer == "why?"
    tries.clear()
    with pytest.raises(QueryFailed, match="ValueError: not yet"):
        answering(runtime, flaky, pure=True, retries=1).run(question="why?")
    assert len(tries) == 2


def test_a_call_that_took_too_long_is_tried_again(runtime: Runtime) -> None:
    tries: list[str] = []

    async def slow_at_first(question: str) -> str:
        tries.append(question)
        if len(tries) == 1:
            await asyncio.sleep(60)
        return question

    patient = answering(runtime, slow_at_first, pure=True, retries=1, timeout=0.5)
    assert patient.run(question="why?").answer == "why?"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_function_that_exits_does_not_end_the_runtime(
    runtime: Runtime, asynchronous: bool
) -> None:
    def leaves(question: str) -> str:
        raise SystemExit(3)

    async def leaves_softly(question: str) -> str:
        raise SystemExit(3)

    with pytest.raises(QueryFailed, match="it raised SystemExit"):
        answering(runtime, leaves_softly if asynchronous else leaves).run(question="why?")
    assert answering(runtime, lambda question: question).run(question="still").answer == "still"


def test_calls_that_were_given_up_block_no_others(runtime: Runtime) -> None:
    """Nor the end of the runtime, which another test sees from outside."""
    go = threading.Event()

    def hangs(question: str) -> str:
        go.wait(60)
        return question

    slow = answering(runtime, hangs)
    results = slow.batch([{"question": "why?"}] * 50, deadline_s=0.2)
    assert {result.state for result in results} == {"deadline"}
    assert isinstance(results[0].error, DeadlineExceeded)
    assert answering(runtime, lambda question: question).run(question="next").answer == "next"
    go.set()
