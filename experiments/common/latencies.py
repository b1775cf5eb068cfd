"""What experiments tell of many latencies, and of figures measured with several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Final

import numpy as np

STUDENT: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""95 % quantiles of |t|, from one degree of freedom on; 2.26 for more than nine."""


def percentile(seconds: Sequence[float], percent: float) -> float:
    """Linear between the nearest two, in any order; 0 if there is nothing."""
    return float(np.percentile(seconds, percent)) if len(seconds) else 0.0


def geometric(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(fmean(map(log, ratios)))


def within(found: Sequence[float]) -> float:
    """How far the mean of the figures that seeds gave may be off, at 95 % confidence; 0 for one."""
    if len(found) < 2:
        return 0.0
    factor = STUDENT[min(len(found) - 1, len(STUDENT)) - 1]
    return factor * stdev(found) / sqrt(len(found))
