"""The loop of a runtime that serves: it runs queries, and its clock never stands still."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from teola import App, Runtime, component
from teola.runtime.live import loops

if sys.platform == "win32":
    pytest.skip("there is no uvloop for Windows", allow_module_level=True)
import uvloop


@component(outputs="answer")
async def nap(question: str) -> str:
    await asyncio.sleep(0.005)
    return question


def test_queries_run_on_it() -> None:
    with Runtime() as runtime:
        runtime.new_loop = loops.quick
        app = App(
            "nap",
            template=nap,
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtime,
        )
        result = app.run(question="hello")
        assert isinstance(runtime.loop, uvloop.Loop)
        (span,) = [span for span in result.trace.spans if span.engine]  # type: ignore[union-attr]
    assert result.answer == "hello"
    assert 0.004 < span.end - span.start < 5


def test_time_goes_on_within_a_turn_and_timers_go_by_it() -> None:
    loop = loops.quick()

    async def look() -> list[float]:
        first = loop.time()
        while time.monotonic() - first < 0.0015:
            pass
        second, fired = loop.time(), loop.create_future()
        loop.call_at(second + 0.02, lambda: fired.set_result(loop.time()))
        return [first, second, await fired]

    try:
        first, second, third = loop.run_until_complete(look())
    finally:
        loop.close()
    assert second - first >= 0.001
    assert third - second >= 0.015
    assert first == pytest.approx(time.monotonic(), abs=60)
