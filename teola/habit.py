"""Habits: what the calls of a component turned out to be, against what was planned for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

MOST_TURNS: Final = 64
"""Turns that are told apart; those after them are counted together."""


@dataclass(frozen=True, slots=True)
class Habit:
    """Of one component of one application. Factors are means over calls.

    calls: how many of them were seen (of a Condition: how often it decided).
    prompt: tokens of a prompt for each one that was planned.
    cached: tokens of a prompt, from its beginning, that instances found in their caches.
    output: generated tokens for each one that was planned; output_p90: in the longest tenth.
    billed_calls: of its latest calls that were charged, those of longer ago counting less. planned,
    billed, billed_cached: of these together, tokens of prompts that were planned, that engines
    charged for, and that they charged as cached. All are 0 where no engine told.
    seconds: what a function of its own takes (None: it is no function).
    branches: how often a Condition took each branch.
    turns: of a component that grows: `turns[k]` is how often a run of it had at least k turns (an
        Each: items), for k from 0, which all runs had, to MOST_TURNS; the last entry behind that
        counts the turns after these, of all runs together. (): none has ended.
    """

    calls: int = 0
    prompt: float = 1.0
    cached: float = 0.0
    output: float = 1.0
    output_p90: float = 1.0
    seconds: float | None = None
    branches: Mapping[str, int] = field(default_factory=dict)
    turns: Sequence[int] = ()
    billed_calls: float = 0.0
    planned: float = 0.0
    billed: float = 0.0
    billed_cached: float = 0.0

    def turns_after(self, k: int) -> float | None:
        """How many turns are to be expected after turn `k` (0: in all), the mean of what followed
        in the runs that had `k`; None if there was none."""
        k = min(k, MOST_TURNS)
        if len(self.turns) <= k or not self.turns[k]:
            return None
        return sum(self.turns[k + 1 :]) / self.turns[k]

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `Habit(**values)` reads it back."""
        return asdict(self)


UNSEEN: Final = Habit()
"""Of what has not run yet: all is as planned."""
