"""Engines' log lines can tell for which queries they were written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from teola import App, Generate, Runtime, component
from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    QueryContext,
    Request,
    SequenceHandle,
    Usage,
)
from teola.graph import DecodeParams, Op
from teola.runtime.hosts.local import LocalHost
from teola.runtime.observe.noting import working_for

SEEN: dict[str, tuple[str, ...]] = {}
PAIRS: list[tuple[set[str], set[str]]] = []
"""For whom an engine was called, and for whom it believed to work."""


@component(outputs="answer")
async def awaits(question: str) -> str:
    await asyncio.sleep(0)
    SEEN["async"] = working_for.get()
    return question


class Sync:
    """Computes in a thread."""

    spec = EngineSpec("sync", EngineKind.TOOL, frozenset({Op.TOOL_CALL}), max_sequences=2)

    def start(self) -> None: ...

    def close(self) -> None: ...

    def execute(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        SEEN["thread"] = working_for.get()
        PAIRS.append(({r.context.query_id for r in requests}, set(working_for.get())))
        return [{"answer": "x"} for _ in requests]


class Model:
    """An LLM that reuses prefixes."""

    spec = EngineSpec(
        "llm",
        EngineKind.LLM,
        frozenset({Op.PREFILLING, Op.PARTIAL_PREFILLING, Op.FULL_PREFILLING, Op.DECODING}),
        max_batch=10_000,
        max_sequences=1,
        prefix_reuse=True,
        block_tokens=1,
    )

    def start(self) -> None: ...

    def close(self) -> None: ...

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def prefill(self, call: Call) -> SequenceHandle:
        SEEN["prefill"] = working_for.get()
        PAIRS.append(({call.context.query_id}, set(working_for.get())))
        return SequenceHandle("llm", 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        SEEN["generate"] = working_for.get()
        PAIRS.append(({call.context.query_id}, set(working_for.get())))
        await asyncio.sleep(0)
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
    assert working_for.get() == ()


def test_what_waited_does_not_inherit_whom_it_waited_for() -> None:
    """Work that is sent when another query's ends is sent by that one's task."""

    @component(outputs="answer", engine="sync")
    def in_thread(question: str) -> str:
        return question

    text, answer = {"question": "text"}, {"answer": "answer"}
    with Runtime({"sync": Sync, "llm": Model}) as runtime:
        for template, count in ((in_thread, 3), (Generate(), 6)):
            app = App("b", template, inputs=text, outputs=answer, runtime=runtime)
            app.run(question="first: everything is started")
            PAIRS.clear()
            results = app.batch([{"question": str(k)} for k in range(6)])
            assert {result.state for result in results} == {"ok"}
            assert len(PAIRS) >= count
            assert all(whom == believed for whom, believed in PAIRS)


async def test_a_prefix_is_computed_for_its_query() -> None:
    call = Call(QueryContext("q7"), (), DecodeParams())
    await asyncio.create_task(LocalHost(Model(), 0).prefill(call))
    assert SEEN["prefill"] == ("q7",)
