"""What instances tell of their prefix caches, and that they are asked again when they come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from teola.engine import PrefixChange
from teola.errors import EngineUnavailable
from teola.policies.routing import make
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.prefixes import PrefixWatch
from teola.schedule.events import PrefixChanged, QueueEvent
from teola.testing.hash_engines import HashModel
from tests.policies.routed import router


class Telling(HashModel):
    """Tells how often it was asked, and then what is `told`, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.told = 0, asyncio.Queue[PrefixChange | Exception | None]()

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        self.asked += 1
        yield PrefixChange((self.asked,))
        while (change := await self.told.get()) is not None:
            if isinstance(change, Exception):
                raise change
            yield change


async def settled() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", [None, EngineUnavailable("it died")])
async def test_one_that_ended_is_asked_again_and_again_and_one_that_tells_is_not(
    end: Exception | None,
) -> None:
    engines = [Telling(), Telling()]
    heard: list[QueueEvent] = []
    watch = PrefixWatch(asyncio.get_running_loop(), heard.append)
    queue = router(make("prefix_affinity"))
    for life in (1, 2, 3):
        for _ in range(3):  # with each dispatch
            for i, engine in enumerate(engines):
                watch.watch(queue, i, LocalHost(engine, i))
            await settled()
        assert [engine.asked for engine in engines] == [life, 1]
        assert heard[-1] == PrefixChanged("e", int(life == 1), (1 if life == 1 else life,))
        engines[0].told.put_nowait(PrefixChange(("more",), ("less",)))
        engines[0].told.put_nowait(end)
        await settled()
        assert heard[-1] == PrefixChanged("e", 0, ("more",), ("less",))
    engines[1].told.put_nowait(None)
    await asyncio.gather(*watch.tasks())
    assert len(heard) == 7


async def test_nobody_is_asked_who_does_not_tell_or_for_a_policy_that_does_not_want_to_know() -> (
    None
):
    engine, plain = Telling(), HashModel()
    watch = PrefixWatch(asyncio.get_running_loop(), lambda event: None)
    by_text: Any = LocalHost(engine, 0, by_text=True)
    watch.watch(router(make("round_robin")), 0, LocalHost(engine, 0))
    watch.watch(router(make("prefix_affinity")), 0, LocalHost(plain, 0))
    watch.watch(router(make("prefix_affinity")), 0, by_text)
    await settled()
    assert (engine.asked, list(watch.tasks())) == (0, [])
