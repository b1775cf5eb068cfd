"""Which policy evicts blocks of a simulated LLM: the one that is named, of each engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

import teola
from teola.errors import InputError, UnknownName
from teola.kv import POLICIES
from teola.kv.policies.lru import Lru
from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

LLM = EngineProfile(
    step=StepTime(per_token_s=1.0),
    max_batch=1000,
    prefix_reuse=True,
    keeps_prefixes=True,
    block_tokens=4,
    kv_blocks=8,
)


class Newest(Lru):
    """The block whose last use ended last."""

    def evict(self, now: float) -> int:
        return self._offered.popitem(last=True)[0]


def asking(engine: str) -> Plan:
    return plan(*(replace(primitive, engine=engine) for primitive in call("m")))


def seconds(
    eviction: str | Mapping[str, str], engine: str = "llm", profile: EngineProfile = LLM
) -> list[float]:
    """Of the prompts A, B, C and A again, where two have room."""
    with teola.register("eviction", "newest", Newest):
        engines = {"llm": profile, "other": profile}
        sim = Sim(Profile("small", engines), eviction=eviction, outcomes=Planned(answer_tokens=1))
        a, b, c = (Tokens(14) for _ in range(3))
        for k, text in enumerate((a, b, c, a)):
            sim.submit(asking(engine), {"question": text}, at=100.0 * k)
        return [result.latency_s for result in sim.run()]


@catches(
    "one-eviction-for-all",
    "what is named for one engine is not looked up",
    edited(Sim._server, "_named(self._eviction, name, ", "str("),
)
def test_blocks_go_as_the_policy_says_that_is_named() -> None:
    assert seconds("newest")[3] < seconds("lru")[3]
    assert seconds({"llm": "newest"}) == seconds({"other": "newest"}, "other") == seconds("newest")
    assert seconds({"other": "newest"}) == seconds("lru")


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UnknownName, match="eviction policy 'oldest'"):
        seconds("oldest")


@catches(
    "nobody-asked",
    "the policy is not told whose the blocks are",
    edited(Stepper._begin, "0, query.run.asker.program,", "0, None,"),
)
def test_a_policy_is_told_whose_the_blocks_are() -> None:
    told = set[object]()

    class Told(Lru):
        def touch(self, blocks, keys, position, access, now):  # type: ignore[no-untyped-def]
            told.add((access.category, access.query))

    with teola.register("eviction", "told", Told):
        sim = Sim(Profile("small", {"llm": LLM}), eviction="told")
        for k in range(2):
            sim.submit(asking("llm"), {"question": Tokens(14)}, at=100.0 * k, app="shop")
        sim.run()
    assert {query for _, query in told} == {"q0", "q1"}
    assert {app for (app, _), _ in told} == {"shop"}


def test_every_policy_serves_the_simulator() -> None:
    for name in POLICIES:
        assert len(seconds(name)) == 4


def test_options_go_to_the_policy_of_their_engine() -> None:
    sim = Sim(
        Profile("small", {"llm": LLM}),
        eviction="workload_aware",
        eviction_options={"llm": {"life_s": 0}},
    )
    with pytest.raises(InputError, match="life_s must be a number above 0"):
        sim.submit(asking("llm"), {"question": Tokens(14)})


@catches(
    "copies-cost-nothing",
    "bringing blocks back takes no time",
    edited(Stepper._seconds, "swapped * profile.host_block_s", "0.0"),
)
def test_what_was_evicted_comes_back_from_the_host_at_its_cost() -> None:
    """Of A's three full blocks one is still there; two come back, and two tokens are computed."""
    below = replace(LLM, host_blocks=20, host_swap_s=0.25, host_block_s=0.5)
    alone, tiered = seconds("lru"), seconds("lru", profile=below)
    assert alone[3] == 14.0 - 4.0
    assert tiered[:3] == alone[:3], "what goes down costs nothing"
    assert tiered[3] == pytest.approx(2.0 + 0.25 + 2 * 0.5)
