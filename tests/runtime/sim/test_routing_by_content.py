"""Simulated LLMs tell what they keep, and routing goes by it."""

import random

import pytest

from teola.profile import EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

DOCUMENTS, CALLS = 6, 60


def profile(kv_blocks: int | None) -> Profile:
    step = StepTime(base_s=0.01, per_token_s=0.001)
    llm = EngineProfile(
        step=step,
        max_batch=2048,
        max_sequences=8,
        instances=2,
        prefix_reuse=True,
        keeps_prefixes=True,
        kv_blocks=kv_blocks,
    )
    return Profile("two", {"llm": llm})


def run(routing: str, kv_blocks: int | None = None, seed: int = 0) -> Sim:
    """Questions about a few documents, each of which stands at the beginning of the prompt."""
    draw = random.Random(seed)
    documents = [Tokens(512) for _ in range(DOCUMENTS)]
    sim = Sim(profile(kv_blocks), routing=routing, outcomes=Planned(answer_tokens=5))
    p = plan(*call("m"))
    for k in range(CALLS):
        sim.submit(p, {"question": [draw.choice(documents), Tokens(20)]}, at=0.4 * k)
    assert {result.state for result in sim.run()} == {State.OK}
    return sim


def mean_s(sim: Sim) -> float:
    return sum(result.latency_s for result in sim.results) / len(sim.results)


@pytest.mark.parametrize(("kv_blocks", "ratio"), [(None, 0.95), (150, 0.8)])
def test_prompts_that_begin_alike_meet_where_their_beginning_is_kept(
    kv_blocks: int | None, ratio: float
) -> None:
    """A document takes half a second; 150 blocks hold four of the six."""
    by_content, by_load = (
        [mean_s(run(routing, kv_blocks, seed)) for seed in range(4)]
        for routing in ("prefix_affinity", "least_loaded")
    )
    assert all(a < ratio * b for a, b in zip(by_content, by_load, strict=True))


@catches(
    "told-nothing",
    "what a simulated instance evicts is not told",
    edited(Stepper._tell_prefixes, "stored, evicted)", "stored, ())"),
)
def test_the_core_knows_exactly_what_simulated_instances_keep() -> None:
    sim = run("prefix_affinity", kv_blocks=70)
    index = sim.core.queues["llm"].placing.prefixes
    assert index is not None
    index.validate()
    for i in range(2):
        server = sim.servers["llm", i]
        assert isinstance(server, Stepper)
        assert index.size(i) == server.server.cache.cached
        assert all(index._where[key] >> i & 1 for key in server.server.cache._cached)
        assert 0 < index.size(i) <= 70


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = (run("prefix_affinity", 70, seed=3).results for _ in range(2))
    assert first == second


def test_a_restart_forgets() -> None:
    sim = Sim(profile(None), routing="prefix_affinity", outcomes=Planned(answer_tokens=5))
    document, p = Tokens(512), plan(*call("m"))
    sim.submit(p, {"question": [document, Tokens(20)]}, at=0.0)
    sim.kill("llm", 0, at=5.0, back_s=1.0)
    sim.run()
    index = sim.core.queues["llm"].placing.prefixes
    assert index is not None
    assert index.size(0) == 0
    sim.submit(p, {"question": [document, Tokens(20)]}, at=10.0)
    sim.submit(p, {"question": [document, Tokens(20)]}, at=20.0)
    again, warm = sim.run()[-2:]
    assert warm.latency_s < again.latency_s / 3
