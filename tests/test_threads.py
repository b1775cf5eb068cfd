"""Threads for functions that block: used again, no more than may be, and let go."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from teola import threads as module
from teola.errors import EngineError
from teola.threads import Threads


async def ended(threads: Threads) -> None:
    """Wait until no thread is left."""
    async with asyncio.timeout(10):
        while threads.count:
            await asyncio.sleep(0.001)


async def test_an_idle_thread_is_used_again() -> None:
    threads = Threads("t", most=1)
    for _ in range(3):
        assert await threads.run(lambda: threading.current_thread().name) == "t"
        while not threads._idle:  # it tells what it made before it waits for more
            await asyncio.sleep(0)
    assert threads.count == 1
    threads.close()
    await ended(threads)


async def test_no_more_run_than_may_until_one_has_ended() -> None:
    threads, let = Threads("t", most=2), threading.Event()
    waiting = [asyncio.ensure_future(threads.run(let.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="2 threads are busy with functions"):
        await threads.run(lambda: None)
    assert threads.count == 2
    waiting[0].cancel()
    with suppress(asyncio.CancelledError):
        await waiting[0]
    with pytest.raises(EngineError, match="2 threads are busy"):  # the function goes on
        await threads.run(lambda: None)
    let.set()
    assert await waiting[1] is True
    while len(threads._idle) < 2:
        await asyncio.sleep(0)
    assert await threads.run(lambda: "again") == "again"
    threads.close()
    await ended(threads)


async def test_of_those_that_are_idle_only_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 2)
    threads, let = Threads("t"), threading.Event()
    work = [asyncio.ensure_future(threads.run(let.wait)) for _ in range(4)]
    await asyncio.sleep(0)
    assert threads.count == 4
    let.set()
    await asyncio.gather(*work)
    async with asyncio.timeout(10):
        while threads.count > 2 or len(threads._idle) < 2:
            await asyncio.sleep(0)
    assert (threads.count, len(threads._idle)) == (2, 2)
    threads.close()
    await ended(threads)


async def test_what_runs_when_they_are_closed_ends_with_its_result() -> None:
    threads, let = Threads("t"), threading.Event()
    work = asyncio.ensure_future(threads.run(let.wait))
    await asyncio.sleep(0)
    threads.close()
    let.set()
    assert await work is True
    await ended(threads)
    assert await threads.run(lambda: "later") == "later"
    await ended(threads)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), StopAsyncIteration()])
async def test_what_a_function_raises_is_told(error: BaseException) -> None:
    threads = Threads("t")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await threads.run(fail)
    threads.close()
    await ended(threads)
