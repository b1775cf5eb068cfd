"""Coefficients that never stop learning."""

from __future__ import annotations

from random import Random

import pytest

from teola.learning.least_squares import LeastSquares


def test_every_measurement_counts_at_once() -> None:
    """The first one, too: of an op that a query uses once, it is all there is."""
    squares = LeastSquares((1e-4, 1e-4))
    for count, (units, seconds) in enumerate([(18.0, 2.2), (10.0, 1.4), (40.0, 4.4)] * 3, 1):
        squares.add((1.0, units), seconds)
        base, per_unit = squares.solve()
        assert squares.count == count
        assert base + per_unit * units == pytest.approx(seconds, rel=0.05)


def test_noise_is_no_reason_to_forget_the_terms() -> None:
    chance, squares = Random(1), LeastSquares((1e-4, 1e-4))
    for _ in range(200):
        units = chance.choice([1.0, 8.0, 32.0])
        squares.add((1.0, units), (0.5 + 0.1 * units) * chance.gauss(1.0, 0.03))
    base, per_unit = squares.solve()
    assert (base, per_unit) == (pytest.approx(0.5, rel=0.05), pytest.approx(0.1, rel=0.05))


def test_one_slow_measurement_moves_little() -> None:
    squares = LeastSquares((1e-4, 1e-4))
    for _ in range(20):
        squares.add((1.0, 10.0), 1.0)
        squares.add((1.0, 20.0), 2.0)
    squares.add((1.0, 10.0), 30.0)
    base, per_unit = squares.solve()
    assert base + 10 * per_unit == pytest.approx(1.0, rel=0.02)
