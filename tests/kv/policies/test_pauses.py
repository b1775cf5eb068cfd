"""What keeping is worth, beside a slow estimate that follows every pause by itself."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import pytest

from teola.kv.policies.pauses import AGES, PRIOR, Pauses, worth


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
