"""How often a busy LLM instance is asked for its free KV memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from teola import Generate
from teola.errors import EngineError, EngineUnavailable
from teola.policies import batching, routing
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live import memory as live_memory
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceChanged, QueueEvent
from teola.schedule.instances import Limits
from teola.testing.hash_engines import HashModel
from tests.recording import Bench
from tests.runtime.faults import Scripted
from tests.runtime.live.test_live import inputs, plan

WAIT_S = 0.4
OFTEN = 10


class Telling(Scripted):
    """Tells how much is free. asked: how often so far; often: set when that is `OFTEN`."""

    def __init__(self, free: int, often: asyncio.Event) -> None:
        super().__init__(["one ", often, "two"])
        self.free, self.asked, self.often = free, 0, often

    async def capacity(self) -> int:
        self.asked += 1
        if self.asked == OFTEN:
            self.often.set()
        return self.free


async def asked(free: int, within_s: float = WAIT_S) -> int:
    """How often an instance with so much free is asked while it answers: until it was asked
    `OFTEN`, or for so long."""
    often = asyncio.Event()
    model = Telling(free, often)
    asyncio.get_running_loop().call_later(within_s, often.set)
    async with Bench({"llm": model}) as bench:
        template = Generate(context_required=False)
        ending = await bench.run(plan(template, "answer"), inputs(), deadline_s=30)
        assert ending.outputs["answer"] == "one two"
    return model.asked


async def test_one_with_much_room_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_memory, "INTERVAL_S", 0.01)
    assert await asked(0, within_s=20) >= OFTEN
    assert 2 <= await asked(100_000) <= 6  # after 10, 30, 70, 150, 310 ms


async def test_one_that_is_filled_up_is_asked_often_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_memory, "INTERVAL_S", 0.01)
    assert await asked(live_memory.AMPLE * 256) <= 6
    assert await asked(live_memory.AMPLE * 256 - 1, within_s=20) >= OFTEN


# --- by itself, in a time that goes on when a test says so --------------------------------------


class Free(HashModel):
    """Says what is next in `says`; None: it does not know."""

    def __init__(self, *says: Any) -> None:
        super().__init__()
        self.says, self.asked = [*says], 0

    async def capacity(self) -> int | None:
        self.asked += 1
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


ROOM = 100
"""Tokens that an instance takes."""
MUCH = live_memory.AMPLE * ROOM


async def watched(
    engine: Any, *ends: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], list[Any]]:
    """The pauses before each question, and what is told. ends: the questions before which the
    instance has become idle."""
    queue = EngineQueue(
        "llm",
        [Limits(ROOM, 8, 1, True)] * 2,
        batching.make("fifo"),
        routing.make("round_robin"),
    )
    queue.instances.send(1, 0, 10, 1)
    pauses, told = list[float](), list[QueueEvent]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) in ends and queue.instances[1].entries:
            queue.instances.land(1, 0, 10, 10)

    monkeypatch.setattr(live_memory.asyncio, "sleep", sleep)
    watch = live_memory.MemoryWatch(asyncio.get_running_loop(), told.append)
    host = LocalHost(engine, 1)
    for _ in range(2):
        watch.watch(queue, 1, host)
    tasks = [*watch.tasks()]
    assert len(tasks) == isinstance(engine, Free)
    await asyncio.gather(*tasks)
    monkeypatch.undo()
    return pauses, told


def told(*free: int) -> list[InstanceChanged]:
    return [InstanceChanged("llm", 1, tokens) for tokens in free]


async def test_with_ample_room_each_pause_is_twice_as_long_up_to_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With less, or where it does not know, one asks as often as at first."""
    says = [MUCH, MUCH, MUCH, MUCH, MUCH - 1, MUCH, None, MUCH + 1, 0, 0, 7]
    pauses, heard = await watched(Free(*says), 11, monkeypatch=monkeypatch)
    assert pauses == [0.25, 0.5, 1.0, 1.0, 1.0, 0.25, 0.5, 0.25, 0.5, 0.25, 0.25]
    assert heard == told(*(free for free in says[:-1] if free is not None)), "it was idle then"


@pytest.mark.parametrize("error", [EngineUnavailable("it died"), EngineError("no page")])
async def test_one_that_cannot_tell_is_asked_no_more_until_it_is_sent_something(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Free(5, error, 6, 7)
    assert await watched(engine, 9, monkeypatch=monkeypatch) == ([0.25, 0.25], told(5))
    assert await watched(engine, 2, monkeypatch=monkeypatch) == ([0.25, 0.25], told(6))
    assert engine.asked == 4


async def test_nobody_is_asked_who_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await watched(HashModel(), monkeypatch=monkeypatch) == ([], [])


async def test_a_bug_of_an_engine_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        await watched(Free(ZeroDivisionError()), 9, monkeypatch=monkeypatch)
