"""What ends a query before its end: budgets, errors, a deadline, somebody's wish."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from teola.errors import BudgetSpent, InputError, UnknownName
from teola.plain_number import is_number
from teola.policies.ledger import BudgetAccount, Ledger
from teola.price import FORM, FREE, Price

ON_ERROR: Final = ("null", "fail")
ERROR_SHARE: Final = 0.01
LEAST_ERRORS: Final = 10
"""Errors that never end a query by default."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """on_error: what a row's error is: "null", or "fail": the end of the query. max_errors: rows
    with errors that a query may have: a number, or a share below 1 of the rows that are asked;
    None: 1 %, at least 10. retry_failed: ask rows again whose kept answer is an error. most_calls:
    rows that are sent, further tries apart; most_tokens: of prompts and answers. most_cost: in the
    currency of `price`, which is None where the runtime says what tokens cost. deadline_s: from its
    start. most_questions: of one call that a query may have to ask; more is refused before the
    first is sent. most_rows: of the result, likewise where that can be known before.
    """

    on_error: str = "null"
    max_errors: float | None = None
    retry_failed: bool = True
    most_calls: int | None = None
    most_tokens: int | None = None
    most_cost: float | None = None
    price: Price | None = None
    deadline_s: float | None = None
    most_questions: int | None = None
    most_rows: int | None = None

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
        if self.most_cost is not None and self.price is None:
            raise InputError(f"most_cost needs a price: --price {FORM}, what 10^6 tokens cost")

    def check_questions(self, count: int) -> None:
        """Raise InputError where one call would have to ask more than a query may."""
        if self.most_questions is not None and count > self.most_questions:
            raise InputError(
                f"a call of this query has {count:,} questions to ask, more than the "
                f"{self.most_questions:,} that are taken: add conditions or a LIMIT, ask for parts "
                "of the table one after another, or give most_calls to have a part asked"
            )

    def check_rows(self, count: int) -> None:
        """Raise InputError where a result would have more rows than it may."""
        if self.most_rows is not None and count > self.most_rows:
            raise InputError(
                f"the result has {count:,} rows, more than the {self.most_rows:,} that are given "
                "at once: add a LIMIT (and OFFSET), or group them; what was answered is kept, and "
                "not asked again"
            )

    def errors_allowed(self, rows: int) -> int:
        """How many of `rows` rows may be errors."""
        if self.max_errors is None:
            return max(LEAST_ERRORS, math.floor(ERROR_SHARE * rows))
        if self.max_errors >= 1:
            return math.floor(self.max_errors)
        return math.floor(self.max_errors * rows + 1e-9)  # 0.29 * 100 is a little less than 29

    def ledger(self) -> Ledger | None:
        """The ledger that a query's tokens and money are paid from; None: there is no limit."""
        accounts = []
        if self.most_tokens is not None:
            name = f"most_tokens of {self.most_tokens:,}"
            accounts.append(BudgetAccount(name, most_tokens=self.most_tokens))
        if self.most_cost is not None:
            name = f"most_cost of {self.most_cost:g}"
            accounts.append(BudgetAccount(name, most_cost=self.most_cost))
        return Ledger(others=accounts) if accounts else None

    def cost(self, prompt: int, cached: int, completion: int) -> float | None:
        """The cost of these tokens; None without a price."""
        return None if self.price is None else self.price.cost(prompt, completion, cached)


def _number(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


class Stopped(Exception):
    """A query ends here. state: partial, failed, cancelled or deadline."""

    def __init__(self, state: str, reason: str, cause: Exception | None = None) -> None:
        super().__init__(reason)
        self.state, self.reason, self.cause = state, reason, cause


class Spent:
    """What a query has used of its limits.

    ledger, price: of its tokens and money, as other queries have them: rows reserve before they are
    sent. calls: rows that were admitted, in the thread that reads them; at most one reads at a
    time. questions: distinct ones so far. failed: rows with errors so far, and the first error.

    paid: the ledger that pays for the query, in place of one of its own.
    """

    def __init__(self, limits: RunLimits, paid: Ledger | None = None) -> None:
        self.limits = limits
        self.cancelled = threading.Event()
        self.began = time.monotonic()
        self._paid = paid
        self.ledger, self.price = paid or limits.ledger(), limits.price
        self.calls = self.questions = self.failed = 0
        self.first_error: str | None = None
        self.exceeded: str | None = None
        """The bound on calls, once it has ended the query."""
        self._ids = count()

    def next_id(self) -> int:
        """The next number of a row."""
        return next(self._ids)

    def left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        if self.limits.deadline_s is None:
            return None
        return max(0.0, self.began + self.limits.deadline_s - time.monotonic())

    def check(self) -> None:
        """Raises Stopped if the query is cancelled or its time is up."""
        if self.cancelled.is_set():
            raise Stopped("cancelled", "the query was cancelled")
        if self.left_s() == 0.0:
            raise Stopped("deadline", f"the deadline of {self.limits.deadline_s:g} s has passed")

    def admit(self) -> bool:
        """Whether another row may be asked."""
        most = self.limits.most_calls
        if most is not None and self.calls >= most:
            self.exceeded = f"most_calls of {most:,}"
            return False
        self.calls += 1
        return True

    def took_before(self, calls: int, prompt: int, completion: int, price: Price) -> None:
        """Count the rows and tokens that an earlier run of the query took."""
        self.calls += calls
        if self.ledger is not None:
            self.ledger.took_before(prompt, completion, price)

    def reached(self, error: BudgetSpent) -> str:
        """Which bound ended the query. error: why a row was not asked."""
        if self.ledger is None or self._paid is not None:  # not this query's own
            return str(error)
        return f"{self.ledger.blocking(1, self.price or FREE).name} is reached"

    def failed_too_often(self, allowed: int) -> Stopped | None:
        """Why rows with errors end the query, of which so many are allowed; None: they do not."""
        if self.failed and self.limits.on_error == "fail":
            return Stopped("failed", f"a row failed: {self.first_error}")
        if self.failed <= allowed:
            return None
        return Stopped(
            "failed",
            f"{self.failed:,} rows failed, and max_errors allows {allowed:,}; "
            f"the first: {self.first_error}",
        )
