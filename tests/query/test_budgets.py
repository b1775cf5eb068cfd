"""A budget of a run holds over all that it grows into, however that is nested, and who stopped
short of it says so.

Long because each way in which something is taken, or given back, is a test of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from math import ceil
from typing import Any

import pytest

from teola import Agent, App, Each, Generate, Loop, Runtime, component
from teola.engine import Call, Delta, Keys, Usage
from teola.errors import EngineError, InputError, QueryFailed
from teola.policies.ledger import BudgetAccount, Ledger, Reservation
from teola.price import Price
from teola.query.job import Job
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.billing import Billing
from teola.runtime.day_accounts import DayBudget
from teola.runtime.live.paying import Paying
from teola.runtime.live.steps import Steps
from teola.testing.hash_engines import HashModel, hash_number
from teola.tools import component_tool, tool
from tests.planted import catches, edited
from tests.runtime.live.test_steps import Log

WORD = "four"


class Metered(HashModel):
    """Counts four characters as a token, in prompts and answers, and writes no more than it may.
    `bill` is all that its calls took, those that failed too. words: of an answer to ask for.
    draw: calls fail now and then after some of it."""

    def __init__(self, words: int = 40, draw: random.Random | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.words, self.draw = words, draw
        self.bill, self.made, self.limits = 0, 0, list[int]()

    def said(self, call: Call) -> list[str]:
        return [WORD] * self.words

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.made += 1
        self.limits.append(call.decode.max_tokens)
        prompt = sum(ceil(len(part.text) / 4) for part in call.all_parts)
        self.bill += prompt
        pieces = self.said(call)
        cut, written = pieces[: call.decode.max_tokens], 0
        breaks = self.draw.randrange(60) if self.draw is not None else len(cut)
        for piece in cut:
            await asyncio.sleep(0)
            if written == breaks:
                raise EngineError("it broke off", retryable=True)
            self.bill += 1
            written += 1
            yield Delta(piece)
        yield Delta("", "stop" if len(cut) == len(pieces) else "length", Usage(prompt, written))


class Agents(Metered):
    """As agents' models write: calls as long as they may, and then an answer. ends: turns after
    which each answers by itself."""

    def __init__(self, called: str = "look", ends: int = 99, **more: Any) -> None:
        super().__init__(**more)
        self.called, self.ends = called, ends

    def said(self, call: Call) -> list[str]:
        text = "".join(part.text for part in call.all_parts)
        may = '"calls"' in (call.decode.schema or "")
        if may and text.count("found it") < self.ends:
            told = json.dumps({"calls": [{"tool": self.called, "args": {"question": "x"}}]})
        else:
            told = json.dumps({"answer": "done"})
        return [told[at : at + 4] for at in range(0, len(told), 4)]


@tool(pure=True)
async def look(question: str) -> str:
    """Look something up.

    Args:
        question: what to look for
    """
    return f"found it: {question} " + "and more " * 20


def note(**more: Any) -> Generate:
    return Generate(
        "note",
        instruction="Note.",
        mode="simple",
        inputs={"question": "topic"},
        outputs={"answer": "note"},
        **more,
    )


def mapped(runtime: Runtime, at_once: int = 64, **more: Any) -> App:
    each = Each(note(**more), over="topics", item="topic", gives={"notes": "note"}, at_once=at_once)
    return App("map", each, inputs={"topics": "texts"}, outputs={"notes": "notes"}, runtime=runtime)


def spent(result: Result) -> int:
    return result.usage.prompt_tokens + result.usage.completion_tokens


@catches(
    "not-waited",
    "a call is refused though others will give back most of what they reserved",
    edited(Billing._park, "if not account.open:", "if True:"),
)
@catches(
    "never-given-back",
    "what a call did not use is lost",
    edited(Reservation.settle, "taken = prompt_tokens + generated_tokens", "taken = self.tokens"),
)
def test_a_hundred_at_once_take_no_more_than_they_may_and_use_it() -> None:
    """Each takes 44 tokens and reserves a thousand; of 100 there is money for about 50."""
    model = Metered(max_sequences=64)
    with Runtime({"llm": lambda: model}) as runtime:
        app = mapped(runtime, max_tokens=1_000)
        result = app.run(topics=[f"topic {k}" for k in range(100)], most_tokens=2_500)
    done = [one for one in result["notes"] if one is not None]
    assert model.bill == spent(result) <= 2_500
    assert model.bill > 2_300
    assert len(done) >= 50
    assert result.state == "partial"
    assert "2,500 tokens" in result.reasons["note"]


def nested(draw: random.Random, runtime: Runtime, depth: int) -> App:
    """An application of parts inside parts, agents and queries inside queries."""
    kind = draw.choice(["map", "agent", "loop", "query"]) if depth else "map"
    if kind == "map":
        return mapped(runtime, max_tokens=draw.choice([30, 300, 3_000]))
    inner = nested(draw, runtime, depth - 1)

    @component(outputs="better")
    async def ask(question: str) -> str:
        bound = draw.choice([None, 900])
        given = {
            name: [question, "b", "c"] if "topics" in name else question for name in inner.inputs
        }
        return str((await inner.arun(given, most_tokens=bound)).outputs)

    if kind == "agent":
        helper = (
            component_tool(inner, description="Helps.", name="look")
            if draw.random() < 0.5
            else look
        )
        agent: Any = Agent([helper], engine="agents", at_most=4, max_tokens=draw.choice([60, 600]))
        other = Agent([look], name="other", engine="agents", description="Knows.", at_most=3)
        chosen = draw.choice([agent, Agent([look, other], engine="handing", at_most=3)])
        return App(
            "x", chosen, inputs={"question": "text"}, outputs={"answer": "answer"}, runtime=runtime
        )
    if kind == "loop":
        body: Any = Loop(
            ask,
            carry={"question": "better"},
            until=lambda better: False,
            reads=["better"],
            gives=["better"],
            at_most=3,
        )
    else:
        body = ask
    return App(
        "x", body, inputs={"question": "text"}, outputs={"better": "better"}, runtime=runtime
    )


@catches(
    "retries-free",
    "a try that failed costs nothing",
    edited("teola.runtime.live.paying:Paying.failed", "if called.started or", "if False and"),
)
@catches(
    "part-for-itself",
    "each part has its query's whole budget",
    edited("teola.policies.ledger:Ledger.answer", "for one in self.accounts", "for one in ()"),
)
def test_a_budget_holds_in_any_nesting() -> None:
    for seed in range(14):
        draw = random.Random(seed)
        breaks = random.Random(seed) if seed % 2 else None
        models = {
            "llm": Metered(draw=breaks, max_sequences=16),
            "agents": Agents(draw=breaks, max_sequences=16),
            "handing": Agents("other", ends=1),
        }
        made: Any = {name: lambda model=model: model for name, model in models.items()}
        with Runtime(made, learn=False) as runtime:
            app = nested(draw, runtime, draw.choice([1, 2, 3]))
            most = draw.choice([200, 1_000, 4_000])
            given = {name: ["a", "b"] if "topics" in name else "why?" for name in app.inputs}
            try:
                result = app.run(given, most_tokens=most)
            except QueryFailed as error:
                told, result = str(error), error.result
                assert breaks is not None or "budget" not in told, told
            assert runtime.live.billing.idle
        bill = sum(model.bill for model in models.values())
        assert bill <= most, f"seed {seed}: {bill} of {most}"
        assert spent(result) == bill, f"seed {seed}"


def test_eight_agents_in_an_each_have_one_budget_together() -> None:
    """It is enough for two of them."""
    model = Agents(ends=3, max_sequences=8)
    with Runtime({"llm": lambda: model}) as runtime:
        agent = Agent([look], inputs={"question": "topic"}, max_tokens=200, at_most=8)
        each = Each(agent, over="topics", item="topic", gives={"found": "answer"})
        app = App(
            "eight", each, inputs={"topics": "texts"}, outputs={"found": "found"}, runtime=runtime
        )
        alone = app.run(topics=["why 0?"])
        model.bill = 0
        result = app.run(topics=[f"why {k}?" for k in range(8)], most_tokens=2 * spent(alone))
    assert alone.state == "ok"
    assert result.state == "partial"
    assert model.bill == spent(result) <= 2 * spent(alone)
    assert "done" in result["found"]


class Estimated(Metered):
    """As servers by URL are: nobody here knows its tokenizer, which makes up to 8 % more tokens of
    some texts than of others, and a template adds some."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        text = "".join(part.text for part in call.all_parts)
        prompt = round(len(text) / 4 * (1.3 + 0.1 * (hash_number(text) % 100) / 100)) + 11
        self.bill += prompt
        cut = self.said(call)[: call.decode.max_tokens]
        for piece in cut:
            await asyncio.sleep(0)
            self.bill += 1
            yield Delta(piece)
        yield Delta("", "stop", Usage(prompt, len(cut)))


