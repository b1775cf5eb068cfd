"""What tokens cost: how a price is written, and what follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import InputError
from teola.price import FREE, Price, shown_cost


@pytest.mark.parametrize(
    ("written", "price"),
    [
        ("2.5,0.25,10", Price(2.5, 10.0, 0.25)),
        ("2.5,10", Price(2.5, 10.0)),
        ("0,0,0", Price(0.0, 0.0, 0.0)),
        (" 1 , 2 ", Price(1.0, 2.0)),
        ([1, 2, 3], Price(1.0, 3.0, 2.0)),
        ((1.5, 2), Price(1.5, 2.0)),
    ],
)
def test_a_price_is_of_prompts_of_cached_ones_and_of_answers(written: Any, price: Price) -> None:
    assert Price.parse(written) == price


@pytest.mark.parametrize("written", ["", "1", "1,2,3,4", "1,x", "1,,2", [1], [1, None], 3])
def test_what_is_no_price_is_refused(written: Any) -> None:
    with pytest.raises(InputError, match=r"must be IN,CACHED,OUT: .*, or IN,OUT"):
        Price.parse(written)


@pytest.mark.parametrize("name", ["prompt", "answer", "cached"])
@pytest.mark.parametrize("value", [-0.1, 10**309, float("inf"), float("nan"), "1", True])
def test_a_price_is_a_number_from_0_on(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"a number from 0 on, not {name}="):
        Price(**{name: value})
    assert getattr(Price(**{name: 0.0}), name) == 0.0


def test_only_what_is_cached_may_have_no_price_of_its_own() -> None:
    assert Price(1.0, 2.0, None).cached is None
    with pytest.raises(InputError, match="not prompt=None"):
        Price(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [
        (Price(2.0, 10.0), (1_000_000, 0), 2.0),
        (Price(2.0, 10.0), (0, 1_000_000), 10.0),
        (Price(2.0, 10.0), (1_000_000, 0, 400_000), 2.0),
        (Price(2.0, 10.0, 0.5), (1_000_000, 100_000, 400_000), 1.2 + 1.0 + 0.2),
        (Price(2.0, 10.0, 0.0), (1_000_000, 0, 1_000_000), 0.0),
        (FREE, (9, 9, 9), 0.0),
    ],
)
def test_the_cost_of_a_call(price: Price, tokens: tuple[int, ...], cost: float) -> None:
    assert price.cost(*tokens) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (0, "0"),
        (-1, "0"),
        (12345.678, "12,345.68"),
        (10, "10.00"),
        (1.5, "1.50"),
        (1, "1.00"),
        (0.99, "0.990"),
        (0.1, "0.100"),
        (0.01234, "0.0123"),
        (0.0000276, "0.0000276"),
    ],
)
def test_a_sum_has_two_digits_and_three_that_say_something(cost: float, shown: str) -> None:
    assert shown_cost(cost) == shown
