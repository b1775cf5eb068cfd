"""critical_path without patience beside a slow one, which sorts all that waits for each batch."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

import pytest

from teola.graph import Op
from teola.policies.batching.critical_path import CriticalPath
from teola.policies.work import Estimate, Slice, Slots, Taker, Work
from tests.recording import work

HALF_A_MINUTE = 30.0
LOOKS = 32
Key = tuple[float, ...]


class Slow:
    """All works that wait, and the seconds that works without hurry have earned for the others."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.earned_s = 0.0
        self.first: list[Work] = []
        """Those of the last batch that went before others, as they were in a hurry."""

    def place(self, one: Work) -> Key:
        """By admission and three quarters of the query's length; the longest rest first."""
        return one.admitted + 0.75 * one.total_s, *self.ties(one)

    def ties(self, one: Work) -> Key:
        return -(one.spec.estimate.rest_s + one.behind_s), one.arrival, one.seq, one.tries

    def hurries(self, one: Work, now: float) -> bool:
        """Twice what is left, or two seconds, until its deadline; and it can be in time."""
        left_s = one.spec.estimate.rest_s + one.behind_s if one.total_s else 0.0
        return one.deadline - 2 * max(1.0, left_s) <= now <= one.deadline - left_s

    def here(self, slots: Slots) -> list[Work]:
        return [one for one in self.works if one.affinity in (-1, slots.instance)]

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        self.first = []
        there = self.here(slots)
        for lane in self.lanes(there, now):
            if slots.lane in (None, lane):
                slices = self.fill([one for one in there if one.spec.lane is lane], slots, now)
                if slices:
                    return slices
        return []

    def lanes(self, works: list[Work], now: float) -> list[Op | None]:
        """Those with something in a hurry come first, by its deadline, then by what is first."""

        def urgent(lane: Op | None) -> tuple[bool, Key]:
            of_lane = [one for one in works if one.spec.lane is lane]
            hurried = [(one.deadline, *self.ties(one)) for one in of_lane if self.hurries(one, now)]
            return not hurried, min(hurried or map(self.place, of_lane))

        return sorted(dict.fromkeys(one.spec.lane for one in works), key=urgent)

    def fill(self, works: list[Work], slots: Slots, now: float) -> list[Slice]:
        batch, passed, first = Taker(slots), 0, list[Work]()
        earned_s, longer_s = self.earned_s, dict[str, float]()
        hurried = [one for one in works if self.hurries(one, now)]
        hurried.sort(key=lambda one: (one.deadline, *self.ties(one)))

        def turns() -> Iterator[tuple[Work, bool]]:
            others = sorted(works, key=self.place)
            while hurried or others:
                if hurried and earned_s > 0:
                    yield hurried.pop(0), True
                elif others:
                    yield others.pop(0), False
                else:
                    return

        for one, hurry in turns():
            if not batch.room or passed > (LOOKS if slots.idle else 0):
                break
            if one in first or not batch.fits(one):
                continue
            if one.spec.lane is not None and not slots.rationed:
                if not self.pays(one, batch, longer_s):
                    passed += 1
                    continue
            before = len(batch.slices)
            if not batch.take(one):
                passed += batch.room
            if hurry and len(batch.slices) > before:
                first.append(one)
                earned_s -= one.spec.estimate.call_s or 1.0
        self.first = first
        return batch.slices

    def pays(self, one: Work, batch: Taker, longer_s: dict[str, float]) -> bool:
        """Whether queries before it wait no longer for all of its query's items than a batch less
        saves: for each that waits, four times what a batch costs."""
        estimate = one.spec.estimate
        items = min(one.remaining, batch.weight)
        mine_s = longer_s.get(one.run, 0.0) + items * estimate.item_s
        waiting = {other.run for other in self.works}
        before = {run for run in longer_s if run != one.run}
        leads = not before or one.run == [*longer_s][0]
        if not leads and len(before) * mine_s > 4 * estimate.base_s * (len(waiting) - len(before)):
            return False
        longer_s[one.run] = mine_s
        return True

    def sent(self, one: Work) -> None:
        """What is in no hurry earns; what went before others pays."""
        takes_s = one.spec.estimate.call_s or 1.0
        if one in self.first:
            self.earned_s -= takes_s
        else:
            self.earned_s = min(HALF_A_MINUTE, self.earned_s + takes_s)


