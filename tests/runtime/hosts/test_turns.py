"""Whose turn it is: never more at once than there are places, and none of them is one tenant's."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from teola.runtime.hosts.turns import Turns


class Works:
    """Pieces of work that run until they are let go. most: that ran at once, of each tenant."""

    def __init__(self, places: int) -> None:
        self.turns = Turns(places)
        self.running: list[str] = []
        self.most: Counter[str] = Counter()
        self.together = 0
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    def add(self, name: str) -> asyncio.Task[None]:
        """name: its tenant's first."""
        self._ends[name] = asyncio.Event()
        return asyncio.create_task(self._work(name))

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _work(self, name: str) -> None:
        async with self.turns.turn(name[0]):
            self.begun.append(name)
            self.running.append(name)
            self.together = max(self.together, len(self.running))
            mine = sum(one[0] == name[0] for one in self.running)
            self.most[name[0]] = max(self.most[name[0]], mine)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)


async def test_one_tenant_never_has_all_places() -> None:
    works = Works(3)
    tasks = [works.add(f"a{i}") for i in range(14)]
    await works.settle()
    assert works.running == ["a0", "a1"]
    tasks.append(works.add("b0"))
    await works.settle()
    assert works.running == ["a0", "a1", "b0"]
    await works.end(*(f"a{i}" for i in range(14)), "b0")
    await asyncio.gather(*tasks)
    assert works.together == 3
    assert works.most == {"a": 2, "b": 1}


async def test_a_free_place_goes_to_who_runs_least() -> None:
    works = Works(3)
    tasks = [works.add(name) for name in ("a0", "a1", "b0", "a2", "b1", "c0", "c1")]
    await works.settle()
    await works.end("a0")  # c runs none, and came last
    assert works.begun[3:] == ["c0"]
    await works.end("a1", "b0")
    assert works.begun[4:] == ["a2", "b1"]
    await works.end("a2", "b1", "c0", "c1")
    await asyncio.gather(*tasks)


async def test_who_goes_before_its_turn_leaves_no_place_taken() -> None:
    works = Works(2)
    tasks = [works.add(name) for name in ("a0", "a1", "a2", "b0", "b1")]
    await works.settle()
    tasks[1].cancel()  # waits
    tasks[3].cancel()  # runs
    await works.settle()
    assert works.running == ["a0", "b1"]
    await works.end("a0")
    tasks[2].cancel()  # was just called
    await works.end("b1")
    again = [works.add(name) for name in ("a3", "b2")]
    await works.settle()
    assert works.running == ["a3", "b2"]
    await works.end("a3", "b2")
    await asyncio.gather(*tasks, *again, return_exceptions=True)


async def test_one_place_is_everybody_s() -> None:
    works = Works(1)
    tasks = [works.add("a0"), works.add("a1")]
    await works.settle()
    assert works.running == ["a0"]
    await works.end("a0", "a1")
    await asyncio.gather(*tasks)
    assert works.begun == ["a0", "a1"]


@pytest.mark.parametrize("seed", range(12))
async def test_a_free_place_is_for_who_runs_least_and_came_first(seed: int) -> None:
    """Against a list of those that wait, also where some are given up, waiting or running."""
    chance = Random(seed)
    places = chance.choice([1, 2, 3, 4])
    works, tasks = Works(places), dict[str, asyncio.Task[None]]()
    waiting, running = list[str](), list[str]()

    def settle() -> None:
        while len(running) < places:
            most = max(1, places - 1)
            counts = Counter(name[0] for name in running)
            able = [name for name in waiting if counts[name[0]] < most]
            if not able:
                return
            first = min(able, key=lambda name: (counts[name[0]], waiting.index(name)))
            waiting.remove(first)
            running.append(first)

    for n in range(60):
        if chance.random() < 0.5:
            name = f"{chance.choice('abc')}{n}"
            tasks[name] = works.add(name)
            waiting.append(name)
        elif running and chance.random() < 0.6:
            await works.end(gone := chance.choice(running))
            running.remove(gone)
        elif running or waiting:
            tasks[gone := chance.choice(running + waiting)].cancel()
            (running if gone in running else waiting).remove(gone)
        await works.settle()
        settle()
        assert sorted(works.running) == sorted(running)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert (works.turns._free, works.turns._running, works.turns._waiting) == (
        places,
        Counter(),
        [],
    )
