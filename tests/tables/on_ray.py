"""A language model for workers elsewhere, which tells what it was asked and can die once."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from teola.engine import Call, Delta, EngineKind, EngineSpec, SequenceHandle, Usage
from teola.graph.ops import DECODES, PREFILLS


class Telling:
    """told: a file that gets a line with its process for each prompt that it has answered. dies: a
    file; the process that has answered 40 prompts and finds it missing makes it and, two seconds
    later, kills itself."""

    def __init__(self, name: str = "llm", *, told: str, dies: str = "") -> None:
        self.spec = EngineSpec(
            name, EngineKind.LLM, DECODES | PREFILLS, max_batch=64, max_sequences=8
        )
        self.told, self.dies, self.answered = told, dies, 0

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    def count_tokens(self, text: str) -> int:
        """Characters over four."""
        return len(text) // 4 or 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """Only remembers the parts."""
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """One piece, which is a function of the prompt."""
        prompt = "".join(part.text for part in call.all_parts)
        self.answered += 1
        if self.dies and self.answered > 40 and not Path(self.dies).exists():
            Path(self.dies).touch()
            await asyncio.sleep(2)  # until the others are told
            os._exit(9)
        digest = hashlib.sha256(prompt.encode()).hexdigest()
        await asyncio.sleep(0.002)
        with open(self.told, "a", buffering=1) as file:
            file.write(f"{os.getpid()} {digest}\n")
        yield Delta(f"v{digest[:6]}", "stop", Usage(len(prompt) // 4, 1))
