"""What calls reserve before they are queued: how long prompts are, who waits, and whose tries."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import replace
from typing import Any, cast

import pytest

from teola.engine import Usage
from teola.graph import DecodeParams
from teola.policies.ledger import BudgetAccount, Ledger
from teola.policies.work import Size
from teola.price import Price
from teola.runtime.billing import (
    EXTRA_TOKENS,
    FADING,
    MARGIN,
    MOST_EXTRA,
    SHORT,
    UNKNOWN_RATIO,
    Billed,
    Billing,
)
from teola.runtime.live.call import LiveCall
from teola.runtime.live.paying import Paying
from teola.runtime.live.query import LiveQuery
from teola.schedule.events import Sized
from tests.planted import catches, edited
from tests.recording import work


def billed(i: int, ledger: Ledger, tokens: int = 100, most: int = 100, **more: Any) -> Billed:
    spec = replace(work(0).spec, engine="llm", members=(9,))
    given = {"price": None, "exact": True, "decode": DecodeParams(max_tokens=most), **more}
    size = Size(tokens, (), b"same")
    return Billed(("q", i), spec, size, ledger, prompt_tokens=tokens, **given)


@catches(
    "short-prompts",
    "what a template adds to a short prompt counts for each token of a long one",
    edited(Billing.counted, "if estimated < SHORT:", "if False:"),
)
@catches(
    "twice-a-template",
    "what a template adds counts twice",
    edited(Billing.counted, "prompt_tokens - extra) / estimated", "prompt_tokens) / estimated"),
)
def test_a_short_prompt_tells_what_a_template_adds_and_no_more() -> None:
    billing = Billing(lambda event: None)
    call = billed(0, Ledger(BudgetAccount(most_tokens=1e6)), 4_000, exact=False)
    before = billing._prompt(call)
    billing.counted("llm", 1, 31)
    assert billing._prompt(call) == before + 30 - 8
    for _ in range(3):
        billing.counted("llm", 1_000, 1_230)
    assert billing._prompt(call) == 4_000 * 1.2 * 1.02 + 30
    billing.counted("llm", 2, 100_000)
    assert billing._prompt(call) == 4_000 * 1.2 * 1.02 + MOST_EXTRA


@catches(
    "dearest-answer",
    "a call that is mostly prompt may cost more than it reserved",
    edited(
        Paying.dearest,
        "Price(max(dearest.prompt, prompt), max(dearest.answer, price.answer))",
        "max(dearest, price, key=lambda one: one.answer)",
    ),
)
def test_prices_that_cross_are_reserved_by_the_worst_of_each() -> None:
    prices = {"a": Price(10.0, 1.0), "b": Price(0.1, 2.0, cached=20.0)}
    hosts = {("llm", k): _Host(name) for k, name in enumerate(prices)}
    paying = Paying(cast("Any", hosts), Billing(lambda event: None))
    paying.prices = prices
    found = paying.dearest("llm")
    assert found is not None
    for price in prices.values():
        for prompt, answer, cached in ((100_000, 10, 0), (10, 1_000, 0), (500, 5, 500)):
            assert found.cost(prompt, answer) >= price.cost(prompt, answer, cached)


class _Host:
    def __init__(self, model: str) -> None:
        self.named = self
        self.model = model


@catches(
    "refused-with-room",
    "what has come back meanwhile is not looked at",
    edited(Billing.parked, "elif self._reserves(call):", "elif False:"),
)
def test_who_was_not_admitted_looks_once_more_before_it_is_refused() -> None:
    told = list[Sized]()
    billing = Billing(told.append)
    account = BudgetAccount("a day", most_tokens=250)
    first, second = (billed(k, Ledger(others=[account])) for k in range(2))
    assert billing.admitted(first)
    assert not billing.admitted(second)
    billing.dropped("q", 0)
    billing.parked("q", 1)
    assert [(event.primitive, event.cause) for event in told] == [(1, None)]


@catches(
    "cut-for-all",
    "an answer that one budget cuts short is its equals' as well",
    edited(Billing._ended, "self.lowered(run, i, call.decode.max_tokens)", "False"),
)
def test_a_call_that_may_write_less_is_equal_to_none() -> None:
    told = list[Sized]()
    billing = Billing(told.append)
    account = BudgetAccount(most_tokens=250)
    first, second = (billed(k, Ledger(account)) for k in range(2))
    assert billing.admitted(first)
    assert not billing.admitted(second)
    billing.parked("q", 1)
    assert told == []
    made = billing.begins(first)
    made.settle(100, 10)
    (event,) = told
    assert (event.cause, event.size.same) == (None, None)
    assert billing.begins(second).answer_tokens == 40


@catches(
    "two-threads",
    "a call of one runtime is begun in the thread of another",
    edited(Billing._tries, "self._passes_on(account.came_back)", "False"),
)
def test_who_waits_for_another_runtime_is_begun_by_its_own() -> None:
    told, left = list[Sized](), list[Any]()
    here = [True]

    def passes_on(then: Any) -> bool:
        if not here[0]:
            left.append(then)
        return not here[0]

    account = BudgetAccount(most_tokens=250)
    mine, others = Billing(told.append, passes_on), Billing(lambda event: None)
    first, second = (billed(k, Ledger(account)) for k in range(2))
    assert others.admitted(first)
    assert not mine.admitted(second)
    mine.parked("q", 1)
    here[0] = False
    others.begins(first).settle(100, 10)
    assert (told, len(account.waiting), len(left)) == ([], 1, 1)
    here[0] = True
    left[0]()
    assert [event.cause for event in told] == [None]
    assert not account.waiting


@catches(
    "own-reservation",
    "a try is refused because of what the one before it reserved",
    edited(Paying.begins, "self._tries.get(key)", "None"),
)
@catches(
    "paid-twice",
    "a try that was given up is paid for twice",
    edited(Paying.failed, "made is not None and self._is_over(query, i, made)", "False"),
)
def test_a_further_try_has_what_the_one_given_up_had_reserved() -> None:
    account = BudgetAccount(most_tokens=1_500)
    paying, query = _Pays(Ledger(account)), _Query()
    first, second = _Called(), _Called()
    made = paying.begins(cast("LiveQuery", query), 0, cast("LiveCall", first), ("llm", 0))
    again = paying.begins(cast("LiveQuery", query), 0, cast("LiveCall", second), ("llm", 1))
    assert again.answer_tokens == 300
    error = CancelledError()
    paying.failed(cast("LiveQuery", query), 0, cast("LiveCall", first), ("llm", 0), made, error)
    second.usage = Usage(600, 300)
    paying.settled(cast("LiveQuery", query), 0, cast("LiveCall", second), ("llm", 1), again)
    assert query.took == [Usage(600, 0), Usage(600, 300)]
    assert (account.tokens, account.held_tokens, account.open) == (1_500, 0, 0)


class _Called:
    """A try of which something has come."""

    def __init__(self) -> None:
        self.usage, self.characters, self.started = Usage(), 0, True


class _Query:
    """A query of one call, whose prompt has 600 tokens, and its trace. took: what its tries did."""

    id = "q"

    def __init__(self) -> None:
        self.tokens, self.took, self.trace = {0: 600}, list[Usage](), self

    def used(self, usage: Usage, i: int, cost: float | None) -> None:
        self.took.append(usage)


class _Pays(Paying):
    """Pays for one call, of 600 tokens and 512."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__({}, Billing(lambda event: None))
        self.ledger = ledger

    def billed(self, query: LiveQuery, i: int, size: Size) -> Billed:
        return billed(i, self.ledger, 600, 512)


