"""Two real vLLMs as one engine: both work, one is killed, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Iterator

import httpx
import pytest

from teola import App, EngineConfig, Generate, Runtime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.instances import Instance
from tests.engines.llm.serving import Served, serving

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(420)]

QUESTIONS = [f"{i}: what does engine {i * i} read, and what does it write?" for i in range(16)]
AT_ONCE = 6
"""Calls at once on a server: all the questions need both."""
TOKENS = 400
MID_ANSWER_S = 0.3
"""After a call is sent; its answer takes longer, also where nothing else runs."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    with serving(tmp_path_factory.mktemp("vllms"), 2) as both:
        yield both


def requests(server: Served, name: str) -> int:
    """What it says itself at /metrics."""
    page = httpx.get(server.url.removesuffix("/v1") + "/metrics", timeout=60.0).text
    found = re.findall(rf"^vllm:{name}\{{.*\}} (\S+)$", page, re.MULTILINE)
    assert found, page[:200]
    return int(sum(map(float, found)))


def ended(server: Served) -> int:
    return requests(server, "request_success_total")


def stand_still(servers: list[Served], *, still: bool = True) -> None:
    for server in servers:
        os.killpg(server.process.pid, signal.SIGSTOP if still else signal.SIGCONT)


async def all_answers(app: App) -> list[str]:
    return [
        one["answer"] for one in await asyncio.gather(*(app.arun(question=q) for q in QUESTIONS))
    ]


def asking(runtime: Runtime, tokens: int) -> App:
    generate = Generate(max_tokens=tokens, ignore_eos=True)
    outputs = {"answer": "answer"}
    return App("asking", generate, inputs={"question": "text"}, outputs=outputs, runtime=runtime)


async def until(holds: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(holds):
        await asyncio.sleep(0.02)


async def caught(
    app: App, servers: list[Served], instances: list[Instance]
) -> list[asyncio.Task[list[str]]]:
    """Rounds of all questions, of which calls are on both servers, which stand still in mid-answer:
    if a round should end before anybody could stop them, another is begun. Who is asked is our own
    queue: on a busy machine a server tells what it runs when that is over."""
    rounds: list[asyncio.Task[list[str]]] = []

    def both_work() -> bool:
        return all(instance.batches for instance in instances)

    while True:
        rounds.append(asyncio.create_task(all_answers(app)))
        await until(lambda: both_work() or rounds[-1].done())
        await asyncio.sleep(MID_ANSWER_S)
        stand_still(servers)
        if not rounds[-1].done() and both_work():
            return rounds
        stand_still(servers, still=False)


def nothing_is_left(runtime: Runtime, queue: EngineQueue) -> bool:
    live = runtime.live
    return queue.idle and not queue.queued and not live.outermost and not len(live.sequences)


@pytest.mark.nightly  # takes minutes; the same of scripted servers: tests/schedule/test_refusals.py
async def test_two_servers_are_one_engine_and_one_killed_loses_nothing(
    servers: list[Served],
) -> None:
    options = {"max_sequences": AT_ONCE, "connect_timeout_s": 60.0}
    alone = {"llm": EngineConfig("vllm", {"url": servers[0].url, **options})}
    with Runtime(alone) as runtime:
        expected = await all_answers(asking(runtime, TOKENS))
    assert len(set(expected)) == len(QUESTIONS)
    pool = [{"url": server.url} for server in servers]
    with Runtime({"llm": EngineConfig("vllm", options, pool=pool)}) as runtime:
        app = asking(runtime, TOKENS)
        first = await app.arun(question=QUESTIONS[0])
        assert first["answer"] == expected[0]
        before = [ended(server) for server in servers]
        assert await all_answers(app) == expected
        shares = [ended(server) - had for server, had in zip(servers, before, strict=True)]
        assert sum(shares) == len(QUESTIONS)
        assert min(shares) >= len(QUESTIONS) - 2 * AT_ONCE, shares

        queue = runtime.live.core.queues["llm"]
        instances = list(queue.instances)
        rounds = await caught(app, servers, instances)
        in_flight = [len(instance.batches) for instance in instances]
        assert not rounds[-1].done()
        servers[1].process.kill()
        stand_still(servers[:1], still=False)
        for answers in await asyncio.gather(*rounds):
            assert answers == expected
        quota = instances[1].quota
        refusals = quota.refusals if quota is not None else 0
        told = f"{queue.retries} tried again, {refusals} refused"
        print(f"calls on the two when one was killed: {in_flight}; {told}")
        assert queue.retries + refusals >= in_flight[1] > 0
        assert instances[1].ejections or refusals
        await until(lambda: nothing_is_left(runtime, queue))
