"""What rows reserve and take, against a tally that adds everything up after each step."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from teola.engine import Usage
from teola.errors import InputError
from teola.policies.ledger import BudgetAccount, Ledger
from teola.price import Price
from teola.runtime.live.row_budget import EXTRA_TOKENS, MARGIN, RowBudget

PRICE = Price(prompt=1.0, answer=10.0, cached=0.5)
ROW, ANSWER = 10, 20
EACH = MARGIN * ROW + EXTRA_TOKENS + ANSWER
"""Tokens that are reserved for a row."""


def money(usage: Usage) -> float:
    return PRICE.cost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_what_no_row_took_or_may_take(seed: int) -> None:
    chance = Random(seed)
    account = BudgetAccount(most_tokens=EACH * 40 + 5, most_cost=1.0)
    budget = RowBudget(Ledger(account), PRICE, ANSWER)
    measured: list[tuple[int, object]] = []
    windows: dict[int, tuple[int, list[Usage]]] = {}
    paid: list[Usage] = []

    def check() -> None:
        rows = sum(count for count, _ in measured) + sum(count for count, _ in windows.values())
        assert account.held_tokens == rows * EACH
        assert account.tokens == sum(one.prompt_tokens + one.completion_tokens for one in paid)
        assert account.cost == pytest.approx(sum(map(money, paid)))
        assert account.open == len(measured) + len(windows)

    for step in range(60):
        rows = chance.randint(1, 20)
        usage = Usage(chance.randint(0, 30), chance.randint(0, 5), chance.randint(0, 9))
        match chance.choice(("afford", "begin", "use", "fail", "settle")):
            case "afford":
                fits, fit = max(0, account.left_tokens // EACH), rows
                while fit > fits:
                    fit //= 2
                count, made = budget.afford(rows, ROW)
                assert (count, made is None) == (fit, fit == 0)
                if made is not None:
                    measured.append((count, made))
            case "begin" if measured:
                count, made = measured.pop(chance.randrange(len(measured)))
                budget.begins(step, made)  # type: ignore[arg-type]
                windows[step] = count, []
            case "use" if windows:
                window = chance.choice(list(windows))
                budget.used(window, usage)
                windows[window][1].append(usage)
            case "fail":
                window = chance.choice([*windows, -1])
                budget.failed(window, usage)
                (paid if window < 0 else windows[window][1]).append(usage)
            case "settle" if windows:
                window = chance.choice(list(windows))
                budget.settle(window)
                budget.settle(window)  # nothing is left of it
                paid += windows.pop(window)[1]
        check()
    budget.close()
    for _, used in windows.values():
        paid += used
    measured.clear()
    windows.clear()
    check()
    assert account.held_tokens == account.open == 0


def test_as_many_rows_are_asked_as_there_is_room_for_and_no_more() -> None:
    for room, wanted, rows in ((8, 8, 8), (8, 9, 4), (7, 8, 4), (1, 8, 1), (0, 8, 0)):
        account = BudgetAccount(most_tokens=room * EACH)
        count, made = RowBudget(Ledger(account), None, ANSWER).afford(wanted, ROW)
        assert (count, made is None, account.held_tokens) == (rows, rows == 0, rows * EACH)
        below = BudgetAccount(most_tokens=room * EACH - 1)
        assert RowBudget(Ledger(below), None, ANSWER).afford(room, ROW)[0] == room // 2


def test_who_waits_is_asked_when_something_is_there_again_and_told_when_nothing_will_be() -> None:
    account = BudgetAccount(most_tokens=EACH)
    budget, asked = RowBudget(Ledger(account), None, ANSWER), list[int]()
    _, made = budget.afford(1, ROW)
    assert made is not None
    budget.begins(0, made)
    assert budget.wait(ROW, lambda: asked.append(1)) is None
    assert budget.wait(ROW, lambda: asked.append(2)) is None
    assert asked == []
    budget.settle(0)
    assert asked == [1, 2]
    account.tokens = int(EACH)
    spent = budget.wait(ROW, lambda: asked.append(3))
    assert spent is not None
    assert "this query" in str(spent)
    assert asked == [1, 2]


def test_a_bound_in_money_needs_a_price() -> None:
    bounded = RowBudget(Ledger(BudgetAccount(most_cost=1.0)), None, ANSWER)
    with pytest.raises(InputError) as raised:
        bounded.afford(1, ROW)
    assert str(raised.value) == (
        "a bound in money needs the price of the rows' model: add it to `prices` of the "
        "configuration or the Runtime"
    )
    assert RowBudget(Ledger(BudgetAccount(most_cost=inf)), None, ANSWER).afford(1, ROW)[0] == 1
