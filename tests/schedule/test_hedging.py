"""Backup calls: a call whose first token is late runs a second time on an idle instance.

Long because each way in which one of the two tries may end has its case here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest

from teola.graph import Op
from teola.learning import Learner
from teola.learning.calls import CallTimes
from teola.policies.work import Work
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import CallEnded, Dispatch, InstanceDown, InstanceDraining, InstanceUp
from teola.schedule.hedging import Backup, Hedging
from teola.schedule.overdue import LEAST_S, Overdue
from teola.schedule.quota import ApiAccount, MinuteLimits
from teola.schedule.validate import validate_queue
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.refusing import Refusing, Server


class Hedged(Refusing):
    """Answers of tries that were ended come to nothing, as they do live. answered_s: seconds of
    each call until its answer."""

    def __init__(self, *servers: Server, **how: Any) -> None:
        super().__init__(*servers, **how)
        self.answered_s: list[float] = []
        ended = self.queue.call_ended

        def noted(event: CallEnded, now: float) -> list[Any]:
            work = self.queue.works.get((event.run, event.primitive))
            found = ended(event, now)
            if work is not None and work.run not in {run for run, _ in self.queue.works}:
                self.answered_s.append(now - work.arrival)
            return found

        self.queue.call_ended = noted  # type: ignore[method-assign]

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
    edited(Hedging.affords, "self.made <", "False and"),
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
    edited(Hedging.affords, "self.made <", "True or"),
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


def straggling(
    share: float | None, seed: int, calls: int = 160, since: float = 8.0, *, noticed: bool = True
) -> Hedged:
    """Calls at random times, five a second, at four servers, whose times vary; the first one takes
    20 times as long from then on. noticed: calls that are late teach something before they end."""
    servers, chance, when = [Server(call_s=0.2) for _ in range(4)], Random(seed), 0.0
    world = Hedged(*servers, tokens=20, learner=Learner(), independent=True)
    world.queue.hedging = None if share is None else Hedging(share)
    if not noticed:
        world.queue.overdue.slow = lambda now: []  # type: ignore[union-attr,method-assign]
    take = world._take

    def varied(sent: Dispatch, taken: Work) -> None:
        server = servers[sent.instance]
        usual_s = server.call_s
        server.call_s *= chance.lognormvariate(0.0, 0.3)
        take(sent, taken)
        server.call_s = usual_s

    world._take = varied  # type: ignore[method-assign]
    for _ in range(calls):
        when += chance.expovariate(5.0)
        world.comes(1, when=when)
    world.at(since, lambda: setattr(servers[0], "call_s", 4.0))
    world.run(until=240.0)
    assert len(world.answered_s) == calls
    assert world.queue.idle
    return world


@catches(
    "late-and-dropped",
    "a call that is late when the share is used up never runs a second time",
    edited(Hedging.again, "heappush", "(lambda *_: None)"),
)
@catches(
    "outrun-teaches-nothing",
    "an instance whose calls are outrun is not found to be slow by that",
    edited(CallTimes.late, "call.first < 0", "False"),
)
def test_a_share_of_calls_covers_a_straggler_until_it_is_found_out() -> None:
    """Of 160 calls the second slowest is their 99th percentile."""
    for seed in (0, 4):
        world = straggling(0.05, seed, noticed=False)
        assert sorted(world.answered_s)[-2] < 1.0
        assert world.queue.hedging.made <= 0.05 * 160  # type: ignore[union-attr]
    without = straggling(None, 0, noticed=False)
    assert sorted(without.answered_s)[-2] > 3.0, "nearly the straggler's time"


@catches(
    "late-teaches-nothing",
    "an instance whose calls are late is not found to be slow before they end",
    edited(CallTimes.late, "call.first < 0", "False"),
)
def test_a_straggler_is_found_out_by_calls_that_have_not_ended() -> None:
    """Its calls take four seconds. One that is as late as one that hangs shows it."""
    for seed in range(6):
        world = straggling(None, seed)
        assert len([at for at, i in world.begun if i == 0 and at >= 8.0]) == 1 + (seed == 4)


@catches(
    "share-for-noise",
    "calls that are late as one in twenty is use up what is left for a straggler's",
    edited(Hedging.affords, "else FOR_LATE", "else 1.0"),
)
def test_a_part_of_the_share_is_kept_for_what_is_very_late() -> None:
    hedging = Hedging(0.1)
    for very_late, most in ((False, 8), (True, 10)):
        while hedging.affords(100, very_late):
            hedging.made += 1
        assert hedging.made == most


@catches(
    "never-very-late",
    "what is twice as late as most is not taken for it",
    edited(EngineQueue._back_up, ">= 2 * due.usual_s", "> 3 * due.usual_s"),
)
@catches(
    "always-very-late",
    "what is just late is taken for twice as late",
    edited(EngineQueue._back_up, ">= 2 * due.usual_s", ">= 0"),
)
def test_a_call_is_very_late_when_it_is_looked_at_for_the_second_time() -> None:
    world, told = two(1.0), list[bool]()
    for server in world.servers:
        server.call_s = 4.0
    world.queue.hedging.affords = lambda calls, very_late: told.append(very_late)  # type: ignore
    world.comes(1, when=50.0)
    world.run(until=53.9)
    assert len(told) > 1
    assert told == [False] + [True] * (len(told) - 1)


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


def test_a_first_try_that_hangs_is_ended_and_the_second_goes_on_alone() -> None:
    """Both hang: the second one is not late yet when the first one is."""
    world = two(1.0)
    for server in world.servers:
        server.hangs = (50.0, 51.0)
    world.comes(1, when=50.0)
    world.run(until=54.9)
    ((key, backup),) = world.queue.hedging.running.items()  # type: ignore[union-attr]
    ((first, _),) = world.queue.works[key].flying.values()
    world.aborted.clear()
    world.run(until=50.0 + LEAST_S + 0.01)
    assert [i for _, i in world.aborted] == [first]
    assert [(late.instance, late.elsewhere) for late in world.late] == [(first, True)]
    assert world.queue.works[key].flying == {(0, 400): (backup.instance, backup.batch)}


def test_where_a_second_try_writes_its_instance_shows_life() -> None:
    """What waits there for memory meanwhile does not wait for a server that hangs."""
    world = two(1.0)
    world.servers[0].call_s, world.servers[1].call_s = 40.0, 4.0
    world.comes(1, when=50.0)
    world.run(until=53.0)
    ((key, work),) = world.queue.works.items()
    overdue = world.queue.overdue
    assert overdue is not None
    assert work.on(1)
    assert not work.prefilling
    first = work.sent + 2.0
    assert overdue.written_s(1, 53.0) == pytest.approx(53.0 - first)
    assert overdue.written_s(0, 53.0) == 0
    after = overdue.signs.next_order()
    assert overdue.signs.before(1, after) == pytest.approx(first)
    overdue.gave(key, 53.0)
    assert overdue.signs.before(1, after) == 53.0
    world.run(until=80.0)
    assert overdue.written_s(1, 80.0) == 0


@pytest.mark.parametrize(("which", "second"), [(0, False), (1, False), (0, True), (1, True)])
def test_of_several_calls_that_run_twice_each_loses_what_its_instance_had(
    which: int, second: bool
) -> None:
    servers = [Server(call_s=0.2) for _ in range(4)]
    world = pool(1.0, *servers, straggles=4)
    world.comes(2, when=50.0)
    world.run(until=51.5)
    queue, running = world.queue, dict(world.queue.hedging.running)  # type: ignore[union-attr]
    assert len(running) == 2
    firsts = {key: queue.works[key].flying[0, 400] for key in running}
    key, backup = [*running.items()][which]
    lost, kept = firsts[key], (backup.instance, backup.batch)
    if second:
        lost, kept = kept, lost
    queue.down(InstanceDown("e", lost[0]), world.now)
    assert queue.works[key].flying == {(0, 400): kept}
    assert [*queue.hedging.running] == [one for one in running if one != key]  # type: ignore[union-attr]
    validate_queue(queue, world.now)


def test_all_tries_that_were_ended_on_an_instance_go_with_it() -> None:
    """Two calls hang there, and their second tries win elsewhere."""
    servers = [Server(call_s=0.2) for _ in range(3)]
    world = pool(1.0, *servers, straggles=3)
    queue = world.queue
    servers[0].hangs = (50.0, 51.0)
    for i in (1, 2):
        servers[i].call_s = 0.2
        queue.draining(InstanceDraining("e", i), 49.0)
        world.at(50.1, lambda i=i: queue.up(InstanceUp("e", i), 50.1))  # type: ignore[misc]
    world.comes(2, when=50.0)
    world.run(until=60.0)
    assert [gone.instance for gone in queue.hedging.ending.values()] == [0, 0]  # type: ignore[union-attr]
    queue.down(InstanceDown("e", 0), world.now)
    assert not queue.hedging.ending  # type: ignore[union-attr]
    assert queue.idle


def test_a_second_try_counts_at_its_instance_as_any_call_that_is_sent() -> None:
    world = two(1.0)
    instances = world.queue.instances
    for i, server in enumerate(world.servers):
        server.call_s = 4.0
        instances.limit(i, "e", ApiAccount(MinuteLimits(requests=10)))
    world.comes(1, when=50.0)
    world.run(until=51.9)
    (backup,) = world.queue.hedging.running.values()  # type: ignore[union-attr]
    assert instances[backup.instance].sent_at == backup.sent > 50.0
    accounts = [instances.limit(i, "e").account for i in range(2)]
    assert [account.requests.left(51.9) for account in accounts] == [9, 9]


@pytest.mark.parametrize("failed_there", [False, True])
def test_a_call_does_not_run_a_second_time_where_it_failed(failed_there: bool) -> None:
    world = two(1.0)
    for server in world.servers:
        server.call_s = 4.0
    world.comes(1, when=50.0)
    world.run(until=50.0)
    ((key, work),) = world.queue.works.items()
    ((at, _),) = work.flying.values()
    work.avoid = 1 - at if failed_there else -1
    world.run(until=51.9)
    assert world.queue.runs_twice(key) is not failed_there


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
    assert queue._idle_besides({0}, 0.0) == 1
    bound = work(
        0, run="bound", op=Op.PREFILLING, lane=None, cuttable=False, members=(9,), affinity=1
    )
    queue.submit(bound, 0.0)
    assert queue._idle_besides({0}, 0.0) == 2
    assert queue._idle_besides({2}, 0.0) == 0
    queue.down(InstanceDown("e", 0), 0.0)
    assert queue._idle_besides({2}, 0.0) is None


@pytest.mark.parametrize(("very_late", "begun"), [(True, [1, 11, 21, 31]), (False, [1, 14, 27])])
def test_there_are_as_many_second_tries_as_their_share_says_and_none_more(
    very_late: bool, begun: list[int]
) -> None:
    hedging = Hedging(0.1)
    allowed = []
    for calls in range(40):
        allowed.append(hedging.affords(calls, very_late))
        if allowed[-1]:
            hedging.began((f"q{calls}", 0), Backup(0, calls, 0.0))
    assert [calls for calls, some in enumerate(allowed) if some] == begun
    assert hedging.made == len(begun)
    second = begun[1]
    assert hedging.is_backup((f"q{second}", 0), second)
    assert not hedging.is_backup((f"q{second}", 0), begun[2])
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
        sent: dict[int, float] = {}
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
                        twice = sent[due.batch] + 2 * usual_s
                        later = twice if now < twice else now + (now - sent[due.batch]) / 2
                        waits[due.batch] = max(later, now + 0.01), usual_s
                if (at := hedging.alarm()) is not None:
                    heappush(timers, at)
                assert hedging.alarm() is None, "a timer is set already"
            now = until
            assert all(at > now for at, _ in waits.values())
            one = work(k, op=Op.PREFILLING, members=draw.choice([(9,), (9,), ()]))
            expected_s = draw.choice([None, 0.5, 1.0, 4.0])
            hedging.sent(one, k, expected_s, firsts, now)
            if expected_s is not None and one.spec.members:
                usual_s = 2.0 * expected_s + 0.01
                waits[k] = now + usual_s, usual_s
                sent[k] = now
            if (at := hedging.alarm()) is not None:
                heappush(timers, at)


@pytest.mark.parametrize("twice", [None, 98, 99])
def test_a_call_goes_on_without_a_try_that_it_has_no_longer(twice: int | None) -> None:
    """Neither as its first try nor as its second one; a call that is not here does not go on."""
    world = Hedged(Server(call_s=5.0), Server(call_s=5.0))
    world.comes(1)
    world.run(until=1.0)
    queue = world.queue
    ((key, work),) = queue.works.items()
    ((_, first),) = work.flying.values()
    assert first not in (98, 99)
    if twice is not None:
        queue.hedging = Hedging(0.1)
        queue.hedging.began(key, Backup(1, twice, 0.5))
    assert queue.runs_twice(key) is (twice is not None)
    for batch in (first, 98, 99):
        assert queue.goes_on_without(key, batch) is (batch not in (first, twice)), batch
        assert not queue.goes_on_without(("nobody", 0), batch)
