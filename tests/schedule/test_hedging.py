"""Backup calls: a call whose first token is late runs a second time on an idle instance."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from teola.graph import Op
from teola.learning import Learner
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceDown
from teola.schedule.hedging import Backup, Hedging
from teola.schedule.overdue import Overdue
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.refusing import Refusing, Server


class Hedged(Refusing):
    """Answers of tries that were ended come to nothing, as they do live."""

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            super().run(self._heap[0][0])
            validate_queue(self.queue, self.now)
        super().run(until)


def pool(share: float | None, *servers: Server, straggles: int = 1) -> Refusing:
    """Servers whose times are known, the last of which then begins to take 20 times as long."""
    world = Hedged(*servers, tokens=400, learner=Learner())
    world.queue.hedging = None if share is None else Hedging(share)
    for _ in range(2):
        world.comes(50, every=0.8)
    world.run(until=45.0)
    for server in servers[-straggles:]:
        server.call_s *= 20
    world.ok.clear()
    world.took.clear()
    return world


def two(share: float | None) -> Refusing:
    return pool(share, Server(call_s=0.2), Server(call_s=0.2))


@catches(
    "hedges-never",
    "a call whose first token is late does not run a second time",
    edited(Hedging.affords, "self.made < self.share * calls", "False"),
)
def test_the_first_token_wins_and_the_other_try_is_ended() -> None:
    world = two(0.05)
    before = world.calls
    world.comes(2, when=50.0)  # one on each
    world.run(until=60.0)
    assert [sum(world.calls) - sum(before), len(world.aborted)] == [3, 1]
    assert sorted(world.took)[1] < 0.2 * 3, "the last is that of the try which was ended"
    assert world.aborted[0][1] == 1, "the slow one"
    assert world.queue.idle
    assert not world.queue.hedging.running  # type: ignore[union-attr]


@catches(
    "hedges-without-end",
    "there is no bound to how many calls are made twice",
    edited(Hedging.affords, "self.made < self.share * calls", "True"),
)
def test_there_are_at_most_so_many_more() -> None:
    world = two(0.01)
    for _ in range(2):
        world.comes(80, when=50.0, every=0.5)
    world.run(until=120.0)
    hedging = world.queue.hedging
    assert hedging is not None
    assert 1 <= hedging.made <= 0.01 * (100 + 160) + 1
    assert world.queue.idle


@pytest.mark.parametrize("followed", [False, True])
def test_a_call_that_others_wait_for_does_not_run_twice(followed: bool) -> None:
    world = two(1.0)
    for server in world.servers:
        server.call_s = 4.0
    world.same = b"equal"
    world.comes(1 + followed, when=50.0)
    world.run(until=51.9)
    assert bool(world.queue.hedging.running) is not followed  # type: ignore[union-attr]
    world.comes(1, when=51.9)
    world.run(until=51.91)
    own = [work for work in world.queue.works.values() if work.leader is None]
    assert len(own) == 1 + (not followed), "who comes later follows nothing that runs twice"
    world.run(until=70.0)
    assert world.queue.idle


def test_without_the_option_nothing_runs_twice() -> None:
    world = two(None)
    before = sum(world.calls)
    world.comes(2, when=50.0)
    world.run(until=60.0)
    assert sum(world.calls) - before == 2
    assert max(world.took) == pytest.approx(4.0)


@catches(
    "hedges-on-the-busy",
    "a call runs a second time on an instance that has work",
    edited(EngineQueue._idle_besides, "busy = instances[i].entries or", "busy ="),
)
def test_nothing_runs_twice_where_no_other_is_idle() -> None:
    world = pool(1.0, Server(call_s=0.2), Server(call_s=0.2), straggles=2)
    before = sum(world.calls)
    world.comes(4, when=50.0)
    world.run(until=80.0)
    assert sum(world.calls) - before == 4


@pytest.mark.parametrize("bad", [0, 1])
def test_of_two_tries_the_one_that_fails_leaves_the_other(bad: int) -> None:
    world = two(1.0)
    for server in world.servers:
        server.call_s = 4.0
    world.comes(1, when=50.0)
    world.run(until=51.9)
    (key, backup), *_ = world.queue.hedging.running.items()  # type: ignore[union-attr]
    first = world.queue.works[key].flying[0, 400][0]
    lost = (first, backup.instance)[bad]
    world.queue.down(InstanceDown("e", lost), world.now)
    assert world.queue.works[key].flying[0, 400][0] == (first, backup.instance)[1 - bad]
    validate_queue(world.queue, world.now)
    world.run(until=70.0)
    assert len(world.ok) >= 1
    assert world.queue.works == {}


def test_who_leaves_ends_both() -> None:
    world = two(1.0)
    for server in world.servers:
        server.call_s = 4.0
    world.comes(1, when=50.0)
    world.run(until=51.9)
    ((run, primitive),) = world.queue.hedging.running  # type: ignore[union-attr]
    told = world.queue.withdraw(run, primitive, world.now)
    assert len(told) == 2
    world.run(until=70.0)
    assert world.queue.idle


@catches(
    "hedges-before-others",
    "a call runs a second time where another is about to be sent",
    edited(EngineQueue._idle_besides, "or asking.bound_to(i) or slow", "or slow"),
)
def test_who_waits_for_an_idle_instance_goes_before_a_second_try() -> None:
    world = Hedged(Server(), Server(), Server())
    queue = world.queue
    assert queue._idle_besides(0, 0.0) == 1
    bound = work(
        0, run="bound", op=Op.PREFILLING, lane=None, cuttable=False, members=(9,), affinity=1
    )
    queue.submit(bound, 0.0)
    assert queue._idle_besides(0, 0.0) == 2
    assert queue._idle_besides(2, 0.0) == 0
    queue.down(InstanceDown("e", 0), 0.0)
    assert queue._idle_besides(2, 0.0) is None


def test_there_are_as_many_second_tries_as_their_share_says_and_none_more() -> None:
    hedging = Hedging(0.1)
    allowed = []
    for calls in range(41):
        allowed.append(hedging.affords(calls))
        if allowed[-1]:
            hedging.began((f"q{calls}", 0), Backup(0, calls, 0.0))
    assert [calls for calls, some in enumerate(allowed) if some] == [1, 11, 21, 31]
    assert hedging.made == 4
    assert hedging.is_backup(("q11", 0), 11)
    assert not hedging.is_backup(("q11", 0), 21)
    assert not hedging.is_backup(("q12", 0), 12), "it has none"


@catches(
    "no-alarm-for-the-second",
    "who is late behind another one is not looked for",
    edited(Hedging.late, "self._alarm = None", "pass"),
)
@catches(
    "looked-for-in-order-of-sending",
    "nobody looks sooner for a call that is late sooner",
    edited(Hedging.alarm, "self._alarm <= at)", "True)"),
)
def test_each_call_is_looked_at_when_its_first_token_is_late_and_when_it_is_late_again() -> None:
    """By timers that are set as they are asked for, beside a list of all calls."""
    for seed in range(5):
        draw, hedging, firsts, now = Random(seed), Hedging(1.0), Overdue(), 0.0
        for k in range(40):  # first tokens take twice as long as expected
            firsts.sent((f"before {k}", 0), 0, k, 1.0, 0.0)
            firsts.came((f"before {k}", 0), 2.0)
        waits: dict[int, tuple[float, float]] = {}
        timers: list[float] = []
        for k in range(80):
            until = now + draw.choice([0.0, 0.3, 2.0])
            while timers and timers[0] <= until:
                now = heappop(timers)
                found = hedging.late(now)
                late = [batch for batch, (at, _) in waits.items() if at <= now]
                assert sorted(due.batch for due in found) == sorted(late), now
                for due in found:
                    usual_s = waits.pop(due.batch)[1]
                    assert due.usual_s == pytest.approx(usual_s)
                    if draw.random() < 0.5:
                        hedging.again(due, now)
                        waits[due.batch] = now + usual_s, usual_s
                if (at := hedging.alarm()) is not None:
                    heappush(timers, at)
                assert hedging.alarm() is None, "a timer is set already"
            now = until
            assert all(at > now for at, _ in waits.values())
            one = work(k, op=Op.PREFILLING, members=draw.choice([(9,), (9,), ()]))
            expected_s = draw.choice([None, 0.5, 1.0, 4.0])
            hedging.sent(one, k, expected_s, firsts, now)
            if expected_s is not None and one.spec.members:
                waits[k] = now + 2.0 * expected_s, 2.0 * expected_s
            if (at := hedging.alarm()) is not None:
                heappush(timers, at)
