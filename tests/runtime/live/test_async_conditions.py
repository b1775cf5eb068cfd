"""Conditions whose test is awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from teola import Condition, component
from teola.errors import TemplateError
from teola.runtime.python_engine import PythonEngine
from teola.schedule.events import State
from tests.recording import Bench
from tests.runtime.live.test_live import inputs, plan, said


async def refuses(question: str) -> bool:
    await asyncio.sleep(0)
    return False


class Refuses:
    async def __call__(self, question: str) -> bool:
        return await refuses(question)


def branches(test: Any) -> Any:
    yes = component(lambda question: "yes", outputs="answer", name="yes")
    no = component(lambda question: "no", outputs="answer", name="no")
    return plan(Condition(test, reads=["question"], then=yes, otherwise=no), "answer")


async def refuses_by_name(question: str) -> str:
    return "otherwise"


@pytest.mark.parametrize(
    "test", [refuses, Refuses(), lambda question: refuses(question), refuses_by_name]
)
async def test_the_answer_is_awaited(test: Any) -> None:
    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(branches(test), inputs())
        assert (ending.state, ending.outputs["answer"]) == (State.OK, "no")
        await bench.settle()
        bench.assert_idle()


async def test_what_it_raises_fails_the_query() -> None:
    async def broken(question: str) -> bool:
        await asyncio.sleep(0)
        raise ValueError("no judge")

    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(branches(broken), inputs())
        assert (
            said(ending) == "component 'condition', condition: its test raised ValueError: no judge"
        )
        span = next(s for s in ending.trace.spans if s.op == "condition")
        assert (span.state, span.error) == ("failed", "its test raised ValueError: no judge")


async def test_a_query_that_ends_lets_go_of_it() -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def hangs(question: str) -> bool:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return True

    async with Bench({"python": PythonEngine()}) as bench:
        task = bench.start(branches(hangs), inputs())
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        await asyncio.wait_for(left.wait(), 30)
        bench.assert_idle()


async def test_one_that_is_cancelled_at_once_leaves_nothing_behind() -> None:
    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(branches(refuses), inputs(), deadline_s=-1.0)
        assert ending.state is State.DEADLINE
        await asyncio.sleep(0.01)


async def test_a_generator_is_neither_true_nor_false() -> None:
    def lazily(question: str) -> Any:
        yield False

    async def lazily_async(question: str) -> Any:
        yield False

    for test in (lazily, lazily_async, "question", None):
        with pytest.raises(TemplateError, match="must be a function that returns true or false"):
            branches(test)
    async with Bench({"python": PythonEngine()}) as bench:
        ending = await bench.run(branches(lambda question: lazily(question)), inputs())
        assert "neither true nor false" in said(ending)
