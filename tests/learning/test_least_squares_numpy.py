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
