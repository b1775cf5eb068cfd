"""When programs come back for what they left in a cache, learned from those that did.

A pause is of a kind: what the last call was, what the program waits for, as far as it told, and the
magnitude of its pause before this one (who was away for long will be so again). By kind one knows
how often a program that has been away for so long comes back, for each second that one waits; it is
waited for while that is at least once in `within_s`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from teola.kv.policies.pauses import AGES, FEW, count, magnitude, rates

REFIT: Final = 50
"""Pauses after which what is known is summed up anew."""
FORGET: Final = 0.99
"""What is left of what was known, each time."""
FORGOTTEN_S: Final = 3600.0
"""Who has been away for so long does not come back."""


class Returns:
    """Learns by `back` and `gone`. within_s: see above."""

    def __init__(self, within_s: float) -> None:
        self._least = 1.0 / within_s
        self._back: dict[Hashable, list[float]] = {}
        self._gone: dict[Hashable, list[float]] = {}
        self._hope: dict[Hashable, float] = {}
        self._learned = 0

    def kind(self, category: Hashable, reason: str, last_s: float | None) -> Hashable:
        """Of a pause that follows one of `last_s` (None: it is the first)."""
        if last_s is None:
            return category, reason, -1
        return category, reason, magnitude(last_s)

    def back(self, kind: Hashable, seconds: float) -> None:
        """A program was away so long."""
        self._learn(self._back, kind, seconds)

    def gone(self, kind: Hashable, seconds: float) -> None:
        """A program was away so long and is not back: nobody will wait for it any longer."""
        self._learn(self._gone, kind, seconds)

    def _learn(self, bins: dict[Hashable, list[float]], kind: Hashable, seconds: float) -> None:
        count(bins, kind, seconds)
        self._learned += 1
        if self._learned >= REFIT:
            self._learned = 0
            self._hope.clear()
            for each in (*self._back.values(), *self._gone.values()):
                each[:] = [seen * FORGET for seen in each]

    def hope_s(self, kind: Hashable) -> float:
        """How long one who is away is to be waited for."""
        found = self._hope.get(kind)
        if found is None:
            found = self._hope[kind] = self._hoped(kind)
        return found

    def _hoped(self, kind: Hashable) -> float:
        nothing = [0.0] * len(AGES)
        back, gone = self._back.get(kind, nothing), self._gone.get(kind, nothing)
        if sum(back) + sum(gone) < FEW:
            back, gone = _together(self._back), _together(self._gone)
        if sum(back) + sum(gone) < FEW:
            return max(0.0, 1.0 / self._least - 1.0)  # after as long again, as far as one knows
        return next(
            (age for age, rate in zip(AGES, rates(back, gone), strict=True) if rate < self._least),
            AGES[-1],
        )


def _together(bins: dict[Hashable, list[float]]) -> list[float]:
    return [sum(counts) for counts in zip(*bins.values(), strict=True)] or [0.0] * len(AGES)
