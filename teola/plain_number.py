"""Which values count as numbers, wherever an option has to be one."""

from __future__ import annotations

import sys
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number that a float can hold: true and false are none, nor is a whole
    number above 1.8e308; infinity and NaN are."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= sys.float_info.max
    return isinstance(value, float)