# --- edges ------------------------------------------------------------------------------------


def test_the_largest_ratio_that_was_seen_fades_and_a_larger_one_counts_at_once() -> None:
    billing = Billing(lambda event: None)
    call = billed(0, Ledger(BudgetAccount()), 1_000, exact=False)

    def ratio() -> float:
        return round((billing._prompt(call) - EXTRA_TOKENS) / (1_000 * MARGIN), 3)

    assert ratio() == UNKNOWN_RATIO
    billing.counted("llm", 1_000, 2_000 + EXTRA_TOKENS)
    assert ratio() == 2.0
    for _ in range(100):
        billing.counted("llm", 1_000, 1_000 + EXTRA_TOKENS)
    assert ratio() == pytest.approx(2.0 * FADING**100, abs=2e-3)
    billing.counted("llm", 1_000, 3_000 + EXTRA_TOKENS)
    assert ratio() == 3.0
    billing.counted("other", 1_000, 9_000)
    for estimated, told in ((0, 9_000), (1_000, 0), (-1, 9_000)):
        billing.counted("llm", estimated, told)
    assert ratio() == 3.0, "another engine's, and what says nothing"


@pytest.mark.parametrize(("estimated", "short"), [(SHORT - 1, True), (SHORT, False)])
def test_a_prompt_is_short_that_is_estimated_at_fewer_tokens(estimated: int, short: bool) -> None:
    billing = Billing(lambda event: None)
    billing.counted("llm", estimated, estimated + 50)
    assert billing._extra == ({"llm": 50} if short else {})
    assert bool(billing._ratios) is not short
    billing.counted("llm", SHORT - 1, SHORT)
    assert billing._extra.get("llm") == (50 if short else EXTRA_TOKENS), "the most that was seen"


