"""Bounds of a query over tables: each holds exactly, and tells what it takes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from teola.errors import BudgetSpent, InputError, UnknownName
from teola.policies.ledger import BudgetAccount, Ledger
from teola.price import Price
from teola.tables.run_limits import RunLimits, Spent, Stopped

PRICE = Price(prompt=1.0, answer=10.0, cached=0.5)


@pytest.mark.parametrize(
    ("share", "rows", "allowed"),
    [
        (None, 0, 10),
        (None, 1_099, 10),
        (None, 1_100, 11),
        (0, 1_000, 0),
        (0.29, 100, 29),
        (0.5, 3, 1),
        (0.999, 1_000, 999),
        (1, 1_000, 1),
        (2.9, 1_000, 2),
        (7, 3, 7),
    ],
)
def test_errors_are_a_number_or_a_share(share: float | None, rows: int, allowed: int) -> None:
    assert RunLimits(max_errors=share).errors_allowed(rows) == allowed


def test_a_query_ends_with_the_first_error_too_many() -> None:
    spent = Spent(RunLimits())
    spent.first_error = "it broke"
    for failed, ends in ((0, False), (2, False), (3, True)):
        spent.failed = failed
        stopped = spent.failed_too_often(2)
        assert (stopped is not None) is ends
    assert isinstance(stopped, Stopped)
    assert str(stopped) == "3 rows failed, and max_errors allows 2; the first: it broke"
    strict = Spent(RunLimits(on_error="fail"))
    assert strict.failed_too_often(2) is None
    strict.failed, strict.first_error = 1, "it broke"
    assert str(strict.failed_too_often(2)) == "a row failed: it broke"


@pytest.mark.parametrize("most", [0, 1, 3])
def test_as_many_rows_are_asked_as_may_be(most: int) -> None:
    spent = Spent(RunLimits(most_calls=most))
    assert [spent.admit() for _ in range(most + 2)] == [True] * most + [False] * 2
    assert (spent.calls, spent.exceeded) == (most, f"most_calls of {most:,}")
    again = Spent(RunLimits(most_calls=most + 3, most_tokens=100))
    again.took_before(3, 50, 7, PRICE)
    assert [again.admit() for _ in range(most + 1)] == [True] * most + [False]
    assert again.ledger is not None
    assert again.ledger.left_tokens == 100
    free = Spent(RunLimits())
    assert all(free.admit() for _ in range(5))
    assert (free.exceeded, [free.next_id() for _ in range(3)]) == (None, [0, 1, 2])


def test_questions_and_rows_may_be_exactly_as_many() -> None:
    limits = RunLimits(most_questions=1_000, most_rows=0)
    limits.check_questions(1_000)
    limits.check_rows(0)
    with pytest.raises(InputError, match="has 1,001 questions to ask, more than the 1,000"):
        limits.check_questions(1_001)
    with pytest.raises(InputError, match="has 1 rows, more than the 0"):
        limits.check_rows(1)
    RunLimits().check_questions(10**9)
    RunLimits().check_rows(10**9)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"most_calls": -1}, "most_calls must not be negative, and is -1"),
        ({"most_tokens": 1.0}, "most_tokens must be a whole number, not 1.0"),
        ({"most_tokens": True}, "most_tokens must be a whole number, not True"),
        ({"max_errors": -0.1}, "max_errors must be a number from 0, not -0.1"),
        ({"max_errors": float("nan")}, "max_errors must be a number from 0"),
        ({"max_errors": True}, "max_errors must be a number from 0, not True"),
        ({"most_cost": float("inf"), "price": PRICE}, "most_cost must be a number from 0"),
        ({"deadline_s": 0}, "the deadline must be seconds above 0, not 0"),
        ({"deadline_s": "5"}, "the deadline must be seconds above 0, not '5'"),
        ({"most_cost": 1.0}, "most_cost needs a price"),
    ],
)
def test_bounds_that_are_none_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        RunLimits(**wrong)
    with pytest.raises(UnknownName):
        RunLimits(on_error="ignore")
    for name in ("most_calls", "most_tokens", "max_errors", "most_cost"):
        assert getattr(RunLimits(**{name: 0}, price=PRICE), name) == 0


def test_what_pays_for_it_is_named_where_it_is_its_own() -> None:
    limits = RunLimits(most_tokens=1_000, most_cost=0.5, price=PRICE)
    spent = Spent(limits)
    ledger = spent.ledger
    assert ledger is not None
    assert [one.most_tokens for one in ledger.accounts] == [1_000, float("inf")]
    ledger.accounts[0].tokens = 990
    assert spent.reached(BudgetSpent("x")) == "most_tokens of 1,000 is reached"
    ledger.accounts[0].tokens, ledger.accounts[1].cost = 0, 0.5
    assert spent.reached(BudgetSpent("x")) == "most_cost of 0.5 is reached"
    paid = Spent(limits, Ledger(BudgetAccount()))
    assert paid.reached(BudgetSpent("the key's day")) == "the key's day"
    assert Spent(RunLimits()).reached(BudgetSpent("x")) == "x"
    assert limits.cost(10, 4, 2) == pytest.approx(PRICE.cost(10, 2, 4))
    assert replace(limits, price=None, most_cost=None).cost(10, 4, 2) is None


def test_time_and_wishes_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("teola.tables.run_limits.time.monotonic", lambda: now[0])
    spent = Spent(RunLimits(deadline_s=5.0))
    assert spent.left_s() == 5.0
    now[0] = 104.9
    spent.check()
    for late in (105.0, 106.0):
        now[0] = late
        assert spent.left_s() == 0.0
        with pytest.raises(Stopped, match="the deadline of 5 s has passed") as stopped:
            spent.check()
        assert stopped.value.state == "deadline"
    spent.cancelled.set()
    with pytest.raises(Stopped) as stopped:
        spent.check()
    assert stopped.value.state == "cancelled"
    assert Spent(RunLimits()).left_s() is None
