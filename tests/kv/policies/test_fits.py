"""What is fitted, beside a tally that keeps every access."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random
from statistics import median_low

import pytest

from teola.kv.policies.fits import FACTOR, Fits

CATEGORIES = (("chat", ""), ("tool", "later"))
SAME_S = 0.5


class Tally:
    """Every access to every key, in order."""

    def __init__(self) -> None:
        self.of_key: dict[int, list[tuple[float, tuple[str, str]]]] = defaultdict(list)

    def gaps(self, category: tuple[str, str]) -> list[float]:
        """Times until the next access, of accesses by this category."""
        return [
            later[0] - earlier[0]
            for accesses in self.of_key.values()
            for earlier, later in pairwise(accesses)
            if earlier[1] == category and later[0] - earlier[0] > SAME_S
        ]

    def lives(self, category: tuple[str, str]) -> list[float]:
        """From the first access to the last, of keys that were read again and that it read last."""
        return [
            accesses[-1][0] - accesses[0][0]
            for accesses in self.of_key.values()
            if accesses[-1][1] == category
            and any(b[0] - a[0] > SAME_S for a, b in pairwise(accesses))
        ]


@pytest.mark.parametrize("seed", range(6))
def test_rates_reuse_and_lives_are_those_of_all_accesses(seed: int) -> None:
    draw = Random(seed)
    fits = Fits(1e9, 1e9, 2, SAME_S, lives=True)
    tally, counts, now = Tally(), dict.fromkeys(CATEGORIES, 0), 0.0
    for _ in range(300):
        now += draw.choice((0.1, 0.4, 2.0, 9.0))
        category, key = draw.choice(CATEGORIES), draw.randrange(40)
        fits.access([key], category, now)
        tally.of_key[key].append((now, category))
        counts[category] += 1
    fits.fit(now)
    for category in CATEGORIES:
        found, gaps = fits.of(category), tally.gaps(category)
        assert found is not None
        assert found.rate == pytest.approx(len(gaps) / sum(gaps))
        assert found.reused == pytest.approx(len(gaps) / counts[category])
        ratio = found.life_s / median_low(tally.lives(category))
        assert 1 / FACTOR**0.51 < ratio < FACTOR**0.51
