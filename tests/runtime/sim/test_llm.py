"""The simulated LLM: what it finds in its cache, what it holds, and steps that grow longer."""

from __future__ import annotations

from typing import Any

import pytest

from teola.graph import QUERY, Op, Part, PrefillParams, Primitive, Prompt, Ref, Role
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.schedule.plan import Plan
from tests.planted import catches, edited
from tests.schedule.plans import call, plan, tool

BLOCK = 4
PER_TOKEN = StepTime(base_s=0.01, per_token_s=1.0)
"""A prompt token takes a second: how many were computed can be read off the clock."""


def sim(step: StepTime = PER_TOKEN, outcomes: Planned | None = None, **more: Any) -> Sim:
    given = {
        "max_batch": 1000,
        "prefix_reuse": True,
        "keeps_prefixes": True,
        "block_tokens": BLOCK,
        **more,
    }
    profile = Profile("test", {"llm": EngineProfile(step=step, **given)})
    return Sim(profile, outcomes=outcomes or Planned(answer_tokens=1))


def stepper(made: Sim) -> Stepper:
    found = made.servers["llm", 0]
    assert isinstance(found, Stepper)
    return found


def took(made: Sim) -> dict[str, float]:
    return {result.id: round(result.latency_s, 6) for result in made.run()}


def instructed(instruction: str) -> Plan:
    """A call whose prompt is an instruction and the question."""
    question = Part(Role.QUESTION, Ref(QUERY, "question"), required=True)
    prompt = Prompt((Part(Role.INSTRUCTION, instruction), question))
    _, decoding = call("m")
    prefill = Primitive(
        "m.prefill",
        Op.PREFILLING,
        "m",
        "llm",
        (("prompt", prompt),),
        ("sequence",),
        PrefillParams(),
    )
    return plan(prefill, decoding)


INSTRUCTION = "x" * 4 * 11  # 12 tokens


@pytest.mark.parametrize("reuse", [True, False])
def test_instructions_are_computed_once(reuse: bool) -> None:
    made = sim(prefix_reuse=reuse)
    for k in range(2):
        made.submit(instructed(INSTRUCTION), {"question": Tokens(10)}, id=f"q{k}", at=100.0 * k)
    assert took(made) == {"q0": 22.01, "q1": 10.01 if reuse else 22.01}


def test_what_is_not_kept_is_computed_for_every_query() -> None:
    made = sim(keeps_prefixes=False)
    for k in range(2):
        made.submit(instructed(INSTRUCTION), {"question": Tokens(10)}, id=f"q{k}", at=100.0 * k)
    assert took(made) == {"q0": 22.01, "q1": 22.01}


def test_tenants_compute_their_own() -> None:
    made = sim()
    for k in range(2):
        made.submit(
            instructed(INSTRUCTION),
            {"question": Tokens(10)},
            id=f"q{k}",
            at=100.0 * k,
            tenant=f"t{k}",
        )
    assert took(made) == {"q0": 22.01, "q1": 22.01}


def test_texts_are_their_own_unless_they_are_the_same() -> None:
    made, same = sim(), Tokens(10)
    for k, question in enumerate((same, Tokens(10), same)):
        made.submit(plan(*call("m")), {"question": question}, id=f"q{k}", at=100.0 * k)
    assert took(made) == {"q0": 10.01, "q1": 10.01, "q2": 2.01}


def test_a_second_turn_finds_the_first_ones_prompt_and_answer() -> None:
    """10 tokens, 7 of answer, of which the last was never fed: 16 of 21 tokens are there."""
    made = sim(outcomes=Planned(answer_tokens=7))
    made.submit(plan(*call("m")), {"question": (first := Tokens(10))}, id="q0")
    (result,) = made.run()
    question = [first, result.outputs["answer"], Tokens(4)]
    made.submit(plan(*call("m")), {"question": question}, id="q1", at=100.0)
    assert took(made)["q1"] == pytest.approx(5 + 0.07)


