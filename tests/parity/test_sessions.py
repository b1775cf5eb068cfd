"""What a session is to `graph_aware`, live as simulated: its calls wait for one another's prefix.

Calls with one beginning come one after another while nobody answers. Those of one program follow
the first; those of others, be it the same name of another tenant's session, are sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from teola.engine import Call, Delta
from teola.profile import EngineProfile, Profile, StepTime
from teola.query.spec import program_of
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.graph_run import GraphRun
from tests.planted import catches, edited
from tests.recording import Bench
from tests.remembered import remembered
from tests.schedule.plans import call, plan
from tests.under_faults.engines import KeyedModel

PLAN = plan(*call("m"))
QUESTION = "why? " * 40
Asked = Sequence[tuple[str, str | None]]
"""Tenant and session of each query, in order."""
ASKED: Asked = [("a", "s"), ("a", "s"), ("b", "s"), ("a", "t"), ("a", None), ("a", "s"), ("b", "s")]
FOLLOW = [1, 5, 6]
"""Those whose program has asked before."""


class Waiting(KeyedModel):
    """It says nothing before it may."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.may = asyncio.Event()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        await self.may.wait()
        async for delta in super().generate(call):
            yield delta


def seen(queue: EngineQueue) -> tuple[list[int], list[int]]:
    """Numbers of the queries that are held, and of those that are sent."""
    works = sorted(queue.works.values(), key=lambda work: work.seq)
    numbers = {work.run: number for number, work in enumerate(works)}
    held = sorted(numbers[run] for run, _ in queue.line.held)
    return held, [numbers[work.run] for work in works if work.flying]


async def live(asked: Asked) -> tuple[list[int], list[int]]:
    models = [Waiting(max_sequences=16), Waiting(max_sequences=16)]
    async with Bench({"llm": models}, routing="graph_aware") as bench:
        queue, tasks = bench.core.queues["llm"], []
        for tenant, session in asked:
            part_of = program_of(tenant, session) if session else ""
            given = {"question": QUESTION}
            tasks.append(bench.start(PLAN, given, tenant=tenant, part_of=part_of))
            while len(queue.works) < len(tasks) or any(not w.total for w in queue.works.values()):
                await asyncio.sleep(0.001)
            for _ in range(5):
                await asyncio.sleep(0)
        found = seen(queue)
        for model in models:
            model.may.set()
        await asyncio.gather(*tasks)
        await bench.settle()
        bench.assert_idle()
        assert [*remembered(queue)] == []
    return found


def simulated(asked: Asked) -> tuple[list[int], list[int]]:
    llm = EngineProfile(
        step=StepTime(base_s=60.0),
        max_batch=256,
        max_sequences=16,
        instances=2,
        prefix_reuse=True,
        keeps_prefixes=True,
        block_tokens=4,
    )
    sim = Sim(Profile("two", {"llm": llm}), routing="graph_aware")
    text = Tokens(50)
    for k, (tenant, session) in enumerate(asked):
        program = program_of(tenant, session) if session else ""
        sim.submit(PLAN, {"question": text}, at=k / 1000, tenant=tenant, program=program)
    sim.run(until=1.0)
    found = seen(sim.core.queues["llm"])
    assert len(sim.run()) == len(asked)
    assert [*remembered(sim.core.queues["llm"])] == []
    return found


@catches(
    "sessions-unheard",
    "a live query is a program by itself, whatever its session",
    edited(GraphRun.__init__, "asker or Asker(", "Asker("),
)
async def test_what_a_session_asks_again_waits_for_what_it_asked_before() -> None:
    held, sent = await live(ASKED)
    assert (held, sent) == simulated(ASKED)
    assert held == FOLLOW
    assert sorted(held + sent) == [*range(len(ASKED))]


async def test_queries_without_a_session_do_not_wait_for_each_other() -> None:
    asked: Asked = [("a", None)] * 4
    assert await live(asked) == simulated(asked) == ([], [0, 1, 2, 3])
