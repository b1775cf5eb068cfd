"""What a query took of its engines, as its users are told it: tokens, calls, seconds, money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from teola.engine import Usage

DIGITS: Final = 10
"""Digits of money behind the point: a token of a cheap model costs 1e-8."""


@dataclass(frozen=True, slots=True)
class QueryUsage:
    """What a query took, with its parts and the queries inside it, and tries that failed.

    prompt_tokens: that its calls of LLMs read; cached_tokens: of those, what engines had in their
    caches. completion_tokens: that they wrote. calls: of LLMs. shared: calls that were not made,
    because an equal one was, whose usage is its own query's. seconds: engine -> seconds in which
    something of the query had a place there (a batch's are shared evenly among what is in it).
    cost: of the calls, in the currency of the prices; None where a model's price is not known.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    shared: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers."""
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        """The usage as JSON values."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "calls": self.calls,
            "shared": self.shared,
            "seconds": {engine: round(s, 6) for engine, s in self.seconds.items()},
            "cost": None if self.cost is None else round(self.cost, DIGITS),
        }


@dataclass(slots=True)
class CallCounts:
    """Sums over calls of LLMs. unpriced: those whose model's price is not known."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    calls: int = 0
    shared: int = 0
    unpriced: int = 0
    cost: float = 0.0

    def add(self, usage: Usage, cost: float | None) -> None:
        """One call more. cost: None where it is not known."""
        self.prompt += usage.prompt_tokens
        self.cached += usage.cached_tokens
        self.generated += usage.completion_tokens
        self.calls += 1
        if cost is None:
            self.unpriced += 1
        else:
            self.cost += cost

    def join(self, other: CallCounts) -> None:
        """Add the counts of another trace."""
        self.prompt += other.prompt
        self.cached += other.cached
        self.generated += other.generated
        self.calls += other.calls
        self.shared += other.shared
        self.unpriced += other.unpriced
        self.cost += other.cost