@catches(
    "as-estimated",
    "a prompt reserves what we estimate, and not what its engine has counted for such",
    edited(Billing._prompt, "ratio * MARGIN", "1.0"),
)
def test_where_tokens_are_estimated_a_budget_is_passed_by_two_percent_at_most() -> None:
    for seed in range(6):
        draw = random.Random(seed)
        model = Estimated(max_sequences=draw.choice([1, 4, 64]))
        with Runtime({"llm": lambda model=model: model}) as runtime:
            app = mapped(runtime, max_tokens=draw.choice([50, 500]))
            topics = [f"{k} " + "and more " * draw.randrange(60) for k in range(60)]
            app.run(topics=topics[:5])
            model.bill, most = 0, draw.choice([2_000, 6_000])
            result = app.run(topics=topics, most_tokens=most)
        assert result.state == "partial"
        assert spent(result) == model.bill
        assert 0.8 * most <= model.bill <= 1.02 * most, f"seed {seed}: {model.bill} of {most}"


def test_an_agent_answers_with_what_it_kept() -> None:
    model = Agents()
    with Runtime({"llm": lambda: model}) as runtime:
        app = App(
            "a",
            Agent([look], max_tokens=200, at_most=16),
            inputs={"question": "text"},
            outputs={"answer": "answer", "steps": "steps"},
            runtime=runtime,
        )
        result = app.run(question="why?", most_tokens=3_000)
    assert (result.state, result.answer) == ("partial", "done")
    assert 1 < len(result["steps"]) < 16
    assert "the budget of its query" in result.reasons["agent"]
    assert model.bill == spent(result) <= 3_000


