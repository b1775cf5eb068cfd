"""Inside a component everything behaves as in a task of its own, although it is entered at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest
import uvloop

from teola import App, Runtime, component
from teola.errors import QueryFailed
from teola.runtime.live.entering import entered

seen: ContextVar[str] = ContextVar("seen", default="nothing")


@pytest.fixture
def runtime() -> Any:
    with Runtime() as runtime:
        yield runtime


def app(runtime: Runtime, *functions: Any) -> App:
    first, *rest = [
        component(function, name=f"n{k}", inputs={"x": f"x{k}"}, outputs=[f"x{k + 1}"])
        for k, function in enumerate(functions)
    ]
    template: Any = first
    for one in rest:
        template = template >> one
    outputs = {"x": f"x{len(functions)}"}
    return App("test", template, inputs={"x0": "any"}, outputs=outputs, runtime=runtime)


async def timed(x: Any) -> Any:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)
    return f"{x} timed"


async def grouped(x: Any) -> Any:
    async def half(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(half(n)) for n in (1, 2)]
    return f"{x} grouped {sum(task.result() for task in tasks)}"


async def any_io(x: Any) -> Any:
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep(30)
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
    return f"{x} anyio {scope.cancelled_caught}"


async def in_a_task(x: Any) -> Any:
    before = asyncio.current_task()
    await asyncio.sleep(0)
    return f"{x} {before is not None and before is asyncio.current_task()}"


def test_what_needs_a_task_finds_one(runtime: Runtime) -> None:
    found = app(runtime, timed, grouped, any_io, in_a_task).run(x0="it")["x"]
    assert found == "it timed grouped 3 anyio True True"


def test_before_the_first_wait_too(runtime: Runtime) -> None:
    async def at_once(x: Any) -> Any:
        async with asyncio.timeout(30), asyncio.TaskGroup(), anyio.create_task_group():
            return f"{x} through"

    assert app(runtime, at_once).run(x0="it")["x"] == "it through"


def test_each_has_a_context_of_its_own(runtime: Runtime) -> None:
    async def leaves(x: Any) -> Any:
        seen.set("what another left")
        return x

    async def looks(x: Any) -> Any:
        before = seen.get()
        seen.set("mine")
        await asyncio.sleep(0)
        return f"{before}, then {seen.get()}"

    assert app(runtime, leaves, looks).run(x0="it")["x"] == "nothing, then mine"


def test_one_that_cancels_itself_fails_alone(runtime: Runtime) -> None:
    async def gives_up(x: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(30)

    async def goes_on(x: Any) -> Any:
        return x

    with pytest.raises(QueryFailed):
        app(runtime, gives_up).run(x0="it")
    assert app(runtime, goes_on).run(x0="it")["x"] == "it"


def test_others_use_the_loop_while_a_long_chain_runs(runtime: Runtime) -> None:
    """Nothing in it ever waits, so nobody would have a turn before its end."""
    turns = []

    async def step(x: Any) -> Any:
        if x == 0:
            asyncio.get_running_loop().call_soon(turns.append, "another's turn")
        return x + 1

    async def last(x: Any) -> Any:
        return x, len(turns)

    assert app(runtime, *[step] * 150, last).run(x0=0)["x"] == (150, 1)


async def test_the_task_around_is_current_again() -> None:
    loop, around = asyncio.get_running_loop(), asyncio.current_task()
    inside: list[Any] = []

    async def work() -> None:
        inside.append(asyncio.current_task())
        await asyncio.sleep(0)
        inside.append(asyncio.current_task())

    task = entered(loop, work(), copy_context())
    assert inside == [task]
    assert asyncio.current_task() is around
    await task
    assert inside == [task, task]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_need_not_wait_has_ended(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def work() -> None:
        """Nothing to wait for."""

    async def enter() -> None:
        turns: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(turns.append, "another's turn")
        assert entered(loop, work(), copy_context()).done()
        assert turns == []
        await asyncio.sleep(0)
        assert turns == ["another's turn"]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(enter())


async def test_an_error_stays_in_its_task() -> None:
    async def work() -> None:
        raise ValueError("mine")

    task = entered(asyncio.get_running_loop(), work(), copy_context())
    with pytest.raises(ValueError, match="mine"):
        await task
