"""What may be taken in a day: bounds, and the next day."""

from __future__ import annotations

from math import inf, nan

import pytest

from teola.errors import InputError
from teola.policies.ledger import Ledger
from teola.price import FREE, Price
from teola.runtime.day_accounts import DayAccounts, DayBudget, _today, check_bounds


@pytest.mark.parametrize("tokens", [0, -1, 1.0, True, "5", inf])
def test_a_bound_on_tokens_is_a_whole_number_from_1_on(tokens: object) -> None:
    with pytest.raises(InputError, match="tokens a day must be a whole number from 1 on, not"):
        DayBudget(tokens=tokens)  # type: ignore[arg-type]
    check_bounds(1, None, "tokens", "cost")


@pytest.mark.parametrize("cost", [0, -0.5, inf, nan, True, "5"])
def test_a_bound_on_money_is_a_number_above_0(cost: object) -> None:
    with pytest.raises(InputError, match="cost a day must be a number above 0, not"):
        DayBudget(cost=cost)  # type: ignore[arg-type]
    check_bounds(None, 0.001, "tokens", "cost")
    check_bounds(None, 1, "tokens", "cost")


def test_a_day_is_one_of_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    for at, day in ((0.0, 0), (86_399.9, 0), (86_400.0, 1), (86_400.0 * 3, 3)):
        monkeypatch.setattr("time.time", lambda at=at: at)
        assert _today() == day


def test_an_account_is_one_by_its_name_and_bounded_by_what_is_said_now() -> None:
    days = DayAccounts(lambda: 7)
    first = days.account("app", DayBudget(tokens=10))
    assert (first.name, first.day) == ("app", 7)
    assert (first.most_tokens, first.most_cost) == (10, inf)
    first.tokens = 4
    again = days.account("app", DayBudget(cost=2.0))
    assert again is first
    assert (again.tokens, again.most_tokens, again.most_cost) == (4, inf, 2.0)
    assert days.account("key", DayBudget(tokens=10)) is not first


def test_the_next_day_everything_is_there_again_but_what_is_reserved() -> None:
    day = 1
    days = DayAccounts(lambda: day)
    account = days.account("app", DayBudget(tokens=100, cost=1.0))
    ledger, price = Ledger(None, others=[account]), Price(1.0, 1.0)
    done = ledger.reserve(30, 30, price)
    runs = ledger.reserve(10, 10, price)
    assert done is not None
    assert runs is not None
    done.settle(30, 30, 0, price)
    assert account.answer(0, FREE) == 20
    assert account.tokens == 60
    assert account.cost == pytest.approx(60e-6)
    day = 2
    assert account.answer(5, FREE) == 75
    assert (account.tokens, account.cost, account.day) == (0, 0.0, 2)
    account.tokens = 50
    assert account.answer(0, FREE) == 30, "of one day it is taken once"
    runs.settle(10, 5, 0, price)
    assert account.tokens == 65
    day = 1  # a clock that was put right
    assert account.answer(0, FREE) == 100
