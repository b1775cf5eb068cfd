"""What tests of all adapters share: an application that streams, and is slow if it is asked to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from teola import App, Generate, Runtime, component
from teola.engine import Hit
from teola.runtime.engines import EngineConfig


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        yield made


@pytest.fixture
def answering() -> Iterator[Callable[..., App]]:
    """Makes an application that an LLM engine answers, on a runtime of its own."""
    runtimes: list[Runtime] = []

    def make(llm: EngineConfig, **options: Any) -> App:
        runtimes.append(Runtime({"llm": llm}))
        given = {"instruction": "Be brief.", **options}
        return App(
            "asks",
            Generate(**given),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtimes[-1],
        )

    yield make
    for one in runtimes:
        one.close()


@component(outputs="answer")
async def echoes(question: str) -> AsyncIterator[str]:
    """Its question, word by word; "fail" fails and "wait" never ends."""
    for place, word in enumerate(question.split()):
        if word == "fail":
            raise ValueError("no such word")
        if word == "wait":
            Seen.waiting.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                Seen.cancelled.set()
                raise
        yield f" {word}" if place else word
        await asyncio.sleep(0)


class Seen:
    """What the echo has seen, for tests on other loops."""

    waiting = threading.Event()
    cancelled = threading.Event()


@pytest.fixture
def echo(runtime: Runtime) -> App:
    """Answers with the words of its question, one after the other."""
    Seen.waiting.clear()
    Seen.cancelled.clear()
    return App(
        "echo",
        echoes,
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        description="Says it again.",
        runtime=runtime,
    )


@component(outputs="hits")
def finds(texts: list[str]) -> list[Hit]:
    return [Hit(f"h{i}", "page", text, 1.0 - i / 10, {"i": i}) for i, text in enumerate(texts)]


@pytest.fixture
def finder(runtime: Runtime) -> App:
    """Gives a hit for each text."""
    return App(
        "finder", finds, inputs={"texts": "texts"}, outputs={"hits": "hits"}, runtime=runtime
    )


async def give_up(work: Coroutine[Any, Any, Any]) -> None:
    """Begin what asks the echo, cancel it once the echo is at it, and see that the echo ends."""
    task = asyncio.create_task(work)
    assert await asyncio.to_thread(Seen.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(Seen.cancelled.wait, 30)


async def give_up_streaming(app: App, question: str, seen: dict[str, Any]) -> None:
    """Cancel a query once its model streams, and see that the stream is closed, once."""
    task = asyncio.create_task(app.arun(question=question))
    while not seen.get("now"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ends = time.monotonic() + 10
    while seen["now"] and time.monotonic() < ends:
        await asyncio.sleep(0.01)
    assert seen["closed"] == 1
