"""When programs come back for what they left in a cache, learned from those that did.

A pause is of a kind: what the last call was, what the program waits for, as far as it told, and the
magnitude of its pause before this one (who was away for long will be so again). By kind one knows
how often a program that has been away for so long comes back, for each second that one waits; it is
waited for while that is at least once in `FORGOTTEN_S`. What waiting for it is worth is for others
to say (`rate`).

Whoever is away has not come back yet, which is known of it at any time, and counts as that: a
session that ends in silence teaches as it goes on being silent. As long as too little is known, a
program is waited for as long as it had been there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from teola.kv.policies.pauses import AGES, FEW_PAUSES, count_pause, guess, magnitude, return_rates

REFIT: Final = 50
"""Pauses after which what is known is summed up anew; while less is known, a fifth of that."""
FORGET: Final = 0.99
"""What is left of what was known, each time that so many have been learned."""
FORGOTTEN_S: Final = 3600.0
"""Who has been away for so long does not come back."""
ALL: Final = "all"
"""All kinds together, which are tuples."""


@dataclass(slots=True, eq=False)
class AwayTime:
    """A pause that has not ended. given_up: nobody waits for its end any more."""

    kind: Hashable
    since: float
    given_up: bool = False


class Returns:
    """Learns by `away`, and what follows it."""

    def __init__(self) -> None:
        self._back: dict[Hashable, list[float]] = {}
        self._gone: dict[Hashable, list[float]] = {}
        self._away: dict[Hashable, list[float]] = {}
        """By kind, since when programs are away, the first ones first."""
        self._given_up: dict[Hashable, int] = {}
        """How many of them nobody waits for any more."""
        self._rates: dict[Hashable, Sequence[float] | None] = {}
        self._known = 0.0
        self._learned = self._heard = 0

    def kind(self, category: Hashable, reason: str, last_s: float | None) -> Hashable:
        """The kind of a pause that follows one of `last_s` seconds (None: it is the first)."""
        if last_s is None:
            return category, reason, -1
        return category, reason, magnitude(last_s)

    def away(self, kind: Hashable, since: float) -> AwayTime:
        """A pause begins."""
        insort(self._away.setdefault(kind, []), since)
        return AwayTime(kind, since)

    def back(self, away: AwayTime, seconds: float) -> None:
        """A pause has ended, which took so long."""
        self.ended(away)
        self._learn(self._back, away.kind, seconds)

    def gone(self, away: AwayTime, seconds: float) -> None:
        """A pause has taken so long, and nobody will know when it ends."""
        self.ended(away)
        self._learn(self._gone, away.kind, seconds)

    def ended(self, away: AwayTime) -> None:
        """There is no such pause any more, and nothing is learned of that."""
        times = self._away[away.kind]
        del times[bisect_left(times, away.since)]
        if not times:
            del self._away[away.kind]
        if away.given_up:
            self._given_up[away.kind] -= 1

    def give_up(self, away: AwayTime) -> None:
        """A pause has outlasted its hope. It goes on, and what is known of it with it."""
        away.given_up = True
        self._given_up[away.kind] = self._given_up.get(away.kind, 0) + 1
        self._hear()

    def _learn(self, bins: dict[Hashable, list[float]], kind: Hashable, seconds: float) -> None:
        count_pause(bins, kind, seconds)
        self._known += 1
        self._hear()
        self._learned += 1
        if self._learned >= REFIT:
            self._learned = 0
            self._known *= FORGET
            for each in (*self._back.values(), *self._gone.values()):
                each[:] = [seen * FORGET for seen in each]

    def _hear(self) -> None:
        self._heard += 1
        if self._heard >= min(REFIT, 1 + self._known / 5):
            self._heard = 0
            self._rates.clear()

    def hope_s(self, kind: Hashable, age_s: float, now: float) -> float:
        """How long one who is away is to be waited for. age_s: how long it had been there."""
        rates_by_age = self._known_rates(kind, now)
        if rates_by_age is None:
            return age_s
        least = 1.0 / FORGOTTEN_S
        return next(
            (age for age, rate in zip(AGES, rates_by_age, strict=True) if rate < least), AGES[-1]
        )

    def rate(self, kind: Hashable, age_s: float, now: float) -> float:
        """Returns a second of one who has been away for so long, by waiting as long as is best. As
        long as too little is known: after as long again."""
        rates_by_age = self._known_rates(kind, now)
        if rates_by_age is None:
            return guess(age_s)
        return rates_by_age[bisect_right(AGES, max(0.0, age_s)) - 1]

    def changes_at(self, age_s: float) -> float:
        """The next age at which `rate` is another."""
        later = bisect_right(AGES, max(0.0, age_s))
        return AGES[later] if later < len(AGES) else inf

    def _known_rates(self, kind: Hashable, now: float) -> Sequence[float] | None:
        if kind not in self._rates:
            self._rates[kind] = self._fit(kind, now)
        fitted = self._rates[kind]
        if fitted is None:
            del self._rates[kind]  # the next one may teach enough
        return fitted

    def _fit(self, kind: Hashable, now: float) -> Sequence[float] | None:
        """Returns a second, by age, of a kind that is known by itself, else of all together; None:
        too little is known."""
        alone = self._fitted([kind], now)
        if alone is not None:
            return alone
        if ALL not in self._rates:
            kinds = dict.fromkeys((*self._back, *self._gone, *self._away))  # always in one order
            self._rates[ALL] = self._fitted([*kinds], now)
        return self._rates[ALL] or self._rates.pop(ALL)

    def _fitted(self, kinds: Sequence[Hashable], now: float) -> Sequence[float] | None:
        back, gone = _together(self._back, kinds), _together(self._gone, kinds)
        given_up = sum(self._given_up.get(kind, 0) for kind in kinds)
        if sum(back) + sum(gone) + given_up < FEW_PAUSES:
            return None
        for kind in kinds:
            _add(gone, self._away.get(kind, ()), now)
        return return_rates(back, gone)


def _together(bins: dict[Hashable, list[float]], kinds: Sequence[Hashable]) -> list[float]:
    each = [bins[kind] for kind in kinds if kind in bins]
    return [sum(counts) for counts in zip(*each, strict=True)] or [0.0] * len(AGES)


def _add(bins: list[float], times: Sequence[float], now: float) -> None:
    """Count those who are away since these times by how long that is."""
    later = len(times)
    for k, age in enumerate(AGES[1:]):
        earlier = bisect_right(times, now - age)
        bins[k] += later - earlier
        later = earlier
        if not earlier:
            return
    bins[-1] += later
