"""Why works go where they go, against a list of all that has become of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from teola.policies.reason import Because, Hold, Reason
from teola.policies.routing.base import HELD, Loads, RoutingPolicy
from teola.policies.routing.least_loaded import LeastLoaded
from teola.policies.work import Size, Slice, Work
from teola.schedule.asking import Asking
from teola.schedule.events import Sized
from teola.schedule.explaining import Explaining
from teola.schedule.faults import Faults
from teola.schedule.instances import Instances, Limits
from teola.schedule.preference import Preference
from teola.schedule.quota import Refusal
from tests.recording import work
from tests.schedule.test_engine_queue import call, llm_queue, sent

LLM = Limits(100, 8, 1, True)


class Says(RoutingPolicy):
    """Has an order of its own, and says of each work what a test wants."""

    ordered = Because.SOONEST

    def __init__(self) -> None:
        self.says = Reason(Because.POLICY)

    def order(self, loads: Loads, now: float) -> list[int]:
        return [*loads.instances]

    def why(self, work: Work, at: int, now: float) -> Reason:
        return self.says


def explaining(policy: RoutingPolicy, *limits: Limits) -> tuple[Explaining, Instances, Asking]:
    instances, asking = Instances(limits), Asking(Faults("e", "a", "b"))
    return Explaining(policy, instances, asking), instances, asking


@pytest.mark.parametrize("keys", [(), ("a", "b")])
@pytest.mark.parametrize("seed", range(20))
def test_holds_are_added_up_whatever_comes_between(seed: int, keys: Any) -> None:
    """A work is held, bound and left free in any order. Bound again where it was, it keeps its
    reason."""
    chance, policy = Random(seed), Says()
    explains, _, _ = explaining(policy, LLM, LLM, LLM)
    one = work(0, total=40, keys=keys, planned_tokens=7)
    held, since, now = dict[Because, float](), list[tuple[Because, float]](), 0.0
    known: Reason | None = None
    for step in range(30):
        now += chance.choice([0.0, 0.5, 1.0])
        before = one.affinity
        policy.says = Reason(chance.choice([Because.GATE, Because.HITS, Because.AHEAD]), "s", step)
        one.found = chance.choice([0, 5])
        one.home = chance.choice([-1, 0])
        what = chance.choice(["held", "free", 0, 1, 2])
        one.affinity = HELD if what == "held" else -1 if what == "free" else int(what)
        if since:
            because, at = since.pop()
            held[because] = held.get(because, 0.0) + now - at
        explains.bound(one, before, what == "held", now)
        if what == "held":
            since = [(policy.says.because, now)]
            known = policy.says._replace(since=now)
        elif what == "free":
            known = Reason(Because.ROOM) if held else None
        elif what != before or known is None:
            home = one.affinity == one.home
            known = (Reason(Because.HOME) if home else policy.says)._replace(
                instances=3, found=one.found, total=one.tokens if keys else 0
            )
        if known is None:
            assert one.reason is None
        else:
            assert one.reason is not None
            assert dict(one.reason.holds) == held
            assert one.reason._replace(holds=()) == known


@pytest.mark.parametrize("instances", [1, 3])
def test_one_that_looks_how_slow_an_instance_is_keeps_its_holds(instances: int) -> None:
    explains, _, _ = explaining(Says(), *[LLM] * instances)
    holds = (Hold(Because.GATE, 2.0),)
    for before in (None, Reason(Because.ROOM, holds=holds)):
        one = work(0, affinity=0)
        one.reason = before
        explains.looks(one)
        kept = holds if before is not None else ()
        assert one.reason == Reason(Because.LOOKS, instances=instances, holds=kept)


# --- what was bound to none -------------------------------------------------------------------


def taken(explains: Explaining, instances: Instances, i: int, tokens: int = 10) -> Reason:
    """Why instance `i` takes a work of so many tokens, as the only one of a batch. Another one of
    the batch was bound."""
    free, bound = work(0, total=tokens), work(1, total=5, affinity=i)
    instances.send(i, 99, tokens + 5, 2)
    explains.sent(i, [Slice(free, 0, tokens), Slice(bound, 0, 5)], 0.0)
    instances.land(i, 99, tokens + 5, tokens + 5, 2)
    assert bound.reason is None
    assert free.reason is not None
    assert free.reason.instances == len(instances)
    return free.reason._replace(instances=1)


def test_the_only_one_needs_no_comparison() -> None:
    explains, instances, _ = explaining(LeastLoaded(), LLM)
    assert taken(explains, instances, 0) == Reason(Because.ONLY)


@pytest.mark.parametrize("policy", [LeastLoaded(), Says()])
def test_where_prices_differ_they_are_told(policy: RoutingPolicy) -> None:
    explains, instances, asking = explaining(policy, LLM, LLM, LLM)
    asking.preference = Preference([1, 0, 1], 1.0, instances)
    because = [taken(explains, instances, i).because for i in range(3)]
    assert because == [Because.DEARER, Because.CHEAPEST, Because.DEARER]


def test_an_order_of_its_own_has_its_own_words() -> None:
    explains, instances, _ = explaining(Says(), LLM, LLM)
    assert taken(explains, instances, 1) == Reason(Because.SOONEST)


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize(("own", "next_tokens"), [(0, 0), (20, 20), (20, 50), (50, 20), (21, 20)])
def test_the_load_is_what_was_there_before(own: int, next_tokens: int, larger: bool) -> None:
    """In tokens between those that are alike, else as a part of what each takes. Who is more loaded
    than another had room."""
    limits = [LLM, LLM, LLM._replace(max_batch=400) if larger else LLM]
    explains, instances, _ = explaining(LeastLoaded(), *limits)
    for i, tokens in ((0, 90), (1, own), (2, next_tokens)):
        instances.send(i, i, tokens, 1)
    own_load, next_load = own / 100, next_tokens / (400 if larger else 100)
    reason = taken(explains, instances, 1)
    if next_load < own_load:
        assert reason == Reason(Because.ROOM)
    elif larger:
        assert reason == Reason(Because.LOAD, "", own_load, next_load, 2)
    else:
        assert reason == Reason(Because.LOAD, "tokens", own, next_tokens, 2)


def test_one_that_alone_has_room_is_compared_with_nobody() -> None:
    for slow in (False, True):
        explains, instances, _ = explaining(LeastLoaded(), LLM, LLM)
        if slow:
            instances.weigh([1.0, 4.0])
        instances.send(0, 1, 100, 1)
        assert taken(explains, instances, 1) == Reason(Because.ROOM)


def test_speeds_count_where_they_differ() -> None:
    """Whichever is more loaded."""
    explains, instances, _ = explaining(LeastLoaded(), LLM, LLM, LLM)
    instances.weigh([1.0, 4.0, 2.0])
    for i, tokens in ((0, 60), (1, 10), (2, 75)):
        instances.send(i, i, tokens, 1)
    assert taken(explains, instances, 0) == Reason(Because.SPEED, "", 0.6, 0.1 * 4.0, 1)
    assert taken(explains, instances, 1) == Reason(Because.SPEED, "", 0.1 * 4.0, 0.6, 0)
    assert taken(explains, instances, 2) == Reason(Because.SPEED, "", 0.75 * 2.0, 0.6, 0)


def test_a_limit_is_told_of_those_who_were_there_while_it_held() -> None:
    """Once, with as much of it as each has seen."""
    explains, instances, _ = explaining(LeastLoaded(), LLM)
    gate = Hold(Because.GATE, 1.0)
    works = [work(k, limited_from=limited, affinity=0) for k, limited in enumerate((0.0, 3.0, 5.0))]
    unbound = work(9, limited_from=0.0, affinity=0)
    for one in works:
        one.reason = Reason(Because.ONLY, holds=(Hold(Because.LIMIT, 9.0), gate))
    slices = [Slice(one, 0, 1) for one in (*works, unbound)]
    explains.sent(0, slices, 5.0)
    before = (Hold(Because.LIMIT, 9.0), gate)
    assert all(one.reason is not None and one.reason.holds == before for one in works)
    instances.refused(0, "e", Refusal("busy", 9.0), 0, 1, 0.0)
    instances.limited(0.0, waits=True)
    explains.sent(0, slices, 5.0)
    holds = [one.reason.holds for one in works if one.reason is not None]
    assert holds[0] == (gate, Hold(Because.LIMIT, 5.0))
    assert holds[1] == (gate, Hold(Because.LIMIT, 2.0))
    assert holds[2] == before
    assert unbound.reason is None


def test_a_call_has_waited_for_limits_since_it_was_there_and_measured() -> None:
    queue = llm_queue(tokens=1000)
    queue.placing.explain()
    queue.instances.limit(0, "e").closed_until = 5.0
    queue.submit(call(0, run="first"), 0.0)
    queue.hold(call(1, 0, run="measured", primitive=0))
    assert sent(queue, 0.0) == []
    queue.submit(call(2, run="second"), 3.0)
    queue.sized(Sized("e", "measured", 0, Size(40)), 4.0)
    (dispatch,) = sent(queue, 5.0)
    waited = {piece.work.run: piece.work.reason for piece in dispatch.slices}
    for run, seconds in {"first": 5.0, "second": 2.0, "measured": 1.0}.items():
        reason = waited[run]
        assert reason is not None
        assert reason.holds == (Hold(Because.LIMIT, seconds),), run
