"""Live and simulated calls say the same of why they went where they went.

Calls arrive one after another while nobody ends, so that what each one meets is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from teola.engine import Call, Delta, Keys
from teola.policies.reason import Because
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.observe.placements import placements
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited
from tests.recording import Bench
from tests.schedule.plans import Ref, call, plan

ONE = plan(*call("m"))
TWO = plan(*call("a"), *call("b"), outputs={x: Ref(x, "out") for x in "ab"})
BLOCK, SHARED, LETTERS = 10, 100, 4
OWN = (20, 35, 50, 20, 65, 35)
"""Tokens of each prompt besides the shared ones, of four letters each."""
LIMITS = {"max_batch": 10**5, "max_sequences": 99, "block_tokens": BLOCK}
PROFILE = EngineProfile(
    step=StepTime(base_s=0.2, per_token_s=0.001, per_context_s=1e-6),
    prefix_reuse=True,
    keeps_prefixes=True,
    **LIMITS,
)


class Keyed(HashModel):
    """It measures prompts as those are estimated, and says nothing before it may."""

    def __init__(self) -> None:
        super().__init__(**LIMITS)
        self.block_tokens = BLOCK
        self.may = asyncio.Event()

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        text = "".join(part.text for part in call.all_parts)
        ends = range(LETTERS * BLOCK, len(text) + 1, LETTERS * BLOCK)
        return Keys(len(text) // LETTERS + 1, tuple(text[:end] for end in ends))

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        await self.may.wait()
        async for delta in super().generate(call):
            yield delta


def question(k: int) -> str:
    """Three of four begin alike."""
    beginning = ("s" if k % 4 else f"{k}") * LETTERS * SHARED
    return beginning + f"{k}" * (LETTERS * OWN[k] - 1)


async def live(routing: str, asked: Callable[[Bench], Any]) -> list[list[Any]]:
    """Of each query, the placements of its calls."""
    models = [Keyed(), Keyed()]
    async with Bench({"llm": models}, routing=routing, profile=PROFILE) as bench:
        tasks = await asked(bench)
        for model in models:
            model.may.set()
        endings = await asyncio.gather(*tasks)
        await bench.settle()
        bench.assert_idle()
    return [placements(ending.trace) for ending in endings]


def simulated(routing: str) -> tuple[Sim, dict[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    sim = Sim(
        Profile("two", {"llm": PROFILE}),
        instances={"llm": 2},
        routing=routing,
        batching="topology",
        explains=True,
        on_finish=lambda query, result: found.update({query.id: placements(query.trace)}),
    )
    return sim, found


async def _one_by_one(bench: Bench) -> list[Any]:
    queue, tasks = bench.core.queues["llm"], list[Any]()
    for k in range(len(OWN)):
        tasks.append(bench.start(ONE, {"question": question(k)}))
        while sum(one.entries for one in queue.instances) < len(tasks):
            await asyncio.sleep(0.001)
    return tasks


@catches(
    "unexplained-simulation",
    "a simulation that was asked to explain does not",
    edited(Sim._add_engine, "explains=self._explains", "explains=False"),
)
@pytest.mark.parametrize(
    ("routing", "because"),
    [
        ("marginal_cost", {Because.COST}),
        ("graph_aware", {Because.COST}),
        ("sglang", {Because.FOUND, Because.LOAD}),
        ("e2", {Because.COST, Because.KEPT}),
        ("prefix_affinity", {Because.LOAD}),
        ("lmetric", {Because.POLICY}),
        ("least_loaded", {Because.LOAD}),
        ("round_robin", {Because.TURN}),
    ],
)
async def test_live_and_simulated_calls_tell_the_same(routing: str, because: set[Because]) -> None:
    told = [(one.instance, one.why, one.reason) for (one,) in await live(routing, _one_by_one)]
    sim, found = simulated(routing)
    shared = Tokens(SHARED)
    for k, own in enumerate(OWN):
        beginning = shared if k % 4 else Tokens(SHARED)
        sim.submit(ONE, {"question": [beginning, Tokens(own)]}, at=k / 1000)
    sim.run()
    calls = [found[f"q{k}"] for k in range(len(OWN))]
    assert told == [(one.instance, one.why, one.reason) for (one,) in calls]
    assert {reason.because for _, _, reason in told} == because
    by_content = routing not in ("prefix_affinity", "least_loaded", "round_robin")
    assert any(reason.found == SHARED for _, _, reason in told) is by_content


async def _until_one_is_held(bench: Bench) -> list[Any]:
    task = bench.start(TWO, {"question": question(1)})
    while not bench.core.queues["llm"].line.held:
        await asyncio.sleep(0.001)
    return [task]


async def test_live_and_simulated_calls_are_held_for_the_same() -> None:
    (told,) = await live("graph_aware", _until_one_is_held)
    sim, found = simulated("graph_aware")
    sim.submit(TWO, {"question": [Tokens(SHARED), Tokens(OWN[1])]})
    sim.run()

    def plain(calls: list[Any]) -> list[Any]:
        holds = [[hold.because for hold in one.reason.holds] for one in calls]
        return [(x.primitive, x.reason.because, h) for x, h in zip(calls, holds, strict=True)]

    assert plain(told) == plain(found["q0"])
    assert sorted(h for _, _, h in plain(told)) == [[], [Because.SIBLINGS]]


def test_a_simulation_explains_nothing_unless_it_is_asked_to() -> None:
    sim, found = simulated("marginal_cost")
    sim._explains = False
    sim.submit(ONE, {"question": Tokens(10)})
    sim.run()
    assert found == {"q0": []}
