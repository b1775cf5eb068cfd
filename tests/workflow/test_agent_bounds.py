"""How much agents read, what they may cost, and what nobody but their tools may know."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from teola import Agent, App, Runtime
from teola.engine import Call, Delta, Usage
from teola.errors import EngineError, InputError, QueryFailed
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.run_secrets import ReadSecrets, Secrets
from teola.tools import ToolContext, ToolStep, component_tool, tool
from teola.workflow.components.acting import Acting
from teola.workflow.components.room import (
    Bound,
    Spending,
)
from tests.planted import catches, edited
from tests.workflow.test_agent import Writes, add, answer, calls, search

QUESTION = {"question": "text"}
OUTPUTS = {"answer": "answer", "steps": "steps"}


class Counts(Writes):
    """Tells of 100 tokens that it read and 10 that it wrote in each call."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        async for delta in super().generate(call):
            usage = Usage(100, 10) if delta.finish_reason else None
            yield Delta(delta.text, delta.finish_reason, usage)


def asked(model: Writes, agent: Agent, **more: Any) -> Any:
    with Runtime({"llm": lambda: model}) as runtime:
        made = App("a", agent, inputs=QUESTION, outputs=OUTPUTS, runtime=runtime)
        return made.run(question="why?", **more)


# --- what it reads ------------------------------------------------------------------------------


def test_history_is_cut_by_the_engines_tokens() -> None:
    model = Writes(answer("x"))
    with Runtime({"llm": lambda: model}) as runtime:
        made = App(
            "a",
            Agent([add], history_tokens=30),
            inputs={**QUESTION, "history": "text"},
            outputs=OUTPUTS,
            runtime=runtime,
        )
        made.run(question="why?", history="\n".join(f"User: question {n}" for n in range(40)))
    assert "question 39" in model.prompt(0)
    assert "question 3\n" not in model.prompt(0)


# --- what it costs ------------------------------------------------------------------------------


@catches(
    "spends",
    "an agent calls on although no tokens are left for an answer",
    edited(Spending._lacks, "turns * self.last_tokens > most", "0 > most"),
)
def test_it_answers_while_it_can() -> None:
    look = calls(("search", {"query": "x"}))
    model = Counts(look, answer("early"))
    assert asked(model, Agent([search], most_tokens=300)).answer == "early"
    assert "calls" not in (model.calls[1].decode.schema or "")
    model = Counts(look, look, answer("later"))
    assert asked(model, Agent([search], most_tokens=450)).answer == "later"


def test_it_takes_no_more_than_it_may() -> None:
    look = calls(("search", {"query": "x"}))
    with pytest.raises(QueryFailed, match="has taken 110 tokens without an answer"):
        asked(Counts(look, answer("x")), Agent([search], most_tokens=100))
    with pytest.raises(QueryFailed, match=r"has cost 0\.0003 without an answer"):
        asked(Counts(look, answer("x")), Agent([search], most_cost=0.0002, prices=(2.0, 10.0)))


LOOK = calls(("search", {"query": "x"}))


@catches(
    "handed-over-budget",
    "who takes over may take as much again",
    edited(Acting.within, "self.spending.around = outer.spending, key", "pass"),
)
def test_its_bound_holds_for_who_takes_over() -> None:
    """Each call takes 110 tokens: one of the first agent, two with calls, and the answer."""
    other = Agent([search], name="other", description="Knows more.")
    model = Counts(calls(("other", {})), LOOK, LOOK, answer("early"))
    result = asked(model, Agent([search, other], most_tokens=440))
    assert (result.answer, len(model.calls)) == ("early", 4)
    assert "calls" not in (model.calls[3].decode.schema or "")
    assert result.trace.prompt_tokens + result.trace.completion_tokens == 440
    assert result.notices == ("other: it had to answer: its budget",)


@catches(
    "called-budget",
    "an agent that is called as a tool may take what is left twice",
    edited(Acting.within, "not key.startswith(OVER)", "False"),
)
def test_its_bound_holds_within_an_agent_that_it_calls() -> None:
    """Who calls it still has to answer: of 550 tokens the third call inside has to be the last."""
    inner = Counts(LOOK, answer("found"))
    with Runtime({"llm": lambda: outer, "inner": lambda: inner}) as runtime:
        helper = App(
            "helper",
            Agent([search], engine="inner"),
            inputs=QUESTION,
            outputs={"answer": "answer"},
            runtime=runtime,
        )
        called = component_tool(helper, description="Helps.", name="helper")
        outer = Counts(calls(("helper", {"question": "x"})), answer("done"))
        inner.replies = (LOOK, LOOK, answer("found"))
        made = App(
            "a",
            Agent([called], most_tokens=550),
            inputs=QUESTION,
            outputs=OUTPUTS,
            runtime=runtime,
        )
        result = made.run(question="why?")
    assert result.answer == "done"
    assert [len(model.calls) for model in (outer, inner)] == [2, 3]
    assert "calls" not in (inner.calls[2].decode.schema or "")
    assert result.trace is not None
    assert result.trace.prompt_tokens + result.trace.completion_tokens == 550


