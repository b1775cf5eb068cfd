"""Habits: what the calls of a component turned out to be, against what was planned for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Habit:
    """Of one component of one application. Factors are means over calls.

    calls: how many of them were seen (of a Condition: how often it decided).
    prompt: tokens of a prompt for each one that was planned.
    cached: tokens of a prompt, from its beginning, that instances found in their caches.
    output: generated tokens for each one that was planned; output_p90: in the longest tenth.
    seconds: what a function of its own takes (None: it is no function).
    branches: how often a Condition took each branch.
    """

    calls: int = 0
    prompt: float = 1.0
    cached: float = 0.0
    output: float = 1.0
    output_p90: float = 1.0
    seconds: float | None = None
    branches: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `Habit(**values)` reads it back."""
        return asdict(self)


UNSEEN: Final = Habit()
"""Of what has not run yet: all is as planned."""
