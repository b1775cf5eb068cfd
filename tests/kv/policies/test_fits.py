"""What is fitted, beside a tally that keeps every access."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import inf
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


# --- with a window --------------------------------------------------------------------------


@dataclass
class Key:
    """by: who accessed it last. late: it was read again later than at once."""

    first: float
    at: float
    by: str
    late: bool = False


class Windowed:
    """Every access and every sample with its time. Once a period, what is older than the window is
    left out, by whole periods, and keys that nobody accessed since are forgotten."""

    def __init__(self, window_s: float, refit_s: float, few: int) -> None:
        self.window_s, self.refit_s, self.few = window_s, refit_s, few
        self.accesses: list[tuple[float, str]] = []
        self.samples: list[tuple[float, str, float]] = []
        self.keys: dict[int, Key] = {}
        self.due = 0.0
        self.found: dict[str | None, tuple[float, float, float]] = {}

    def access(self, keys: list[int], by: str, now: float) -> None:
        if now >= self.due:
            self.fit(now)
            while self.due <= now:
                self.due += self.refit_s
        for name in keys:
            self.accesses.append((now, by))
            key = self.keys.get(name)
            if key is None:
                self.keys[name] = Key(now, now, by)
                continue
            if now - key.at > SAME_S:
                self.samples.append((now, key.by, now - key.at))
                key.late = True
            key.at, key.by = now, by

    def fit(self, now: float) -> None:
        oldest = now - self.window_s
        self.keys = {name: key for name, key in self.keys.items() if key.at >= oldest}

        def counts(at: float) -> bool:
            return (at // self.refit_s + 1) * self.refit_s > oldest

        self.found = {}
        for by in ("a", "b", "c", None):
            gaps = [gap for at, who, gap in self.samples if counts(at) and by in (None, who)]
            many = [at for at, who in self.accesses if counts(at) and by in (None, who)]
            spans = [k.at - k.first for k in self.keys.values() if k.late and by in (None, k.by)]
            if len(gaps) >= (1 if by is None else self.few):
                reused = min(1.0, len(gaps) / len(many)) if many else 1.0
                life_s = median_low(spans) if spans else inf
                self.found[by] = len(gaps) / sum(gaps), reused, life_s


@pytest.mark.parametrize("seed", range(8))
def test_what_is_published_is_what_the_window_says(seed: int) -> None:
    """Quiet times are as long as the window, and shorter, and a little longer."""
    draw, now = Random(seed), 0.0
    few = draw.choice([1, 3])
    fits, slow = Fits(40.0, 10.0, few, SAME_S, lives=True), Windowed(40.0, 10.0, few)
    seen = set[float]()
    for k in range(300):
        quiet = draw.choice([0.1, 0.5, 3.0, 10.0, 40.0] if k % 10 == 0 else [0.0, 0.5, 2.0])
        now += quiet
        keys = draw.sample(range(30 if seed % 2 else 6), draw.choice([0, 1, 2, 4]))
        by = draw.choice("aab") if k % 100 < 60 else draw.choice("bcc")
        fits.access(keys, by, now)
        slow.access(keys, by, now)
        for one in ("a", "b", "c"):
            found, expected = fits.of(one), slow.found.get(one, slow.found.get(None))
            assert (found is None) == (expected is None), k
            if found is not None and expected is not None:
                assert found[:2] == pytest.approx(expected[:2]), (k, one)
                seen.add(found.reused)
                if found.life_s < inf:
                    assert 1 / FACTOR**0.51 < found.life_s / expected[2] < FACTOR**0.51
                else:
                    assert expected[2] == inf
    assert len(seen) > 20
