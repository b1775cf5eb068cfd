"""Purse: what an agent may take of its query's budget, with room kept for its last answer."""

from __future__ import annotations

from math import inf

from teola.policies.ledger import Ledger, Reservation
from teola.price import Price


class Purse:
    """The money of one run of an agent. ledger: its query's. price: of its model."""

    __slots__ = ("_kept", "_ledger", "_price")

    def __init__(self, ledger: Ledger, price: Price) -> None:
        self._ledger, self._price = ledger, price
        self._kept: Reservation | None = None

    @property
    def kept_tokens(self) -> float:
        """For the prompt of its last answer (inf: nothing is kept)."""
        return inf if self._kept is None else self._kept.prompt_tokens

    def keep(self, prompt_tokens: int, answer_tokens: int) -> bool:
        """Room for a last answer, in the place of what was kept before. Whether there is."""
        self.give_back()
        self._kept = self._ledger.keep(prompt_tokens, answer_tokens, self._price)
        return self._kept is not None

    def may(self, prompt_tokens: int, answer_tokens: int) -> bool:
        """Whether such a call can be made beside what is kept, if others take nothing of what they
        have reserved."""
        price = self._price
        for account in self._ledger.accounts:
            tokens = account.left_tokens + account.held_tokens
            cost = account.left_cost + account.held_cost
            if tokens < prompt_tokens + answer_tokens:
                return False
            if cost < price.cost(prompt_tokens, answer_tokens):
                return False
        return True

    def taken(self) -> Reservation | None:
        """What is kept, for the call that it was kept for."""
        kept, self._kept = self._kept, None
        return kept

    def give_back(self) -> None:
        """It needs no last answer (any more)."""
        if self._kept is not None:
            self._kept.give_back()
            self._kept = None
