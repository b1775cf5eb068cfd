"""Least squares that never stops: coefficients of a time, kept true by every new measurement.

A time is a sum of terms, each a known quantity times an unknown coefficient that is not negative.
What is minimised is the sum of the squared errors, each as a part of what was *expected*, in which
older measurements count less and less, and next to nothing once the times have changed. (As parts
of what was measured, the slow would count least, and a busy engine seem faster than it is.) Of the
measurements, only the normal equations are kept (the information form of recursive least squares),
so that adding one costs O(terms^2) and nothing is ever inverted. The first few are kept as they are
and weighed anew each time: nobody knows what to expect of them, and as a part of itself, an answer
in no time (a greeting, say) would count as much as a hundred others.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

FORGETTING: Final = 0.998
"""A measurement counts half as much 350 measurements later."""
ROBUST: Final = 3.0
"""Errors of so many times the usual one count no more than in proportion (Huber, 1964)."""
USUAL: Final = 0.05
"""Smallest relative error that is held to be usual."""
UNEXPECTED: Final = 0.5
"""At least so much of what was measured is held to have been expected."""
CHANGED: Final = 16
"""So many measurements in a row that took longer than usual (or shorter): the times are others."""
BEFORE: Final = 1 / 256
"""Weight of what was measured before they changed."""
FIRST: Final = 16
"""So many measurements are kept as they are."""
ROUNDS: Final = 4
"""How often those are weighed: by their seconds, and then by what was found."""
LARGEST: Final = 1e9
"""Weight at which all are scaled down, long before floats overflow."""


class LeastSquares:
    """Coefficients of so many terms as `ridge` is long.

    ridge: how much the measurements must say of a term, as a part of what they say of all of them
    together, for it not to be 0: of two terms that they cannot tell apart, the one of the smaller
    ridge has the time.
    """

    def __init__(self, ridge: Sequence[float]) -> None:
        self.terms, self._ridge = len(ridge), tuple(ridge)
        terms = self.terms
        self.count = 0
        self._normal = [[0.0] * terms for _ in range(terms)]
        self._moment = [0.0] * terms
        self._first = list[tuple[tuple[float, ...], float]]()
        self._weight = 1.0
        self._error = 0.0
        self._row = 0
        """Measurements in a row with an error to one side; negative: that took longer."""
        self._solved: tuple[float, ...] | None = None
        self._at = 0

    def add(self, quantities: Sequence[float], seconds: float) -> None:
        """A measurement: so much of each term took so long (more than 0 seconds)."""
        if self.count < FIRST:
            self._first.append((tuple(quantities), seconds))
            self.count += 1
            return
        if self._at * 2 <= self.count or self._first:
            self.solve()
            self._first.clear()
        self._weight /= FORGETTING
        if self._have_changed(self._off(quantities, seconds)):
            self.solve()
            if abs(self._off(quantities, seconds)) > self._usual:
                self._weight /= BEFORE
        error, usual = abs(self._off(quantities, seconds)), self._usual
        scale, weight = self._scale(quantities, seconds), self._weight
        if error > ROBUST * usual:
            weight *= ROBUST * usual / error
        self._error += (min(error, 2 * ROBUST * usual) - self._error) / min(self.count, 32)
        self.count += 1
        self._put(quantities, seconds, scale, weight)
        if self._weight > LARGEST:
            self._normal = [[value / LARGEST for value in row] for row in self._normal]
            self._moment = [value / LARGEST for value in self._moment]
            self._weight /= LARGEST

    def _put(
        self, quantities: Sequence[float], seconds: float, scale: float, weight: float
    ) -> None:
        """Into the normal equations, as a part of `scale`."""
        row, took = [quantity / scale for quantity in quantities], seconds / scale
        for j, value in enumerate(row):
            if value:
                scaled = weight * value
                self._moment[j] += scaled * took
                normal = self._normal[j]
                for k in range(j + 1):
                    normal[k] += scaled * row[k]

    def _weigh_first(self) -> None:
        """The normal equations of the first measurements, by iteratively reweighted least squares:
        all as parts of one time, then each as a part of what was expected, and what is far off
        less."""
        scales = [fmean(seconds for _, seconds in self._first)] * self.count
        weights = [1.0] * self.count
        for left in reversed(range(ROUNDS)):
            self._normal = [[0.0] * self.terms for _ in range(self.terms)]
            self._moment = [0.0] * self.terms
            for (quantities, seconds), scale, weight in zip(
                self._first, scales, weights, strict=True
            ):
                self._put(quantities, seconds, scale, weight)
            if not left:
                break
            self._solved = self._coefficients()
            errors = [abs(self._off(*one)) for one in self._first]
            usual = max(USUAL, median(errors))
            scales = [self._scale(*one) for one in self._first]
            weights = [min(1.0, ROBUST * usual / error) if error else 1.0 for error in errors]
            self._error = fmean(min(error, 2 * ROBUST * usual) for error in errors)

    def _scale(self, quantities: Sequence[float], seconds: float) -> float:
        """What the error of a measurement is a part of."""
        return max(self._expected(quantities), seconds * UNEXPECTED)

    @property
    def _usual(self) -> float:
        """The error that counts as usual."""
        return max(USUAL, self._error)

    def _expected(self, quantities: Sequence[float]) -> float:
        """Seconds, by the coefficients that were found last."""
        return sum(a * b for a, b in zip(self._solved or (), quantities, strict=True))

    def _off(self, quantities: Sequence[float], seconds: float) -> float:
        """How far off that is, as a part of the longer time: from -1 (it takes ages) to 1."""
        expected = self._expected(quantities)
        return (expected - seconds) / max(expected, seconds)

    def _have_changed(self, error: float) -> bool:
        """Whether so many measurements in a row are off to one side."""
        side = (error > self._usual) - (error < -self._usual)
        self._row = self._row + side if side * self._row > 0 else side
        if abs(self._row) < CHANGED:
            return False
        self._row = 0
        return True

    def so_far(self, quantities: Sequence[float]) -> float:
        """Seconds that so much of the first terms takes, by the coefficients that were found last;
        0 if none were."""
        return sum(a * b for a, b in zip(self._solved or (), quantities, strict=False))

    def solve(self) -> tuple[float, ...]:
        """The coefficients now, none of them negative: one that would be is 0, and the others
        stand without it."""
        if self._solved is not None and self._at == self.count:
            return self._solved
        if self._first:
            self._weigh_first()
        self._solved, self._at = self._coefficients(), self.count
        return self._solved

    def _coefficients(self) -> tuple[float, ...]:
        """Of the normal equations as they are, none negative."""
        free = [j for j in range(self.terms) if self._normal[j][j] > 0]
        coefficients = [0.0] * self.terms
        while free:
            values = self._solution(free)
            worst = min(range(len(free)), key=lambda n: values[n])
            if values[worst] >= 0:
                for j, value in zip(free, values, strict=True):
                    coefficients[j] = value
                break
            del free[worst]
        return tuple(coefficients)

    def _solution(self, free: Sequence[int]) -> list[float]:
        """The normal equations of the terms `free`, by elimination."""
        rows = []
        for j in free:
            pull = self._ridge[j] * self._normal[j][j]
            row = [self._normal[max(j, k)][min(j, k)] + (pull if j == k else 0.0) for k in free]
            rows.append([*row, self._moment[j]])
        for n, row in enumerate(rows):
            for other in rows[n + 1 :]:
                factor = other[n] / row[n]
                for k in range(n, len(row)):
                    other[k] -= factor * row[k]
        values = [0.0] * len(rows)
        for n in reversed(range(len(rows))):
            row = rows[n]
            rest = sum(row[k] * values[k] for k in range(n + 1, len(rows)))
            values[n] = (row[-1] - rest) / row[n]
        return values
