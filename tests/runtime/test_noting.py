"""Engines' log lines can tell for which queries they were written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from teola import App, Generate, Runtime, component
from teola.engine import Call, Delta, EngineKind, EngineSpec, Request, SequenceHandle, Usage
from teola.graph import Op
from teola.runtime.noting import working_for

SEEN: dict[str, tuple[str, ...]] = {}


@component(outputs="answer")
async def awaits(question: str) -> str:
    await asyncio.sleep(0)
    SEEN["async"] = working_for.get()
    return question


class Sync:
    """Computes in a thread."""

    spec = EngineSpec("sync", EngineKind.TOOL, frozenset({Op.TOOL_CALL}))

    def start(self) -> None: ...

    def close(self) -> None: ...

    def execute(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        SEEN["thread"] = working_for.get()
        return [{"answer": "x"} for _ in requests]


class Model:
    """An LLM that reuses prefixes."""

    spec = EngineSpec(
        "llm",
        EngineKind.LLM,
        frozenset({Op.PREFILLING, Op.PARTIAL_PREFILLING, Op.FULL_PREFILLING, Op.DECODING}),
        max_batch=10_000,
        prefix_reuse=True,
        block_tokens=1,
    )

    def start(self) -> None: ...

    def close(self) -> None: ...

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def prefill(self, call: Call) -> SequenceHandle:
        SEEN["prefill"] = working_for.get()
        return SequenceHandle("llm", 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        SEEN["generate"] = working_for.get()
        yield Delta("yes", "stop", Usage(3, 1))


def test_whatever_runs_for_a_query_knows_its_id() -> None:
    @component(outputs="answer", engine="sync")
    def in_thread(question: str) -> str:
        return question

    text, answer = {"question": "text"}, {"answer": "answer"}
    with Runtime({"sync": Sync, "llm": Model}) as runtime:
        apps = {
            "async": App("a", awaits, inputs=text, outputs=answer, runtime=runtime),
            "thread": App("b", in_thread, inputs=text, outputs=answer, runtime=runtime),
            "generate": App("c", Generate(), inputs=text, outputs=answer, runtime=runtime),
        }
        for where, app in apps.items():
            for _ in range(2):  # the second must not inherit what the first has set
                result = app.run(question="why?")
                assert SEEN[where] == (result.query_id,)
                if where == "generate" and "prefill" in SEEN:
                    assert SEEN["prefill"] == (result.query_id,)
    assert working_for.get() == ()


def test_a_batch_belongs_to_all_its_queries() -> None:
    @component(outputs="answer", engine="sync")
    def in_thread(question: str) -> str:
        return question

    text, answer = {"question": "text"}, {"answer": "answer"}
    with Runtime({"sync": Sync}) as runtime:
        app = App("b", in_thread, inputs=text, outputs=answer, runtime=runtime)
        app.run(question="first: everything is started")
        results = app.batch([{"question": str(k)} for k in range(3)])
    ids = {result.query_id for result in results}
    assert set(SEEN["thread"]) <= ids
    assert len(SEEN["thread"]) == len(set(SEEN["thread"]))