def drawn(draw: Random, seq: int, now: float, lengths: dict[str, float]) -> Work:
    """Of one of few queries, each with one length; some have a deadline soon."""
    run = draw.choice([*lengths])
    lane, op = draw.choice(
        [(Op.EMBEDDING, Op.EMBEDDING), (Op.RERANKING, Op.RERANKING), (None, Op.PREFILLING)]
    )
    estimate = Estimate(
        rest_s=draw.choice([0.0, 0.5, 2.0, 3.0]),
        total_s=lengths[run],
        base_s=draw.choice([0.0, 0.25, 1.0]),
        item_s=draw.choice([0.0, 0.25, 1.0]),
        call_s=draw.choice([0.0, 0.5, 4.0]),
    )
    return work(
        seq,
        run=run,
        lane=lane,
        op=op,
        estimate=estimate,
        total=draw.choice([1, 1, 2, 6]),
        cuttable=lane is not None and draw.random() < 0.5,
        arrival=now,
        admitted=draw.choice([0.0, float(int(now))]),
        behind_s=draw.choice([0.0, 0.0, 1.0]),
        affinity=draw.choice([-1, -1, 0, 1]),
        avoid=draw.choice([-1, -1, -1, 0]),
        deadline=draw.choice([inf, inf, now + draw.choice([0.0, 1.0, 2.0, 4.0, 9.0])]),
    )


def lives(seed: int, steps: int, most: int) -> int:
    """Works come, go and are withdrawn. Returns how many went first as they were in a hurry."""
    draw, now, hurried = Random(seed), 0.0, 0
    policy, slow = CriticalPath(patience=0), Slow()
    for k in range(steps):
        now += draw.choice([0.0, 0.5, 1.0])
        lengths = {f"q{n}": draw.choice([0.0, 1.0, 8.0]) for n in range(5)} if k % 9 == 0 else lengths
        for n in range(draw.choice([0, 1, most])):
            one = drawn(draw, 100 * k + n, now, lengths)
            slow.works.append(one)
            policy.add(one, now)
        slots = Slots(
            draw.choice([0, 1]),
            draw.choice([1, 2, 4, 9]),
            draw.choice([1, 3, 9]),
            draw.random() < 0.6,
            lane=draw.choice([None, None, Op.RERANKING]),
            rationed=draw.random() < 0.2,
        )
        slices = policy.choose(slots, now)
        told = [(w.seq, lo, hi) for w, lo, hi in slices]
        assert told == [(w.seq, lo, hi) for w, lo, hi in slow.choose(slots, now)], (k, now, slots)
        assert policy.wake_at(now) is None, "without patience nothing waits"
        if draw.random() < 0.7:
            hurried += len(slow.first)
            for one, lo, hi in slices:
                assert one.take(lo, hi)
                one.flying = {(lo, hi): (slots.instance, k)}
                if not one.spans:
                    gone(policy, slow, one, now)
                    slow.sent(one)
        elif slow.works and draw.random() < 0.5:
            one = draw.choice(slow.works)
            one.flying = {}
            gone(policy, slow, one, now)
    return hurried


def gone(policy: CriticalPath, slow: Slow, one: Work, now: float) -> None:
    slow.works.remove(one)
    one.queued = False
    policy.remove(one, now)


@pytest.mark.parametrize("seed", range(12))
def test_each_batch_is_what_a_slow_one_takes(seed: int) -> None:
    assert lives(seed, 150, 4) > 5


def test_each_batch_is_what_a_slow_one_takes_where_many_wait() -> None:
    """So many that what has gone is swept away meanwhile, and that a search ends."""
    lives(99, 60, 40)
