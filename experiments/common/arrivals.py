"""When queries arrive: Poisson, or as in a trace of a real service, at any mean rate.

The same seed gives the same gaps, only scaled, so a sweep over rates moves one pattern.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.common import datasets

KINDS: Final = ("poisson", *datasets.TRACES)


def arrivals(
    rate: float, count: int, *, kind: str = "poisson", seed: int = 0, data: Path | None = None
) -> list[float]:
    """`count` ascending times in seconds, `rate` a second on average.

    A trace is used from its beginning and scaled to the rate; one that is too short starts anew.
    """
    if kind == "poisson":
        draw = random.Random(f"arrivals/{seed}")
        now, found = 0.0, []
        for _ in range(count):
            now += draw.expovariate(1.0)
            found.append(now / rate)
        return found
    return _traced(datasets.trace(kind, data), rate, count)


def _traced(times: Sequence[float], rate: float, count: int) -> list[float]:
    round_s = times[-1] + (times[-1] - times[0]) / max(1, len(times) - 1)
    found = [times[i % len(times)] + round_s * (i // len(times)) for i in range(count)]
    span = found[-1] - found[0] if count > 1 else 0.0
    scale = (count - 1) / span / rate if span > 0 else 0.0
    return [(at - found[0]) * scale for at in found]
