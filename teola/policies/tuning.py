"""Options of a policy that can change while it decides.

A policy declares `tunable = {"alpha": (0.0, 0.2, ..., 1.0)}`, the values among which a tuner looks,
and has a method `tune(**options)`: it holds from the next call on, and raises InputError for a
value that cannot be. Of what waits, the policy says itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teola.errors import InputError, UnknownName

Grid = Mapping[str, tuple[float, ...]]
"""Values of each option, ascending."""


def grid_of(policy: Any) -> Grid:
    """What a policy declares as tunable; nothing by default. Raises InputError for an option with
    fewer than two values, between which nobody could choose."""
    grid: Grid = getattr(policy, "tunable", {})
    for option, values in grid.items():
        if len(set(values)) < 2:
            raise InputError(
                f"{type(policy).__name__} declares {option!r} as tunable with {len(set(values))} "
                "value; give two or more, or leave it out of `tunable`"
            )
    return grid


def tune(policy: Any, options: Mapping[str, Any]) -> str:
    """Change options of a policy; "", or why they were refused. Then nothing has changed."""
    called = type(policy).__name__
    try:
        grid = grid_of(policy)
        if not options:
            raise InputError("no option is named")
        for option in options:
            if option not in grid:
                if not grid:
                    raise InputError(f"{called} has no option that can change while it runs")
                raise UnknownName("tunable option", option, grid, called)
        policy.tune(**options)
    except InputError as error:
        return str(error)
    return ""
