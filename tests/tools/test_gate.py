"""No more calls run than may, from whatever loop; and what is kept on a loop ends with it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from teola.threads import Threads
from teola.tools import tool
from teola.tools.gate import Gate
from teola.tools.loop_life import LoopLife, close_here, here
from tests.planted import catches, edited


class Crowded:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside = self.most = self.all = 0
        self._lock = threading.Lock()

    def step(self, change: int) -> None:
        with self._lock:
            self.inside += change
            self.most = max(self.most, self.inside)
            self.all += change > 0

    def sync(self) -> None:
        """Is inside."""
        self.step(1)
        time.sleep(0.005)
        self.step(-1)

    async def soft(self) -> None:
        """Is inside."""
        self.step(1)
        await asyncio.sleep(0.005)
        self.step(-1)


@pytest.mark.parametrize("kind", ["sync", "soft"])
async def test_no_more_run_than_may_even_from_several_loops(kind: str) -> None:
    crowd = Crowded()
    made = tool(getattr(crowd, kind), name="crowd", at_once=3)

    async def many() -> None:
        await asyncio.gather(*(made.call({}) for _ in range(15)))

    await asyncio.gather(many(), *(asyncio.to_thread(asyncio.run, many()) for _ in range(2)))
    assert (crowd.most, crowd.all, crowd.inside) == (3, 45, 0)


async def test_places_go_to_who_came_first() -> None:
    gate, order = Gate(1), []

    async def enter(name: int) -> None:
        async with gate:
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*map(enter, range(6)))
    assert order == list(range(6))


@catches(
    "place-lost",
    "who is cancelled when its turn has come keeps its place",
    edited(Gate.__aenter__, "if not turn.cancel():", "if False:"),
)
async def test_who_gives_up_leaves_its_place() -> None:
    gate = Gate(1)

    async def enter() -> None:
        async with gate:
            await asyncio.sleep(0)

    async def wait_and_leave(turns: int) -> None:
        """Cancel the one in the middle, `turns` turns of the loop after it began to wait."""
        async with gate:
            tasks = [asyncio.create_task(enter()) for _ in range(3)]
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 2)

    for turns in range(8):
        await wait_and_leave(turns)
        async with asyncio.timeout(5), gate:
            pass


async def test_waiting_for_a_place_is_not_the_tools_time() -> None:
    @tool(at_once=1, timeout_s=0.2)
    async def act() -> None:
        """Acts."""
        await asyncio.sleep(0.1)

    results = await asyncio.gather(*(act.call({}) for _ in range(4)))
    assert not any(one.failed for one in results)
    assert max(one.seconds for one in results) >= 0.35


# --- what is kept on a loop -------------------------------------------------------------------


class Kept:
    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


async def test_what_is_kept_ends_with_the_loop() -> None:
    life = here()
    assert here() is life
    one = life.keep("a", Kept)
    assert life.keep("a", Kept) is one
    other = life.keep("b", Kept)
    await life.end("b")
    assert (one.closed, other.closed) == (False, True)
    await close_here()
    assert one.closed
    assert here() is not life
    await close_here()
    await close_here()


async def test_threads_end_with_the_loop() -> None:
    @tool
    def act() -> str:
        """Acts."""
        return threading.current_thread().name

    await asyncio.gather(*(act.call({}) for _ in range(5)))
    threads = here().threads
    assert isinstance(threads, Threads)
    await close_here()
    async with asyncio.timeout(5):
        while threads.count:
            await asyncio.sleep(0.01)


def test_loops_that_have_ended_leave_nothing() -> None:
    @tool
    def act() -> int:
        """Acts."""
        return threading.get_ident()

    before = set(threading.enumerate())  # what earlier tests have given up on may still sleep
    for _ in range(5):
        assert not asyncio.run(act.call({})).failed
    until = time.monotonic() + 20
    while (
        len(left := {one for one in threading.enumerate() if one.name == "teola-tool"} - before) > 1
    ):
        assert time.monotonic() < until, left
        time.sleep(0.01)


async def test_each_loop_has_its_own() -> None:
    async def elsewhere() -> LoopLife:
        return here()

    assert await asyncio.to_thread(asyncio.run, elsewhere()) is not here()
