"""What is served: an application that does nothing, and one that waits in a place of its own."""

from __future__ import annotations

import asyncio
from typing import Final

from teola import App, EngineConfig, Runtime, component
from teola.runtime.python_engine import PythonEngine

SECONDS: Final = 0.5
PLACES: Final = 32
"""Queries that the engine `bounded` runs at once, for `SECONDS` each."""


@component(outputs="answer")
async def nothing(question: str) -> str:
    return question


@component(outputs="answer", engine="bounded")
async def wait(question: str) -> str:
    await asyncio.sleep(SECONDS)
    return question


runtime = Runtime({"bounded": EngineConfig(PythonEngine, {"concurrency": PLACES})})
null = App(
    "null",
    template=nothing,
    inputs={"question": "text"},
    outputs={"answer": "answer"},
    runtime=runtime,
)
waiting = App(
    "waiting",
    template=wait,
    inputs={"question": "text"},
    outputs={"answer": "answer"},
    runtime=runtime,
)
