"""How often a busy LLM instance is asked for its free KV memory."""

from __future__ import annotations

import asyncio

import pytest

from teola import Generate
from teola.runtime import live_memory
from tests.recording import Bench
from tests.runtime.faults import Scripted
from tests.runtime.test_live import inputs, plan

WAIT_S = 0.4


class Telling(Scripted):
    """Tells how much is free; `asked` counts the questions."""

    def __init__(self, free: int, *script: str | asyncio.Event) -> None:
        super().__init__(script)
        self.free, self.asked = free, 0

    async def capacity(self) -> int:
        self.asked += 1
        return self.free


async def asked(free: int) -> int:
    """How often an instance with so much free is asked while it answers for `WAIT_S`."""
    gate = asyncio.Event()
    model = Telling(free, "one ", gate, "two")
    asyncio.get_running_loop().call_later(WAIT_S, gate.set)
    async with Bench({"llm": model}) as bench:
        template = Generate(context_required=False)
        ending = await bench.run(plan(template, "answer"), inputs(), deadline_s=30)
        assert ending.outputs["answer"] == "one two"
    return model.asked


async def test_one_with_much_room_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_memory, "INTERVAL_S", 0.01)
    scarce, ample = await asked(0), await asked(100_000)
    assert scarce >= 10
    assert 2 <= ample <= 6  # after 10, 30, 70, 150, 310 ms


async def test_one_that_is_filled_up_is_asked_often_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_memory, "INTERVAL_S", 0.01)
    assert await asked(live_memory.AMPLE * 256) <= 6
    assert await asked(live_memory.AMPLE * 256 - 1) >= 10