def test_bounds_hold_over_runs_inside_each_other() -> None:
    """Of each run around, which still has to answer, and of the run itself."""
    outermost = Spending(Bound(tokens=500))
    middle = Spending(Bound(), around=(outermost, "call/1"), returns=True)
    inner = Spending(Bound(), around=(middle, "call/2"), returns=True)
    inner.add(90, 10)
    assert not inner.has_to_answer(), "a turn, and three answers: exactly full"
    inner.add(0, 1)
    assert inner.has_to_answer()
    assert not middle.has_to_answer()
    inner.add(90, 9)
    assert not middle.has_to_answer(), "exactly full"
    inner.add(0, 1)
    assert middle.has_to_answer()
    for outer, key in ((middle, "call/2"), (outermost, "call/1")):
        outer.ended(key, 180, 21)
        assert outer.tokens == 201, "what was told ahead is not counted again"
        assert not outer.ahead
    own = Spending(Bound(tokens=300), around=(Spending(Bound()), "over/1"))
    own.add(90, 10)
    assert not own.has_to_answer()
    own.add(90, 10)
    assert own.has_to_answer(), "its own bound holds where none is around it"


class Taken:
    """What a run inside others took, added up anew for each question. parts: prompts and answers
    of each."""

    def __init__(self, bound: Bound, around: Taken | None, returns: bool) -> None:
        self.bound, self.around, self.returns = bound, around, returns
        self.parts = list[tuple[int, int]]()

    def add(self, prompt: int, answer: int) -> None:
        self.parts.append((prompt, answer))
        if self.around is not None:
            self.around.add(prompt, answer)

    def cost(self, prompt: int, answer: int) -> float:
        prompts, answers = self.bound.prices
        return (prompts * prompt + answers * answer) / 1e6

    def has_to_answer(self, turns: int = 2) -> bool:
        inner = False
        for bound, sizes in (
            (self.bound.tokens, [sum(part) for part in self.parts]),
            (self.bound.cost, [self.cost(*part) for part in self.parts]),
        ):
            if bound is not None and sum(sizes) >= bound:
                raise EngineError("nothing is left")
            inner |= bound is not None and sum(sizes) + turns * max(sizes, default=0) > bound
        if self.around is None:
            return inner
        return self.around.has_to_answer(turns + self.returns) or inner


@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_is_reckoned_from_all_that_was_taken(seed: int) -> None:
    """Tokens and money, in three runs inside each other, against sums. An eighth of a million
    tokens at 8 a million costs exactly 1, so that bounds are met exactly."""
    chance, eighth = Random(seed), 125_000
    runs, slow = list[Spending](), list[Taken]()
    for depth in range(3):
        bound = Bound(
            chance.choice((None, eighth * chance.randint(15, 40))),
            chance.choice((None, float(chance.randint(15, 40)))),
            chance.choice(((8.0, 0.0), (0.0, 8.0), (8.0, 16.0))),
        )
        returns = bool(depth) and chance.random() < 0.5
        around = (runs[-1], f"call/{depth}") if runs else None
        runs.append(Spending(bound, around=around, returns=returns))
        slow.append(Taken(bound, slow[-1] if slow else None, returns))
    for _ in range(30):
        depth = chance.randrange(3)
        took = eighth * chance.randint(0, 2), eighth * chance.randint(0, 1)
        if depth and chance.random() < 0.2:  # it ends, and with it what it had not told
            told = runs[depth - 1].ahead.get(f"call/{depth}", (0, 0))
            runs[depth - 1].ended(f"call/{depth}", told[0] + took[0], told[1] + took[1])
            depth -= 1
        else:
            runs[depth].add(*took)
        slow[depth].add(*took)
        for run, one in zip(runs, slow, strict=True):
            assert run.tokens == sum(map(sum, one.parts))
            assert run.cost == sum(one.cost(*part) for part in one.parts)
            try:
                expected: bool | None = one.has_to_answer()
            except EngineError:
                expected = None
            try:
                assert run.has_to_answer() is expected
            except EngineError:
                assert expected is None


