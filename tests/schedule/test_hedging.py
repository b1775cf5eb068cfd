"""Backup calls: a call whose first token is late runs a second time on an idle instance."""

from __future__ import annotations

import pytest

from teola.learning import Learner
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import InstanceDown
from teola.schedule.hedging import Hedging
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
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
    "hedged-since-the-first",
    "a second try that was sooner counts as sent when the first one was",
    edited(EngineQueue._take_place, "0, backup.sent", "0, work.sent"),
)
def test_what_a_second_try_takes_is_counted_from_its_own_beginning() -> None:
    world = two(0.05)
    world.queue.prefer([0, 0], 1.0)
    world.comes(2, when=50.0)
    world.run(until=60.0)
    preference = world.queue.line.asking.preference
    assert preference is not None
    assert world.aborted[0][1] == 1
    assert preference._call_s[0] == pytest.approx(0.2)


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
