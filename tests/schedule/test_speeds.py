"""Queues whose instances are not equally fast, which one learns from their calls."""

from __future__ import annotations

from math import inf

import pytest

from teola.graph import Op
from teola.learning import Learner
from teola.policies.work import Estimate
from teola.schedule.events import Dispatch
from teola.schedule.instances import LOOKS_S, Instances
from teola.schedule.placing import LOOKS_ANYWAY_S, Placing
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.refusing import Refusing, Server

ROUTERS = ("least_loaded", "prefix_affinity", "marginal_cost", "graph_aware")


def loop(clients: int, *servers: Server, router: str = "least_loaded", most: int = 64) -> Refusing:
    """So many clients, each of whom asks again when it has its answer."""
    world = Refusing(*servers, router=router, most=most, tokens=400, learner=Learner())
    world.on_end = world.submit
    world.comes(clients)
    return world


def share(world: Refusing, i: int, since: float) -> float:
    """Which part of the calls since then was sent to instance `i`."""
    places = [at for when, at in world.begun if when >= since]
    return places.count(i) / len(places)


@pytest.mark.parametrize("router", ROUTERS)
def test_one_that_turns_twenty_times_slower_loses_its_calls(router: str) -> None:
    slow = Server(call_s=0.2)
    world = loop(4, Server(call_s=0.2), slow, router=router)
    world.run(until=5.0)
    assert 0.4 < share(world, 1, 0.0) < 0.6
    slow.call_s = 4.0
    world.run(until=20.0)  # its first two calls have come back at 9.2, the next two at 13.2
    world.took.clear()
    world.run(until=40.0)
    assert share(world, 1, 20.0) < 0.02
    assert sorted(world.took)[int(0.99 * len(world.took))] <= 1.3 * 0.2


@pytest.mark.parametrize("router", ROUTERS)
def test_work_goes_by_speed_where_all_places_are_taken(router: str) -> None:
    world = loop(12, Server(call_s=0.2), Server(call_s=0.6), router=router, most=2)
    world.run(until=5.0)
    world.ok.clear()
    world.run(until=25.0)
    fast, slow = ([i for _, i in world.ok].count(k) for k in (0, 1))
    assert fast / slow == pytest.approx(3.0, rel=0.2)


def recovers(router: str, objective_s: float = inf) -> None:
    """One that is slow is looked at now and then, and gets its share back when it recovers."""
    slow = Server(call_s=4.0)
    world = loop(2, Server(call_s=0.4), slow, router=router)
    world.objective_s, world.estimate = objective_s, Estimate(rest_s=0.4, call_s=0.4)
    world.run(until=20.0)
    before = slow.calls
    world.run(until=20.0 + 2 * LOOKS_S)
    assert 1 <= slow.calls - before <= 3, "a call now and then"
    slow.call_s = 0.4
    world.run(until=world.now + LOOKS_S + 5.0)
    assert share(world, 1, world.now - 3.0) > 0.3


@pytest.mark.parametrize("router", ROUTERS[1:])
def test_one_that_recovers_gets_its_share_back(router: str) -> None:
    recovers(router)


@catches(
    "slow-for-ever",
    "nobody looks whether a slow instance has recovered",
    edited(Instances.due, "for i in self._slow:", "for i in ():"),
)
@catches(
    "looks-always",
    "a slow instance is looked at whenever it is idle",
    edited(Instances.due, "now >= instance.sent_at + LOOKS_S and", ""),
)
def test_one_that_recovers_is_found_out() -> None:
    recovers("least_loaded")


@catches(
    "promised-never-look",
    "no call of a query that has an objective looks whether a slow instance has recovered",
    edited("teola.schedule.placing:_spare_s", "return work.asker", "return -inf * work.asker"),
)
def test_what_has_an_objective_looks_too_if_it_keeps_it() -> None:
    recovers("least_loaded", objective_s=20.0)


def test_where_no_objective_would_be_kept_it_is_looked_at_less_often() -> None:
    slow = Server(call_s=4.0)
    world = loop(2, Server(call_s=0.4), slow)
    world.objective_s, world.estimate = 2.0, Estimate(rest_s=0.4, call_s=0.4)
    world.run(until=20.0)
    before = slow.calls
    world.run(until=10.0 + LOOKS_ANYWAY_S)
    assert slow.calls == before
    world.run(until=30.0 + LOOKS_ANYWAY_S)
    assert slow.calls == before + 1


@catches(
    "looks-at-the-closed",
    "a call is sent to see whether an instance is slow that takes none",
    edited(Instances.due, "instance.usable(now) and self.room(i, now) is not None", "True"),
)
def test_nobody_looks_at_one_that_is_closed() -> None:
    slow = Server(call_s=4.0)
    world = loop(2, Server(call_s=0.4), slow)
    world.run(until=20.0)
    world.queue.instances.limit(1, "e").closed_until = 1000.0
    calls = slow.calls
    world.run(until=60.0)
    assert slow.calls == calls
    assert not world.queue.queued, "nor does anything wait for it"


@catches(
    "looks-urgently",
    "the oldest work is sent to see whether an instance is slow",
    edited(Placing._look, "old = max(able,", "old = next(able, None) if True else max(able,"),
)
def test_of_those_that_come_together_the_one_looks_that_can_wait_longest() -> None:
    world = loop(2, Server(call_s=0.4), Server(call_s=4.0))
    world.run(until=20.0)
    world.on_end = None
    world.run(until=60.0)
    assert world.queue.instances.slowness
    estimates = [Estimate(rest_s=9.0, latest_s=latest) for latest in (0.0, 7.0, 1.0)]
    for k, estimate in enumerate(estimates):
        asked = work(k, run="late", op=Op.PREFILLING, lane=None, members=(9,), estimate=estimate)
        world.queue.submit(asked, 60.0)
    sent = [one for one in world.queue.dispatch(60.0) if isinstance(one, Dispatch)]
    places = {w.primitive: one.instance for one in sent for w, _, _ in one.slices}
    assert places == {0: 0, 1: 1, 2: 0}
    tries = {w.primitive: (w.tries, w.excused) for one in sent for w, _, _ in one.slices}
    assert tries == {0: (0, 0), 1: (1, 1), 2: (0, 0)}, "to look costs no try, and gives none"
