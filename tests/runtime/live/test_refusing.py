"""Servers that refuse, are away or hang, on real sockets: queries wait, or others take them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from teola import Embedding
from teola.engine import Request
from teola.errors import EngineAway
from teola.schedule.events import State, Timer
from teola.schedule.plan import Plan
from teola.testing.hash_engines import HashEmbedder
from teola_engines.embedding import OpenAIEmbeddings
from teola_engines.llm import OpenAIServer
from tests.fake_embeddings import FakeEmbeddings
from tests.fake_openai import Fail, FakeOpenAI, Hang
from tests.recording import Bench
from tests.runtime.live.test_live import inputs
from tests.runtime.live.test_live import plan as made
from tests.schedule.plans import call, plan

BUSY = Fail(429, "slow down", headers={"retry-after-ms": "200"})


async def asked(bench: Bench, number: int) -> list[State]:
    p = plan(*call("m"))
    runs = (bench.run(p, {"question": "why is it so?"}) for _ in range(number))
    return [ending.state for ending in await asyncio.gather(*runs)]


def engines(*servers: FakeOpenAI) -> dict[str, list[OpenAIServer]]:
    return {"llm": [OpenAIServer(url=server.url, model="fake-model") for server in servers]}


async def test_twelve_queries_at_a_server_that_takes_three_are_answered() -> None:
    with FakeOpenAI("a b", token_delay_s=0.01, at_once=3, retry_after="0.2") as server:
        async with Bench(engines(server)) as bench:
            assert await asked(bench, 12) == [State.OK] * 12
            quota = bench.live.core.queues["llm"].instances[0].quota
            assert quota is not None
            assert quota.window < 12
    assert len(server.calls) <= 12 + 9


async def test_others_take_what_one_of_a_pool_refuses() -> None:
    with FakeOpenAI("a b", at_once=0, retry_after="60") as bad, FakeOpenAI("a b") as good:
        async with Bench(engines(bad, good)) as bench:
            assert await asked(bench, 20) == [State.OK] * 20
            assert await asked(bench, 20) == [State.OK] * 20
    assert len(good.calls) == 40
    assert len(bad.calls) <= 20  # those of the first turn, before it had refused any


async def test_a_refusal_costs_no_try() -> None:
    with FakeOpenAI("a b") as server:
        server.script(*[BUSY] * 3)
        async with Bench(engines(server)) as bench:
            assert await asked(bench, 1) == [State.OK]
            assert bench.live.core.queues["llm"].retries == 0
    assert len(server.calls) == 4


async def test_a_server_that_restarts_is_waited_for() -> None:
    with FakeOpenAI("a b") as server:
        server.script(Fail(502, body=b""), Fail(504, body=b""))
        async with Bench(engines(server)) as bench:
            assert await asked(bench, 1) == [State.OK]
    assert len(server.calls) == 3


async def test_a_deadline_says_what_was_waited_for() -> None:
    with FakeOpenAI("a b", at_once=0, retry_after="60") as server:
        async with Bench(engines(server)) as bench:
            p = plan(*call("m"))
            ending = await bench.run(p, {"question": "why?"}, deadline_s=0.5)
            assert ending.state is State.DEADLINE
            assert "takes no more calls now (429)" in str(ending.error)
            assert not bench.live.refusals


async def test_a_quota_that_is_used_up_fails_at_once() -> None:
    with FakeOpenAI("a b") as server:
        server.script(Fail(429, "You exceeded your current quota", "insufficient_quota"))
        async with Bench(engines(server)) as bench:
            assert await asked(bench, 1) == [State.FAILED]
    assert len(server.calls) == 1


async def test_a_call_that_hangs_goes_elsewhere() -> None:
    with FakeOpenAI("a b") as hanging, FakeOpenAI("a b") as good:
        hanging.script(Hang())
        async with Bench(engines(hanging, good)) as bench:
            queue = bench.live.core.queues["llm"]
            assert queue.overdue is not None
            queue.overdue.unknown_s = 0.3
            assert await asked(bench, 2) == [State.OK] * 2
            assert await asyncio.to_thread(hanging.wait, lambda: not hanging.in_flight)
    assert len(good.calls) == 2


def embed() -> Plan:
    return made(Embedding(inputs={"texts": "notes"}), "vectors")


def given(text: str) -> dict[str, Any]:
    return {**inputs(), "notes": [text]}


class Restarting(HashEmbedder):
    """A client of a server that is away at first; so do all of its instances know it."""

    async def execute(self, requests: Sequence[Request]) -> Any:  # type: ignore[override]
        if asyncio.get_running_loop().time() < self.away_until:
            return [EngineAway("nobody is there")] * len(requests)
        return await super().execute(requests)


async def test_batches_wait_while_every_server_restarts() -> None:
    embedders = [Restarting(), Restarting()]
    for one in embedders:
        one.away_until = asyncio.get_running_loop().time() + 0.3
    async with Bench({"embedding": embedders}) as bench:
        runs = (bench.run(embed(), given(f"word {k}")) for k in range(12))
        endings = await asyncio.gather(*runs)
    assert {ending.state for ending in endings} == {State.OK}


async def test_what_waits_for_a_limit_is_embedded_in_one_request() -> None:
    """Sixteen callers, one after another, while one request a minute may be sent."""
    with FakeEmbeddings() as server:
        engine = OpenAIEmbeddings(url=server.url, requests_per_minute=1)
        async with Bench({"embedding": [engine]}) as bench:
            quota = bench.live.core.queues["embedding"].instances[0].quota
            assert quota is not None
            first = await bench.run(embed(), given("word"))
            before = len(server.asked)
            tasks = []
            for k in range(16):
                tasks.append(bench.start(embed(), given(f"word {k}")))
                await asyncio.sleep(0)
            assert len(server.asked) == before, "they wait"
            quota.account.requests.most = 2
            bench.live.wake()
            bench.live.handle(Timer("embedding"), asyncio.get_running_loop().time())
            endings = await asyncio.gather(*tasks)
    assert {ending.state for ending in (first, *endings)} == {State.OK}
    assert len(server.asked) == before + 1
