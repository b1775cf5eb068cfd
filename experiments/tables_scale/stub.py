"""A language model in the process: it answers at once, or each call by itself after a while."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final

from teola.engine import Call, Delta, EngineKind, EngineSpec, SequenceHandle, Usage
from teola.errors import EngineError
from teola.graph.ops import DECODES, PREFILLS


def answer_to(prompt: str) -> str:
    """What it answers: a function of the prompt alone."""
    return "Yes" if hashlib.sha256(prompt.encode()).digest()[0] % 2 else "No"


BLOCK: Final = 16
"""Characters of a block of a prompt's beginning that is kept."""


class Stub:
    """spread: calls end after 10 to 100 ms, in any order, and one in 100 fails once. told: a file
    that gets a line for each prompt that was answered. kept: blocks of prompts' beginnings that it
    keeps, the last used ones; 0: it does not tell what it had kept."""

    def __init__(
        self,
        name: str = "llm",
        *,
        spread: bool = False,
        told: str | None = None,
        kept: int = 0,
    ) -> None:
        self.spec = EngineSpec(
            name, EngineKind.LLM, DECODES | PREFILLS, max_batch=2**20, max_sequences=1024
        )
        self.spread = spread
        self._failed: set[bytes] = set()
        self._kept, self._blocks = kept, OrderedDict[int, None]()
        self._told = open(told, "a", buffering=1) if told else None  # noqa: SIM115

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Close the file."""
        if self._told is not None:
            self._told.close()

    def count_tokens(self, text: str) -> int:
        """Characters over four."""
        return len(text) // 4 or 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """Only remembers the parts."""
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """One piece: the answer."""
        prompt = "".join(part.text for part in call.all_parts)
        if self.spread:
            digest = hashlib.sha256(prompt.encode()).digest()
            await asyncio.sleep(0.01 + 0.09 * digest[1] / 255)
            if digest[2] % 100 == 0 and digest not in self._failed:
                self._failed.add(digest)
                raise EngineError("this one fails once", retryable=True)
        if self._told is not None:
            self._told.write(f"{hashlib.sha256(prompt.encode()).hexdigest()}\n")
        usage = Usage(len(prompt) // 4, 1, self._hits(prompt) // 4 if self._kept else 0)
        yield Delta(answer_to(prompt), "stop", usage)

    def _hits(self, prompt: str) -> int:
        """Characters of a prompt that begin one that is kept; keep it."""
        blocks = [hash(prompt[: end + BLOCK]) for end in range(0, len(prompt) - BLOCK + 1, BLOCK)]
        hits = next((n for n, one in enumerate(blocks) if one not in self._blocks), len(blocks))
        for block in reversed(blocks):  # without the first one the others are of no use
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._kept:
            self._blocks.popitem(last=False)
        return hits * BLOCK
