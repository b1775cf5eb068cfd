"""Applications whose graphs have a shape: one that no window is wide enough for, one with a shorter
way beside the critical path."""

from __future__ import annotations

import asyncio
import inspect
from functools import reduce
from typing import Any

from teola import App, component
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
