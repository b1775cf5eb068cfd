"""E2 by the properties of its sheet: one example for each rule, worked out by hand. Long because
the sheet has many."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from teola.errors import InputError, UnknownName
from teola.policies.reason import Because
from teola.policies.routing import make
from teola.policies.routing.destinations import prefill_s
from teola.policies.routing.e2 import E2, found, majority
from teola.policies.routing.radix import RadixNode, RadixTree
from teola.policies.routing.recent_load import History, Routed, overloaded
from teola.schedule.events import InstanceDown, PrefixChanged
from tests.planted import catches, edited
from tests.policies.routed import call, end, first, prompt, route, router, send

WINDOW_S = 180.0


def e2(**options: Any) -> E2:
    return E2(**{"decode_s": 0.5, "shifts": False, "prefill_decode": False, **options})


def path_of(*lengths: int) -> list[RadixNode]:
    path, context = list[RadixNode](), 0
    for number, length in enumerate(lengths):
        path.append(RadixNode((), length, context, number))
        context += length
    return path


def with_loads(policy: E2, *loads: float) -> E2:
    """Its instances have had calls that take so long in all."""
    for i, seconds in enumerate(loads):
        history = policy.histories[i] = History(WINDOW_S, 0.0)
        history.add(Routed(i, 0.0, seconds, 1, 0, None, None))
    return policy


def test_calls_of_long_ago_count_on_no_instance() -> None:
    """Whichever of them is asked next."""
    queue = router(policy := e2(window_s=10.0), 3)
    for i in range(3):
        assert route(queue, f"q{i}", prompt((f"q{i}", 100)), affinity=i) == i
    assert [history.load_s for history in policy.histories] == [pytest.approx(0.1 + 0.5)] * 3
    at = route(queue, "late", prompt(("late", 100)), 20.0)
    loads = [history.load_s for history in policy.histories]
    assert loads == [pytest.approx(0.6) if i == at else 0.0 for i in range(3)]


def test_each_call_of_a_batch_is_sent_and_each_shift_ends_that_helps_no_more() -> None:
    queue = router(policy := e2(shifts=True), 1)
    for run in "ab":
        queue.submit(call(run, prompt((run, 10))), 0.0)
    send(queue)
    assert [routed.sent for routed in policy._calls.values()] == [True, True]
    queue = router(policy := e2(shifts=True), 3)
    with_loads(policy, 1.0, 1.0, 1.0)
    policy.redirect = {0: 2, 1: 2}
    route(queue, "c", prompt(("c", 10)))
    assert policy.redirect == {}


def test_no_calls_are_shifted_from_or_to_an_instance_that_went() -> None:
    queue = router(policy := e2(shifts=True), 3)
    policy.redirect = {0: 1, 1: 2, 2: 0}
    policy.histories[0].answered(9.0, 0.0)
    queue.down(InstanceDown("e", 0), 1.0)
    assert policy.redirect == {1: 2}
    assert policy.histories[0].decode_s == 0.5, "a fresh one may be as quick as any"


# --- 4.1: where a call goes -----------------------------------------------------------------


@catches(
    "half-exploits",
    "a call of whose prompt just half is kept exploits",
    edited(E2._choose, "> work.tokens", ">= work.tokens"),
)
def test_a_call_exploits_if_more_than_half_of_its_prompt_is_kept() -> None:
    """The keeper is so loaded that nobody explores it."""
    for tokens, at in ((51, 0), (50, 1)):
        queue = router(policy := e2())
        assert route(queue, "a", prompt(("s", tokens))) == 0
        with_loads(policy, 9.0, 0.0)
        assert route(queue, "b", prompt(("s", tokens), ("b", 100 - tokens))) == at


@catches(
    "first-majority",
    "the first node of the majority is the key, and not the last",
    edited(majority, "reversed(path)", "path"),
)
def test_which_node_is_the_key() -> None:
    for lengths, longest, most in (((10, 60, 25), 1, 1), ((100, 60, 150), 2, 0)):
        path = path_of(*lengths)
        assert e2().key(path) is path[longest]
        assert e2(key_rule="majority").key(path) is path[most]


def test_of_two_nodes_of_one_length_the_deeper_is_the_key() -> None:
    path = path_of(50, 50)
    assert e2().key(path) is path[1]


def test_five_calls_on_two_instances() -> None:
    """Explore costs of r2 are 1.40 and 0.55, of r5 1.70 and 1.77."""
    queue = router(policy := e2())
    shared, a, b = ("s", 200), ("a", 300), ("b", 300)
    calls = {
        "r1": prompt(shared, a, ("x", 50)),
        "r2": prompt(shared, b, ("y", 50)),
        "r3": prompt(shared, a, ("z", 50)),
        "r4": prompt(shared, ("c", 100), ("w", 20)),
        "r5": prompt(("alone", 100)),
    }
    assert [route(queue, run, keys) for run, keys in calls.items()] == [0, 1, 0, 1, 0]
    assert [history.load_s for history in policy.histories] == pytest.approx([2.2, 1.67])


def test_what_shares_nothing_is_balanced() -> None:
    queue = router(e2())
    at = [route(queue, f"q{k}", prompt((f"p{k}", 100))) for k in range(6)]
    assert at == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("tokens", [1, 2])
def test_the_shortest_prompts_explore(tokens: int) -> None:
    queue = router(e2())
    assert route(queue, "a", prompt(("a", tokens))) == 0
    assert route(queue, "b", ()[:0], total=tokens) == 1


def test_what_is_evicted_everywhere_counts_no_more() -> None:
    queue = router(policy := e2())
    keys = prompt(("s", 90))
    route(queue, "a", keys)
    with_loads(policy, 9.0, 0.0)
    queue.prefixes(PrefixChanged("e", 0, (), keys), 1.0)
    assert route(queue, "b", keys, 1.0) == 1


# --- 4.2: what it costs ---------------------------------------------------------------------


@catches(
    "load-for-ever",
    "calls count for ever",
    edited(History.expire, "calls[0].at < now - self.window_s", "False"),
)
def test_load_is_prefills_and_decodings_of_the_window() -> None:
    history, tree = History(WINDOW_S, 0.5), RadixTree(1, 1)
    for missing in (400, 100):
        history.add(Routed(0, 0.0, 0.001 * missing, 500, 500 - missing, None, None))
    assert history.load_s == pytest.approx(1.5)
    history.expire(WINDOW_S, tree)
    assert history.load_s == pytest.approx(1.5)
    history.expire(WINDOW_S + 1, tree)
    assert history.load_s == 0


def test_decodings_are_the_mean_of_those_that_ended() -> None:
    queue = router(policy := e2())
    for k, seconds in enumerate((1.0, 3.0)):
        route(queue, f"q{k}", prompt((f"q{k}", 10)))
        first(queue, f"q{k}", 1.0)
        end(queue, f"q{k}", 1.0 + seconds)
    assert [history.decode_s for history in policy.histories] == [1.0, 3.0]


def kept(tree: RadixTree, i: int, name: str, tokens: int, at: float, hits: int) -> None:
    """A leaf that so many calls of the window have used."""
    for _ in range(hits):
        path = tree.insert(prompt((name, tokens)))
        tree.use(path, i, at)
        tree.ended(path[-1], i)


@catches(
    "evictions-free",
    "what has to be evicted for a call costs nothing",
    edited(RadixTree.eviction_cost, "cost += seconds", "cost += 0 * seconds"),
)
def test_evictions_cost_what_those_would_have_to_compute_again() -> None:
    """A: 1.5 + 0.72 + 0.3; B: 2.0 + 0.4. Without evictions A would be the cheaper."""
    queue = router(policy := e2(), kv_blocks=1000)
    tree = policy.tree
    keys = prompt(("x", 400))
    kept(tree, 0, "old", 150, 1.0, 4)
    kept(tree, 0, "newer", 120, 2.0, 1)
    kept(tree, 0, "newest", 530, 3.0, 1)
    tree.use(tree.insert(keys[:100]), 0, 4.0)
    kept(tree, 1, "other", 300, 1.0, 1)
    assert tree.used == [900, 300]
    with_loads(policy, 1.5, 2.0)
    cost = policy._eviction_cost(call("x", keys), tree.insert(keys), 0)
    assert cost == pytest.approx(0.72)
    assert tree.used == [900, 300]  # nothing was evicted
    assert policy._eviction_cost(call("x", keys), tree.insert(keys), 0) == pytest.approx(0.72)
    assert policy._eviction_cost(call("x", keys), tree.insert(keys), 1) == 0
    assert route(queue, "x", keys) == 1
    policy._capacity = [10**6] * 2
    with_loads(policy, 1.5, 2.0)
    assert policy._explore(call("x", keys), tree.insert(keys), [0, 1]) == 0


def test_where_nothing_can_be_evicted_anywhere_evictions_do_not_count() -> None:
    queue = router(policy := e2(), kv_blocks=100)
    for k in range(2):
        assert route(queue, f"q{k}", prompt((f"q{k}", 100))) == k
    assert policy._eviction_cost(call("x", prompt(("x", 50))), [], 0) == inf
    assert route(queue, "x", prompt(("x", 50))) == 0
    with_loads(policy, 1.5, 2.0)
    waits = call("x", prompt(("x", 50)))
    assert policy._explore(waits, [], [0, 1]) == 0
    alone_s = policy._prefill_s(0, waits.tokens, waits.tokens)
    assert policy._by == (Because.COST, {0: 1.5 + alone_s, 1: 2.0 + alone_s})


# --- 4.3: what is forgotten --------------------------------------------------------------


@catches(
    "nodes-for-ever",
    "what nobody keeps or uses stays in the tree",
    edited(RadixTree._prune, "node.parent is not None", "False"),
)
def test_a_node_goes_when_nobody_keeps_it_and_no_call_of_the_window_used_it() -> None:
    queue = router(policy := e2())
    keys = prompt(("a", 20))
    for now, run in ((0.0, "a"), (100.0, "b")):
        route(queue, run, keys, now)
        first(queue, run, now)
        end(queue, run, now)
    queue.prefixes(PrefixChanged("e", 0, (), keys), 101.0)
    route(queue, "x", (), WINDOW_S + 1, total=1)
    assert len(policy.tree) == 20  # the second call is in the window still
    route(queue, "y", (), 100 + WINDOW_S + 1, total=1)
    assert len(policy.tree) == 0


def test_a_tree_forgets_what_no_instance_has_room_for() -> None:
    queue = router(policy := e2(), instances=1, kv_blocks=100)
    for k in range(5):
        route(queue, f"q{k}", prompt((f"q{k}", 40)), float(k))
        first(queue, f"q{k}", float(k))
        end(queue, f"q{k}", float(k))
    assert policy.tree.used == [80]
    assert found(policy.tree.insert(prompt(("q4", 40))), 0) == 40
    assert found(policy.tree.insert(prompt(("q2", 40))), 0) == 0


def test_heaps_of_leaves_do_not_grow_with_calls() -> None:
    queue = router(policy := e2(), instances=1)
    for k in range(500):
        route(queue, f"q{k}", prompt(("same", 4)), float(k))
        end(queue, f"q{k}", float(k))
    assert len(policy.tree._leaves[0]) < 100
    assert policy._calls == {}


# --- 4.4: prefill and decode ----------------------------------------------------------------


@catches(
    "no-guard",
    "an instance that decodes gets prefills however loaded it is",
    edited(E2._explore, "<= self.balance * least", "< 1e9"),
)
def test_what_is_new_goes_where_prompts_were_found() -> None:
    """From a share of 0.7 on, and up to half as much load again as the least."""
    for ratio, load, at in (
        (0.72, 1.2, 0),
        (0.7, 1.2, 0),
        (0.69, 1.2, 1),
        (0.72, 1.5, 0),
        (0.72, 1.6, 1),
    ):
        queue = router(policy := e2(prefill_decode=True))
        for i, seconds, hits in ((0, load, ratio), (1, 1.0, 0.4)):
            policy.histories[i] = History(WINDOW_S, 0.0)
            call = Routed(i, 0.0, seconds, 100, round(100 * hits), None, None)
            policy.histories[i].add(call)
        assert route(queue, "a", prompt(("a", 10)), 1.0) == at


# --- 4.5: shifting --------------------------------------------------------------------------


@catches(
    "shifts-at-once",
    "it shifts before enough calls were routed",
    edited(E2._shift, "self.routed < ", "0 > "),
)
def test_what_is_for_the_most_loaded_goes_to_the_least() -> None:
    for routed, loads, redirect in (
        (100, (1.6, 1.0), {0: 1}),
        (100, (1.5, 1.0), {}),
        (99, (1.6, 1.0), {}),
        (100, (0.0, 0.0), {}),
        (100, (0.1, 0.0), {0: 1}),
    ):
        router(policy := e2(shifts=True))
        with_loads(policy, *loads)
        policy.routed = routed
        policy._shift(0.0)
        assert policy.redirect == redirect
        with_loads(policy, 1.5, 1.0)
        policy._shift(0.0)
        assert policy.redirect == {}


@pytest.mark.parametrize(
    ("loads", "turned"),
    [
        ((9.0, 9.0, 1.0), {0: 2}),
        ((1.0, 9.0, 9.0), {1: 0}),
        ((9.0, 1.0, 1.0), {0: 1}),
        ((1.0, 1.0, 9.0), {2: 0}),
        ((1.5, 1.0, 1.0), {}),
        ((1.6, 1.0, 1.0), {0: 1}),
        ((0.0, 0.0, 0.0), {}),
    ],
)
def test_of_the_most_and_of_the_least_loaded_the_first_is_meant(
    loads: tuple[float, ...], turned: dict[int, int]
) -> None:
    """From half as much again on."""
    router(policy := e2(shifts=True, min_routed=3), 3)
    with_loads(policy, *loads)
    for policy.routed in (2, 3):
        policy._shift(0.0)
        assert policy.redirect == (turned if policy.routed == 3 else {})


def test_what_is_redirected_is_routed_there() -> None:
    queue = router(policy := e2(shifts=True, min_routed=1))
    route(queue, "a", prompt(("a", 50)))
    assert policy.redirect == {0: 1}
    assert route(queue, "b", prompt(("a", 50))) == 1


def test_a_prefix_is_overloaded_when_its_calls_wait_twice_as_long() -> None:
    waits = [(10.0, 0.2), (80.0, 0.3), (100.0, 0.5), (170.0, 0.6)]
    assert overloaded(waits, 180.0, WINDOW_S)
    assert not overloaded(waits[2:], 180.0, WINDOW_S)
    assert not overloaded(waits[:2], 180.0, WINDOW_S)


@catches(
    "no-replica",
    "an overloaded prefix goes nowhere else",
    edited(E2._sent, "call.key.replicas[light] = now", "pass"),
)
def test_an_overloaded_prefix_may_go_to_the_least_loaded_too() -> None:
    queue = router(policy := e2(shifts=True, min_routed=10**6))
    keys = prompt(("a", 50))
    with_loads(policy, 0.0, 9.0)
    for k, (now, waited) in enumerate([(0.0, 0.1), (80.0, 0.1), (100.0, 0.5), (170.0, 0.6)]):
        policy.redirect = {}
        queue.submit(call(f"q{k}", keys, now - waited), now)
        policy.redirect = {0: 1}
        send(queue, now)
    with_loads(policy, 9.0, 1.0)
    policy.redirect = {}
    assert route(queue, "new", keys, 171.0) == 1


def test_a_replica_goes_when_it_has_had_no_call_in_the_window() -> None:
    router(policy := e2())
    key = policy.tree.insert(prompt(("a", 5)))[0]
    key.replicas = {1: 0.0}
    assert policy._in_use(key, 1, 0.0, WINDOW_S - 1)
    key.hits = {1: 1}
    assert policy._in_use(key, 1, 0.0, WINDOW_S + 1)
    key.hits = {}
    assert not policy._in_use(key, 1, 0.0, WINDOW_S + 1)
    assert key.replicas == {}


# --- what is bound, withdrawn or lost -------------------------------------------------------


def test_later_phases_go_where_the_first_went_whatever_is_redirected() -> None:
    queue = router(policy := e2())
    keys = prompt(("a", 50))
    assert route(queue, "a", keys[:40]) == 0
    policy.redirect = {0: 1}
    assert route(queue, "b", keys, affinity=0) == 0
    assert found(policy.tree.insert(keys), 0) == 50


def test_what_waits_is_not_routed_again_and_counts_once() -> None:
    queue = router(policy := e2(), max_batch=100)
    keys = prompt(("a", 100))
    assert route(queue, "a", keys) == 0
    queue.submit(call("b", (*keys[:60], *prompt(("b", 30)))), 0.0)
    for now in (1.0, 2.0):
        send(queue, now)
    assert queue.works["b", 0].affinity == 0
    assert policy.routed == 2
    queue.withdraw("b", 0, 3.0)
    assert policy.histories[0].load_s == pytest.approx(0.6)
    assert [node.active for node in policy.tree.insert(keys)] == [{0: 1}] * 2


def test_an_instance_that_is_lost_keeps_nothing() -> None:
    queue = router(policy := e2())
    keys = prompt(("a", 50))
    route(queue, "a", keys)
    policy.redirect = {0: 1}
    queue.down(InstanceDown("e", 0), 1.0)
    assert (policy.tree.used[0], policy.redirect, policy.histories[0].load_s) == (0, {}, 0)
    send(queue, 1.0)
    assert queue.works["a", 0].affinity == 1  # tried again
    first(queue, "a", 2.0)
    end(queue, "a", 2.0)
    assert (policy.tree.used, policy._calls) == ([0, 50], {})


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"window_s": 0},
        {"balance": 1},
        {"decode_heavy": -1},
        {"min_routed": 0},
        {"decode_s": "1"},
        {"window_s": True},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InputError, match=f"routing policy 'e2': {name} must be a number"):
        make("e2", **options)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UnknownName, match="majority"):
        make("e2", key_rule="mayority")


def test_prefills_take_what_the_profile_says() -> None:
    queue = router(e2())
    profile = queue.placing.routing.view.profiles[0]
    assert prefill_s(profile, 300, 1000) == pytest.approx(0.3)
