"""What experiments tell of many latencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def percentile(seconds: Sequence[float], percent: float) -> float:
    """Linear between the nearest two, in any order; 0 if there is nothing."""
    return float(np.percentile(seconds, percent)) if len(seconds) else 0.0
