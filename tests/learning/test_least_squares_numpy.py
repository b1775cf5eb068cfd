"""Least squares against numpy, which solves all measurements at once, each weighed by its age."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from teola.learning.least_squares import FORGETTING, LeastSquares
from tests.planted import catches, edited

TRUTH = (0.05, 0.01, 2e-4)
TINY = (1e-12,) * len(TRUTH)
EXACT = 120
"""Measurements without noise that come first, so that what is expected is right."""

Row = tuple[tuple[float, ...], float]


def measured(draw: random.Random, noise: float) -> Row:
    """Quantities of three terms that go together little, and the seconds that they took."""
    quantities = (1.0, float(draw.randint(0, 40)), float(draw.randint(0, 900)))
    seconds = sum(a * b for a, b in zip(TRUTH, quantities, strict=True))
    return quantities, seconds * draw.uniform(1 - noise, 1 + noise)


def solved(rows: Sequence[Row], expected: Sequence[float], ridge: Sequence[float]) -> list[float]:
    """By numpy. Each measurement counts as a part of what was expected, less by its age; each
    ridge is a further measurement, which says that its term is 0."""
    table, took = [], []
    for age, ((quantities, seconds), scale) in enumerate(
        zip(reversed(rows), reversed(expected), strict=True)
    ):
        root = FORGETTING ** (age / 2)
        table.append([root * quantity / scale for quantity in quantities])
        took.append(root * seconds / scale)
    lengths = np.sqrt((np.array(table) ** 2).sum(axis=0))
    table += (np.sqrt(ridge) * np.diag(lengths)).tolist()
    took += [0.0] * len(ridge)
    return [float(value) for value in np.linalg.lstsq(np.array(table), np.array(took))[0]]


def agrees(seed: int, ridge: Sequence[float], noise: float, rel: float) -> None:
    """Solved after each measurement, so that what is expected is by the one before."""
    draw, squares = random.Random(seed), LeastSquares(ridge)
    rows, expected = list[Row](), list[float]()
    for k in range(EXACT + 200):
        quantities, seconds = measured(draw, noise if k >= EXACT else 0.0)
        before = squares.so_far(quantities) if k >= EXACT else seconds
        rows.append((quantities, seconds))
        expected.append(before)
        squares.add(quantities, seconds)
        found = squares.solve()
        assert squares.count == len(rows)
        if k >= EXACT and k % 7 == 0:
            assert found == pytest.approx(solved(rows, expected, ridge), rel=rel)
            whole = sum(a * b for a, b in zip(found, quantities, strict=True))
            assert squares.so_far(quantities) == pytest.approx(whole)
            first = found[0] * quantities[0] + found[1] * quantities[1]
            assert squares.so_far(quantities[:2]) == pytest.approx(first)


@pytest.mark.parametrize("seed", range(3))
def test_exact_measurements_are_solved_as_by_numpy(seed: int) -> None:
    agrees(seed, TINY, 0.0, 1e-6)


@catches(
    "squares-no-forgetting",
    "old measurements count as much as new ones",
    edited(LeastSquares.add, "self._weight /= FORGETTING", "pass"),
)
@catches(
    "squares-by-measured",
    "errors are parts of what was measured, so that the slow count least",
    edited(LeastSquares._scale, "max(self._expected(quantities), seconds * UNEXPECTED)", "seconds"),
)
@catches(
    "squares-weight-twice",
    "what was measured is weighed and what was asked for is not",
    edited(LeastSquares._put, "scaled * took", "value * took"),
)
@catches(
    "squares-ridge-absolute",
    "a ridge is a number and not a part of what is known",
    edited(LeastSquares._solution, "self._ridge[j] * self._normal[j][j]", "self._ridge[j]"),
)
@catches(
    "squares-last-row",
    "the last of what is known is left out",
    edited(
        LeastSquares._solution,
        "for k in range(n + 1, len(rows))",
        "for k in range(n + 2, len(rows))",
    ),
)
def test_noisy_measurements_are_solved_as_by_numpy() -> None:
    for seed in range(3):
        agrees(seed, (1e-3, 1e-4, 1e-2), 0.04, 2e-3)


# --- all of it, as it is written down ---------------------------------------------------------


class Slow:
    """Keeps every measurement with its weight, and has numpy solve them all, each time."""

    def __init__(self, ridge: Sequence[float]) -> None:
        self.ridge = ridge
        self.rows = list[tuple[tuple[float, ...], float, float, float]]()
        self.first = list[Row]()
        self.weight, self.error, self.streak = 1.0, 0.0, 0
        self.found: Sequence[float] = ()

    def solved(self) -> list[float]:
        table = [
            [weight**0.5 * quantity / scale for quantity in quantities]
            for quantities, _, scale, weight in self.rows
        ]
        took = [weight**0.5 * seconds / scale for _, seconds, scale, weight in self.rows]
        lengths = np.sqrt((np.array(table) ** 2).sum(axis=0))
        whole = np.array(table + (np.sqrt(self.ridge) * np.diag(lengths)).tolist())
        terms = [k for k, length in enumerate(lengths) if length]
        while True:  # without the most negative one, as often as there is one
            values = np.linalg.lstsq(whole[:, terms], np.array(took + [0.0] * len(lengths)))[0]
            if min(values) >= 0:
                by_term = dict(zip(terms, map(float, values), strict=True))
                return [by_term.get(k, 0.0) for k in range(len(lengths))]
            del terms[int(np.argmin(values))]

    def expected(self, quantities: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(self.found, quantities, strict=True))

    def off(self, row: Row) -> float:
        expected = self.expected(row[0])
        return (expected - row[1]) / max(expected, row[1])

    def scale(self, row: Row) -> float:
        return max(self.expected(row[0]), row[1] / 2)

    def add(self, row: Row) -> None:
        if len(self.first) < 16:
            self.first.append(row)
            self.weigh_first()
            return
        self.weight /= FORGETTING
        off, usual = self.off(row), max(0.05, self.error)
        side = 0 if abs(off) <= usual else 1 if off > 0 else -1
        self.streak = self.streak + side if side * self.streak > 0 else side
        if abs(self.streak) == 16:
            self.streak = 0
            self.weight *= 256
        error = abs(off)
        weight = self.weight * min(1.0, 3 * usual / error)
        self.error += (min(error, 6 * usual) - self.error) / min(len(self.rows), 32)
        self.rows.append((*row, self.scale(row), weight))
        self.found = self.solved()

    def weigh_first(self) -> None:
        mean = sum(seconds for _, seconds in self.first) / len(self.first)
        self.rows = [(*row, mean, 1.0) for row in self.first]
        for _ in range(3):
            self.found = self.solved()
            errors = [abs(self.off(row)) for row in self.first]
            usual = max(0.05, float(np.median(errors)))
            self.error = sum(min(error, 6 * usual) for error in errors) / len(errors)
            self.rows = [
                (*row, self.scale(row), min(1.0, 3 * usual / max(error, 1e-300)))
                for row, error in zip(self.first, errors, strict=True)
            ]
        self.found = self.solved()


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("seed", range(2))
def test_coefficients_are_those_of_every_measurement_by_its_weight(seed: int, noise: float) -> None:
    """While some measurements are far off, times become others for so many in a row, and nearly so
    many."""
    draw, ridge = random.Random(seed), (1e-3, 1e-4, 1e-2)
    squares, slow = LeastSquares(ridge), Slow(ridge)
    for k in range(260):
        quantities, seconds = measured(draw, noise)
        if k in (7, 12) or (k > 20 and draw.random() < 0.06):
            seconds *= draw.choice((0.1, 4.0))
        if 80 <= k < 95 or 110 <= k < 126 or k > 160:
            seconds *= 2.2
        squares.add(quantities, seconds)
        slow.add((quantities, seconds))
        assert squares.solve() == pytest.approx(slow.found, rel=1e-6, abs=1e-12), k


@pytest.mark.parametrize("count", [1, 3, 15, 16, 17])
def test_what_is_just_as_expected_is_no_error(count: int) -> None:
    squares = LeastSquares((0.0,))
    for _ in range(count):
        squares.add((2.0,), 3.0)
        squares.solve()
    assert squares.solve() == pytest.approx((1.5,))
