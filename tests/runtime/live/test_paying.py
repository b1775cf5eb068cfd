"""What calls cost: by which price, and what a try took that told it, or did not."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from teola import App, Each, Generate, Runtime
from teola.engine import Delta, Usage
from teola.errors import EngineError
from teola.policies.asker import Asker
from teola.policies.ledger import BudgetAccount, Ledger
from teola.price import Price
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.billing import Billing
from teola.runtime.day_accounts import DayBudget
from teola.runtime.live.paying import Paying, whole_prompt
from tests.runtime.faults import Scripted
from tests.runtime.live.test_call import live_query
from tests.schedule.plans import call, plan

CHEAP, DEAR, OWN = Price(1.0, 2.0), Price(3.0, 1.0, cached=5.0), Price(0.5, 9.0)


def paying(*models: str | None, prices: Any = (), own: Any = ()) -> Paying:
    """Instances of engine `llm`, each of the model that it names, if it names one, and one of
    another engine."""
    hosts = {
        ("llm", k): SimpleNamespace(named=None if name is None else SimpleNamespace(model=name))
        for k, name in enumerate(models)
    }
    hosts["other", 0] = SimpleNamespace(named=SimpleNamespace(model="dear"))
    made = Paying(cast("Any", hosts), Billing(lambda event: None))
    made.prices, made.own = dict(prices), dict(own)
    return made


@pytest.mark.parametrize(
    ("prices", "own", "each"),
    [
        ({}, {}, [None, None, None]),
        ({"cheap": CHEAP}, {}, [CHEAP, None, None]),
        ({"llm": DEAR}, {}, [DEAR, DEAR, DEAR]),
        ({"cheap": CHEAP, "llm": DEAR}, {}, [CHEAP, DEAR, DEAR]),
        ({"other": CHEAP, "dear": DEAR}, {}, [None, None, None]),
        ({}, {("llm", 0): OWN}, [OWN, None, None]),
        ({"llm": DEAR}, {("llm", 0): OWN, ("other", 0): CHEAP}, [OWN, DEAR, DEAR]),
    ],
)
def test_an_instance_has_its_own_price_or_its_models_or_its_engines(
    prices: Any, own: Any, each: list[Price | None]
) -> None:
    """The second instance names no model; there is no third one."""
    made = paying("cheap", None, prices=prices, own=own)
    assert [made.price("llm", k) for k in range(3)] == each


@pytest.mark.parametrize(
    ("models", "prices", "own", "dearest"),
    [
        (["cheap"], {}, {}, None),
        ([], {"cheap": CHEAP}, {}, None),
        (["cheap"], {"cheap": CHEAP}, {}, CHEAP),
        (["dear"], {"dear": DEAR}, {}, Price(5.0, 1.0)),
        (["dear"], {"dear": Price(3.0, 1.0, cached=2.0)}, {}, Price(3.0, 1.0)),
        (["cheap", "dear"], {"cheap": CHEAP, "dear": DEAR}, {}, Price(5.0, 2.0)),
        (["dear", "cheap"], {"cheap": CHEAP, "dear": DEAR}, {}, Price(5.0, 2.0)),
        (["cheap", "nobody's"], {"cheap": CHEAP}, {}, None),
        (["nobody's", "cheap"], {"cheap": CHEAP}, {}, None),
        (["cheap", "cheap"], {"cheap": CHEAP}, {("llm", 1): OWN}, Price(1.0, 9.0)),
        (["cheap"], {}, {("llm", 0): OWN}, OWN),
        (["cheap"], {}, {("other", 0): OWN}, None),
    ],
)
def test_the_dearest_is_the_worst_of_each_kind_of_tokens_and_known_if_all_are(
    models: list[str], prices: Any, own: Any, dearest: Price | None
) -> None:
    assert paying(*models, prices=prices, own=own).dearest("llm") == dearest


# --- what tries took ------------------------------------------------------------------------------

TOLD = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=40)
PRICE = Price(prompt=1.0, answer=10.0, cached=0.1)
TOLD_COST = (60 * 1.0 + 40 * 0.1 + 7 * 10.0) / 1e6
QUESTION = "why is it so that tides come twice a day?"


def asked(*scripts: Any, prices: bool = True, **bounds: Any) -> Result:
    given: dict[str, Any] = {"prices": {"llm": PRICE}} if prices else {}
    with Runtime({"llm": lambda: Scripted(*scripts)}, learn=False, **given) as runtime:
        app = App(
            "asks",
            Generate(max_tokens=50),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtime,
        )
        return app.run(question=QUESTION, **bounds)


BOUNDS: list[dict[str, Any]] = [{}, {"most_tokens": 10_000}, {"most_cost": 1.0}]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_call_costs_what_its_engine_tells(bounds: dict[str, Any]) -> None:
    usage = asked(["It rains.", Delta("", "stop", TOLD)], **bounds).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (100, 7, 40)
    assert usage.cost == pytest.approx(TOLD_COST)
    assert usage.calls == 1
    if "most_cost" not in bounds:
        assert asked(["It", Delta("", "stop", TOLD)], prices=False, **bounds).usage.cost is None


@pytest.mark.parametrize("bounds", BOUNDS[1:])
def test_what_an_engine_does_not_tell_is_estimated_where_there_is_a_bound(
    bounds: dict[str, Any],
) -> None:
    """Four characters a token, those of an answer rounded up."""
    usage = asked(["It rai", "ns."], **bounds).usage
    assert usage.completion_tokens == 3
    assert len(QUESTION) // 4 <= usage.prompt_tokens < 200
    assert usage.cost == pytest.approx((usage.prompt_tokens + 30.0) / 1e6)
    assert asked(["It rai", "ns."]).usage.prompt_tokens == 0


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_try_that_failed_is_paid_for_once_it_has_begun(bounds: dict[str, Any]) -> None:
    """With its prompt and what it wrote; one that was refused at once took nothing."""
    gone = EngineError("gone", retryable=True)
    done = ["It rains.", Delta("", "stop", TOLD)]
    usage = asked(["It r", gone], done, **bounds).usage
    prompt = usage.prompt_tokens - 100
    assert prompt >= len(QUESTION) // 4
    assert (usage.completion_tokens, usage.cached_tokens) == (1 + 7, 40)
    assert usage.cost == pytest.approx(TOLD_COST + (prompt + 10.0) / 1e6)
    usage = asked([gone], done, **bounds).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 7)
    assert usage.cost == pytest.approx(TOLD_COST)


@pytest.mark.parametrize("at_once", [1, 8])
def test_a_query_that_ends_gives_back_what_its_calls_had_reserved(at_once: int) -> None:
    """Those under way, and those that wait behind them."""
    gate, budget = asyncio.Event(), DayBudget(tokens=100_000)
    model = Scripted([gate, "never"], max_sequences=at_once)
    with Runtime({"llm": lambda: model}, learn=False, budgets={"asks": budget}) as runtime:
        note = Generate("note", inputs={"question": "topic"}, max_tokens=50)
        app = App(
            "asks",
            Each(note, over="topics", item="topic", gives={"notes": "answer"}),
            inputs={"topics": "texts"},
            outputs={"notes": "notes"},
            runtime=runtime,
        )
        account = runtime.days.account("application 'asks' today", budget)

        async def leave() -> None:
            spec = QuerySpec({"topics": ["a", "b", "c"]}, most_tokens=9_000)
            task = asyncio.ensure_future(Job(app, spec).run())
            while not model.calls or account.held_tokens < 3 * 50:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
            while runtime.live.queries or account.open:
                await asyncio.sleep(0.001)
            assert account.held_tokens == 0
            assert runtime.live.billing.idle

        runtime.start(leave()).result(30)


# --- tries, one by one ----------------------------------------------------------------------------

PLACE = ("llm", 0)


class Spending:
    """One call, whose prompt is estimated at one token. tokens: as they were measured, if they
    were. counted: what billing learns of prompts."""

    def __init__(self, tokens: int | None = None, *, bounded: bool = True) -> None:
        self.query, _ = live_query(plan(*call("m")))
        self.account = BudgetAccount(most_tokens=100_000)
        if bounded:
            budget = Ledger(self.account)
            self.query.run.asker = Asker("t", "app", "p", 0.0, budget=budget)
        if tokens is not None:
            self.query.tokens[0] = tokens
        self.paying = paying("cheap", prices={"cheap": CHEAP})
        self.counted = list[tuple[Any, ...]]()
        self.paying._billing.counted = lambda *told: self.counted.append(told)  # type: ignore[method-assign]

    def begins(self, usage: Usage, characters: int, started: bool = True) -> tuple[Any, Any]:
        called: Any = SimpleNamespace(usage=usage, characters=characters, started=started)
        if self.query.run.asker.budget is None:
            return called, None
        return called, self.paying.begins(self.query, 0, called, PLACE)

    def took(self) -> tuple[int, int, int]:
        """As the trace has it; the budget has the same."""
        trace, account = self.query.trace, self.account
        counts = trace.prompt_tokens, trace.completion_tokens, trace.found_tokens
        if self.query.run.asker.budget is not None:
            assert account.tokens == counts[0] + counts[1]
            assert account.cost == pytest.approx(CHEAP.cost(*counts))
        return counts


@pytest.mark.parametrize(
    ("tokens", "usage", "characters", "took", "counted"),
    [
        (None, Usage(100, 7, 40), 99, (100, 7, 40), [("llm", 1, 100)]),
        (90, Usage(100, 7, 40), 99, (100, 7, 40), []),
        (None, Usage(), 9, (1, 3, 0), []),
        (90, Usage(), 8, (90, 2, 0), []),
        (None, Usage(0, 7), 8, (1, 2, 0), []),
    ],
)
def test_what_a_call_took_is_what_was_told_or_else_measured_or_else_estimated(
    tokens: int | None,
    usage: Usage,
    characters: int,
    took: tuple[int, int, int],
    counted: list[Any],
) -> None:
    """Billing learns of prompts that it had estimated, and of no others."""
    spending = Spending(tokens)
    called, made = spending.begins(usage, characters)
    assert spending.account.held_tokens > 0
    spending.paying.settled(spending.query, 0, called, PLACE, made)
    assert (spending.took(), spending.counted) == (took, counted)
    assert (spending.account.held_tokens, spending.account.open) == (0, 0)
    spending.paying.settled(spending.query, 0, called, PLACE, made)
    assert spending.took() == took, "once"


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("error", [EngineError("gone"), asyncio.CancelledError()])
def test_a_try_that_comes_to_nothing_is_paid_for_if_it_may_have_taken_something(
    error: BaseException, started: bool, bounded: bool
) -> None:
    """One that was stopped may have been read, which counts where there is a bound."""
    spending = Spending(bounded=bounded)
    called, made = spending.begins(Usage(), 5, started)
    spending.paying.failed(spending.query, 0, called, PLACE, made, error)
    pays = started or (bounded and isinstance(error, asyncio.CancelledError))
    assert spending.took() == ((1, 2, 0) if pays else (0, 0, 0))
    assert (spending.account.held_tokens, spending.account.open) == (0, 0)


def test_a_try_that_was_given_up_is_paid_for_once_when_the_next_one_begins() -> None:
    """Whichever of the two ends first then."""
    for first_ends in (True, False):
        spending = Spending()
        one, made_one = spending.begins(Usage(), 9, started=False)
        two, made_two = spending.begins(Usage(50, 4, 0), 99)
        assert spending.took() == (1, 3, 0)
        assert spending.account.open == 1
        gone = asyncio.CancelledError()
        if first_ends:
            spending.paying.failed(spending.query, 0, one, PLACE, made_one, gone)
            assert spending.took() == (1, 3, 0)
        spending.paying.settled(spending.query, 0, two, PLACE, made_two)
        spending.paying.failed(spending.query, 0, one, PLACE, made_one, gone)
        assert spending.took() == (51, 7, 0)
        assert (spending.account.held_tokens, spending.account.open) == (0, 0)
        assert spending.paying._tries == {}


# --- prompts that were not measured ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_a_whole_prompt_is_all_pieces_before_it_each_part_by_itself(seed: int) -> None:
    """Against adding up: chains of pieces, some of which are computed with the piece behind them.
    What was read once is known when its text is gone."""
    chance = Random(seed)
    count = 8
    letters = ["a", "ab", "abcd", "abcde", "ü", "üü", "aü", ""]
    parts = [
        [chance.choice(letters) * chance.randint(0, 3) for _ in range(chance.randint(0, 3))]
        for _ in range(count)
    ]
    chains, fused, before = list[list[int]](), dict[int, tuple[int, ...]](), dict[int, int]()
    left = list(range(count))
    while left:
        chain = [left.pop(0) for _ in range(min(len(left), chance.randint(1, 4)))]
        chains.append(chain)
        cut = chance.randint(0, len(chain) - 1)
        alone, together = chain[:cut], chain[cut:]
        fused[together[-1]] = tuple(together[:-1])
        for k, i in enumerate([*alone, together[-1]]):
            before[i] = alone[k - 1] if k else -1
    gone = set[int]()

    def prompt(i: int) -> list[Any]:
        assert i not in gone
        return [SimpleNamespace(text=text) for text in parts[i]]

    query: Any = SimpleNamespace(
        run=SimpleNamespace(fused=fused, before=before.__getitem__),
        store=SimpleNamespace(prompt=prompt),
        estimated={},
    )

    def tokens(text: str) -> int:
        return -(-len(text) // 4) if text.isascii() else len(text)

    for chain in chains:
        expected = sum(tokens(text) for i in chain for text in parts[i])
        read_before = [i for i in before if i in chain and chance.random() < 0.5]
        for i in read_before:
            whole_prompt(query, i)
            gone.update(k for k in (*fused.get(i, ()), i))
        assert whole_prompt(query, chain[-1]) == expected
        gone.update(chain)
        assert whole_prompt(query, chain[-1]) == expected
