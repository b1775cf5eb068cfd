"""A large and a small instance of one engine are filled alike, live and in simulation.

Calls arrive one after another while nobody ends: what is sent where is then a matter of what each
instance can take, and of nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from teola.engine import Call, Delta
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.engines import queue_for
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.events import Dispatch
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited
from tests.recording import Bench, Log, RecordingCore
from tests.schedule.plans import call, plan

PLAN, CALLS = plan(*call("m")), 16
QUESTION = "a" * 156
"""Of 40 tokens, as they are estimated."""


class Size(NamedTuple):
    """What an instance can take."""

    max_batch: int
    max_sequences: int


class Waiting(HashModel):
    """It says nothing before it may."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.may = asyncio.Event()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        await self.may.wait()
        async for delta in super().generate(call):
            yield delta


def sent(log: Log) -> list[tuple[int, list[int]]]:
    """In order, to which instance, and how many tokens each call has."""
    story = [entry for entry in log.story if isinstance(entry, Dispatch)]
    return [(one.instance, [work.total for work, _, _ in one.slices]) for one in story]


async def live(sizes: list[Size]) -> list[tuple[int, list[int]]]:
    models = [Waiting(**size._asdict()) for size in sizes]
    async with Bench({"llm": models}) as bench:
        tasks = []
        for _ in range(CALLS):
            tasks.append(bench.start(PLAN, {"question": QUESTION}))
            for _ in range(5):
                await asyncio.sleep(0)
        found = sent(bench.core.log)
        for model in models:
            model.may.set()
        await asyncio.gather(*tasks)
        await bench.settle()
        bench.assert_idle()
    return found


def simulated(sizes: list[Size], tokens: int) -> list[tuple[int, list[int]]]:
    slow = StepTime(base_s=60.0)
    pool = tuple(EngineProfile(step=slow, **size._asdict()) for size in sizes)
    sim = Sim(Profile("pool", {"llm": EngineProfile(instances=len(sizes), pool=pool)}))
    sim.core = RecordingCore({}, sim._measure, sim.queries)
    for k in range(CALLS):
        sim.submit(PLAN, {"question": Tokens(tokens)}, at=k / 1000)
    sim.run(until=1.0)
    found = sent(sim.core.log)
    assert len(sim.run()) == CALLS
    return found


@catches(
    "pool-of-equals-live",
    "a live pool takes what its first instance says for what all can take",
    edited(
        queue_for,
        "[Limits.of(engine.spec, engine.spec.kind) for engine in engines]",
        "[Limits.of(engines[0].spec, engines[0].spec.kind)] * len(engines)",
    ),
)
@catches(
    "pool-of-equals-simulated",
    "a simulated pool takes what its first instance says for what all can take",
    edited(Sim._add_engine, "Limits.of(profile.of(i), kind)", "Limits.of(profile.of(0), kind)"),
)
@pytest.mark.parametrize(
    ("large", "small", "calls"),
    [
        (Size(400, 99), Size(100, 99), (10, 2)),  # tokens in prefilling
        (Size(4000, 7), Size(4000, 3), (7, 3)),
    ],
)
@pytest.mark.parametrize("small_first", [False, True])
async def test_each_instance_gets_what_it_can_take(
    large: Size, small: Size, calls: tuple[int, int], small_first: bool
) -> None:
    sizes = [small, large] if small_first else [large, small]
    found = await live(sizes)
    assert {tokens for _, batch in found for tokens in batch} == {40}
    assert found == simulated(sizes, 40)
    count = [sum(len(batch) for at, batch in found if at == i) for i in range(2)]
    assert tuple(reversed(count) if small_first else count) == calls
