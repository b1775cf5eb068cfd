"""How soon, and how likely, blocks are read again: an exponential for each category of request.

Two accesses to a key make a sample, the time between them, which is credited to the category of the
earlier one. Keys are remembered for the whole window, in the cache or not, else what was evicted
would never have been read late. Times up to `same_s` are prompts that share a beginning at once and
tell nothing of when one comes back. Of the window only sums are kept, by periods of `refit_s`.

    KVCache Cache in the Wild, USENIX ATC 2025.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from math import floor, inf, log
from typing import Final, NamedTuple

from teola.kv.policies.queues import Category

FACTOR: Final = 2**0.25
"""Lives are told apart to this factor."""


class Fit(NamedTuple):
    """rate: of the exponential, 1/s. reused: the fraction of accesses that are followed by another
    one. life_s: median time from the first access to the last, of what was read again."""

    rate: float
    reused: float
    life_s: float


class Period:
    """What happened to a category in a period: accesses, and samples with their sum."""

    __slots__ = ("accesses", "number", "samples", "seconds")

    def __init__(self, number: int) -> None:
        self.number, self.accesses, self.samples, self.seconds = number, 0, 0, 0.0


class Known:
    """A key that was accessed: by whom and when, and when first."""

    __slots__ = ("at", "category", "first", "hit")

    def __init__(self, at: float, category: Category, first: float, hit: bool) -> None:
        self.at, self.category, self.first, self.hit = at, category, first, hit


class Fits:
    """Learns from `access`; `pooled` and `of` are what it published. lives: learn these too."""

    def __init__(
        self, window_s: float, refit_s: float, min_samples: int, same_s: float, *, lives: bool
    ) -> None:
        self._window, self._refit, self._min = window_s, refit_s, min_samples
        self._same, self._lives = same_s, lives
        self._known: OrderedDict[Hashable, Known] = OrderedDict()
        self._periods: dict[Category, deque[Period]] = {}
        self._spans: dict[Category, dict[int, int]] = {}
        self._due = -inf
        self.published: Mapping[Category, Fit] = {}
        self.pooled: Fit | None = None

    def of(self, category: Category) -> Fit | None:
        """That of the category, else of all together; None: nothing was ever read again."""
        return self.published.get(category, self.pooled)

    def access(self, keys: Sequence[Hashable], category: Category, now: float) -> None:
        """A request of this category read or made blocks."""
        if now >= self._due:
            self.fit(now)
            self._due = (now // self._refit + 1) * self._refit
        self._period(category, now).accesses += len(keys)
        known, same = self._known, self._same
        fresh = Known(now, category, now, False)
        last: Known | None = None
        for key in keys:
            before = known.pop(key, None)
            if before is None:
                known[key] = fresh
                continue
            if before is not last:  # blocks of a prompt were mostly accessed together before, too
                last, gap = before, now - before.at
                late = gap > same
                now_known = Known(now, category, before.first, before.hit or late)
                period = self._period(before.category, now) if late else None
            known[key] = now_known
            if period is not None:
                period.samples += 1
                period.seconds += gap
            if self._lives:
                self._span(before, -1)
                self._span(now_known, 1)

    def _period(self, category: Category, now: float) -> Period:
        number = int(now // self._refit)
        periods = self._periods.get(category)
        if periods is None:
            periods = self._periods[category] = deque()
        if not periods or periods[-1].number < number:
            periods.append(Period(number))
        return periods[-1]

    def _span(self, known: Known, count: int) -> None:
        if known.hit:
            spans = self._spans.setdefault(known.category, {})
            bin = _bin(known.at - known.first)
            spans[bin] = spans.get(bin, 0) + count
            if not spans[bin]:
                del spans[bin]  # else it would be the median where nothing is left

    def fit(self, now: float) -> None:
        """Publish what the window says, and forget what is older."""
        known, oldest = self._known, now - self._window
        while known and (first := next(iter(known.items())))[1].at < oldest:
            del known[first[0]]
            if self._lives:
                self._span(first[1], -1)
        published: dict[Category, Fit] = {}
        accesses, samples, seconds = 0, 0, 0.0
        lives: dict[int, int] = {}
        for category, periods in [*self._periods.items()]:
            while periods and (periods[0].number + 1) * self._refit <= oldest:
                periods.popleft()
            if not periods:
                del self._periods[category]
                continue
            many = sum(period.accesses for period in periods)
            found = sum(period.samples for period in periods)
            took = sum(period.seconds for period in periods)
            spans = self._spans.get(category, {})
            if found >= self._min:
                published[category] = _fitted(many, found, took, spans)
            accesses, samples, seconds = accesses + many, samples + found, seconds + took
            for bin, count in spans.items():
                lives[bin] = lives.get(bin, 0) + count
        self.pooled = _fitted(accesses, samples, seconds, lives) if samples else None
        self.published = published


def _fitted(accesses: int, samples: int, seconds: float, lives: Mapping[int, int]) -> Fit:
    reused = min(1.0, samples / accesses) if accesses else 1.0
    return Fit(samples / seconds, reused, _median(lives))


def _bin(seconds: float) -> int:
    """Bins of equal ratio."""
    return floor(log(max(seconds, 1e-6), FACTOR))


def _median(bins: Mapping[int, int]) -> float:
    left = sum(bins.values()) / 2
    for bin in sorted(bins):
        left -= bins[bin]
        if left <= 0:
            return float(FACTOR ** (bin + 0.5))
    return inf
