"""Applications whose graphs have a shape: one that no window is wide enough for, one with a shorter
way beside the critical path."""

from __future__ import annotations

import asyncio
import inspect
from functools import reduce
from typing import Any

from teola import App, Each, Loop, component
from teola.workflow.components.function import Function

WIDTH = 40
"""Calls beside each other; an engine called `narrow` does them a few at a time."""
CALL_S = 0.03


async def look(question: str) -> str:
    await asyncio.sleep(CALL_S)
    return question


def join(**parts: str) -> str:
    return f"{len(parts)} parts"


def wide() -> App:
    """All calls read the question, and the last one all of them."""
    names = [f"part_{k}" for k in range(WIDTH)]
    calls = [
        Function(look, name=f"look-{k}", outputs=n, engine="narrow") for k, n in enumerate(names)
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    given = [inspect.Parameter(name, keyword) for name in names]
    join.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    last = Function(join, outputs="answer")
    template: Any = reduce(lambda a, b: a >> b, [*calls, last])
    return App("wide", template, inputs={"question": "text"}, outputs={"answer": "answer"})


@component(outputs="begun")
async def begin(question: str) -> str:
    await asyncio.sleep(CALL_S)
    return question


@component(outputs="gone")
async def go(begun: str) -> str:
    await asyncio.sleep(CALL_S)
    return begun


@component(outputs="answer")
async def end(begun: str, gone: str) -> str:
    return begun + gone


def shortcut() -> App:
    """`end` reads `begin` as well, but it is `go` that it waits for."""
    inputs = {"question": "text"}
    return App("shortcut", begin >> go >> end, inputs=inputs, outputs={"answer": "answer"})


TOPICS = 16
"""Items of a list that grows; the last one fails."""
TURNS = 4


@component(outputs="topics", pure=True)
async def list_topics(question: str) -> list[str]:
    return [f"topic {k}" for k in range(TOPICS)]


@component(outputs="found", pure=True)
async def find(topic: str) -> str:
    await asyncio.sleep(CALL_S * (1 + len(topic) % 3))
    if topic == f"topic {TOPICS - 1}":
        raise ValueError("nothing is known of it")
    return topic


@component(outputs="read", pure=True)
async def read(found: str) -> str:
    await asyncio.sleep(CALL_S / 2)
    return found


@component(outputs="draft", pure=True)
async def draft(read: str, better: str | None = None) -> str:
    await asyncio.sleep(CALL_S / 3)
    return f"{better or read}!"


@component(outputs="better", pure=True)
async def improve(draft: str) -> str:
    return f"{draft}!"


@component(outputs="answer", pure=True)
async def bind(notes: list[str]) -> str:
    return ", ".join(note for note in notes if note)


def grown() -> App:
    """About 200 primitives: a list of topics, a draft of each, which is improved some times."""
    loop = Loop(
        draft >> improve,
        carry={"better": "better"},
        until=lambda better: better.count("!") >= 2 * TURNS,
        reads=["better"],
        gives=["better"],
        at_most=TURNS,
    )
    each = Each(
        find >> read >> loop,
        over="topics",
        item="topic",
        gives={"notes": "better"},
        at_once=6,
        on_error="none",
    )
    return App(
        "grown",
        list_topics >> each >> bind,
        inputs={"question": "text"},
        outputs={"answer": "answer"},
    )
