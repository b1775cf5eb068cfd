"""Whether queries have become slower: Welch's test, one-sided.

H1 is "the new mean is greater". The variances of the two samples need not be equal (the paper does
not say which test it means). In pure Python: the tail of Student's distribution is a continued
fraction of the incomplete beta function (Numerical Recipes, section 6.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, lgamma, log, log1p, sqrt
from statistics import fmean, variance
from typing import Final, NamedTuple

TINY: Final = 1e-300
TERMS: Final = 300


class Drift(NamedTuple):
    """t: the statistic; p: how likely one so great is where nothing has changed."""

    t: float
    p: float


def greater(new: Sequence[float], reference: Sequence[float]) -> Drift | None:
    """Whether `new` has a greater mean; None: there is nothing to be told, because a sample has
    fewer than two values or neither varies."""
    if len(new) < 2 or len(reference) < 2:
        return None
    a, b = variance(new) / len(new), variance(reference) / len(reference)
    if a + b <= 0:
        return None
    t = (fmean(new) - fmean(reference)) / sqrt(a + b)
    freedom = (a + b) ** 2 / (a * a / (len(new) - 1) + b * b / (len(reference) - 1))
    return Drift(t, tail(t, freedom))


def tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's distribution."""
    if t in (inf, -inf):
        return 0.0 if t > 0 else 1.0
    half = _beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return half if t > 0 else 1 - half


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = _inverse(1 + term * d)
            c = 1 + term / (c or TINY)
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return fraction


def _inverse(value: float) -> float:
    return 1 / (value if abs(value) > TINY else TINY)
