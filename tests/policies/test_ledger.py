"""Ledgers: whatever calls reserve, settle and give back, no account is ever passed."""

from __future__ import annotations

import random
from functools import partial
from math import inf

import pytest

from teola.errors import InputError
from teola.policies.ledger import LEAST_ANSWER, BudgetAccount, Ledger, Reservation
from teola.price import Price
from tests.planted import catches, edited

DEAR = Price(prompt=2.0, answer=10.0, cached=0.5)


@catches(
    "kept-room-lent",
    "what is kept for an agent's last answer is lent to others",
    edited(BudgetAccount.left_tokens.fget, " - self.kept_tokens", ""),
)
@catches(
    "reservation-forgotten",
    "what is reserved is there for others, too",
    edited(BudgetAccount.left_tokens.fget, " - self.held_tokens", ""),
)
@catches(
    "money-not-counted",
    "an answer is not lowered to what it may cost",
    edited(BudgetAccount.answer, "tokens = min(tokens, money * 1_000_000 / price.answer)", "pass"),
)
@catches(
    "settled-twice",
    "a reservation comes back twice",
    edited(Reservation.give_back, "if self.closed:", "if False:"),
)
def test_no_account_is_ever_passed() -> None:
    for seed in range(8):
        _drawn(random.Random(seed))


def _drawn(draw: random.Random) -> None:
    day = BudgetAccount("a day", most_tokens=30_000, most_cost=0.2)
    ledgers = [Ledger(BudgetAccount(most_tokens=draw.choice([2_000, 9_000])), others=[day])]
    for _ in range(5):
        own = BudgetAccount(
            most_tokens=draw.choice([inf, 3_000]), most_cost=draw.choice([inf, 0.01])
        )
        ledgers.append(Ledger(own, around=draw.choice(ledgers)))
    accounts = {account for ledger in ledgers for account in ledger.accounts}
    open_: list[Reservation] = []
    taken: list[tuple[Reservation, int, float]] = []
    for _ in range(400):
        ledger, what = draw.choice(ledgers), draw.random()
        if what < 0.5:
            prompt, answer = draw.randrange(600), draw.randrange(1, 900)
            made = ledger.reserve(prompt, answer, DEAR)
            if made is None:
                assert ledger.answer(prompt, DEAR) < min(LEAST_ANSWER, answer)
            else:
                assert min(LEAST_ANSWER, answer) <= made.answer_tokens <= answer
                open_.append(made)
        elif what < 0.6:
            if (kept := ledger.keep(draw.randrange(300), draw.randrange(1, 100), DEAR)) is not None:
                open_.append(kept)
        elif open_:
            one = open_.pop(draw.randrange(len(open_)))
            prompt = draw.randrange(int(one.prompt_tokens) + 1)
            answer, cached = draw.randrange(one.answer_tokens + 1), draw.randrange(prompt + 1)
            price = draw.choice([None, None, Price(prompt=1.0, answer=3.0, cached=0.5)])
            if draw.random() < 0.8:
                one.settle(prompt, answer, cached, price)
                taken.append((one, prompt + answer, (price or DEAR).cost(prompt, answer, cached)))
            one.give_back()
        for account in accounts if draw.random() < 0.1 else ():
            _adds_up(account, open_, taken)
        for account in accounts:
            assert account.tokens + account.held_tokens + account.kept_tokens <= account.most_tokens
            spent = account.cost + account.held_cost + account.kept_cost
            assert spent <= account.most_cost + 1e-9
            assert account.held_tokens >= 0
    for one in open_:
        one.give_back()
    for account in accounts:
        assert (account.held_tokens, account.kept_tokens, account.open) == (0, 0, 0)
        assert account.held_cost == 0
        assert abs(account.kept_cost) < 1e-9


def _adds_up(
    account: BudgetAccount, open_: list[Reservation], taken: list[tuple[Reservation, int, float]]
) -> None:
    """Each figure is the sum over all that was reserved and taken of it."""
    mine = [one for one in open_ if account in one.accounts]
    of_calls, kept = ([one for one in mine if one.kept is kept] for kept in (False, True))
    used = [(tokens, cost) for one, tokens, cost in taken if account in one.accounts]
    assert account.open == len(of_calls)
    assert account.tokens == sum(tokens for tokens, _ in used)
    assert account.cost == pytest.approx(sum(cost for _, cost in used))
    for those, tokens, cost in (
        (of_calls, account.held_tokens, account.held_cost),
        (kept, account.kept_tokens, account.kept_cost),
    ):
        assert tokens == sum(one.prompt_tokens + one.answer_tokens for one in those)
        assert cost == pytest.approx(
            sum(DEAR.cost(one.prompt_tokens, one.answer_tokens) for one in those), abs=1e-9
        )


