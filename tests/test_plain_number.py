"""Which values count as numbers."""

from __future__ import annotations

import sys
from math import inf, nan

import pytest

from teola.plain_number import is_number

LARGEST = int(sys.float_info.max)


@pytest.mark.parametrize("value", [0, -1, 2.5, inf, -inf, nan, LARGEST, -LARGEST])
def test_numbers_are_those_that_a_float_can_hold(value: float) -> None:
    assert is_number(value)
    float(value)


@pytest.mark.parametrize("value", [True, False, None, "1", [1], 1j, LARGEST + 1, -LARGEST - 1])
def test_all_else_is_none(value: object) -> None:
    assert not is_number(value)
