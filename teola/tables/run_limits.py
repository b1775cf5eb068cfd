"""What ends a query before its end: budgets, errors, a deadline, somebody's wish."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from teola.errors import InputError, UnknownName

ON_ERROR: Final = ("null", "fail")
ERROR_SHARE: Final = 0.01
LEAST_ERRORS: Final = 10
"""Errors that never end a query by default."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """on_error: what a row's error is: "null", or "fail": the end of the query. max_errors: rows
    with errors that a query may have: a number, or a share below 1 of the rows that are asked;
    None: 1 %, at least 10. retry_failed: ask rows again whose kept answer is an error. most_calls:
    prompts that are sent; most_tokens: of prompts and answers. most_cost: in the currency of
    `price`, which is that of 10^6 tokens of prompts, of cached ones, and of answers. deadline_s:
    from its start.
    """

    on_error: str = "null"
    max_errors: float | None = None
    retry_failed: bool = True
    most_calls: int | None = None
    most_tokens: int | None = None
    most_cost: float | None = None
    price: tuple[float, float, float] | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise UnknownName("on_error", str(self.on_error), ON_ERROR)
        for name in ("most_calls", "most_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputError(f"{name} must be a whole number, not {value!r}")
            if value is not None and value < 0:
                raise InputError(f"{name} must not be negative, and is {value}")
        for name in ("max_errors", "most_cost"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and value >= 0):
                raise InputError(f"{name} must be a number from 0, not {value!r}")
        if self.deadline_s is not None and not (_number(self.deadline_s) and self.deadline_s > 0):
            raise InputError(f"the deadline must be seconds above 0, not {self.deadline_s!r}")
        if self.price is not None and not (
            len(self.price) == 3 and all(_number(one) and one >= 0 for one in self.price)
        ):
            raise InputError(
                "price must be three numbers: of 10^6 prompt, cached and answer tokens"
            )
        if self.most_cost is not None and self.price is None:
            raise InputError(
                "most_cost needs a price: --price IN,CACHED,OUT, what 10^6 tokens cost"
            )

    def errors_allowed(self, rows: int) -> int:
        """How many of `rows` rows may be errors."""
        if self.max_errors is None:
            return max(LEAST_ERRORS, math.floor(ERROR_SHARE * rows))
        return math.floor(self.max_errors * rows if self.max_errors < 1 else self.max_errors)

    def cost(self, prompt: int, cached: int, completion: int) -> float | None:
        """What tokens cost; None without a price."""
        if self.price is None:
            return None
        fresh, kept, out = self.price
        return ((prompt - cached) * fresh + cached * kept + completion * out) / 1e6


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class Stopped(Exception):
    """A query ends here. state: partial, failed, cancelled or deadline."""

    def __init__(self, state: str, reason: str, cause: Exception | None = None) -> None:
        super().__init__(reason)
        self.state, self.reason, self.cause = state, reason, cause


class Spent:
    """What a query has used of its limits. Rows are admitted in one thread and end in another."""

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.cancelled = threading.Event()
        self.began = time.monotonic()
        self.calls = self.failed = self.prompt = self.cached = self.completion = 0
        self._lock = threading.Lock()
        self._reserved: dict[int, tuple[int, int]] = {}
        self.exceeded: str | None = None
        """The budget that ended the query."""

    def left_s(self) -> float | None:
        """Until the deadline; None without one."""
        if self.limits.deadline_s is None:
            return None
        return max(0.0, self.began + self.limits.deadline_s - time.monotonic())

    def check(self) -> None:
        """Raises Stopped if the query is cancelled or its time is up."""
        if self.cancelled.is_set():
            raise Stopped("cancelled", "the query was cancelled")
        if self.left_s() == 0.0:
            raise Stopped("deadline", f"the deadline of {self.limits.deadline_s:g} s has passed")

    def admit(self, row: int, prompt: int, completion: int) -> bool:
        """Whether a row may be asked whose prompt and answer have at most so many tokens."""
        limits = self.limits
        with self._lock:
            if limits.most_calls is not None and self.calls >= limits.most_calls:
                self.exceeded = f"most_calls of {limits.most_calls:,}"
            elif limits.most_tokens is not None or limits.most_cost is not None:
                held_in = sum(one for one, _ in self._reserved.values()) + prompt
                held_out = sum(one for _, one in self._reserved.values()) + completion
                tokens = self.prompt + self.completion + held_in + held_out
                if limits.most_tokens is not None and tokens > limits.most_tokens:
                    self.exceeded = f"most_tokens of {limits.most_tokens:,}"
                cost = limits.cost(self.prompt + held_in, self.cached, self.completion + held_out)
                if limits.most_cost is not None and cost is not None and cost > limits.most_cost:
                    self.exceeded = f"most_cost of {limits.most_cost:g}"
                self._reserved[row] = (prompt, completion)
            if self.exceeded is not None:
                return False
            self.calls += 1
            return True

    def ended(self, row: int, failed: bool, prompt: int, cached: int, completion: int) -> None:
        """A row that was admitted came back."""
        with self._lock:
            self._reserved.pop(row, None)
            self.failed += failed
            self.prompt += prompt
            self.cached += cached
            self.completion += completion
