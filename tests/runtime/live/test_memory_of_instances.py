"""How often a busy LLM instance is asked for its free KV memory."""

from __future__ import annotations

import asyncio

import pytest

from teola import Generate
from teola.runtime.live import memory as live_memory
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
