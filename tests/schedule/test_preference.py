"""The cheaper of two providers first: the other where that refuses, or would let a call wait."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random

import pytest

from teola.errors import InputError
from teola.policies.preferring import ranks
from teola.policies.work import Estimate
from teola.price import Price
from teola.schedule.events import FirstTokenLate, InstanceDown
from teola.schedule.instances import Instances
from teola.schedule.placing import Placing
from teola.schedule.preference import LAST, Preference
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.refusing import Refusing, Server


def providers(cheap: Server, dear: Server, *, most_s: float = 1.0, most: int = 64) -> Refusing:
    world = Refusing(cheap, dear, most=most)
    world.queue.prefer([0, 1], most_s)
    return world


@catches(
    "dear-at-once",
    "a dearer instance takes calls although a cheaper one has room",
    edited(Preference.order, "key=self._ranks.__getitem__", "key=lambda i: 0"),
    edited(Preference.takes, "if not there", "if True"),
)
def test_the_dearer_is_not_asked_while_the_cheaper_has_room() -> None:
    world = Refusing(Server(call_s=0.1), Server(call_s=0.2))
    world.queue.prefer([1, 0], 1.0)
    world.comes(60, every=0.1)
    world.run(until=20.0)
    assert world.calls == [0, 60]


@catches(
    "dear-when-full",
    "a dearer instance takes calls as soon as the cheaper ones are full",
    edited(Preference.takes, "return waited or", "return True or"),
)
def test_what_would_wait_for_too_long_goes_to_the_dearer() -> None:
    cheap = Server(call_s=0.5)
    world = providers(cheap, Server(call_s=0.5), most_s=1.2, most=2)
    world.comes(2)
    world.run(until=3.0)  # 4 calls a second
    world.comes(6, when=3.0)
    world.run(until=6.0)
    assert world.calls == [8, 0], "two run at once, four wait for a second at most"
    world.comes(12, when=6.0)
    world.run(until=30.0)
    assert world.calls == [14, 6]
    assert max(world.took) <= 1.2 + 0.5 + 0.01


@catches(
    "dear-never",
    "a call waits for a cheaper instance for as long as nobody knows how long that takes",
    edited(Preference.takes, "return waited or", "return"),
)
def test_nobody_waits_for_longer_whatever_was_expected() -> None:
    world = providers(Server(call_s=30.0), Server(call_s=0.5), most_s=2.0, most=1)
    world.comes(2)  # nothing is known of calls yet
    world.run(until=60.0)
    assert world.calls == [1, 1]
    assert min(world.took) == pytest.approx(2.5)


def test_what_the_cheaper_refuses_goes_to_the_dearer_at_once() -> None:
    world = providers(Server(at_once=3, call_s=0.2, after_s=5.0), Server(call_s=0.2), most_s=100.0)
    world.comes(5)
    world.comes(4, when=1.0)  # while it is closed
    world.comes(9, when=8.0, every=0.1)
    world.run(until=20.0)
    assert len(world.ok) == 18
    assert max(world.took) < 0.5
    assert [i for when, i in world.begun if when >= 8.0] == [0] * 9


def test_the_first_that_opens_again_is_asked_whichever_it_is() -> None:
    """Nothing runs, so nothing but the time begins a round; the dearer opens first."""
    cheap = Server(call_s=0.2, per_minute=0, after_s=50.0)
    world = providers(cheap, Server(at_once=1, call_s=0.2, after_s=3.0), most_s=100.0)
    world.comes(3)
    world.run(until=40.0)
    assert world.calls[1] >= 3
    assert len(world.ok) == 3
    assert max(world.took) < 30.0


def dear_share(*, independent: bool) -> float:
    """Of calls at random times, the cheaper taking three at once and no call waiting for it."""
    cheap = Server(at_once=3, call_s=0.2, after_s=1.0)
    world = Refusing(cheap, Server(call_s=0.2), batching="critical_path", independent=independent)
    world.queue.prefer([0, 1], 0.0)
    world.estimate = Estimate(base_s=0.1)
    chance, when = Random(1), 0.0
    for _ in range(240):
        when += chance.expovariate(12.0)
        world.comes(1, when=when)
    world.run(until=100.0)
    assert len(world.ok) == 240
    assert sum(world.calls) <= 1.03 * 240
    return sum(i == 1 for _, i in world.ok) / 240


@catches(
    "waits-for-prompts-at-an-api",
    "calls wait for the prompts of others where those hold nobody up",
    edited(Instances._room_of_llm, "0 if instance.limits.independent else", ""),
)
def test_where_calls_hold_nobody_up_none_waits_for_the_prompts_of_others() -> None:
    """What waits at the cheaper goes to the dearer. Of 2.4 calls at once in the mean, as many
    places as three lose 27 % (Erlang's formula B)."""
    assert dear_share(independent=True) < 0.36
    assert dear_share(independent=False) > 0.48


def test_a_budget_of_the_minute_is_waited_for_only_if_it_is_there_soon() -> None:
    cheap = Server(call_s=0.1, per_minute=10)
    world = providers(cheap, Server(call_s=0.1), most_s=5.0)
    world.queue.instances.limit(0, "e").account.requests.most = 10
    world.comes(12)
    world.comes(1, when=57.0)
    world.run(until=100.0)
    assert world.calls == [11, 2]
    assert world.ok[-1][1] == 0, "the last one has waited for 3.6 s"


@catches(
    "dear-try-waits",
    "another try waits before a dearer instance takes it",
    edited(Placing.bind, "at = prefers.instead(work.avoid, now)", "pass"),
)
def test_another_try_of_what_failed_at_the_cheaper_does_not_wait() -> None:
    world = providers(Server(call_s=0.2, hangs=(0.0, 1.0)), Server(call_s=0.2), most_s=1000.0)
    world.comes(1)
    world.run(until=100.0)
    assert world.calls == [1, 1]
    assert world.aborted == [(60.0, 0)]
    assert world.late == [FirstTokenLate("e", 0, 60.0, elsewhere=True)]
    assert world.took == [pytest.approx(60.2)]


def test_prices_are_compared_for_a_usual_call() -> None:
    cheap, same, dear = Price(1.0, 9.0), Price(3.0, 3.0), Price(2.0, 8.0)
    assert ranks([dear, cheap, same], "e") == [1, 0, 0]
    with pytest.raises(InputError, match="that of entry 1 is not known"):
        ranks([cheap, None], "e")


@catches(
    "bound-waits",
    "what is bound to an instance counts among those that wait for a cheaper one",
    edited(Preference._oldest, "work.queued and work.affinity < 0", "work.queued"),
)
def test_it_wakes_for_the_oldest_that_waits_and_is_bound_to_none() -> None:
    """Whatever is sent, withdrawn or bound since it came; the oldest need not be the first."""
    for seed in range(20):
        draw, world = Random(seed), providers(Server(), Server(), most_s=2.0)
        prefers, now = world.queue.line.asking.preference, 0.0
        assert prefers is not None
        there = []
        for seq in range(30):
            now += draw.choice([0.0, 0.5])
            one = work(seq, arrival=now - draw.choice([0.0, 1.0]))
            there.append(one)
            prefers.queued(one)
            if draw.random() < 0.7:
                gone = draw.choice(there)
                if draw.random() < 0.5:
                    gone.affinity = draw.choice([0, 1])
                else:
                    gone.queued = False
            waits = [one.arrival for one in there if one.queued and one.affinity < 0]
            due = min(waits, default=inf) + 2.0
            assert prefers.wake_at(now) == (due if now < due < inf else None)


def test_nothing_is_expected_before_a_call_has_come_back() -> None:
    """However short the time is that a call may wait, it waits for that."""
    world = providers(Server(), Server(), most_s=0.5, most=1)
    prefers = world.queue.line.asking.preference
    assert prefers is not None
    prefers.queued(work(0, arrival=10.0))
    assert [prefers.takes(1, 9, now) for now in (10.0, 10.4, 10.5)] == [False, False, True]
    prefers.came_back(0, 0.2)
    assert [prefers.takes(1, waiting, 10.0) for waiting in (2, 3)] == [False, True]


@catches(
    "closed-for-longer",
    "a cheaper one that opens just now is not waited for",
    edited(Preference._there, "now >= here.quota.closed_until", "now > here.quota.closed_until"),
)
@catches(
    "opens-last",
    "of cheaper ones that are closed the last one to open is waited for",
    edited(Preference._wait_s, "return min(quota.opens_at", "return max(quota.opens_at"),
)
@catches(
    "instead-of-nobody",
    "another try goes to one that takes nothing",
    edited(Preference.instead, " and one.usable(now)", ""),
)
@catches(
    "probe-is-whole",
    "one that is tried by a single call counts with all its places",
    edited(Preference._places, "return 1 if here.quota.probing else", "return"),
)
def test_a_dearer_one_takes_a_call_if_those_that_are_cheaper_let_it_wait_for_too_long() -> None:
    for seed in range(80):
        Reckoned(Random(seed)).compare()


class Reckoned:
    """Four instances that are gone, closed, out of budget, or tried, and what calls took there."""

    ranks, now, most_s = (0, 1, 0, 2), 10.0, 2.0

    def __init__(self, draw: Random) -> None:
        world = Refusing(*[Server()] * 4, most=draw.choice([2, 8]))
        world.queue.prefer(self.ranks, self.most_s)
        preference, self.instances = world.queue.line.asking.preference, world.queue.instances
        assert preference is not None
        self.prefers, self.took = preference, [0.0] * 4
        for i in range(4):
            for seconds in draw.choice([[], [0.5], [4.0], [4.0, 0.5]]):
                self.prefers.came_back(i, seconds)
                last = self.took[i]
                self.took[i] = last + (seconds - last) / LAST if last else seconds
            if draw.random() < 0.8:
                quota = self.instances.limit(i, "e")
                quota.closed_until = self.now + draw.choice([-9.0, -9.0, 0.0, 1.0, 9.0])
                quota.window, quota.probing = draw.choice([inf, 1, 3.5]), draw.choice([0, 0, 1])
                if draw.random() < 0.5:
                    quota.account.requests.most = 1
                    quota.sent([1], self.now - draw.choice([1.0, 59.0]), together=False)
            if draw.random() < 0.1:
                world.queue.down(InstanceDown("e", i), self.now)
        self.arrival = draw.choice([None, self.now, self.now - self.most_s])
        if self.arrival is not None:
            self.prefers.queued(work(0, arrival=self.arrival))
        self.waiting = draw.choice([1, 3, 20])
        self.entries = [draw.choice([0, 1, 2]) for _ in range(4)]
        self.usable = [k for k in range(4) if self.instances[k].usable(self.now)]

    def there(self, k: int) -> bool:
        """Whether it is up, and closed at most for want of budget."""
        one = self.instances[k]
        return one.up and (one.quota is None or one.quota.closed_until <= self.now)

    def wait_s(self, cheaper: Sequence[int]) -> float:
        """Until the last of those that wait begins on one of these."""
        able = [k for k in cheaper if k in self.usable]
        if not able:
            opens = [self.instances.limit(k, "e").opens_at(self.now) for k in cheaper]
            return min(opens) - self.now
        if not all(self.took[k] for k in able):
            return 0.0  # nothing is known of one, so nothing is expected
        return self.waiting / sum(self.places(k) / self.took[k] for k in able)

    def places(self, k: int) -> float:
        one = self.instances[k]
        most = one.limits.max_sequences
        if one.quota is None:
            return most
        return 1 if one.quota.probing else min(most, int(min(one.quota.window, 99)))

    def compare(self) -> None:
        waited = self.arrival is not None and self.arrival + self.most_s <= self.now
        for i, rank in enumerate(self.ranks):
            assert self.prefers.dearer(i) == (rank > 0)
            cheaper = [k for k in range(4) if self.ranks[k] < rank and self.there(k)]
            takes = not cheaper or waited or self.wait_s(cheaper) > self.most_s
            assert self.prefers.takes(i, self.waiting, self.now) == takes, i
            assert self.prefers.worth(i, self.waiting, self.now, speeds=False) == takes
        for one, entries in zip(self.instances, self.entries, strict=True):
            one.entries = entries
        for avoid in range(4):
            others = [k for k in self.usable if k != avoid]
            best = min(others, key=lambda k: (self.ranks[k], self.entries[k]), default=-1)
            assert self.prefers.instead(avoid, self.now) == best
        for one in self.instances:
            one.entries = 0
