"""Ledger: what a query may take, tokens and money, over all that it grows into.

    reserve(prompt, answer) ──▶ Reservation ──settle(what it took)──▶ the rest is there again
              │                     └────────give_back()───────────▶ all of it is
              └─▶ None: too little is left; `blocking` says where

A call reserves its prompt and the longest answer that it may write before it is queued, so however
many run side by side, together they never take more than was left. Of a ledger's accounts one is
the query's own; those of the queries around it, of its application and of its caller's key may
hold, too. There is room where there is room in all of them.

An agent keeps room for its last answer from the beginning (`keep`), which no other call can take.

Queries of several runtimes may share accounts, each runtime with a thread of its own: all that is
done to accounts is done under one `GUARD`. Its lock is a runtime's (`billing`): there are no
threads here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import floor, inf
from typing import Any, Final

from teola.errors import BudgetSpent
from teola.price import FREE, Price

LEAST_ANSWER = 16
"""Tokens of an answer without which a call is not begun."""


class AccountsLock:
    """Is held while accounts change, and by whoever decides by what is left and then acts. lock:
    what guards then; nothing, before a runtime brings one."""

    def __init__(self) -> None:
        self.lock: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> None:
        self.lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.lock.__exit__(*error)


GUARD: Final = AccountsLock()
"""The lock of all accounts."""


@dataclass(slots=True, eq=False)
class BudgetAccount:
    """One bound: on a query, or on an application or a key for a day.

    name: what it bounds, as errors call it.
    most_tokens: of prompts and answers. most_cost: in the currency of the prices.
    tokens, cost: taken by calls that have ended.
    held_tokens, held_cost: reserved by calls that have not.
    kept_tokens, kept_cost: kept for last answers of agents.
    open: calls that hold something, of which some may come back.
    waiting: tries of those that wait for that, in order; each says whether it need not wait here
        any more.
    """

    name: str = "this query"
    most_tokens: float = inf
    most_cost: float = inf
    tokens: int = 0
    cost: float = 0.0
    held_tokens: float = 0
    held_cost: float = 0.0
    kept_tokens: float = 0
    kept_cost: float = 0.0
    open: int = 0
    waiting: deque[Callable[[], bool]] = field(default_factory=deque)
    _looking: bool = False

    @property
    def left_tokens(self) -> float:
        """Tokens that are neither taken nor reserved."""
        return self.most_tokens - self.tokens - self.held_tokens - self.kept_tokens

    @property
    def left_cost(self) -> float:
        """Money that is neither taken nor reserved."""
        return self.most_cost - self.cost - self.held_cost - self.kept_cost

    def answer(self, prompt_tokens: float, price: Price) -> float:
        """Tokens of an answer for which there is room after such a prompt (negative: the prompt
        has none)."""
        tokens = self.left_tokens - prompt_tokens
        if self.most_cost < inf:
            money = self.left_cost - price.cost(prompt_tokens, 0)
            if money < 0:
                return -1
            if price.answer:
                tokens = min(tokens, money * 1_000_000 / price.answer)
        return tokens

    def came_back(self) -> None:
        """Something is there again: whoever waits for it may try."""
        with GUARD:
            if self._looking:
                return
            self._looking = True
            try:
                while self.waiting and self.waiting[0]():
                    self.waiting.popleft()
            finally:
                self._looking = False

    def told(self) -> str:
        """What is left of it, in words."""
        parts = []
        if self.most_tokens < inf:
            used = self.tokens + self.held_tokens + self.kept_tokens
            parts.append(f"{used:,.0f} of {self.most_tokens:,.0f} tokens")
        if self.most_cost < inf:
            spent = self.cost + self.held_cost + self.kept_cost
            parts.append(f"{spent:.6g} of {self.most_cost:.6g} in money")
        return f"{self.name} has taken or reserved {' and '.join(parts)}"


@dataclass(slots=True, eq=False)
class Reservation:
    """What one call may take. prompt_tokens, answer_tokens: of which it consists, the latter
    perhaps lowered to what was left. kept: for an agent's last answer, and no call's yet."""

    accounts: tuple[BudgetAccount, ...]
    price: Price
    prompt_tokens: float
    answer_tokens: int
    kept: bool = False
    closed: bool = False

    @property
    def tokens(self) -> float:
        """In all."""
        return self.prompt_tokens + self.answer_tokens

    def settle(
        self,
        prompt_tokens: int,
        generated_tokens: int,
        cached_tokens: int = 0,
        price: Price | None = None,
    ) -> None:
        """The call has ended, however it did, and took so much; the rest is there again. price: of
        the model that was called in the end, if it is another."""
        taken = prompt_tokens + generated_tokens
        cost = (price or self.price).cost(prompt_tokens, generated_tokens, cached_tokens)
        with GUARD:
            if self.closed:
                return
            for account in self.accounts:
                account.tokens += taken
                account.cost += cost
            self.give_back()

    def give_back(self) -> None:
        """It is not needed: nothing was taken."""
        with GUARD:
            if self.closed:
                return
            self.closed = True
            self._move(-1)
            for account in self.accounts:
                account.came_back()

    def _move(self, sign: int) -> None:
        tokens, cost = self.tokens, self.price.cost(self.prompt_tokens, self.answer_tokens)
        for account in self.accounts:
            if self.kept:
                account.kept_tokens += sign * tokens
                account.kept_cost += sign * cost
            else:
                account.held_tokens += sign * tokens
                account.held_cost += sign * cost
                account.open += sign
            if not account.open:
                account.held_cost = 0.0  # what is left of rounding


class Ledger:
    """See the module. own: the bound of the query itself, if it has one. around: of the query
    around it; others: accounts that it shares with other queries."""

    __slots__ = ("accounts", "own")

    def __init__(
        self,
        own: BudgetAccount | None = None,
        *,
        around: Ledger | None = None,
        others: Iterable[BudgetAccount] = (),
    ) -> None:
        self.own = own
        outer = around.accounts if around is not None else ()
        accounts = [*((own,) if own is not None else ()), *outer, *others]
        self.accounts: tuple[BudgetAccount, ...] = tuple(dict.fromkeys(accounts))

    def __repr__(self) -> str:
        """The same in every process: logs of a core are compared as texts."""
        bounds = ", ".join(f"{one.name}: {one.most_tokens:g} tokens" for one in self.accounts)
        return f"Ledger({bounds})"

    @property
    def counts_money(self) -> bool:
        """Whether one of its accounts is bounded in money."""
        return any(account.most_cost < inf for account in self.accounts)

    @property
    def left_tokens(self) -> float:
        """For which there is room in every account."""
        return min((account.left_tokens for account in self.accounts), default=inf)

    def answer(self, prompt_tokens: float, price: Price = FREE) -> float:
        """Tokens of an answer for which there is room after such a prompt."""
        return min((one.answer(prompt_tokens, price) for one in self.accounts), default=inf)

    def reserve(
        self,
        prompt_tokens: float,
        answer_tokens: int,
        price: Price = FREE,
        *,
        least: int = LEAST_ANSWER,
        kept: Reservation | None = None,
    ) -> Reservation | None:
        """What a call may take: its prompt, and its answer, lowered to what is left; None where
        less than `least` tokens of an answer would be (or less than all, if that is shorter).
        kept: what was kept for this call, which is there again either way."""
        with GUARD:
            if kept is not None:
                kept.closed = True
                kept._move(-1)
            room = self.answer(prompt_tokens, price)
            if room < min(least, answer_tokens):
                return None
            granted = answer_tokens if room >= answer_tokens else floor(room)
            return self._made(prompt_tokens, granted, price, kept=False)

    def took_before(self, prompt_tokens: int, generated_tokens: int, price: Price = FREE) -> None:
        """An earlier run of the query, in another process perhaps, took so much of its own bound;
        what others share with it was paid then."""
        if self.own is not None:
            with GUARD:
                self.own.tokens += prompt_tokens + generated_tokens
                self.own.cost += price.cost(prompt_tokens, generated_tokens)

    def took(
        self, prompt_tokens: int, generated_tokens: int, cached_tokens: int, price: Price = FREE
    ) -> None:
        """A call took so much when nothing was reserved for it any more."""
        with GUARD:
            reserved = self._made(0, 0, price, kept=False)
            reserved.settle(prompt_tokens, generated_tokens, cached_tokens)

    def keep(
        self, prompt_tokens: float, answer_tokens: int, price: Price = FREE
    ) -> Reservation | None:
        """Room for a call that may come later, which no other can take; None where there is not
        enough."""
        with GUARD:
            if self.answer(prompt_tokens, price) < answer_tokens:
                return None
            return self._made(prompt_tokens, answer_tokens, price, kept=True)

    def _made(self, prompt: float, answer: int, price: Price, *, kept: bool) -> Reservation:
        found = Reservation(self.accounts, price, prompt, answer, kept)
        found._move(1)
        return found

    def blocking(self, prompt_tokens: float, price: Price = FREE) -> BudgetAccount:
        """The account in which there is the least room."""
        return min(self.accounts, key=lambda one: one.answer(prompt_tokens, price))

    def spent(self, prompt_tokens: float, price: Price = FREE) -> BudgetSpent:
        """Why a call with such a prompt is not begun."""
        account = self.blocking(prompt_tokens, price)
        return BudgetSpent(
            f"{account.told()}; a call with a prompt of about {prompt_tokens:,.0f} tokens and "
            f"{LEAST_ANSWER} of an answer has no room: raise its bound, or ask for less"
        )
