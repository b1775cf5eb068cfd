"""What is recorded: the same of every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recording:
    """What a recorder does. engine_kwargs: as vLLM calls them. rate: requests a second. prompt,
    output: fewest and most tokens."""

    folder: str
    engine_kwargs: dict[str, Any]
    requests: int = 100
    rate: float = 3.0
    prompt: tuple[int, int] = (64, 512)
    output: tuple[int, int] = (16, 256)
    seed: int = 0
