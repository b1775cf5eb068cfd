"""Why calls go where they go, as routing policies tell it and as people read it.

Long because each policy tells reasons of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from teola.policies.reason import ONLY_ONE, Because, Hold, Reason
from teola.policies.routing import ROUTING, RoutingPolicy, make
from teola.policies.routing.e2 import E2
from teola.policies.routing.graph_aware import GraphAware
from teola.policies.routing.marginal_cost import MarginalCost
from teola.policies.work import Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceDown, ProgramPaused
from teola.schedule.explaining import Explaining
from teola.schedule.placing import Placing
from tests.planted import catches, edited
from tests.policies.routed import TOKEN_S, call, end, first, prompt, route, router, send

SHARED = prompt(("system", 100))


def told(policy: RoutingPolicy, instances: int = 2, **limits: Any) -> EngineQueue:
    """A queue whose works say why they go where they go."""
    queue = router(policy, instances, **limits)
    queue.placing.explain()
    return queue


def asked(queue: EngineQueue, run: str, keys: tuple[Hashable, ...], now: float = 0.0) -> Work:
    """A call that is sent at once, if it may be."""
    route(queue, run, keys, now, program=run)
    return queue.works[run, 0]


def reason_of(work: Work) -> Reason:
    assert work.reason is not None
    return work.reason


def kept(queue: EngineQueue, keys: tuple[Hashable, ...] = SHARED, **more: Any) -> None:
    """A call has left its prompt on an instance (`affinity`, 1 by default)."""
    given = {"affinity": 1, "program": "before", **more}
    run = f"before {given['affinity']}"
    route(queue, run, keys, **given)
    first(queue, run, 0.0)
    end(queue, run, 0.0, 1)


# --- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason(Because.ONLY), ONLY_ONE),
        (Reason(Because.HOME, instances=2), "instance 1 of 2: bound to its home"),
        (
            Reason(Because.COST, "s", 0.12, 0.31, 0, 2, 1024, 1300),
            "instance 1 of 2: finds 1,024 of 1,300 tokens; least cost 0.12 s, next 0.31 s "
            "(instance 0)",
        ),
        (
            Reason(Because.COST, "s", 0.0042, 12.3, 0, 2),
            "instance 1 of 2: least cost 4.2 ms, next 12 s (instance 0)",
        ),
        (
            Reason(Because.COST, "s", 0.5, 0.5, 2, 3),
            "instance 1 of 3: least cost 0.50 s, the same on instance 2",
        ),
        (Reason(Because.COST, "s", 0.5, instances=2), "instance 1 of 2: least cost 0.50 s"),
        (
            Reason(Because.LOAD, "calls", 1, 5, 0, 2),
            "instance 1 of 2: least loaded: 1 call, next 5 calls (instance 0)",
        ),
        (
            Reason(Because.LOAD, "", 0.25, 0.5, 0, 2),
            "instance 1 of 2: least loaded: 0.25, next 0.50 (instance 0)",
        ),
        (
            Reason(Because.PROGRAM, "s", 0.5, 0.2, 0, 2, 900, 1000),
            "instance 1 of 2: finds 900 of 1,000 tokens; what its program left is there, cost "
            "0.50 s, elsewhere 0.20 s (instance 0)",
        ),
        (
            Reason(Because.ROOM, instances=2, holds=(Hold(Because.GATE, 0.4),)),
            "held 0.40 s: no room beside programs that come back; then instance 1 of 2: had room",
        ),
        (
            Reason(Because.HITS, holds=(Hold(Because.GATE, 2.0),), since=7.0).until(8.5),
            "held 2.00 s: no room beside programs that come back; then held 1.50 s: others are "
            "computed first where it would go",
        ),
    ],
)
def test_reasons_are_sentences(reason: Reason, words: str) -> None:
    assert reason.words(1) == words


@pytest.mark.parametrize("because", Because)
def test_there_are_words_for_everything(because: Because) -> None:
    """With figures and without, of a call that was placed and of one that is held."""
    for next_s in (None, 1.0, 2.0):
        said = Reason(because, "s", 1.0, next_s, 0, 3)
        for one in (said, said._replace(since=0.0).until(1.0)):
            words = one.words(1)
            assert words
            assert not any(sign in words for sign in "{}")
            assert not words.endswith((", ", ": "))


# --- policies ---------------------------------------------------------------------------------


def test_marginal_cost_tells_what_is_found_and_what_it_costs_there_and_elsewhere() -> None:
    queue = told(make("marginal_cost"))
    kept(queue)
    keys = (*SHARED, *prompt(("own", 20)))
    work = asked(queue, "a", keys)
    reason = reason_of(work)
    assert (work.affinity, reason.because, reason.other) == (1, Because.COST, 0)
    assert (reason.found, reason.total, reason.instances) == (100, 120, 2)
    assert reason.here == pytest.approx(20 * TOKEN_S)
    assert reason.next == pytest.approx(120 * TOKEN_S)
    assert reason.words(1) == (
        "instance 1 of 2: finds 100 of 120 tokens; least cost 20 ms, next 0.12 s (instance 0)"
    )


@catches(
    "figures-of-another",
    "the figure of an instance that a call did not go to is told as its own",
    edited("teola.policies.routing.destinations:compared", "figures.get(at, 0.0)", "0.0"),
)
def test_the_cost_that_is_told_is_the_one_that_decided() -> None:
    """Of three loaded differently, with a prefix on one of them."""
    queue = told(make("marginal_cost"), 3)
    policy = queue.placing.routing
    assert isinstance(policy, MarginalCost)
    kept(queue, affinity=2)
    for k in range(5):
        asked(queue, f"load {k}", prompt((f"load {k}", 30 + 20 * k)))
    work = call("a", (*SHARED, *prompt(("own", 50))))
    costs = dict(enumerate(policy.offers(work, 0.0).costs))
    queue.placing.bind(work, 0.0)
    reason = reason_of(work)
    least, second, _ = sorted(costs.values())
    assert (reason.here, reason.next) == pytest.approx((least, second))
    assert (costs[work.affinity], costs[reason.other]) == (least, second)


def test_sglang_tells_whether_it_went_by_content_or_by_load() -> None:
    queue = told(make("sglang"))
    kept(queue)
    by_content = reason_of(asked(queue, "a", (*SHARED, *prompt(("own", 20)))))
    assert (by_content.because, by_content.here, by_content.next) == (Because.FOUND, 100, 0)
    assert by_content.words(1) == (
        "instance 1 of 2: finds 100 of 120 tokens; that is the most, next 0 tokens (instance 0)"
    )
    by_load = reason_of(asked(queue, "b", prompt(("other", 50))))
    assert (by_load.because, by_load.here, by_load.next) == (Because.LOAD, 0, 1)
    assert by_load.words(0).endswith("least loaded: 0 calls, next 1 call (instance 1)")


def test_prefix_affinity_tells_what_stands_before_the_first_token() -> None:
    queue = told(make("prefix_affinity"))
    kept(queue)
    reason = reason_of(asked(queue, "a", (*SHARED, *prompt(("own", 20)))))
    assert reason.because is Because.FIRST
    assert (reason.here, reason.next) == pytest.approx((20 * TOKEN_S, 120 * TOKEN_S))
    new = reason_of(asked(queue, "b", prompt(("other", 50))))
    assert new.because is Because.LOAD, "what nobody keeps is left to the least loaded"


def test_prefix_affinity_tells_it_in_the_time_of_each_instance() -> None:
    queue = told(make("prefix_affinity"), token_s=(0.001, 0.002))
    kept(queue)
    reason = reason_of(asked(queue, "a", (*SHARED, *prompt(("own", 20)))))
    assert (reason.here, reason.next) == pytest.approx((0.04, 0.12))


@pytest.mark.parametrize("because", [Because.COST, Because.KEPT, Because.DECODES, Because.SHIFTED])
def test_e2_tells_whether_it_exploits_explores_or_repairs(because: Because) -> None:
    queue = told(policy := E2(decode_s=1.0, prefill_decode=because is Because.DECODES))
    if because is Because.KEPT:
        route(queue, "before", SHARED, affinity=1)
    if because is Because.DECODES:
        for k in range(2):
            route(queue, f"before {k}", SHARED, affinity=k)
        policy.histories[1]._found = policy.histories[1]._total
    if because is Because.SHIFTED:
        policy.redirect = {0: 1}
    keys = prompt(("new", 60)) if because is not Because.KEPT else (*SHARED, "more")
    reason = reason_of(asked(queue, "a", keys))
    assert reason.because is because
    if because is Because.KEPT:
        assert reason.here == pytest.approx(100 * TOKEN_S + 1.0), "the load that it met"
        assert reason.next is None, "nobody else keeps it"
    if because is Because.COST:
        assert reason.here == reason.next == pytest.approx(60 * TOKEN_S)
    if because is Because.SHIFTED:
        assert (queue.works["a", 0].affinity, reason.other) == (1, 0)


def test_turns_are_told() -> None:
    queue = told(make("round_robin"))
    assert [reason_of(asked(queue, run, SHARED)).because for run in "ab"] == [Because.TURN] * 2


@catches(
    "own-load",
    "what the call itself brings counts as load that it met",
    edited(Explaining._taken, "instances[i].context - tokens", "instances[i].context"),
)
def test_the_least_loaded_tells_both_loads() -> None:
    queue = told(make("least_loaded"))
    asked(queue, "a", prompt(("a", 50)))
    asked(queue, "b", prompt(("b", 20)))
    work = asked(queue, "c", prompt(("c", 10)))
    assert reason_of(work).words(1) == (
        "instance 1 of 2: least loaded: 20 tokens, next 50 tokens (instance 0)"
    )


def test_one_with_room_takes_what_the_least_loaded_has_no_place_for() -> None:
    queue = told(make("least_loaded"), max_sequences=1)
    for run in "ab":
        asked(queue, run, prompt((run, 50)))
    queue.submit(call("c", prompt(("c", 10))), 0.0)
    end(queue, "b", 1.0)
    send(queue, 1.0)
    assert reason_of(queue.works["c", 0]).because is Because.ROOM


@pytest.mark.parametrize("name", sorted(ROUTING))
def test_every_policy_says_something_of_every_call(name: str) -> None:
    """And decides as it does while nobody observes."""
    queues = told(make(name)), router(make(name))
    places: list[list[tuple[int, int]]] = [[], []]
    for k in range(12):
        for queue, where in zip(queues, places, strict=True):
            run, keys = f"q{k}", (*SHARED[: 30 * (k % 3)], *prompt((f"own {k}", 10 + 7 * (k % 4))))
            work = call(run, keys, float(k), seq=k, program=f"p{k % 4}")
            queue.submit(work, float(k))
            send(queue, float(k))
            ((at, _),) = work.flying.values()
            where.append((k, at))
            first(queue, run, k + 0.1)
            if k % 2:
                end(queue, run, k + 0.2, 5)
            if queue is queues[0]:
                assert reason_of(work).words(where[-1][1])
            else:
                assert work.reason is None
    assert places[0] == places[1]


def test_a_policy_without_reasons_is_spoken_for() -> None:
    queue = told(make("lmetric"))
    kept(queue)
    assert reason_of(asked(queue, "a", (*SHARED, "x"))).words(1) == (
        "instance 1 of 2: finds 100 of 101 tokens; chosen by its policy when the call was queued"
    )


# --- homes, instances, holds ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["least_loaded", "marginal_cost", "graph_aware"])
def test_a_call_that_goes_on_with_a_sequence_is_bound_to_its_home(name: str) -> None:
    queue = told(make(name))
    route(queue, "a", SHARED, affinity=1)
    assert reason_of(queue.works["a", 0]).because is Because.HOME


def test_one_instance_needs_no_reason() -> None:
    for name in ("least_loaded", "marginal_cost"):
        queue = told(make(name), 1)
        assert reason_of(asked(queue, "a", SHARED)).words(0) == ONLY_ONE


def test_what_its_instance_leaves_behind_has_a_reason_of_its_own() -> None:
    """A call waits for instance 1, which dies; one that stays where it is keeps its reason."""
    queue = told(make("marginal_cost"), max_batch=100)
    kept(queue)
    asked(queue, "first", prompt(("first", 90)))
    work = call("a", (*SHARED, *prompt(("own", 90))))
    queue.submit(work, 0.0)
    before = reason_of(work)
    assert before.because is Because.COST
    queue.down(InstanceDown("e", 1), 1.0)
    after = queue.works["a", 0]
    assert after.affinity == 0
    assert reason_of(after).next is None


@catches(
    "held-for-nothing",
    "how long a call was held is not told",
    edited(
        Placing.bind,
        "self.explaining.bound(work, before, held, now)",
        "self.explaining.bound(work, before, False, now)",
    ),
)
def test_a_call_that_was_held_tells_for_how_long_and_why() -> None:
    queue = told(GraphAware(), max_batch=50, kv_blocks=1300)
    returns = queue.placing.routing.programs.returns
    for _ in range(30):  # others came back after 3 s
        returns.back(returns.away("any", 0.0), 3.0)
    for i, name in enumerate(("p", "q")):
        for k in range(60):  # who would wait behind what is computed again
            route(queue, f"busy {i}/{k}", ("busy",), 0.0, affinity=i, program=f"busy {i}/{k}")
            first(queue, f"busy {i}/{k}", 0.0)
        for k, keys in enumerate((prompt((name, 800)), (*prompt((name, 800)), "more"))):
            run = f"{name}{k}"
            route(queue, run, keys, float(k), program=name, affinity=i if not k else -1)
            first(queue, run, float(k))
            end(queue, run, float(k), 1)
    new = call("new", prompt(("new", 300)), 2.0, program="new")
    queue.submit(new, 2.0)
    assert queue.line.held
    assert reason_of(new).until(2.4).words(-1) == (
        "held 0.40 s: no room beside programs that come back"
    )
    queue.paused(ProgramPaused("e", "p", ended=True), 3.0)
    send(queue, 3.0)
    assert new.on(0)
    words = reason_of(new).words(0)
    assert words.startswith("held 1.00 s: no room beside programs that come back; then ")
    assert "; least cost " in words
    assert words.endswith("on instance 1")


def test_siblings_tell_that_they_wait_for_each_other() -> None:
    queue = told(GraphAware())
    shared = prompt(("shared", 100))
    leader, follower = (call(f"s{k}", (*shared, k), program="p", seq=k) for k in range(2))
    queue.submit(leader, 0.0)
    send(queue)
    queue.submit(follower, 0.0)
    assert reason_of(follower).because is Because.SIBLINGS
    first(queue, "s0", 1.0)
    send(queue, 1.0)
    assert reason_of(follower).holds == (Hold(Because.SIBLINGS, 1.0),)
    assert "held 1.00 s: another call of its program computes what they share" in (
        reason_of(follower).words(follower.affinity)
    )


def test_a_program_that_comes_home_says_so() -> None:
    """Its home has so much to do that others would move it."""
    queue = told(GraphAware())
    run, keys = "p0", prompt(("p", 400))
    route(queue, run, keys, 0.0, program="p", affinity=0)
    first(queue, run, 0.0)
    end(queue, run, 0.0, 1)
    for k in range(4):
        route(queue, f"busy {k}", prompt((f"busy {k}", 100)), 1.0, affinity=0, program=f"b{k}")
    back = call("p1", (*keys, *prompt(("more", 10))), 1.0, program="p")
    queue.submit(back, 1.0)
    reason = reason_of(back)
    assert (back.affinity, reason.because, reason.other) == (0, Because.PROGRAM, 1)
    assert reason.next is not None
    assert "what its program left is there" in reason.words(0)


def test_times_of_one_reason_add_up() -> None:
    """A call is asked about again and again, and may be held for something else in between."""
    reason = Reason(Because.GATE, since=0.0).until(1.0)
    other = Reason(Because.HITS, holds=reason.holds, since=1.0).until(3.0)
    again = Reason(Because.GATE, holds=other.holds, since=3.0).until(3.5)
    assert again.holds == (Hold(Because.GATE, 1.5), Hold(Because.HITS, 2.0))


@pytest.mark.parametrize("name", ["sglang", "marginal_cost", "prefix_affinity", "mooncake"])
def test_of_others_that_are_as_good_the_first_is_told(name: str) -> None:
    """Instance 1 keeps the most, 0 nothing, 2 and 3 the same."""
    queue = told(make(name), 4)
    for i, tokens in ((1, 100), (2, 60), (3, 60)):
        kept(queue, SHARED[:tokens], affinity=i)
    work = asked(queue, "a", SHARED)
    reason = reason_of(work)
    assert work.affinity == 1
    if reason.because is not Because.POLICY:
        assert reason.other == 2
        assert reason.next == (60 if reason.unit == "tokens" else pytest.approx(40 * TOKEN_S))


def test_what_held_a_call_is_told_wherever_it_goes_in_the_end() -> None:
    """Bound to none, it is taken by the first that has room."""
    queue = told(make("least_loaded"))
    holds = (Hold(Because.GATE, 0.4),)
    for run in ("held", "new"):
        work = call(run, (), 0.0, total=10)
        queue.submit(work, 0.0)
        assert work.affinity < 0
        if run == "held":
            work.reason = Reason(Because.ROOM, holds=holds)
        send(queue, 0.0)
        assert reason_of(work).because is not Because.ROOM
        assert reason_of(work).holds == (holds if run == "held" else ())
