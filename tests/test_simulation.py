"""An application under load in one call: what it says, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

import teola
from teola import (
    App,
    Condition,
    Generate,
    Indexing,
    Input,
    QueryExpansion,
    Runtime,
    component,
    simulation,
)
from teola.errors import InputError, UnknownName
from teola.habit import Habit
from teola.passes.estimate import CHUNK_TOKENS
from teola.policies.batching.fifo import Fifo
from teola.policies.work import Work
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime.engines import EngineConfig
from teola.sim_result import SimResult
from teola.simulation import _percentile, _Simulation
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


def test_without_times_of_an_engine_nothing_is_simulated() -> None:
    """Also where a profile is given: else that engine would be taken for infinitely fast."""
    for profile in (Profile("none", {}), replace(PROFILE, engines={"llm": EngineProfile()})):
        with pytest.raises(InputError, match="how long the engines llm take is not known"):
            simulated(profile=profile)


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


def test_a_branch_may_never_be_taken_but_some_has_to_be() -> None:
    app = asking(template=Condition(bool, reads=["question"], then=Generate()))
    never = simulated(app, branches={"condition": {"then": 0, "otherwise": 2}})
    assert never.p99 == 0.0
    for shares, told in (
        ({"then": 0, "otherwise": 0}, "condition 'condition' has to take some branch"),
        ({}, "condition 'condition' has to take some branch"),
        ({"then": -1}, "branch 'then' of 'condition' cannot be taken -1"),
        ({"then": inf}, "branch 'then' of 'condition' cannot be taken inf"),
        ({"els": 1}, "unknown branch 'els' in condition 'condition'"),
    ):
        with pytest.raises(InputError, match=told):
            simulated(app, branches={"condition": shares})


def test_no_query_finds_what_another_one_has_asked() -> None:
    """Their questions are as long, and not the same."""
    step = StepTime.of(Cost(per_token_s=0.01), Cost(base_s=0.1))
    llm = EngineProfile(step=step, max_batch=1000, keeps_prefixes=True, block_tokens=16)
    template = Generate(instruction="Q: ")
    found = simulated(
        asking(template=template),
        profile=Profile("keeps", {"llm": llm}),
        rate=1e-6,
        inputs={"question": 500},
        lengths={"generate": 1},
    )
    assert found.p50 >= 5.0
    assert found.p99 == pytest.approx(found.p50)


def test_texts_that_nobody_gives_are_a_list_of_one() -> None:
    inputs = {"question": "text", "notes": "texts"}
    generate = Generate(inputs={"context": "notes"}, mode="tree")
    assumed, one, two = (
        simulated(asking(template=generate, inputs=inputs), inputs=given)
        for given in ({}, {"notes": [16]}, {"notes": [16, 16]})
    )
    assert assumed.assumed["notes"] == "16 tokens"
    assert assumed.p50 == one.p50 < two.p50


def test_the_options_of_its_engines_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = EngineConfig(HashModel, routing="prefix_affinity", routing_options={"no_such": 1})
    with Runtime({"llm": wrong}, learn=False) as runtime, pytest.raises(UnknownName, match="no_s"):
        simulated(asking(runtime))
    given: list[dict[str, Any]] = []
    made = simulation.Sim

    def noting(*profile: Any, **options: Any) -> Any:
        given.append(options)
        return made(*profile, **options)

    monkeypatch.setattr(simulation, "Sim", noting)
    twice = EngineConfig(HashModel, instances=2, hedge=0.25)
    with Runtime({"llm": twice}, learn=False) as runtime:
        simulated(asking(runtime))
    simulated()
    assert [options["hedge"] for options in given] == [{"llm": 0.25}, {}]
    assert [options["instances"] for options in given] == [{"llm": 2}, {"llm": 1}]


def test_branches_are_taken_as_was_learned_unless_one_says_otherwise() -> None:
    app = asking(template=Condition(bool, reads=["question"], then=Generate()))
    seen = Habit(calls=4, branches={"then": 0, "otherwise": 4})
    profile = replace(PROFILE, habits={("asking", "condition"): seen})
    learned = simulated(app, profile=profile)
    assert learned.learned == {"condition.then": "0%", "condition.otherwise": "100%"}
    assert learned.p99 == 0.0
    told = simulated(app, profile=profile, branches={"condition": "then"})
    assert (told.learned, told.p50) == ({}, SECONDS)
    quarter = replace(seen, branches={"then": 1, "otherwise": 3})
    profile = replace(PROFILE, habits={("asking", "condition"): quarter})
    learned = simulated(app, profile=profile, queries=200)
    assert learned.learned == {"condition.then": "25%", "condition.otherwise": "75%"}
    assert 0.15 < learned.mean / SECONDS < 0.35


def test_lengths_that_are_given_go_before_those_that_were_learned() -> None:
    profile = replace(PROFILE, habits={("asking", "generate"): Habit(calls=9, output=0.001)})
    assert simulated(profile=profile).learned == {}
    assert simulated(profile=profile).p50 == SECONDS
    least = simulated(lengths={}, profile=profile)
    assert (least.learned, least.p50) == ({"generate.tokens": 1}, 1.0)
    assert simulated(lengths={"generate": 256}).p50 == pytest.approx(1.0 + 255 * 0.1)


def test_a_list_is_written_up_to_the_tokens_of_all_its_items() -> None:
    app = asking(
        template=QueryExpansion(n=4, max_tokens=100) >> Generate(inputs={"context": "queries"})
    )
    assert simulated(app, lengths={"expand": 25, "generate": 11}).unfinished == 0
    with pytest.raises(InputError, match="'expand' writes 25 tokens at most, not 26"):
        simulated(app, lengths={"expand": 26})


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
        ({"rate": True}, "rate must be queries a second"),
        ({"rate": inf}, "rate must be queries a second"),
        ({"queries": 1.0}, "queries must be a number from 1 on"),
        ({"lengths": {"generate": 0}}, "the length of 'generate' must be a number of tokens"),
        ({"inputs": {"question": 0}}, "input 'question' must be a number of tokens, from 1 on"),
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


@pytest.mark.parametrize(
    ("seconds", "percent", "found"),
    [
        ([3.0], 99, 3.0),
        ([2.0, 1.0], 50, 1.5),
        ([4.0, 1.0, 3.0, 2.0, 5.0], 50, 3.0),
        ([1.0, 2.0, 3.0, 4.0], 95, 3.85),
        ([inf, 1.0, 2.0], 50, 2.0),
        ([inf, 1.0, 2.0], 51, inf),
        ([1.0, inf], 50, inf),
        ([inf, inf], 50, inf),
        ([1.0, 2.0], 100, 2.0),
    ],
)
def test_a_percentile_lies_between_the_nearest_two(
    seconds: list[float], percent: float, found: float
) -> None:
    assert _percentile(seconds, percent) == pytest.approx(found)


def test_growth_is_that_of_the_last_third_in_the_order_of_arrival() -> None:
    """Of 30 queries that all wait for those before them, query k ends after k calls."""
    found = simulated(rate=1000.0, queries=30)
    last, middle = (sum(range(a, a + 10)) / 10 for a in (21, 11))
    assert found.growth == pytest.approx(last / middle, rel=0.01)
    assert simulated(queries=1).growth == 1.0
    assert simulated(rate=1000.0, queries=2).growth == pytest.approx(2.0, rel=0.01)


def documents(**more: Any) -> SimResult:
    index = Indexing() >> Generate(inputs={"question": "q"})
    inputs = {"q": "text", "documents": "documents"}
    app = App("reads", index, inputs=inputs, outputs={"answer": "answer", "stored": "stored"})
    return app.simulate(rate=1, queries=2, profile="paper-13b", **more)


def test_documents_are_so_many_chunks_or_chunks_of_such_lengths() -> None:
    none, some = (documents(inputs={"documents": n, "q": 9}) for n in (0, 100))
    assert none.busy["vectorstore"] == 0.0 < some.busy["vectorstore"]
    assert some.assumed["documents.chunk_tokens"] == CHUNK_TOKENS
    listed = documents(inputs={"documents": [CHUNK_TOKENS] * 100, "q": 9})
    assert listed.p50 == some.p50
    assert "documents.chunk_tokens" not in listed.assumed
    assumed = documents()
    assert assumed.assumed["documents"] == f"48 chunks of {CHUNK_TOKENS} tokens"
    assert assumed.p50 == documents(inputs={"documents": 48}).p50
    with pytest.raises(InputError, match="give the number of chunks, or a list of their lengths"):
        documents(inputs={"documents": -1})


def test_the_busiest_engine_and_the_first_reasons_are_told() -> None:
    found = replace(
        simulated(),
        instances={"a": 1, "b": 2},
        busy={"a": 0.1, "b": 0.5},
        unfinished=9,
        reasons={f"reason {k}": 1 for k in range(4)},
        growth=9.0,
    )
    lines = str(found).splitlines()
    assert lines[2] == "   busy: b x 2 50%, a x 1 10%"
    told = [line.split(": ")[1] for line in lines if "reason" in line]
    assert told == ["reason 0", "reason 1", "reason 2"]
    assert "too much" not in str(found), "queries without an answer say more"
