"""Price: what tokens of a model cost. None is shipped: prices change, and differ by contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, log10
from typing import Final, Self

from teola.errors import InputError
from teola.plain_number import is_number

MILLION: Final = 1_000_000
FORM: Final = "IN,CACHED,OUT"
"""How a price is written down: of prompts, of cached ones, of answers; or IN,OUT."""


@dataclass(frozen=True, slots=True)
class Price:
    """Money for a million tokens, in any currency, as long as it is the same everywhere.

    prompt: of prompts. cached: of those tokens of prompts that the model's server had in its cache
    (None: as `prompt`). answer: that are generated. Raises InputError.
    """

    prompt: float = 0.0
    answer: float = 0.0
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "answer", "cached"):
            value = getattr(self, name)
            if value is None and name == "cached":
                continue
            if not is_number(value) or not 0 <= value < inf:
                raise InputError(f"a price is a number from 0 on, not {name}={value!r}")

    @classmethod
    def parse(cls, written: str | Sequence[float]) -> Self:
        """The price that is written as `IN,CACHED,OUT`, or as `IN,OUT`, where cached tokens cost
        what others do. Raises InputError."""
        parts = written.split(",") if isinstance(written, str) else written
        try:
            numbers = [float(part) for part in parts]
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) not in (2, 3):
            raise InputError(
                f"price {written!r} must be {FORM}: what 10^6 tokens of prompts, cached ones and "
                "answers cost, such as 2.5,0.25,10, or IN,OUT"
            )
        prompt, *cached, answer = numbers
        return cls(prompt, answer, *cached)

    def cost(
        self, prompt_tokens: float, generated_tokens: float, cached_tokens: float = 0
    ) -> float:
        """Of one call. cached_tokens: of the prompt's."""
        cached = self.prompt if self.cached is None else self.cached
        whole = (prompt_tokens - cached_tokens) * self.prompt + generated_tokens * self.answer
        return (whole + cached_tokens * cached) / MILLION


def shown_cost(cost: float) -> str:
    """A sum for people: with two digits behind the point, and three that say something."""
    if cost <= 0:
        return "0"
    return f"{cost:,.{max(2, 2 - floor(log10(cost)))}f}"


FREE: Final = Price()
"""Of a model whose price is not known: only tokens are counted."""
