"""What experiments tell of many latencies."""

from __future__ import annotations

import pytest

from experiments.common.latencies import percentile
from experiments.common.simulate import Latencies


def test_a_percentile_lies_between_the_nearest_two() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([1.0, 2.0], 99) == pytest.approx(1.99)
    assert percentile([7.0], 99) == 7.0
    assert Latencies([4.0, 1.0, 3.0, 2.0], []).percentile(50) == 2.5


def test_of_nothing_it_is_nothing() -> None:
    assert percentile([], 99) == 0.0