@pytest.mark.parametrize("prompts", [0.0, 2.0])
@pytest.mark.parametrize("answers", [0.0, 10.0])
@pytest.mark.parametrize("most_cost", [None, 1.0])
def test_a_cost_needs_a_price(prompts: float, answers: float, most_cost: float | None) -> None:
    """Prompts, or answers, may be free."""
    prices = prompts, answers
    if most_cost is not None and not prompts + answers:
        with pytest.raises(InputError, match="most_cost needs prices"):
            Agent([search], most_cost=most_cost, prices=prices)
    else:
        agent = Agent([search], most_cost=most_cost, prices=prices)
        assert agent.config.bound == Bound(None, most_cost, prices)  # type: ignore[attr-defined]


def test_as_many_turns_are_needed_as_have_to_be_taken() -> None:
    for choice, least in (("auto", 1), ("none", 1), ("required", 2), ("search", 2)):
        Agent([search], tool_choice=choice, at_most=least)
        with pytest.raises(InputError, match="at_most"):
            Agent([search], tool_choice=choice, at_most=least - 1)


# --- secrets ------------------------------------------------------------------------------------


@tool(pure=True)
def unlock(context: ToolContext) -> dict[str, Any]:
    """Needs a key."""
    return {"by": [f"key {context.secret('DOOR_KEY')}"]}


@catches(
    "secret-told",
    "a model reads a secret that a tool repeats",
    edited(ReadSecrets.hidden, "_hidden(value, long) if long else value", "value"),
)
def test_a_secret_is_known_to_its_tool_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_KEY", "of the environment")
    model = Writes(calls(("unlock", {})), answer("open"))
    with Runtime({"llm": lambda: model}) as runtime:
        made = App("a", Agent([unlock]), inputs=QUESTION, outputs=OUTPUTS, runtime=runtime)
        *events, result = made.stream(question="why?", secrets={"DOOR_KEY": "sesame-opens"})
    assert isinstance(result, Result)
    assert result["steps"][0]["result"] == '{"by": ["key [DOOR_KEY]"]}'
    for seen in (model.prompt(1), repr(events), repr(result), repr(result.trace)):
        assert "sesame" not in seen
    assert (
        '"key [DOOR_KEY]"'
        in asked(Writes(calls(("unlock", {})), answer("open")), Agent([unlock]))["steps"][0][
            "result"
        ]
    )


@pytest.mark.parametrize("names", [("SHORT", "LONG"), ("LONG", "SHORT")])
def test_of_a_secret_that_holds_another_one_nothing_is_left(names: tuple[str, ...]) -> None:
    values = {"SHORT": "sesame", "LONG": "open-sesame-now"}
    own = Secrets({name: values[name] for name in names})
    read = ReadSecrets(own)
    assert [read[name] for name in names] == [values[name] for name in names]
    for secrets in (own, read):
        told = secrets.hidden({"sesame": ["it is open-sesame-now", "or sesame"]})
        assert told == {"[SHORT]": ["it is [LONG]", "or [SHORT]"]}


def test_only_long_secrets_are_looked_for() -> None:
    own = Secrets({"FIVE": "abcde", "SIX": "abcdef"})
    assert own.hidden(["abcde", "abcdef", 3, None]) == ["abcde", "[SIX]", 3, None]
    read = ReadSecrets(own)
    assert read.hidden("abcdef") == "abcdef", "it was not read"
    assert len(read["SIX"] + read["FIVE"]) == 11
    assert read.hidden("abcde abcdef") == "abcde [SIX]"


def test_secrets_are_neither_printed_nor_copied() -> None:
    secrets = Secrets({"KEY": "value-of-it"})
    assert "value" not in f"{secrets} {secrets!r} {QuerySpec({}, secrets={'K': 'value-of-it'})}"
    with pytest.raises(TypeError, match="stay in the process"):
        pickle.dumps(secrets)
    with pytest.raises(InputError, match="'KEY' must be a text"):
        Secrets({"KEY": ""})


# --- steps --------------------------------------------------------------------------------------


def test_steps_are_told_as_they_happen_unless_it_keeps_them() -> None:
    for shows in (True, False):
        model = Writes(calls(("add", {"a": 1, "b": 2})), answer("three"))
        with Runtime({"llm": lambda model=model: model}) as runtime:
            agent = Agent([add], shows_steps=shows)
            made = App("a", agent, inputs=QUESTION, outputs=OUTPUTS, runtime=runtime)
            events = [e for e in made.stream(question="why?") if isinstance(e, ToolStep)]
        told = [(e.agent, e.tool, e.args, e.state, e.result) for e in events]
        args = {"a": 1, "b": 2}
        assert (
            told
            == [
                ("agent", "add", args, "started", ""),
                ("agent", "add", args, "finished", "3.0"),
            ]
            * shows
        )
