"""Looking for the value of an option that costs least: a coarse grid, then between its neighbours.

0   0.2   0.4   0.6   0.8   1        coarse: 0.2 is best
  0.1   0.3                          fine: half-way to its neighbours
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

CostOf = Callable[[float], float]


def neighbours(grid: Sequence[float], value: float) -> list[float]:
    """The values half-way to those beside one of the grid."""
    values = sorted(set(grid))
    at = values.index(value)
    beside = [values[k] for k in (at - 1, at + 1) if 0 <= k < len(values)]
    return sorted(round((value + other) / 2, 12) for other in beside)


def best(cost: CostOf, grid: Sequence[float]) -> float:
    """The value of the least cost; of equal ones the smallest. Each is worked out once."""
    costs: dict[float, float] = {}

    def least(values: Sequence[float]) -> float:
        for value in values:
            if value not in costs:
                costs[value] = cost(value)
        return min(sorted(values), key=costs.__getitem__)

    coarse = least(sorted(set(grid)))
    return least(sorted([coarse, *neighbours(grid, coarse)]))
