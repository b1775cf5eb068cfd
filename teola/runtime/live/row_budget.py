"""What a run of rows may take: each window reserves for its rows before it is queued.

    rows came ──afford──▶ as many as there is room for ──begins──▶ a window ──▶ settled
                   └────▶ none: they wait until something is given back, or the run ends

The ledger is that of queries (teola.policies.ledger), with the same accounts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from teola.engine import Usage
from teola.errors import BudgetSpent, InputError
from teola.policies.ledger import GUARD, Ledger, Reservation
from teola.price import FREE, Price

MARGIN, EXTRA_TOKENS = 1.5, 8
"""Tokens of a prompt that are reserved for each that a row has by its length, on average, and what
a template adds to each prompt, about."""


@dataclass(slots=True)
class RowBudget:
    """ledger: what rows are paid from. price: of the model (None: not known). answer_tokens: that a
    row may write. pending: of rows that are being measured, and no window yet. held: of each open
    window, and what its rows took."""

    ledger: Ledger
    price: Price | None
    answer_tokens: int
    pending: list[Reservation] = field(default_factory=list)
    held: dict[int, Reservation] = field(default_factory=dict)
    took: dict[int, Usage] = field(default_factory=dict)

    def afford(self, rows: int, row_tokens: int) -> tuple[int, Reservation | None]:
        """Reserve for so many rows that are so long, or for as many as there is room for; how many,
        and what was reserved. Raises InputError where money is bounded and no price known."""
        if self.price is None and self.ledger.counts_money:
            raise InputError(
                "a bound in money needs the price of the rows' model: add it to `prices` of the "
                "configuration or the Runtime"
            )
        tokens_a_row, price = MARGIN * row_tokens + EXTRA_TOKENS, self.price or FREE
        while rows:
            answer = rows * self.answer_tokens
            reserved = self.ledger.reserve(rows * tokens_a_row, answer, price, least=answer)
            if reserved is not None:
                self.pending.append(reserved)
                return rows, reserved
            rows //= 2
        return 0, None

    def begins(self, i: int, made: Reservation) -> None:
        """Rows that something was reserved for are window `i`."""
        self.pending.remove(made)
        self.held[i] = made

    def wait(self, row_tokens: int, again: Callable[[], object]) -> BudgetSpent | None:
        """Call `again` when something was given back where there is too little, from any thread;
        why there is no use in waiting."""
        tokens_a_row, price = MARGIN * row_tokens + EXTRA_TOKENS, self.price or FREE

        def tried() -> bool:
            again()
            return True

        with GUARD:  # other runtimes may share the accounts: what came back meanwhile is not missed
            account = self.ledger.blocking(tokens_a_row, price)
            if self.ledger.answer(tokens_a_row, price) >= self.answer_tokens:
                again()
            elif account.open:
                account.waiting.append(tried)
            else:
                return self.ledger.spent(tokens_a_row, price)
        return None

    def used(self, i: int, usage: Usage) -> None:
        """Rows of window `i` took so much."""
        before = self.took.get(i, Usage())
        self.took[i] = Usage(
            before.prompt_tokens + usage.prompt_tokens,
            before.completion_tokens + usage.completion_tokens,
            before.cached_tokens + usage.cached_tokens,
        )

    def failed(self, i: int, usage: Usage) -> None:
        """A try of a row of window `i` took so much and gave nothing."""
        if i in self.held:
            self.used(i, usage)
        else:  # its run had ended before it was stopped
            counts = usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
            self.ledger.took(*counts, self.price or FREE)

    def settle(self, i: int) -> None:
        """Window `i` is over: what it did not take is there again."""
        held, took = self.held.pop(i, None), self.took.pop(i, Usage())
        if held is not None:
            held.settle(took.prompt_tokens, took.completion_tokens, took.cached_tokens)

    def close(self) -> None:
        """The run has ended."""
        for i in list(self.held):
            self.settle(i)
        while self.pending:
            self.pending.pop().give_back()