def test_what_is_kept_is_there_for_its_own_call_only() -> None:
    ledger = Ledger(BudgetAccount(most_tokens=1_000))
    kept = ledger.keep(300, 200)
    assert kept is not None
    assert ledger.reserve(490, 500) is None
    first = ledger.reserve(400, 500)
    assert first is not None
    assert first.answer_tokens == 100
    last = ledger.reserve(350, 200, kept=kept)
    assert last is not None
    assert last.answer_tokens == 150


def test_who_waits_tries_again_in_order_when_something_comes_back() -> None:
    account = BudgetAccount(most_tokens=1_000)
    ledger, through = Ledger(account), list[str]()
    first = ledger.reserve(500, 500)
    assert first is not None

    def tries(name: str) -> bool:
        if ledger.reserve(300, 200, least=200) is None:
            return False
        through.append(name)
        return True

    for name in "abc":
        account.waiting.append(partial(tries, name))
    first.settle(100, 100)
    assert through == ["a"]
    assert len(account.waiting) == 2


def test_all_who_have_room_go_on_wherever_they_wait() -> None:
    """Here for an account that others share."""
    day = BudgetAccount("a day", most_tokens=1_000)
    ledger, through = Ledger(BudgetAccount(most_tokens=9_000), others=[day]), list[str]()
    first = ledger.reserve(500, 500)
    assert first is not None

    def tries(name: str) -> bool:
        if ledger.reserve(300, 100, least=100) is None:
            return False
        through.append(name)
        return True

    for name in "abc":
        day.waiting.append(partial(tries, name))
    first.give_back()
    assert (through, len(day.waiting)) == (["a", "b"], 1)


def test_nobody_overtakes_the_first_who_waits() -> None:
    account = BudgetAccount(most_tokens=1_000)
    ledger, asked = Ledger(account), list[str]()
    first = ledger.reserve(400, 100)
    assert first is not None
    assert ledger.reserve(400, 100) is not None
    account.waiting.append(lambda: asked.append("large") or False)  # type: ignore[func-returns-value]
    account.waiting.append(lambda: asked.append("small") or True)  # type: ignore[func-returns-value]
    first.give_back()
    assert (asked, len(account.waiting)) == (["large"], 2)


def test_what_a_query_took_before_counts_on_its_own_bound_and_what_it_takes_on_all() -> None:
    own, day = BudgetAccount(most_cost=1.0), BudgetAccount("a day", most_cost=1.0)
    ledger = Ledger(own, around=Ledger(others=[day]), others=[day])
    assert ledger.accounts == (own, day), "each counts once"
    ledger.took_before(1_000, 100, DEAR)
    assert (own.tokens, day.tokens, day.cost) == (1_100, 0, 0.0)
    assert own.cost == pytest.approx(DEAR.cost(1_000, 100))
    Ledger(others=[day]).took_before(1_000, 100, DEAR)
    assert day.tokens == 0
    ledger.took(1_000, 100, 500, DEAR)
    cost = DEAR.cost(1_000, 100, 500)
    assert (own.tokens, day.tokens) == (2_200, 1_100)
    assert day.cost == pytest.approx(cost)
    assert own.cost == pytest.approx(DEAR.cost(1_000, 100) + cost)
    assert (day.open, day.held_tokens, day.held_cost) == (0, 0, 0.0)


def test_what_is_taken_reserved_and_kept_is_told_together() -> None:
    ledger = Ledger(BudgetAccount(most_tokens=1_000, most_cost=1.0))
    ledger.took(100, 10, 0, DEAR)
    assert ledger.reserve(200, 20, DEAR) is not None
    assert ledger.keep(300, 30, DEAR) is not None
    cost = DEAR.cost(600, 60)
    assert (
        ledger.spent(90)
        .args[0]
        .startswith(
            f"this query has taken or reserved 660 of 1,000 tokens and {cost:.6g} of 1 in money; "
        )
    )


def test_errors_say_what_is_left_and_prices_are_checked() -> None:
    ledger = Ledger(BudgetAccount(most_tokens=100, most_cost=0.001))
    assert "0 of 100 tokens and 0 of 0.001 in money" in str(ledger.spent(90))
    with pytest.raises(InputError, match="answer=-1"):
        Price(1.0, -1)
    assert DEAR.cost(1_000_000, 0, 500_000) == pytest.approx(1.25)
    assert Price.parse("2.5,0.25,10") == Price(prompt=2.5, cached=0.25, answer=10)
    assert Price.parse("2.5,10") == Price.parse([2.5, 10]) == Price(prompt=2.5, answer=10)
    for wrong in ("2.5", "1,2,3,4", "1,", "a,b", "1,-2", "1,nan", "1,inf,2"):
        with pytest.raises(InputError):
            Price.parse(wrong)
