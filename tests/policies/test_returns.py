"""What is learned of pauses, beside a slow one that keeps every pause with what it still counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from random import Random

import pytest

from teola.kv.policies.pauses import AGES, FEW_PAUSES, return_rates
from teola.policies.routing.returns import AwayTime, Returns

HOUR_S = 3600.0


@dataclass
class Pause:
    """seconds: it ended after so long; gone: it has taken so long, and nobody will know."""

    kind: Hashable
    seconds: float
    gone: bool
    counts: float = 1.0


@dataclass(eq=False)
class Away:
    kind: Hashable
    since: float
    given_up: bool = False


class Slow:
    """pauses: all that ended. away: those who are away now. known: by kind, the rates that were
    worked out last, and hold until so much more was heard."""

    def __init__(self) -> None:
        self.pauses: list[Pause] = []
        self.away: list[Away] = []
        self.known: dict[Hashable, Sequence[float]] = {}
        self.total, self.heard = 0.0, 0

    def ended(self, kind: Hashable, seconds: float, gone: bool) -> None:
        self.pauses.append(Pause(kind, seconds, gone))
        self.total += 1
        self.hear()
        if len(self.pauses) % 50 == 0:
            self.total *= 0.99
            for pause in self.pauses:
                pause.counts *= 0.99

    def hear(self) -> None:
        """After a fifth of what is known, and after fifty at the latest, it is summed up anew."""
        self.heard += 1
        if self.heard >= 50 or self.heard >= 1 + self.total / 5:
            self.known, self.heard = {}, 0

    def rates(self, kind: Hashable, now: float) -> Sequence[float] | None:
        """Of the kind, else of all kinds together; None: too little is known of either."""
        if kind not in self.known:
            alone = self.summed({kind}, now)
            if alone is None and "all" not in self.known:
                everything = self.summed(None, now)
                if everything is not None:
                    self.known["all"] = everything
            found = self.known.get("all") if alone is None else alone
            if found is None:
                return None
            self.known[kind] = found
        return self.known[kind]

    def summed(self, kinds: set[Hashable] | None, now: float) -> Sequence[float] | None:
        pauses = [pause for pause in self.pauses if kinds is None or pause.kind in kinds]
        away = [one for one in self.away if kinds is None or one.kind in kinds]
        if sum(p.counts for p in pauses) + sum(one.given_up for one in away) < FEW_PAUSES - 1e-9:
            return None
        back, left = [0.0] * len(AGES), [0.0] * len(AGES)
        for pause in pauses:
            (left if pause.gone else back)[bisect_right(AGES, pause.seconds) - 1] += pause.counts
        for one in away:
            left[bisect_right(AGES, now - one.since) - 1] += 1
        return return_rates(back, left)

    def hope_s(self, kind: Hashable, age_s: float, now: float) -> float:
        """Until a second of waiting brings less than a return in an hour."""
        rates = self.rates(kind, now)
        if rates is None:
            return age_s
        return next((age for age, rate in zip(AGES, rates, strict=True) if rate * HOUR_S < 1), inf)

    def rate(self, kind: Hashable, age_s: float, now: float) -> float:
        rates = self.rates(kind, now)
        return 1 / (1 + age_s) if rates is None else rates[bisect_right(AGES, age_s) - 1]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_known_is_what_all_pauses_say(seed: int) -> None:
    """Pauses of three kinds begin, end, are given up and forgotten; each kind is asked about."""
    draw, now = Random(seed), 0.0
    fast, slow = Returns(), Slow()
    away: list[tuple[AwayTime, Away]] = []
    for k in range(400):
        now += draw.choice([0.0, 0.5, 3.0, 40.0])
        what = draw.random()
        if what < 0.45 or not away:
            kind = draw.choice("aab" if k < 200 else "abc")
            slow.away.append(Away(kind, now))
            away.append((fast.away(kind, now), slow.away[-1]))
        else:
            told, one = draw.choice(away)
            if what < 0.6 and not one.given_up:
                fast.give_up(told)
                one.given_up = True
                slow.hear()
            elif what >= 0.6:
                away.remove((told, one))
                slow.away.remove(one)
                if what < 0.65:
                    fast.ended(told)
                else:
                    end = fast.gone if what < 0.75 else fast.back
                    end(told, now - one.since)
                    slow.ended(one.kind, now - one.since, gone=what < 0.75)
        for kind in draw.sample("abcd", draw.choice([0, 1, 4])):
            age_s = draw.choice([0.0, 1.0, 6.0, 100.0, 1e5])
            assert fast.rate(kind, age_s, now) == pytest.approx(slow.rate(kind, age_s, now)), k
            expected = (
                min(AGES[-1], slow.hope_s(kind, age_s, now)) if slow.rates(kind, now) else age_s
            )
            assert fast.hope_s(kind, age_s, now) == expected, k


def test_pauses_are_told_apart_by_what_they_follow() -> None:
    returns = Returns()
    first = returns.kind("call", "tool", None)
    kinds = [
        returns.kind("call", "tool", last_s) for last_s in (0.0, 1.0, 1e1, 1e2, 1e3, 1e9, 1e12)
    ]
    assert first not in kinds
    assert kinds[0] == kinds[1], "up to a second is one magnitude"
    assert len({*kinds}) >= 4
    assert kinds[-1] == kinds[-2], "and so is all that is very long"
    assert returns.kind("call", "", None) != first != returns.kind("other", "tool", None)


def test_an_age_belongs_to_what_begins_with_it() -> None:
    returns = Returns()
    for k, age in enumerate(AGES):
        later = AGES[k + 1] if k + 1 < len(AGES) else inf
        assert returns.changes_at(age) == later
        assert returns.changes_at(nextafter(age, -1.0)) == (age if k else AGES[1])
    assert returns.changes_at(-5.0) == AGES[1]