def test_money_is_counted_by_the_prices_of_models() -> None:
    model = Metered(words=20)
    prices = {"llm": Price(prompt=1.0, answer=10.0, cached=0.1)}
    with Runtime({"llm": lambda: model}, prices=prices) as runtime:
        app = mapped(runtime, max_tokens=50)
        result = app.run(topics=[f"a{k}" for k in range(20)], most_cost=0.001)
        whole = app.run(topics=["a"])
    assert result.state == "partial"
    assert result.usage.cost is not None
    assert result.usage.cost <= 0.001
    assert result.usage.cost > 0.0008
    cost = (whole.usage.prompt_tokens + whole.usage.completion_tokens * 10) / 1e6
    assert whole.usage.cost == pytest.approx(cost)
    assert whole.usage.to_json()["cost"] == pytest.approx(cost)
    assert whole.usage.calls == 1
    assert whole.usage.seconds["llm"] > 0
    with Runtime({"llm": lambda: model}) as runtime:
        app = mapped(runtime)
        with pytest.raises(InputError, match="needs prices"):
            app.run(topics=["a"], most_cost=1.0)
        with pytest.raises(InputError, match="most_tokens must be a whole number"):
            app.run(topics=["a"], most_tokens=0)
        assert app.run(topics=["a"]).usage.cost is None


class Counted(Metered):
    """Also counts prompts ahead of their calls, off the loop."""

    block_tokens = 2

    def keys(self, call: Call) -> Keys:
        return Keys(sum(ceil(len(part.text) / 4) for part in call.all_parts), ())