@catches(
    "held-for-ever",
    "a prefix that nobody reads is not released",
    edited(Stepper.release, "server.release(id, self.sim.now)", "pass"),
)
def test_a_prefix_is_held_until_its_reader_is_done() -> None:
    """The prefix takes 10 s; while it is held, the other query cannot have its blocks."""
    made = sim(kv_blocks=8)
    made.submit(
        plan(tool("late"), *call("m", ahead=True, late="late")), {"question": Tokens(10)}, id="q0"
    )
    made.run(until=10.5)
    assert [*stepper(made).server.kept] == [("q0", 1)]
    assert stepper(made).server.cache.available == 8 - 2 - 4
    made.run()
    assert not stepper(made).server.kept
    assert stepper(made).server.cache.available == 8


def test_prefixes_of_queries_that_end_are_let_go() -> None:
    made = sim(kv_blocks=8)
    for k, after in enumerate((5.0, 10.5)):  # while it is computed, and when it is held
        made.submit(
            plan(tool("late"), *call("m", ahead=True, late="late")),
            {"question": Tokens(10)},
            id=f"q{k}",
            at=100.0 * k,
            cancel_after_s=after,
        )
    assert {result.state for result in made.run()} == {State.CANCELLED}
    assert not stepper(made).server.kept
    assert stepper(made).server.cache.available == 8


@pytest.mark.parametrize("kv_blocks", [20, 200])
def test_a_prefix_goes_with_the_step_however_long_others_decode(kv_blocks: int) -> None:
    """At 114.35 s nobody reads it any more; the other answer goes on until 114.41 s. In the smaller
    memory that evicts what the first query has left, and waits for the end of a step to give
    anything up."""
    llm = EngineProfile(
        step=PER_TOKEN,
        max_batch=1000,
        prefix_reuse=True,
        keeps_prefixes=True,
        block_tokens=BLOCK,
        kv_blocks=kv_blocks,
    )
    slow = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=50.0)})
    profile = Profile("test", {"llm": llm, "python": slow})
    made = Sim(profile, outcomes=Planned(answer_tokens=40))
    made.submit(plan(*call("m")), {"question": Tokens(10)}, id="before")
    early = plan(tool("late"), *call("m", ahead=True, late="late"))
    made.submit(early, {"question": Tokens(10)}, id="early", at=100.0, cancel_after_s=14.345)
    made.submit(plan(*call("m")), {"question": Tokens(4)}, id="other", at=110.0)
    made.run(until=114.34)
    server = stepper(made).server
    assert [*server.kept] == [("early", 1)]
    assert len(server.decoding) == 1
    made.run(until=114.36)
    assert not server.kept
    assert len(server.decoding) == 1
    assert [(r.id, r.state) for r in made.run()][-1] == ("other", State.OK)


def test_what_can_never_fit_fails() -> None:
    made = sim(kv_blocks=2)
    made.submit(plan(*call("m")), {"question": Tokens(10)}, id="large")
    made.submit(plan(*call("m")), {"question": Tokens(7)}, id="fits")
    states = {result.id: result.state for result in made.run()}
    assert states == {"large": State.FAILED, "fits": State.OK}
    assert stepper(made).server.cache.available == 2


def test_decoding_steps_grow_with_the_context_and_an_arrival_finds_their_boundary() -> None:
    """a: 10 s of prompt, then steps of 11, 12, 13, ... tokens of context, a second each. b comes
    in the third, which ends at 10 + 11 + 12 + 13 = 46 s; beside its prompt of 5 tokens a decodes
    with 14: until 65 s. Then both decode: 15 + 6 tokens, until 86 s."""
    made = sim(StepTime(per_token_s=1.0, per_context_s=1.0), Planned(answer_tokens=6))
    made.submit(plan(*call("m")), {"question": Tokens(10)}, id="a")
    made.submit(plan(*call("m")), {"question": Tokens(5)}, id="b", at=40.0)
    ends = {result.id: result.finished for result in made.run()}
    assert ends["a"] == pytest.approx(86)
    assert ends["b"] == pytest.approx(86 + 7 + 8 + 9 + 10)


def test_a_long_prompt_is_computed_in_chunks() -> None:
    made = sim(max_batch=4)
    made.submit(plan(*call("m")), {"question": Tokens(10)}, id="q")
    assert took(made) == {"q": 10.03}
