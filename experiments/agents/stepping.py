"""The fake server's model: a StepServer on a clock, one step in so many milliseconds.

Every sequence that decodes is given a token a step, whatever else runs, and prompts are computed up
to a budget of tokens beside them; blocks of prompts that are still known are not computed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from teola.instance import StepServer, TokenSequence
from teola.kv import BlockCache
from teola.kv.policies import make_policy

TOKEN: Final = 4
"""Characters of a prompt's token."""
BLOCK: Final = 16
BUDGET: Final = 8192
"""Tokens of prompts that a step computes."""
SEQUENCES: Final = 256
BLOCKS: Final = 1 << 17


@dataclass(slots=True, eq=False)
class Running:
    """A sequence and who waits for its tokens. cached: of its prompt."""

    sequence: TokenSequence
    tokens: asyncio.Queue[int] = field(default_factory=asyncio.Queue)


class Stepping:
    """See the module. step_s: seconds of one step. steps, busy_s: how many there were, and how long
    they took in all."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.steps, self.busy_s = 0, 0.0
        self._server = StepServer(BUDGET, SEQUENCES, BlockCache(BLOCKS, BLOCK, make_policy("lru")))
        self._running: dict[Hashable, Running] = {}
        self._ids = count()
        self._arrived = asyncio.Event()

    async def generate(self, prompt: str, output: int) -> AsyncIterator[int]:
        """The tokens' numbers, from 0 on, each when it is there; -1 - cached first. Closing it
        aborts the sequence."""
        id = next(self._ids)
        length = len(prompt) // TOKEN + 1
        sequence = TokenSequence(id, length, output, keys=keys(prompt))
        running = self._running[id] = Running(sequence)
        self._server.add(sequence)
        self._arrived.set()
        try:
            for number in range(output):
                await running.tokens.get()
                if number == 0:
                    yield -1 - sequence.cached
                yield number
        finally:
            if self._running.pop(id, None) is not None:
                self._server.abort(id)

    async def run(self) -> None:
        """Take steps, for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            step = self._server.plan(loop.time())
            if step is None:
                self._arrived.clear()
                await self._arrived.wait()
                due = loop.time()
                continue
            began = loop.time()
            due = max(due, began - self.step_s) + self.step_s  # a late timer is made up for
            decoding = [*self._server.decoding]
            await asyncio.sleep(due - began)
            ended = self._server.finish(step, loop.time())
            self.steps, self.busy_s = self.steps + 1, self.busy_s + loop.time() - began
            firsts = [event.id for event in ended if event.kind == "first"]
            for id in (*decoding, *firsts):
                if (running := self._running.get(id)) is not None:
                    running.tokens.put_nowait(0)


def keys(prompt: str) -> tuple[int, ...]:
    """Of the prompt's full blocks, each by all that stands before its end."""
    size, found, before = BLOCK * TOKEN, list[int](), 0
    for at in range(0, len(prompt) - size + 1, size):
        before = hash((before, prompt[at : at + size]))
        found.append(before)
    return tuple(found)