@pytest.mark.parametrize("kind", [Metered, Counted])
@pytest.mark.parametrize("bounded_first", [True, False])
def test_an_answer_that_a_budget_has_shortened_is_nobody_elses(
    kind: type[Metered], bounded_first: bool
) -> None:
    """Two ask the same at once, one with so many tokens: the other has its answer whole. They share
    one where that is what both would get, or where it is under way before the bounded one comes."""
    shortened = 0
    for most in range(80, 200, 10):
        model = kind(words=40)
        with Runtime({"llm": lambda model=model: model}, learn=False) as runtime:
            app = App(
                "say",
                Generate("say", mode="simple", max_tokens=40),
                inputs={"question": "text"},
                outputs={"answer": "answer"},
                runtime=runtime,
                shares_answers=True,
            )
            specs = [QuerySpec({"question": "why?"}, most_tokens=most)]
            specs.insert(bounded_first, QuerySpec({"question": "why?"}))

            async def both(app: App = app, specs: list[QuerySpec] = specs) -> list[Result]:
                return await asyncio.gather(*(Job(app, spec).run() for spec in specs))

            found = runtime.start(both()).result(30)
        bounded, free = found if bounded_first else reversed(found)
        assert len(free.answer) == 40 * len(WORD)
        lengths = {len(one.answer) // len(WORD) for one in found if one.answer is not None}
        assert sorted(model.limits) == sorted(lengths)
        assert spent(bounded) <= most
        shortened += len(lengths) - 1
    assert bool(shortened) == bounded_first


def test_an_application_has_a_budget_for_a_day() -> None:
    model = Metered(words=20)
    budgets = {"map": DayBudget(tokens=200)}
    with Runtime({"llm": lambda: model}, budgets=budgets) as runtime:
        app = mapped(runtime, max_tokens=50)
        day = iter([0])
        runtime.days._today = lambda: next(day, 0)
        states = [app.run(topics=["a"]).state for _ in range(9)]
        account = runtime.days.account("application 'map' today", budgets["map"])
        account.today = lambda: 1
        tomorrow = app.run(topics=["a"]).state
    assert states[0] == "ok"
    assert states[-1] == "partial"
    assert tomorrow == "ok"


def test_a_failure_says_what_was_done_and_spent() -> None:
    class Breaks(Agents):
        async def generate(self, call: Call) -> AsyncIterator[Delta]:
            if self.made == 2:
                raise EngineError("it is gone")
            async for delta in super().generate(call):
                yield delta

    with Runtime({"llm": Breaks}) as runtime:
        app = App(
            "a",
            Agent([look]),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtime,
        )
        with pytest.raises(QueryFailed) as caught:
            app.run(question="why?")
    error = caught.value
    assert error.usage.calls == 2
    assert [step["tool"] for step in error.steps] == ["look", "look"]
    assert any(id.startswith("agent/call/1/") for id in error.ran)


@catches(
    "a-new-budget",
    "a query that goes on in another process has all of its budget again",
    edited(Paying.recalled, "ledger.took_before", "str"),
)
def test_what_is_known_of_an_earlier_run_was_paid_by_it() -> None:
    model, log = Metered(words=20), Log()
    with Runtime({"llm": lambda: model}, learn=False) as runtime:
        app = mapped(runtime, at_once=1, max_tokens=50)

        def run(most: int) -> Result:
            job = Job(app, QuerySpec({"topics": ["a", "b", "c", "d"]}, most_tokens=most), id="q")
            job.steps = Steps("q", log.found, log, "ask")
            return runtime.start(job.run()).result(30)

        assert run(60).state == "partial"
        made = model.made
        assert 0 < made < 4
        assert run(60).state == "partial"
        assert model.made == made
        assert run(10_000).state == "ok"
    assert model.made == 4


def test_of_accounts_around_each_other_the_smallest_holds() -> None:
    outer = Ledger(BudgetAccount(most_tokens=100))
    inner = Ledger(BudgetAccount(most_tokens=500), around=outer)
    assert inner.answer(40) == 60
