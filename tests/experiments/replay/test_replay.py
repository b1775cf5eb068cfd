"""A replayed call takes the steps that it should, finds what it may, and policies rule by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

import teola
from experiments.replay.calls import Recording, TracedCall, prompt_of_blocks
from experiments.replay.replay import (
    ANSWERS,
    Fleet,
    ReplayedCall,
    ReplayResult,
    replay,
    replay_sessions,
)
from experiments.replay.replay import _Player as Player
from experiments.replay.sessions import AgentRequest, AgentThread
from experiments.replay.synthetic import PREBLE
from teola.errors import UnknownName
from teola.kv import policies
from teola.kv.policies.lru import Lru
from teola.profile import StepTime
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.sim import Sim
from tests.planted import catches, edited

STEP = StepTime(base_s=0.01, per_sequence_s=0.001, per_context_s=1e-6, per_token_s=1e-4)
SMALL = Fleet(instances=1, step=STEP, kv_tokens=1600, sequences=4, budget=64, batching="fifo")


def recording(*calls: tuple[float, Sequence[int], int, int]) -> Recording:
    """Of (at, blocks of 16, prompt tokens, output)."""
    made = [TracedCall(at, prompt_of_blocks(b, 16, n), out, "c") for at, b, n, out in calls]
    return Recording("small", 16, tuple(made))


def test_a_call_alone_takes_the_time_of_its_steps() -> None:
    (call,) = replay(recording((2.0, range(7), 100, 11)), SMALL).calls
    first = STEP.seconds(0, 0, 64, 0) + STEP.seconds(0, 0, 36, 0)
    assert call.ttft_s == pytest.approx(first)
    assert call.latency_s == pytest.approx(first + STEP.seconds(1, 101, repeat=10))
    assert (call.number, call.at, call.instance, call.sent_s) == (0, 2.0, 0, 0.0)
    assert (call.prompt, call.hit, call.output, call.category) == (100, 0, 11, "c")


@catches(
    "hits-untold",
    "what was found in the cache is not told",
    edited(
        "teola.runtime.sim.llm:_note_usage",
        "sequence.generated, sequence.cached)",
        "sequence.generated, 0)",
    ),
)
def test_a_later_call_finds_the_blocks_that_it_shares() -> None:
    found = replay(
        recording((0.0, [1, 2, 3], 48, 2), (9.0, [1, 2, 4], 40, 2), (18.0, [1, 2, 3], 48, 2)),
        SMALL,
    )
    # A prompt's last token is computed in any case, and with it its block.
    assert [call.hit for call in found.calls] == [0, 32, 32]
    assert found.hit_ratio == 64 / 136
    assert found.calls[1].ttft_s == pytest.approx(STEP.seconds(0, 0, 8, 0))


def test_equal_blocks_of_answers_are_nobody_s_prompt() -> None:
    assert prompt_of_blocks([1 << 40], 16, 16).excerpts[0].text < ANSWERS


def test_a_trace_can_be_replayed_faster() -> None:
    calls = recording((0.0, [1], 9, 1), (8.0, [2], 9, 1))
    assert [call.at for call in replay(calls, SMALL, speedup=4.0).calls] == [0.0, 2.0]


def test_blocks_are_the_trace_s_or_the_fleet_s() -> None:
    calls = recording((0.0, [1, 2, 3], 48, 2), (9.0, [1, 2, 4], 48, 2))
    assert replay(calls, SMALL).calls[1].hit == 32
    assert replay(calls, replace(SMALL, block_tokens=20)).calls[1].hit == 20


def test_a_prompt_that_never_fits_is_refused() -> None:
    found = replay(recording((0.0, range(200), 3200, 1), (1.0, [1], 16, 1)), SMALL)
    assert found.refused == 1
    assert [call.number for call in found.calls] == [1]


class Keeping(Lru):
    """Evicts what was used last, or first."""

    def __init__(self, newest: bool = False) -> None:
        super().__init__()
        self._newest = newest

    def evict(self, now: float) -> int:
        return self._offered.popitem(last=self._newest)[0]


@catches(
    "eviction-options-dropped",
    "options of an eviction policy do not reach it",
    edited(Sim._server, "self._eviction_options.get(name, {})", "{}"),
)
def test_options_reach_the_eviction_policy() -> None:
    calls = recording(*((9.0 * k, [b, b + 50], 32, 1) for k, b in enumerate([1, 2, 3, 1])))
    small = replace(SMALL, kv_tokens=4 * 16, eviction="keeping")
    with teola.register("eviction", "keeping", Keeping):
        by_age = replay(calls, small).calls
        by_youth = replay(calls, replace(small, eviction_options={"newest": True})).calls
    assert by_age[3].hit == 0
    assert by_youth[3].hit == 16


def test_options_reach_the_batching_policy() -> None:
    calls = recording((0.0, [1], 9, 1))
    waiting = replace(SMALL, batching_options={"max_wait_s": 0.25})
    assert replay(calls, waiting).calls[0].sent_s == pytest.approx(0.25)


def test_options_reach_the_routing_policy() -> None:
    for given in ({"routing_options": {"no_such": 1}}, {"routing": "no_such"}):
        with pytest.raises(UnknownName, match="no_such"):
            replay(recording((0.0, [1], 9, 1)), replace(SMALL, **given))
    assert "lru" in policies.POLICIES


def test_the_named_routing_policy_rules() -> None:
    trace = PREBLE["toolbench"](300, rate=6.0, seed=1)
    fleet = Fleet(instances=4, kv_tokens=20_000, sequences=16)
    found = {
        routing: replay(trace, replace(fleet, routing=routing))
        for routing in ("round_robin", "prefix_affinity")
    }
    turns = [call.instance for call in found["round_robin"].calls]
    counts = [turns.count(i) for i in range(4)]
    assert min(counts) >= 74, "who waits for company may let the next one have its turn"
    assert found["prefix_affinity"].hit_ratio > found["round_robin"].hit_ratio + 0.05


def test_the_same_trace_gives_the_same_calls() -> None:
    trace = PREBLE["embodied-agent"](200, rate=9.0, seed=1)
    first, second = (replay(trace, Fleet(instances=2, kv_tokens=30_000)) for _ in range(2))
    assert first == second
    assert len(first.calls) == 200


# --- sessions -----------------------------------------------------------------------------------

LOOP = replace(SMALL, kv_tokens=64_000, instances=2, routing="prefix_affinity", sequences=8)


def threads(count: int, think_s: float = 5.0) -> list[AgentThread]:
    requests = tuple(AgentRequest(128 * k, 3, 128 * (k - 1), think_s) for k in range(1, 5))
    return [AgentThread(f"t{k}", requests) for k in range(count)]


def by_session(calls: Sequence[ReplayedCall]) -> dict[str, list[ReplayedCall]]:
    found: dict[str, list[ReplayedCall]] = {}
    for call in calls:
        found.setdefault(call.session, []).append(call)
    return found


@catches(
    "open-loop",
    "a session's next request does not wait for the last answer",
    edited(Player.ask, "self._then[id] = then", "self.sim.at(call.at + 0.01, then)"),
)
def test_a_request_comes_its_pause_after_the_last_answer() -> None:
    found = replay_sessions(threads(3), 2, LOOP, horizon_s=120.0, warm_up_s=0.0)
    assert len(found.calls) > 20
    for calls in by_session(found.calls).values():
        for one, following in pairwise(calls):
            assert following.at == pytest.approx(one.at + one.latency_s + 5.0)
            assert following.hit == one.prompt
        assert [call.category for call in calls] == [f"turn-{k}" for k in range(1, len(calls) + 1)]


def test_an_ended_session_is_replaced_at_once() -> None:
    found = replay_sessions(threads(3), 1, LOOP, seed=2, horizon_s=300.0, warm_up_s=0.0)
    sessions = [*by_session(found.calls).values()]
    assert len(sessions) > 3
    for before, after in pairwise(sessions):
        assert after[0].at == pytest.approx(before[-1].at + before[-1].latency_s)
        assert after[0].hit == 0  # even of the same thread


def test_the_first_seconds_do_not_count_and_the_horizon_is_told() -> None:
    every = replay_sessions(threads(3), 2, LOOP, horizon_s=120.0, warm_up_s=0.0)
    found = replay_sessions(threads(3), 2, LOOP, horizon_s=120.0, warm_up_s=40.0)
    assert found.horizon_s == 120.0
    assert found.calls == tuple(call for call in every.calls if call.at >= 40.0)
    assert max(call.at + call.latency_s for call in found.calls) <= 120.0


def test_seeds_give_other_sessions() -> None:
    given = threads(8)
    found = [replay_sessions(given, 2, LOOP, seed=k, horizon_s=90.0) for k in (1, 1, 2)]
    assert found[0] == found[1]
    first = [replay_sessions(given, 2, LOOP, seed=k, horizon_s=90.0, warm_up_s=0) for k in (1, 2)]
    assert first[0].calls != first[1].calls


def test_a_refused_request_does_not_end_its_session() -> None:
    requests = tuple(AgentRequest(tokens, 1, 0, 1.0) for tokens in (64, 99_999, 64))
    found = replay_sessions([AgentThread("t", requests)], 1, LOOP, horizon_s=62.0, warm_up_s=0.0)
    assert found.refused >= 1
    assert [call.category for call in found.calls][:2] == ["turn-1", "turn-3"]


def test_a_simulated_trace_tells_what_a_call_took() -> None:
    seen = []
    player = Player(SMALL, "small", 16)
    player.sim.on_finish = lambda query, result: seen.append(query.trace.calls)
    player.ask(TracedCall(0.0, prompt_of_blocks([1, 2], 16, 20), 5, "c"))
    player.sim.run()
    (usage,) = seen[0].values()
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (20, 5, 0)
    assert isinstance(player.sim.servers["llm", 0], Stepper)


@pytest.mark.parametrize(
    ("ttft_s", "latency_s", "served"),
    [(2.0, 3.0, 2), (2.1, 3.0, 1), (0.1, 1.1, 2), (0.1, 1.2, 1)],
)
def test_a_session_is_served_well_by_first_tokens_and_by_speed(
    ttft_s: float, latency_s: float, served: int
) -> None:
    """21 tokens: 20 of them behind the first, in a second."""
    good = ReplayedCall(0, 0.0, "c", "", 0, 9, 0, 21, 0.0, 0.1, 1.0)
    calls = [
        good._replace(number=k, session="s", ttft_s=ttft_s, latency_s=latency_s) for k in (1, 2)
    ]
    assert ReplayResult((good, *calls)).served_well == (served, 2)
