"""A language model in the process that answers at once, or each call after a time of its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from teola.engine import Call, Delta, EngineKind, EngineSpec, SequenceHandle, Usage
from teola.errors import EngineError
from teola.graph.ops import DECODES, PREFILLS

TICK_S: Final = 0.001
"""Calls that end in the same millisecond share a timer, as answers of a server share a packet."""


class StubModel:
    """least_s, most_s: what a call takes (0: it is answered at once). at_once: calls that it runs.
    fails: one prompt in so many fails when it is asked first (0: none). What it answers depends on
    the prompt's last part alone.

    asked: calls that were begun, by application.
    """

    def __init__(
        self,
        least_s: float = 0.0,
        most_s: float = 0.0,
        at_once: int = 256,
        fails: int = 0,
        name: str = "llm",
    ) -> None:
        self.spec = EngineSpec(
            name,
            EngineKind.LLM,
            frozenset(PREFILLS | DECODES),
            max_batch=1 << 20,
            max_sequences=at_once,
        )
        self.asked: Counter[str] = Counter()
        self._between, self._fails = (least_s, most_s), fails
        self._draw = random.Random(0)
        self._failed: set[str] = set()
        self._due: dict[int, list[asyncio.Future[None]]] = {}

    def start(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""

    def count_tokens(self, text: str) -> int:
        """About four characters each."""
        return len(text) // 4 + 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """See LanguageModel."""
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """See LanguageModel."""
        self.asked[call.category[0]] += 1
        text = call.all_parts[-1].text
        if self._between[1]:
            await self._later(self._draw.uniform(*self._between))
        if self._fails and hash(text) % self._fails == 0 and text not in self._failed:
            self._failed.add(text)
            raise EngineError("this prompt fails once", retryable=True)
        tokens = len(text) // 4 + 1
        yield Delta(answer(text), "stop", Usage(tokens, 1, tokens // 2))

    def _later(self, seconds: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        tick = int((loop.time() + seconds) / TICK_S) + 1
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = []
            loop.call_at(tick * TICK_S, self._end, tick)
        done = loop.create_future()
        due.append(done)
        return done

    def _end(self, tick: int) -> None:
        for done in self._due.pop(tick):
            if not done.done():
                done.set_result(None)


def answer(text: str) -> str:
    """What the model says to a prompt that ends with this."""
    return "Yes" if len(text) % 2 else "No"
