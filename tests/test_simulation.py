"""An application under load in one call: what it says, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

import teola
from teola import App, Condition, Generate, Input, Runtime, component
from teola.errors import InputError
from teola.habit import Habit
from teola.policies.batching.fifo import Fifo
from teola.policies.work import Work
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.sim_result import SimResult
from teola.simulation import _Simulation
from teola.testing.hash_engines import HashModel
from tests.planted import catches, edited

LLM = EngineProfile(
    step=StepTime.of(Cost(base_s=1.0), Cost(base_s=0.1)), max_batch=1000, max_sequences=1
)
PROFILE = Profile("small", {"llm": LLM})
"""A prompt takes 1 s whatever its length, a further token 0.1 s; one call at a time."""
SECONDS = 2.0
"""What a call takes that writes 11 tokens."""


def asking(runtime: Runtime | None = None, **more: Any) -> App:
    runtime = runtime or Runtime({"llm": HashModel}, learn=False)
    declared = {"question": "text", "history": Input("text", default=None)}
    inputs, outputs = declared | more.pop("inputs", {}), {"answer": "answer"}
    template = more.pop("template", None) or Generate()
    return App("asking", template, inputs=inputs, outputs=outputs, runtime=runtime)


def simulated(app: App | None = None, **more: Any) -> SimResult:
    given = {"rate": 0.01, "queries": 20, "profile": PROFILE, "lengths": {"generate": 11}} | more
    return (app or asking()).simulate(**given)


def test_calls_that_do_not_meet_take_what_the_profile_says() -> None:
    """In 2,000 s, each call 2 s of one instance."""
    found = simulated()
    assert (found.p50, found.unfinished, found.instances) == (SECONDS, 0, {"llm": 1})
    assert found.p50 <= found.mean <= found.p95 <= found.p99
    assert found.busy["llm"] == pytest.approx(20 * SECONDS / found.duration_s)


def test_more_instances_are_faster_under_load() -> None:
    """Two queries in the time that one takes: one instance falls behind, four do not."""
    one, four = (simulated(rate=1.0, queries=200, pools={"llm": n}) for n in (1, 4))
    assert one.busy["llm"] > 0.95
    assert one.growth > 1.25 > four.growth
    assert one.p95 > 10 * four.p95
    assert "too much for these instances" in str(one)
    assert "too much" not in str(four)


def test_the_same_seed_gives_the_same_figures() -> None:
    first, again, other = (simulated(rate=0.4, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.mean != other.mean


def test_it_says_what_it_assumed_and_no_more() -> None:
    assert simulated(lengths={}).assumed == {"question": "16 tokens", "generate.answer_tokens": 16}
    assert simulated(inputs={"question": 30}).assumed == {}


def test_what_was_learned_is_used() -> None:
    profile = replace(PROFILE, habits={("asking", "generate"): Habit(calls=9, output=2.0)})
    found = simulated(lengths={}, profile=profile)
    assert found.learned == {"generate.tokens": 32}
    assert found.p50 == pytest.approx(1.0 + 31 * 0.1)


def test_branches_are_taken_as_often_as_one_says() -> None:
    """Only `then` asks the model."""
    choice = Condition(bool, reads=["question"], then=Generate())
    app = asking(template=choice)
    assert simulated(app).assumed["condition.branch"] == "then"
    always, never = (simulated(app, branches={"condition": b}) for b in ("then", "otherwise"))
    half = simulated(app, branches={"condition": {"then": 1, "otherwise": 1}})
    assert (always.p50, never.p99) == (SECONDS, 0.0)
    assert 0.0 < half.busy["llm"] < always.busy["llm"]


def test_functions_take_what_was_learned_or_nothing_which_it_says() -> None:
    @component(outputs="answer", pure=True)
    def shout(question: str) -> str:
        return question

    app = asking(template=shout)
    assert simulated(app, lengths={}).assumed["shout.seconds"] == 0.0
    profile = replace(PROFILE, habits={("asking", "shout"): Habit(calls=3, seconds=0.5)})
    known = simulated(app, lengths={}, profile=profile)
    assert known.p50 == 0.5
    assert "shout.seconds" not in known.assumed


class Forgetful(Fifo):
    """Takes every third call on, and forgets the others."""

    count = 0

    def add(self, work: Work, now: float) -> None:
        Forgetful.count += 1
        if Forgetful.count % 3 == 0:
            super().add(work, now)


@catches(
    "unfinished-left-out",
    "queries without an answer do not count in the figures",
    edited(
        _Simulation._summed,
        " if query.state in ANSWERED else inf for query in results",
        " for query in answered",
    ),
)
def test_a_policy_that_forgets_queries_does_not_look_better() -> None:
    Forgetful.count = 0
    with teola.register("batching", "forgetful", Forgetful):
        found = simulated(rate=0.4, queries=30, batching="forgetful")
    assert found.unfinished == 20
    assert sum(found.reasons.values()) == 20
    assert (found.p50, found.mean) == (inf, inf)
    assert "20 queries have no answer" in str(found)
    assert "never" in str(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": 0}, "rate must be queries a second"),
        ({"queries": 0}, "queries must be a number from 1 on"),
        ({"pools": {"lm": 2}}, "unknown engine 'lm'.*did you mean 'llm'"),
        ({"pools": {"llm": 0}}, "'llm' needs at least one instance"),
        ({"lengths": {"generat": 9}}, "unknown component 'generat'.*did you mean 'generate'"),
        ({"lengths": {"generate": 257}}, "writes 256 tokens at most"),
        ({"inputs": {"qestion": 9}}, "unknown input 'qestion'.*did you mean 'question'"),
        ({"inputs": {"question": True}}, "input 'question' must be a number of tokens"),
        ({"branches": {"judge": "then"}}, "unknown condition 'judge'.*valid: none"),
        ({"batching": "fifoo"}, "unknown batching policy 'fifoo'.*did you mean 'fifo'"),
        ({"profile": None}, "how long the engines llm take is not known"),
    ],
)
def test_what_it_does_not_know_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulated(**given)


def test_it_is_told_in_a_few_lines_of_a_terminal() -> None:
    lines = str(simulated(lengths={})).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


def test_of_few_latencies_nobody_knows_whether_they_grow() -> None:
    found = replace(simulated(), growth=2.0)
    assert "too much" in str(replace(found, queries=30))
    assert "too much" not in str(replace(found, queries=29))


@pytest.mark.parametrize("default", [0, -1, 3, [0.5], [{"a": 1}], {"a": 1}, True])
def test_a_default_of_any_kind_is_no_length(default: Any) -> None:
    declared = {"question": "text", "options": Input("any", default=default)}
    outputs = {"answer": "answer"}
    app = App("defaults", Generate(), inputs=declared, outputs=outputs)
    found = app.simulate(rate=1, queries=2, profile="paper-13b")
    assert found.unfinished == 0
    assert "too much" not in str(found)  # of two latencies nobody knows that
