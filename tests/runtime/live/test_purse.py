"""What an agent may take beside what is kept for its last answer, against everything added up."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from teola.policies.ledger import BudgetAccount, Ledger, Reservation
from teola.price import Price
from teola.runtime.live.purse import Purse

PRICE = Price(prompt=1.0, answer=10.0, cached=0.5)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_is_nobody_elses(seed: int) -> None:
    chance = Random(seed)
    accounts = [BudgetAccount(most_tokens=200), BudgetAccount("key", 250, 0.0015)]
    ledger = Ledger(accounts[0], others=accounts[1:])
    purse, kept = Purse(ledger, PRICE), (0, 0)
    calls: list[Reservation] = []
    taken, cost = 0, 0.0
    for _ in range(60):
        prompt, answer = chance.randint(1, 60), chance.randint(16, 40)
        match chance.choice(("keep", "call", "settle", "take", "give back")):
            case "keep":
                held = sum(one.tokens for one in calls)
                money = sum(PRICE.cost(int(o.prompt_tokens), o.answer_tokens) for o in calls)
                fits = prompt + answer <= 200 - taken - held
                fits = fits and PRICE.cost(prompt, answer) <= 0.0015 - cost - money + 1e-12
                assert purse.keep(prompt, answer) is fits
                kept = (prompt, answer) if fits else (0, 0)
            case "call":
                reserved = ledger.reserve(prompt, answer, PRICE)
                calls += [reserved] if reserved is not None else []
            case "settle" if calls:
                calls.pop().settle(prompt, 1)
                taken, cost = taken + prompt + 1, cost + PRICE.cost(prompt, 1)
            case "take":
                reserved = purse.taken()
                assert (reserved is None) is (kept == (0, 0))
                if reserved is not None:
                    assert (reserved.prompt_tokens, reserved.answer_tokens) == kept
                    reserved.give_back()
                kept = (0, 0)
                assert purse.taken() is None
            case "give back":
                purse.give_back()
                purse.give_back()
                kept = (0, 0)
        assert accounts[0].kept_tokens == accounts[1].kept_tokens == sum(kept)
        assert accounts[1].kept_cost == pytest.approx(PRICE.cost(*kept))
        assert purse.kept_tokens == (kept[0] if sum(kept) else inf)
        room = 200 - taken - sum(kept)
        money = 0.0015 - cost - PRICE.cost(*kept)
        for tokens in (room - 17, room - 16, room - 15):
            fits = tokens + 16 <= room and PRICE.cost(tokens, 16) <= money + 1e-12
            if tokens > 0 and abs(PRICE.cost(tokens, 16) - money) > 1e-9:
                assert purse.may(tokens, 16) is fits


@pytest.mark.parametrize("room", [0.0, 1.0, 1.1])
@pytest.mark.parametrize("bounds", ["tokens", "money", "both"])
@pytest.mark.parametrize("of_the_query", [True, False])
def test_a_call_has_to_fit_into_every_account_in_tokens_and_in_money(
    of_the_query: bool, bounds: str, room: float
) -> None:
    """Exactly as much is enough; what others have reserved counts as there."""
    tokens = inf if bounds == "money" else room * 70
    money = inf if bounds == "tokens" else room * PRICE.cost(50, 20)
    tight, wide = BudgetAccount("tight", tokens, money), BudgetAccount("wide")
    own, other = (tight, wide) if of_the_query else (wide, tight)
    purse = Purse(Ledger(own, others=[other]), PRICE)
    assert purse.may(50, 20) is (room >= 1)
    assert purse.may(51, 20) is (room > 1)
    if room > 1:
        tight.held_tokens, tight.held_cost = 70, PRICE.cost(50, 20)
        assert purse.may(50, 20)
