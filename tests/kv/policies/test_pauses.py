"""What keeping is worth, beside a slow estimate that follows every pause by itself."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from random import Random

import pytest

from teola.kv.policies.pauses import AGES, PRIOR, SAME_ACCESS_S, Pauses, magnitude, worth


def slowly(ended: list[float], open_ended: list[float]) -> list[float]:
    """The worth at the beginning of each bin: the chance that a pause lasts so long, from all
    pauses (one that is still open is half of one in its last bin), then every pair of ages."""
    places = [(bisect_right(AGES, age) - 1, True) for age in ended]
    places += [(bisect_right(AGES, age) - 1, False) for age in open_ended]
    lasts, area = [1.0], [0.0]
    for k in range(len(AGES) - 1):
        at_risk = PRIOR + sum(1.0 for bin, _ in places if bin > k)
        at_risk += sum(1.0 if back else 0.5 for bin, back in places if bin == k)
        returns = sum(1.0 for bin, back in places if back and bin == k)
        lasts.append(lasts[k] * (1.0 - returns / at_risk))
        area.append(area[k] + (AGES[k + 1] - AGES[k]) * (lasts[k] + lasts[k + 1]) / 2)
    best = [
        max(
            ((lasts[k] - lasts[j]) / (area[j] - area[k]) for j in range(k + 1, len(AGES))),
            default=0.0,
        )
        for k in range(len(AGES))
    ]
    return [max(best[k:]) for k in range(len(AGES))]


@pytest.mark.parametrize("seed", range(8))
def test_worth_is_that_of_every_pair_of_ages(seed: int) -> None:
    """Pauses that are still open share their bins with some that ended."""
    draw = Random(seed)
    ended = [draw.expovariate(1 / 40.0) for _ in range(draw.randrange(0, 60))]
    open_ended = [draw.expovariate(1 / 40.0) for _ in range(draw.randrange(0, 60))]
    back, left = ([0.0] * len(AGES) for _ in range(2))
    for bins, ages in ((back, ended), (left, open_ended)):
        for age in ages:
            bins[bisect_right(AGES, age) - 1] += 1.0
    assert worth(back, left) == pytest.approx(slowly(ended, open_ended), rel=1e-6, abs=1e-9)


def test_as_long_as_nothing_is_known_it_comes_back_after_as_long_again() -> None:
    pauses = Pauses(3600.0, 60.0)
    for away_s in (0.0, 1.0, 9.0):
        assert pauses.worth(("new", -1), away_s) == 1.0 / (1.0 + away_s)
    assert pauses.worth(("new", -1), -1.0) == 1.0


def test_a_query_that_is_away_exactly_as_long_as_the_window_still_comes_back() -> None:
    pauses = Pauses(100.0, 1e9)
    for query in range(20):
        pauses.access(query, "c", 0.0)
    pauses.fit(100.0)
    for query in range(20):
        pauses.access(query, "c", 100.0)
    pauses.fit(100.0)
    assert pauses.worth(("c", -1), 0.0) > 0


class Slow:
    """Every pause by itself: of which kind, how long, whether it ended, and what it still counts.
    Once a period all is looked through, and then everything counts a little less."""

    def __init__(self, window_s: float, refit_s: float) -> None:
        self.window_s, self.refit_s = window_s, refit_s
        self.pauses: list[list] = []
        self.away: dict[int, tuple[float, object]] = {}
        self.tables: dict[object, list[float]] = {}
        self.due = -inf

    def access(self, query: int, category: str, now: float, begins: bool) -> object:
        last = -1
        if query in self.away:
            since, kind = self.away[query]
            if not begins or now - since <= 0.3:
                self.away[query] = now, kind
                return kind
            self.pauses.append([kind, now - since, True, 1.0])
            last = min(5, max(k for k in range(99) if 4**k <= max(1.0, now - since)))
        self.away[query] = now, (category, last)
        if now >= self.due:
            self.due = now + self.refit_s
            self.fit(now)
        return category, last

    def fit(self, now: float) -> None:
        for query, (since, kind) in [*self.away.items()]:
            if now - since > self.window_s:
                del self.away[query]
                self.pauses.append([kind, now - since, False, 1.0])
        still = [[kind, now - since, False, 1.0] for since, kind in self.away.values()]
        kinds = {pause[0] for pause in (*self.pauses, *still)}
        known = {}
        for kind in (*kinds, None):
            those = [one for one in (*self.pauses, *still) if kind in (None, one[0])]
            if sum(one[3] for one in those) >= 10 - 1e-9:
                back, left = [0.0] * len(AGES), [0.0] * len(AGES)
                for _, seconds, ended, counts in those:
                    bins = back if ended else left
                    bins[bisect_right(AGES, seconds) - 1] += counts
                known[kind] = worth(back, left)
        self.tables = {None: self.tables[None]} if None in self.tables else {}
        self.tables |= known
        for pause in self.pauses:
            pause[3] *= 0.5 ** (self.refit_s / self.window_s)

    def worth(self, kind: object, age: float) -> float:
        table = self.tables.get(kind, self.tables.get(None))
        return 1 / (1 + age) if table is None else table[bisect_right(AGES, age) - 1]


@pytest.mark.parametrize("seed", range(10))
def test_worth_is_that_of_all_pauses_in_the_window(seed: int) -> None:
    """Queries come back soon, late, not at all and twice at once; some say that they have ended."""
    draw, now, kinds = Random(seed), 0.0, set()
    window_s, refit_s = draw.choice([(200.0, 20.0), (60.0, 60.0)])
    fast, slow = Pauses(window_s, refit_s), Slow(window_s, refit_s)
    for k in range(400):
        now += draw.choice([0.0, 0.1, 0.3, 1.0, 5.0, 30.0])
        query = k if draw.random() < 0.3 else draw.randrange(max(0, k - 30), k + 1)
        begins, category = draw.random() < 0.8, draw.choice(["tool", "person"])
        kind = fast.access(query, category, now, begins=begins)
        assert kind == slow.access(query, category, now, begins)
        kinds.add(kind)
        if draw.random() < 0.1:
            fast.ended(query)
            slow.away.pop(query, None)
            fast.ended(-1)  # of which nobody knows
        for one in [("tool", 99), *kinds]:
            for age in (0.0, 1.0, 33.0, 1e6):
                assert fast.worth(one, age) == pytest.approx(slow.worth(one, age)), (k, one)
    assert {last for _, last in kinds} >= {-1, 0, 1, 2}


@pytest.mark.parametrize(
    ("pause_s", "begins", "counts"),
    [
        (SAME_ACCESS_S, True, False),
        (SAME_ACCESS_S * 1.01, True, True),
        (SAME_ACCESS_S * 1.01, False, False),
    ],
)
def test_what_follows_at_once_or_of_one_request_is_the_same_access(
    pause_s: float, begins: bool, counts: bool
) -> None:
    pauses = Pauses(100.0, 1e9)
    assert pauses.access("q", "c", 0.0) == ("c", -1)
    kind = pauses.access("q", "c", pause_s, begins=begins)
    assert kind == ("c", magnitude(pause_s) if counts else -1)
    assert bool(pauses._back) is counts
