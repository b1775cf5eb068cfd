"""Queries that components begin: whose runtime, time and tenant they have, and how they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from teola import App, Condition, Generate, Runtime, component
from teola.engine import EngineKind, EngineResult, EngineSpec, Request
from teola.errors import DeadlineExceeded, QueryCancelled, QueryFailed
from teola.graph import Op
from tests.runtime.faults import Scripted

SIDE_BY_SIDE = 200


def app(name: str, template: Any, output: str, runtime: Runtime | None = None) -> App:
    return App(
        name, template, inputs={"question": "text"}, outputs={"answer": output}, runtime=runtime
    )


@pytest.fixture
def model() -> Scripted:
    return Scripted(["from the ", "outer runtime"])


@pytest.fixture
def runtime(model: Scripted) -> Iterator[Runtime]:
    with Runtime({"llm": lambda: model}) as made:
        yield made


INNER = app("inner", Generate(), "answer")
"""It names no runtime."""


def on_loop(runtime: Runtime, work: Any) -> Any:
    async def run() -> Any:
        return work()

    return runtime.start(run()).result(timeout=30)


def shouting(inner: App, asynchronous: bool) -> Any:
    """A component that asks `inner`."""

    def waits(question: str) -> str:
        return str(inner.run(question=question).answer).upper()

    async def awaits(question: str) -> str:
        return str((await inner.arun(question=question)).answer).upper()

    return component(awaits if asynchronous else waits, outputs="answer")


# --- what they share ------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_inner_app_runs_on_its_callers_runtime(runtime: Runtime, asynchronous: bool) -> None:
    outer = app("outer", shouting(INNER, asynchronous), "answer", runtime)
    assert outer.run(question="why?").answer == "FROM THE OUTER RUNTIME"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_unless_it_has_one_of_its_own(runtime: Runtime, asynchronous: bool) -> None:
    with Runtime({"llm": lambda: Scripted(["its own"])}) as own:
        inner = app("inner", Generate(), "answer", own)
        outer = app("outer", shouting(inner, asynchronous), "answer", runtime)
        assert outer.run(question="why?").answer == "ITS OWN"


def test_every_way_to_ask_is_nested(runtime: Runtime) -> None:
    async def streamed(question: str) -> str:
        async for event in INNER.astream(question=question):
            last = event
        return str(last.answer)  # type: ignore[union-attr]

    def followed(question: str) -> str:
        *_, last = INNER.stream(question=question)
        return str(last.answer)  # type: ignore[union-attr]

    def batched(question: str) -> str:
        return str(INNER.batch([{"question": question}] * 2)[1].answer)

    for function in (streamed, followed, batched):
        outer = app("outer", component(function, outputs="answer"), "answer", runtime)
        assert outer.run(question="why?").answer == "from the outer runtime", function


class Who:
    """Tells the tenant and deadline of whoever asks."""

    def __init__(self) -> None:
        self.spec = EngineSpec("who", EngineKind.TOOL, frozenset({Op.TOOL_CALL}))
        self.seen: list[Request] = []

    def start(self) -> None: ...

    def close(self) -> None: ...

    async def execute(self, requests: list[Request]) -> list[EngineResult]:
        self.seen += requests
        return [{"answer": "seen"} for _ in requests]


def test_tenant_and_deadline_are_the_outer_querys() -> None:
    who = Who()
    look = component(lambda question: "", outputs="answer", engine="who", name="look")
    inner = app("inner", look, "answer")
    with Runtime({"who": lambda: who}) as runtime:
        outer = app("outer", shouting(inner, asynchronous=True), "answer", runtime)
        before = runtime.loop.time()
        outer.run(question="why?", tenant="acme", deadline_s=30.0)
        after = runtime.loop.time()
        outer.run(question="why?")
    first, second = (request.context for request in who.seen)
    assert (first.tenant, second.tenant) == ("acme", "default")
    assert before + 30.0 <= first.deadline <= after + 30.0


def test_the_traces_are_linked(runtime: Runtime) -> None:
    outer = app("outer", shouting(INNER, asynchronous=False), "answer", runtime)
    result = outer.run(question="why?")
    trace = result.trace
    assert trace is not None
    (inner,) = trace.inner
    assert inner.parent == (result.query_id, "waits.call")
    assert (inner.app, inner.state) == ("inner", "ok")
    told = trace.to_json()
    assert "parent" not in told
    assert told["inner"][0]["parent"] == {"query_id": result.query_id, "primitive": "waits.call"}
    assert 0 <= told["inner"][0]["after_s"] <= result.latency_s
    assert "decoding" in [span["op"] for span in told["inner"][0]["spans"]]


# --- side by side ---------------------------------------------------------------------------


def plain(question: str) -> str:
    return f"{question}!"


async def soft(question: str) -> str:
    await asyncio.sleep(0)
    return f"{question}!"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("deep", [2, 3])
def test_two_hundred_wait_for_each_other_side_by_side(asynchronous: bool, deep: int) -> None:
    """More wait than there are threads, or places on the engine, for those that they wait for."""
    inner = app("inner", component(soft if asynchronous else plain, outputs="answer"), "answer")
    for _ in range(deep - 1):
        inner = app("outer", shouting(inner, asynchronous), "answer")
    with Runtime() as runtime:
        inner.runtime = runtime
        questions = [{"question": f"q{i}"} for i in range(SIDE_BY_SIDE)]
        results = inner.batch(questions, deadline_s=120.0)
        assert [r.answer for r in results] == [f"Q{i}!" for i in range(SIDE_BY_SIDE)]
        queue = runtime.live.core.queues["python"]
        assert on_loop(runtime, lambda: queue.idle)
        assert on_loop(runtime, lambda: (queue.instances[0].waiting, runtime.live.outermost)) == (
            0,
            0,
        )


def test_more_wait_than_the_engine_has_places_for() -> None:
    inner = app("inner", component(plain, outputs="answer"), "answer")
    with Runtime(max_queries=2000) as runtime:
        outer = app("outer", shouting(inner, asynchronous=True), "answer", runtime)
        results = outer.batch([{"question": "q"}] * 600, deadline_s=120.0)
    assert {r.answer for r in results} == {"Q!"}


def test_a_component_asks_two_hundred_at_once() -> None:
    inner = app("inner", component(plain, outputs="answer"), "answer")

    def all_of_them(question: str) -> str:
        found = inner.batch([{"question": f"{question}{i}"} for i in range(SIDE_BY_SIDE)])
        return " ".join(str(result.answer) for result in found)

    with Runtime(max_queries=SIDE_BY_SIDE) as runtime:
        outer = app("outer", component(all_of_them, outputs="answer"), "answer", runtime)
        result = outer.run(question="q")
    assert str(result.answer).split() == [f"q{i}!" for i in range(SIDE_BY_SIDE)]
    assert result.trace is not None
    assert len(result.trace.inner) == SIDE_BY_SIDE


def test_inner_queries_take_no_admission_of_others() -> None:
    inner = app("inner", component(soft, outputs="answer"), "answer")
    with Runtime(max_queries=1) as runtime:
        outer = app("outer", shouting(inner, asynchronous=True), "answer", runtime)
        assert outer.run(question="q").answer == "Q!"


def test_an_app_that_runs_itself_ends() -> None:
    async def again(question: str) -> str:
        return str((await itself.arun(question=question)).answer)

    with Runtime() as runtime:
        itself = app("itself", component(again, outputs="answer"), "answer", runtime)
        with pytest.raises(QueryFailed, match="one that runs itself needs an end"):
            itself.run(question="q")


# --- how they end ---------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_cancelling_the_outer_query_cancels_the_inner(
    runtime: Runtime, model: Scripted, asynchronous: bool
) -> None:
    model.scripts = ([asyncio.Event()],)
    outer = app("outer", shouting(INNER, asynchronous), "answer", runtime)

    async def cancelled() -> int:
        task = asyncio.ensure_future(outer.arun(question="why?"))
        while not model.generating:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        while model.generating or runtime.live.queries:
            await asyncio.sleep(0.001)
        return runtime.live.outermost

    assert runtime.start(cancelled()).result(timeout=30) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_outer_deadline_ends_both(
    runtime: Runtime, model: Scripted, asynchronous: bool
) -> None:
    model.scripts = ([asyncio.Event()],)
    outer = app("outer", shouting(INNER, asynchronous), "answer", runtime)
    with pytest.raises(DeadlineExceeded):
        outer.run(question="why?", deadline_s=0.3)

    async def settled() -> None:
        while model.generating or runtime.live.queries:
            await asyncio.sleep(0.001)

    runtime.start(settled()).result(timeout=30)


def test_what_a_component_leaves_behind_ends_with_it(runtime: Runtime, model: Scripted) -> None:
    model.scripts = ([asyncio.Event()],)
    left: list[asyncio.Task[Any]] = []

    async def forgetful(question: str) -> str:
        left.append(asyncio.ensure_future(INNER.arun(question=question)))
        while not model.generating:
            await asyncio.sleep(0.001)
        return "done"

    outer = app("outer", component(forgetful, outputs="answer"), "answer", runtime)
    assert outer.run(question="why?").answer == "done"

    async def ended() -> bool:
        await asyncio.wait(left)
        return left[0].cancelled()

    assert runtime.start(ended()).result(timeout=30)


def test_nobody_asks_for_a_query_that_has_ended(runtime: Runtime) -> None:
    go, found = threading.Event(), []
    asked = threading.Event()

    def late(question: str) -> str:
        go.wait(30)
        try:
            INNER.run(question=question)
        except QueryCancelled as error:
            found.append(str(error))
        asked.set()
        return ""

    outer = app("outer", component(late, outputs="answer"), "answer", runtime)
    with pytest.raises(DeadlineExceeded):
        outer.run(question="why?", deadline_s=0.1)
    go.set()
    assert asked.wait(30)
    assert found == ["the component that asks for this is not waited for any more"]


def test_blocking_the_loop_is_refused_whoevers_it_is(runtime: Runtime) -> None:
    with Runtime({"llm": lambda: Scripted(["its own"])}) as own:
        inner = app("inner", Generate(), "answer", own)

        async def blocks(question: str) -> str:
            return str(inner.run(question=question).answer)

        outer = app("outer", component(blocks, outputs="answer"), "answer", runtime)
        with pytest.raises(QueryFailed, match=r"use `await app\.arun"):
            outer.run(question="why?")


def test_an_async_test_of_a_condition_may_ask_as_well(runtime: Runtime) -> None:
    async def agrees(question: str) -> bool:
        return (await INNER.arun(question=question)).answer == "from the outer runtime"

    yes = component(lambda question: "yes", outputs="answer", name="yes")
    no = component(lambda question: "no", outputs="answer", name="no")
    template = Condition(agrees, reads=["question"], then=yes, otherwise=no)
    assert app("outer", template, "answer", runtime).run(question="why?").answer == "yes"
