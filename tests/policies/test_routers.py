"""The published routers, each by what its formula says of instances that differ."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from teola.errors import InputError
from teola.policies.routing import ANY, ROUTING, make
from teola.policies.routing.destinations import TYPICAL, bound, prefill_s, wait_s
from teola.policies.routing.dualmap import LAST
from teola.policies.routing.marginal_cost import MarginalCost, Standings
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceDown, PrefixChanged
from tests.planted import catches, edited
from tests.policies.routed import call, end, first, prompt, route, router

EARLY = [name for name in ROUTING if name not in ("least_loaded", "round_robin", "prefix_affinity")]
REMEMBER = ("e2", "workload_balanced")
"""They count what they have placed."""
S, OTHER = prompt(("s", 60)), prompt(("other", 60))


def busy(queue: EngineQueue, i: int, calls: int, tokens: int = 10, *, waiting: int = 0) -> None:
    """Calls that decode on an instance (have given a token), or wait for it."""
    for k in range(calls + waiting):
        run = f"busy {i} {k} {tokens}"
        one = call(run, (), total=tokens, affinity=i)
        queue.submit(one, 0.0)
        assert one.affinity == i
        if k < calls:
            queue.dispatch(0.0)
            first(queue, run, 0.0)


def kept(queue: EngineQueue, i: int, keys: tuple[Any, ...]) -> None:
    queue.prefixes(PrefixChanged("e", i, keys), 0.0)


@pytest.mark.parametrize("name", EARLY)
class TestAll:
    def test_it_binds_to_what_is_to_be_had(self, name: str) -> None:
        queue = router(make(name), 3)
        queue.down(InstanceDown("e", 0), 0.0)
        avoiding = call("a", S, avoid=1)
        queue.submit(avoiding, 0.0)
        assert avoiding.affinity == 2
        queue.down(InstanceDown("e", 1), 0.0)
        queue.down(InstanceDown("e", 2), 0.0)
        assert queue.placing.routing.place(call("b", S), 0.0) == ANY

    def test_a_home_is_kept(self, name: str) -> None:
        queue = router(make(name), 3)
        kept(queue, 0, S)
        busy(queue, 1, 3)
        assert route(queue, "a", S, affinity=1) == 1

    def test_what_waits_stays(self, name: str) -> None:
        queue = router(make(name), 2, max_batch=100, max_sequences=1)
        at = route(queue, "a", prompt(("a", 90)))
        waits = call("b", prompt(("a", 90), ("b", 5)), affinity=at)
        queue.submit(waits, 0.0)
        waits.home = -1  # no sequence is there that it continues
        for now in (1.0, 2.0):
            queue.dispatch(now)
        assert queue.works["b", 0].affinity == at

    def test_what_has_no_keys_goes_somewhere(self, name: str) -> None:
        assert route(router(make(name), 3), "a", (), total=50) in (0, 1, 2)


@pytest.mark.parametrize("name", [name for name in EARLY if name != "dualmap"])
def test_ties_go_by_number(name: str) -> None:
    assert route(router(make(name), 3), "a", S) == 0


def goes(name: str, queue: EngineQueue, keys: tuple[Any, ...] = S, **options: Any) -> int:
    return queue.placing.routing.place(call("goes", keys, **options), 0.0)


def test_join_shortest_counts_what_waits_four_times() -> None:
    for running, at in ((3, 1), (4, 0)):
        queue = router(make("join_shortest"))
        busy(queue, 1, running)
        one = call("waits", (), total=1, affinity=0)
        queue.submit(one, 0.0)  # one that waits, and none is sent
        assert goes("join_shortest", queue) == at


def test_lmetric_multiplies_tokens_by_calls() -> None:
    queue = router(make("lmetric"))
    kept(queue, 0, S[:30])
    busy(queue, 0, 1)
    assert goes("lmetric", queue) == 0  # 30 x 2 and 60 x 1
    busy(queue, 0, 2)
    assert goes("lmetric", queue) == 1  # 30 x 4


def test_lmetric_counts_what_is_pending() -> None:
    queue = router(make("lmetric"))
    kept(queue, 0, S[:40])
    queue.submit(call("pending", (), total=15, affinity=0), 0.0)
    assert goes("lmetric", queue, S) == 1  # 35 x 2 and 60 x 1
    queue.withdraw("pending", 0, 0.0)
    assert goes("lmetric", queue, S) == 0


def test_dynamo_adds_what_is_active() -> None:
    queue = router(make("dynamo"))
    kept(queue, 0, S[:50])
    busy(queue, 0, 1, 49)
    assert goes("dynamo", queue) == 0  # 10 + 49 + 60 and 60 + 60
    busy(queue, 0, 1, 2)
    assert goes("dynamo", queue) == 1


@pytest.mark.parametrize(
    ("name", "apart", "times", "part"),
    [("dynamo_two_tier", 32, 1.1, 0.5), ("sglang", 64, 1.5, 0.3)],
)
def test_content_counts_while_loads_are_even(
    name: str, apart: int, times: float, part: float
) -> None:
    queue = router(make(name))
    kept(queue, 1, S[: round(part * 60) + 1])
    busy(queue, 1, apart)
    assert goes(name, queue) == 1
    busy(queue, 1, 1, 11)
    assert goes(name, queue) == 0
    many = round(apart / (times - 1)) + 20
    busy(queue, 0, many, 12)
    busy(queue, 1, many, 12)
    assert goes(name, queue) == 1  # over `apart` more, but not over `times` as many
    less = router(make(name))
    kept(less, 1, S[: round(part * 60)])
    busy(less, 1, 1)
    assert goes(name, less) == 0


def test_llm_d_weighs_prefix_memory_and_queue() -> None:
    queue = router(make("llm_d"), kv_blocks=1000, max_sequences=2)
    kept(queue, 0, S[:40])
    busy(queue, 0, 2, 100)
    assert goes("llm_d", queue) == 0  # 2 + 1.6 + 2 and 0 + 2 + 2
    queue.submit(call("waits", (), total=1, affinity=0), 0.0)
    assert goes("llm_d", queue) == 1  # now its queue is the longest
    unknown = router(make("llm_d"))
    busy(unknown, 0, 5)
    assert goes("llm_d", unknown) == 0  # whose memory nobody knows


def test_aibrix_avoids_the_overloaded() -> None:
    queue = router(make("aibrix"), 3)
    kept(queue, 2, S)
    kept(queue, 1, S[:40])
    busy(queue, 2, 16)
    assert goes("aibrix", queue) == 2
    busy(queue, 2, 1, 11)
    assert goes("aibrix", queue) == 0
    many = router(make("aibrix"), 9)
    kept(many, 8, S)
    kept(many, 5, S[:40])
    busy(many, 8, 9)
    assert goes("aibrix", many) == 5  # 9 calls are over the mean and twice the deviation


def test_production_stack_weighs_prefix_against_the_mean() -> None:
    queue = router(make("production_stack"))
    kept(queue, 0, S[:50])
    busy(queue, 0, 2)
    busy(queue, 1, 2)
    assert goes("production_stack", queue) == 0
    busy(queue, 0, 2, 11)
    assert goes("production_stack", queue) == 0  # 50 / 59 - 1 / 3 and 1 / 3
    busy(queue, 0, 4, 12)
    assert goes("production_stack", queue) == 1  # 50 / 60 - 0.6 and 0.6


def test_ray_serve_takes_the_best_match_or_the_smallest_tree() -> None:
    queue = router(make("ray_serve"))
    kept(queue, 0, S[:6])
    busy(queue, 0, 50)
    assert goes("ray_serve", queue) == 0
    kept(queue, 1, OTHER[:3])
    assert goes("ray_serve", queue, OTHER) == 1  # too little is found, and it keeps less


def test_mooncake_takes_the_earliest_first_token() -> None:
    queue = router(make("mooncake"))
    kept(queue, 0, S[:40])
    busy(queue, 0, 50)  # whom it delays does not count
    queue.submit(call("pending", (), total=39, affinity=0), 0.0)
    assert goes("mooncake", queue) == 0
    queue.submit(call("more", (), total=2, affinity=0), 0.0)
    assert goes("mooncake", queue) == 1


@catches(
    "not-the-nearer",
    "dualmap takes the less loaded of its two although the nearer is quick enough",
    edited(make("dualmap").place, "<= self.objective_s", "< -1"),
)
def test_dualmap_keeps_two_instances_a_prefix() -> None:
    at = {}
    for k in range(40):
        queue = router(make("dualmap", objective_s=0.5), 8)
        keys = prompt((f"p{k}", 60))
        at[k] = route(queue, "a", keys)
        assert route(queue, "b", (*keys[:50], "more")) == at[k]  # what it keeps comes sooner
        busy(queue, at[k], 1, 10)
        queue.submit(call("slow", (), total=600, affinity=at[k]), 0.0)
        elsewhere = route(queue, "c", keys)
        again = route(queue, "d", keys)
        assert elsewhere == again or at[k] in (elsewhere, again)
    assert len(set(at.values())) == 8


def test_dualmap_looks_further_into_popular_prefixes() -> None:
    queue = router(make("dualmap"), 4)
    keys = [prompt(("system", 8), (f"user {k}", 8)) for k in range(LAST)]
    at = [route(queue, f"q{k}", keys[k]) for k in range(LAST)]
    assert len(set(at[: LAST // 4])) <= 2
    assert len(set(at[LAST // 2 :])) == 4


@pytest.mark.parametrize("objective_s", [0, -1.0, "2", True])
def test_dualmap_refuses_objectives_that_make_no_sense(objective_s: Any) -> None:
    with pytest.raises(InputError, match="objective_s"):
        make("dualmap", objective_s=objective_s)


# --- marginal_cost --------------------------------------------------------------------------


def test_marginal_cost_goes_where_the_prefix_is_unless_others_wait_there() -> None:
    queue = router(make("marginal_cost"))
    kept(queue, 1, S[:40])
    assert goes("marginal_cost", queue) == 1
    queue.submit(call("pending", (), total=45, affinity=1), 0.0)
    assert goes("marginal_cost", queue) == 0


@catches(
    "stalls-nobody",
    "whom a prefill stalls costs nothing",
    edited(Standings.renew, "STALLED * (running + waiting)", "0.0"),
)
def test_marginal_cost_counts_whom_a_prefill_stalls() -> None:
    queue = router(make("marginal_cost"))
    busy(queue, 0, 3)
    assert goes("marginal_cost", queue) == 1


@catches(
    "priced-once",
    "what is learned of times changes nothing",
    edited(MarginalCost._priced, "any(map(is_not, profiles, priced))", "False"),
)
def test_marginal_cost_counts_the_context_that_is_decoded() -> None:
    """By times that are learned after its first call."""
    policy = make("marginal_cost")
    queue = router(policy)
    assert goes("marginal_cost", queue) == 0
    profile = EngineProfile(step=StepTime(per_context_s=1e-6))
    policy.view.profiles = [profile, profile]
    busy(queue, 0, 1, 1000)
    busy(queue, 1, 1, 999)
    assert goes("marginal_cost", queue) == 1


@catches(
    "evictions-forgotten",
    "what a call drives out of a cache costs nothing",
    edited(Standings.renew, "EVICTED * min", "0 * min"),
)
def test_marginal_cost_does_not_copy_a_prefix_into_a_full_cache() -> None:
    """On 0: 60 + 1 tokens to wait for and 10 to compute; on 1: 60 to compute, and as many again,
    twice, to drive out."""
    for blocks, at in ((60, 0), (10_000, 1)):
        queue = router(make("marginal_cost"), kv_blocks=blocks)
        kept(queue, 0, S[:50])
        kept(queue, 1, OTHER)
        queue.submit(call("pending", (), total=60, affinity=0), 0.0)
        assert goes("marginal_cost", queue) == at


def test_marginal_cost_learns_how_long_answers_are() -> None:
    policy = make("marginal_cost")
    queue = router(policy)
    assert isinstance(policy, MarginalCost)
    for k, tokens in enumerate((100, 300)):
        route(queue, f"q{k}", S)
        first(queue, f"q{k}", 1.0)
        end(queue, f"q{k}", 2.0, generated=tokens)
    assert policy.answer == 200


# --- what they compare ----------------------------------------------------------------------


def test_times_are_those_of_the_step() -> None:
    step = StepTime(0.01, 0, 0, 0.001, 1e-6)
    profile = EngineProfile(step=step, max_batch=100)
    assert prefill_s(profile, 200, 200) == pytest.approx(0.02 + 0.2 + 20_100e-6)
    assert prefill_s(profile, 100, 1100) == pytest.approx(0.01 + 0.1 + (1001 + 1100) * 50e-6)
    assert wait_s(profile, 100) == pytest.approx(0.01 + 0.1 + 0.8)
    assert prefill_s(EngineProfile(), 1000, 1000) > 0  # nobody knows, but it is not nothing


def test_what_is_bound_stays_while_its_instance_is_to_be_had() -> None:
    queue = router(make("mooncake"), 3)
    view = queue.placing.routing.view
    assert bound(view, call("a", S), 0.0) == ANY
    assert bound(view, call("a", S, affinity=2), 0.0) == 2
    assert bound(view, call("a", S, affinity=2, home=1), 0.0) == 1
    assert bound(view, call("a", S, affinity=2, avoid=2), 0.0) == ANY
    queue.down(InstanceDown("e", 2), 0.0)
    assert bound(view, call("a", S, affinity=2), 0.0) == ANY


@pytest.mark.parametrize("seed", range(5))
def test_mooncake_adds_up_each_token_with_all_that_stands_before_it(seed: int) -> None:
    """Of prompts whose attention takes longer than their tokens, so that a kept one is not free."""
    draw, keys = Random(seed), prompt(("long", 600))
    for _ in range(8):
        queue, least = router(make("mooncake"), 3, max_batch=50), []
        step = StepTime(0.001, per_token_s=1e-4, per_pair_s=draw.choice([1e-7, 1e-6, 1e-5]))
        queue.placing.routing.view.profiles = [EngineProfile(step=step, max_batch=50)] * 3
        each_s = step.base_s / 50 + step.per_token_s
        for i in range(3):
            found, pending = draw.choice([0, 100, 500, 590]), draw.choice([0, 1, 30, 100])
            if pending:
                queue.submit(call(f"pending {i}", (), total=pending, affinity=i), 0.0)
            kept(queue, i, keys[:found])
            wait_s = pending * (each_s + TYPICAL * step.per_pair_s)
            own_s = sum(each_s + step.per_pair_s * (k + 1) for k in range(found, 600))
            least.append(wait_s + own_s)
        assert goes("mooncake", queue, keys) == least.index(min(least)), least


@pytest.mark.parametrize("name", [name for name in EARLY if name not in REMEMBER])
def test_new_times_of_any_instance_count_from_the_next_call_on(name: str) -> None:
    """What a router decides then is what a fresh one decides, that never knew others."""
    slow = EngineProfile(step=StepTime(0.01, per_token_s=0.1, per_context_s=1e-4))
    fast = EngineProfile(step=StepTime(1e-5, per_token_s=1e-6, per_context_s=1e-9))
    for changed in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        for new in (slow, fast):
            queue, fresh = router(make(name), 3), router(make(name), 3)
            goes(name, queue)
            profiles = [
                new if i in changed else one
                for i, one in enumerate(queue.placing.routing.view.profiles)
            ]
            for one in (queue, fresh):
                one.placing.routing.view.profiles = profiles
            assert goes(name, queue) == goes(name, fresh), (changed, new)
