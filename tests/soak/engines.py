"""Language models for the soak, for whatever process they are to run in."""

from __future__ import annotations

import re
from typing import Any, Final

from experiments.faults.engines import Embeddings, Writer

PIECES: Final = 20_000
PIECE: Final = "flood " * 100
SECONDS: Final = re.compile(r"for ([0-9.]+) s")

__all__ = ["Embeddings", "Flood", "Slow", "Writer"]


class Flood(Writer):
    """Writes 12 MB, as fast as it can."""

    def __init__(self, name: str) -> None:
        super().__init__(name, pause_s=0.0)

    def pieces(self, prompt: str, decode: Any) -> list[str]:
        return [PIECE] * PIECES


class Slow(Writer):
    """Writes ten words a second for as long as its prompt says."""

    def __init__(self, name: str) -> None:
        super().__init__(name, pause_s=0.1)

    def pieces(self, prompt: str, decode: Any) -> list[str]:
        (seconds,) = SECONDS.findall(prompt)
        return [f"word{i} " for i in range(max(1, round(10 * float(seconds))))]
