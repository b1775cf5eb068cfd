"""Options of eviction policies, checked alike."""

from __future__ import annotations

from math import inf
from typing import Any

from teola.errors import InputError
from teola.plain_number import is_number


def positive_number(
    policy: str, option: str, value: Any, *, above: bool = True, most: float = inf
) -> float:
    """A number above 0, or from 0 on, up to `most` (inf: infinity itself too). Raises InputError.

    above: 0 is too little.
    """
    if is_number(value) and 0 <= value <= most and not (above and value == 0):
        return float(value)
    least = "above 0" if above else "from 0 on"
    raise InputError(
        f"eviction policy {policy!r}: {option} must be a number {least}, got {value!r}"
    )


def whole_number(policy: str, option: str, value: Any) -> int:
    """A whole number from 1 on. Raises InputError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise InputError(
        f"eviction policy {policy!r}: {option} must be a whole number from 1 on, got {value!r}"
    )
