"""What applications and keys may take in a day, over all of their queries. A day is one of UTC.

Days are counted by the process that makes the calls: a server that starts anew begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from teola.errors import InputError
from teola.plain_number import is_number
from teola.policies.ledger import GUARD, BudgetAccount
from teola.price import Price

DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class DayBudget:
    """What may be taken in a day. tokens: of prompts and answers. cost: in the currency of the
    prices. Raises InputError."""

    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self.tokens, self.cost, "tokens a day", "cost a day")


def check_bounds(tokens: object, cost: object, tokens_name: str, cost_name: str) -> None:
    """Raises InputError for bounds that are none."""
    whole = isinstance(tokens, int) and not isinstance(tokens, bool)
    if tokens is not None and not (whole and tokens >= 1):  # type: ignore[operator]
        raise InputError(f"{tokens_name} must be a whole number from 1 on, not {tokens!r}")
    if cost is not None and not (is_number(cost) and 0 < cost < inf):
        raise InputError(f"{cost_name} must be a number above 0, not {cost!r}")


def _today() -> int:
    return int(time.time() // DAY_S)


@dataclass(slots=True, eq=False)
class DayAccount(BudgetAccount):
    """An account that is empty again each day. today: number of the day."""

    today: Callable[[], int] = _today
    day: int = field(init=False)

    def __post_init__(self) -> None:
        self.day = self.today()

    def answer(self, prompt_tokens: float, price: Price) -> float:
        """See BudgetAccount."""
        if (day := self.today()) != self.day:
            self.day, self.tokens, self.cost = day, 0, 0.0
        return BudgetAccount.answer(self, prompt_tokens, price)


class DayAccounts:
    """The accounts of one runtime, by the name of what they bound."""

    def __init__(self, today: Callable[[], int] = _today) -> None:
        self._today, self._known = today, dict[str, DayAccount]()

    def account(self, name: str, budget: DayBudget) -> DayAccount:
        """The account called `name`, bounded by what `budget` says now."""
        tokens = inf if budget.tokens is None else budget.tokens
        cost = inf if budget.cost is None else budget.cost
        with GUARD:  # queries come in threads of their own
            account = self._known.get(name)
            if account is None:
                account = self._known[name] = DayAccount(name, tokens, cost, today=self._today)
            account.most_tokens, account.most_cost = tokens, cost
            return account
