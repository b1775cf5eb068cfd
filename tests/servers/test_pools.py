"""What queries see of servers that refuse, hang, turn slow or restart: they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack

import pytest

from experiments.common.scripted.kinds import manners
from experiments.common.scripted.server import KEY, Fault, Hang, Refuse, Reply, Rule, Scripted, Seen
from teola import App, Embedding, EngineConfig, Runtime, component
from teola.schedule import quota
from teola.schedule.events import State
from teola_engines.llm import OpenAIServer
from tests.fake_embeddings import FakeEmbeddings
from tests.fake_openai import Fail
from tests.recording import Bench
from tests.schedule.plans import call, plan

QUICK = Reply(("a", " b"), each_s=0.005)
PLAN = plan(*call("m"))


async def asked(bench: Bench, number: int) -> list[State]:
    runs = (bench.run(PLAN, {"question": "why is it so?"}) for _ in range(number))
    return [ending.state for ending in await asyncio.gather(*runs)]


def engine(server: Scripted) -> OpenAIServer:
    return OpenAIServer(url=server.url, model=server.manners.model, api_key=KEY)


async def servers(stack: AsyncExitStack, *rules: Rule | None) -> list[Scripted]:
    found = [Scripted(manners("OpenAI"), rule=rule) for rule in rules]
    for server in found:
        server.reply = QUICK
        await stack.enter_async_context(server)
    return found


def always(fault: Fault) -> Rule:
    async def rule(seen: Seen) -> Fault:
        return fault

    return rule


async def test_twelve_queries_at_a_server_that_takes_three_at_once() -> None:
    busy: set[int] = set()

    async def three(seen: Seen) -> Fault | Reply:
        if len(busy) >= 3:
            return Refuse("busy", seconds=1)
        busy.add(id(seen))
        return QUICK

    async with AsyncExitStack() as stack:
        (server,) = await servers(stack, three)
        server.over = lambda seen: busy.discard(id(seen))
        bench = await stack.enter_async_context(Bench({"llm": [engine(server)]}))
        assert await asked(bench, 12) == [State.OK] * 12
        assert len(server.calls) <= 12 + 9  # those that were sent before any was refused


async def test_a_refusal_is_waited_out_for_as_long_as_it_says() -> None:
    async with AsyncExitStack() as stack:
        (server,) = await servers(stack, None)
        bench = await stack.enter_async_context(Bench({"llm": [engine(server)]}))
        server.faults.append(Refuse("busy", seconds=1))
        assert await asked(bench, 1) == [State.OK]
        first, second = server.calls
        assert second.began - first.began == pytest.approx(1.0, abs=0.2)


async def test_one_of_two_that_refuses_costs_nobody_anything() -> None:
    async with AsyncExitStack() as stack:
        bad, good = await servers(stack, always(Refuse("busy", seconds=60)), None)
        engines = {"llm": [engine(bad), engine(good)]}
        bench = await stack.enter_async_context(Bench(engines))
        assert await asked(bench, 20) == [State.OK] * 20
        assert await asked(bench, 20) == [State.OK] * 20
        assert len(good.calls) == 40
        assert len(bad.calls) <= 20


async def test_one_of_two_that_hangs_gets_nothing_more() -> None:
    async with AsyncExitStack() as stack:
        bad, good = await servers(stack, always(Hang()), None)
        engines = {"llm": [engine(bad), engine(good)]}
        bench = await stack.enter_async_context(Bench(engines))
        overdue = bench.live.core.queues["llm"].overdue
        assert overdue is not None
        overdue.unknown_s = 0.2
        assert await asked(bench, 8) == [State.OK] * 8
        assert all(seen.left for seen in bad.calls)
        before = len(bad.calls)
        assert await asked(bench, 4) == [State.OK] * 4
        assert len(bad.calls) == before


async def test_servers_that_restart_are_waited_for() -> None:
    async with AsyncExitStack() as stack:
        both = await servers(stack, None, None)
        bench = await stack.enter_async_context(Bench({"llm": [*map(engine, both)]}))
        assert await asked(bench, 2) == [State.OK] * 2
        for server in both:
            await server.close()
        asking = asyncio.create_task(asked(bench, 8))
        await asyncio.sleep(0.1)
        for server in both:
            await server.open()
        assert await asking == [State.OK] * 8


def embedding(server: FakeEmbeddings, **options: int) -> tuple[Runtime, App]:
    @component(outputs="size", pure=True)
    def size(vectors: list[list[float]]) -> str:
        return str(len(vectors))

    given = {"url": server.url, "model": server.model, **options}
    runtime = Runtime({"embedding": EngineConfig("openai-embedding", given)})
    template = Embedding(inputs={"texts": "question"}) >> size
    app = App("e", template, inputs={"question": "text"}, outputs={"size": "size"}, runtime=runtime)
    return runtime, app


async def sizes(app: App, number: int) -> list[str]:
    asking: list[Awaitable[object]] = [app.arun(question=f"question {k}") for k in range(number)]
    return [str(found["size"]) for found in await asyncio.gather(*asking)]  # type: ignore[index]


async def test_embeddings_gather_while_a_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MINUTE_S", 1.0)  # a minute of the limit
    monkeypatch.setattr(quota, "SHORT_S", 0.9)
    with FakeEmbeddings(dimensions=8) as server:
        runtime, app = embedding(server, requests_per_minute=3)
        with runtime:
            assert await sizes(app, 1) == ["1"]
            before = len(server.asked)
            assert await sizes(app, 16) == ["1"] * 16
    sent = server.asked[before:]
    assert sum(map(len, sent)) == 16
    assert len(sent) <= 6, "those that waited went together"


async def test_embedding_waits_for_a_server_that_restarts() -> None:
    with FakeEmbeddings(dimensions=8) as server:
        runtime, app = embedding(server)
        with runtime:
            assert await sizes(app, 1) == ["1"]
            server.script(*[Fail(502, body=b"")] * 3)
            assert await sizes(app, 8) == ["1"] * 8