def test_what_may_be_written_is_lowered_where_less_than_all_has_room() -> None:
    billing = Billing(lambda event: None)
    assert billing.admitted(billed(0, Ledger(BudgetAccount(most_tokens=150))))
    assert [billing.lowered("q", 0, most) for most in (49, 50, 51)] == [False, False, True]
    assert not billing.lowered("q", 1, 1000), "nothing is reserved for it"
    assert not billing.lowered("r", 0, 1000)


def test_a_run_that_has_ended_gives_back_what_none_of_its_calls_began_with() -> None:
    """Its last primitive's as well, and not another run's; what waits is forgotten."""
    account = BudgetAccount(most_tokens=500)
    billing = Billing(lambda event: None)
    for i in (0, 2):
        assert billing.admitted(billed(i, Ledger(account)))
    other = replace(billed(0, Ledger(account)), key=("r", 0))
    assert not billing.admitted(other)
    assert billing.waits("r", 0)
    assert account.held_tokens == 400
    billing.over("q", 3)
    assert account.held_tokens == 0
    assert not billing.idle
    assert billing.waits("r", 0)
    billing.dropped("r", 0)
    assert not billing.waits("r", 0)
    assert billing.idle
    billing.over("r", 3)


@pytest.mark.parametrize(
    ("usual", "left", "waits"),
    [
        (10, 119, True),
        (10, 120, False),  # room for twice what is usually written
        (10, 200, False),
        (60, 199, True),
        (60, 200, False),  # room for all that it may write
        (0, 199, True),
        (0, 200, False),
    ],
)
def test_a_call_waits_for_room_for_twice_what_is_usual_as_long_as_some_may_come_back(
    usual: int, left: int, waits: bool
) -> None:
    account = BudgetAccount(most_tokens=1000)
    ledger, billing = Ledger(account), Billing(lambda event: None)
    under_way = ledger.reserve(1000 - left, 0)
    assert under_way is not None
    call = billed(0, ledger)
    call.spec = replace(call.spec, expected_output=usual)
    assert billing.admitted(call) is not waits
    billing.dropped("q", 0)
    under_way.settle(1000 - left, 0)
    assert billing.admitted(call), "nothing comes back: it takes what there is"
