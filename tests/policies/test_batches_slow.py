"""Batching policies against slow ones, which look at all that waits anew for each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import inf
from random import Random

import pytest

from teola.graph import Op
from teola.policies import batching
from teola.policies.batching.fifo import Fifo
from teola.policies.batching.per_invocation import PerInvocation
from teola.policies.batching.topology import Topology
from teola.policies.batching.urgency import Urgency
from teola.policies.work import Slots, Work
from tests.policies.choosing import chosen, take
from tests.recording import work


class Batch:
    """What a batch takes, one item after another. full: nothing more has a place."""

    def __init__(self, slots: Slots) -> None:
        self.slots, self.full = slots, False
        self.taken: list[tuple[int, int, int]] = []
        self.items, self.works, self.lane = 0, 0, slots.lane

    @property
    def room(self) -> bool:
        return self.items < self.slots.weight and self.works < self.slots.entries

    def may(self, one: Work) -> bool:
        """Whether it is for this instance and of the kind of those that are taken."""
        here = one.affinity in (-1, self.slots.instance) and one.avoid != self.slots.instance
        return here and (self.lane is None or one.spec.lane is self.lane)

    def take(self, one: Work) -> bool:
        """Take of it what has a place; whether the batch goes on."""
        self.full = self.items >= self.slots.weight or self.works >= self.slots.entries
        if self.full:
            return False
        self.lane = one.spec.lane
        for lo, hi in one.spans:
            end, room = lo, self.slots.weight - self.items
            if one.spec.cuttable:
                end = min(hi, lo + room)
            elif hi - lo <= room or (not self.taken and self.slots.idle):
                end = hi
            if end == lo:
                self.full = True
                return False
            self.taken.append((one.seq, lo, end))
            self.items += end - lo
            self.full = self.items >= self.slots.weight
            if self.full:
                return False
        self.works += 1
        self.full = self.works >= self.slots.entries
        return not self.full


def in_order(works: Sequence[Work], batch: Batch) -> None:
    """One after the other, until one has no place."""
    for one in works:
        if batch.may(one) and not batch.take(one):
            return


def fifo(works: Sequence[Work], slots: Slots, now: float) -> Batch:
    """What failed comes first, of that the first to arrive."""
    again = sorted((one for one in works if one.tries), key=lambda one: (one.arrival, one.seq))
    batch = Batch(slots)
    in_order([*again, *(one for one in works if not one.tries)], batch)
    return batch


def waiting_fifo(works: Sequence[Work], slots: Slots, now: float) -> Batch:
    """A batch with places left goes when the first of its works has waited for a second."""
    batch = fifo(works, slots, now)
    taken = {seq for seq, _, _ in batch.taken}
    oldest = min((one.arrival for one in works if one.seq in taken), default=0.0)
    return (
        batch
        if batch.items >= slots.weight or batch.works >= slots.entries or (now >= oldest + 1.0)
        else Batch(slots)
    )


def call_of(one: Work) -> tuple[str, str]:
    return one.run, one.spec.component


def per_invocation(works: Sequence[Work], slots: Slots, now: float) -> Batch:
    """The first call of which anything has a place, and nothing else."""
    for called in dict.fromkeys(map(call_of, works)):
        batch = Batch(slots)
        in_order([one for one in works if call_of(one) == called], batch)
        if batch.taken:
            return batch
    return Batch(slots)


def topology(works: Sequence[Work], slots: Slots, now: float) -> Batch:
    """In turns: of each query, in order of arrival, the deepest that may go and were not taken."""
    batch, by_age = Batch(slots), sorted(works, key=lambda one: (one.arrival, one.seq))
    left = {one.run: list[Work]() for one in by_age}
    for one in sorted(by_age, key=lambda one: -one.spec.depth):
        left[one.run].append(one)
    while any(left.values()) and not batch.full:
        for run, those in left.items():
            for _, group in groupby(those, key=lambda one: one.spec.depth):
                looked_at = 0
                fits = False
                for one in group:
                    looked_at += 1
                    if batch.may(one):
                        fits = True
                        if not batch.take(one):
                            return batch
                left[run] = left[run][looked_at:]
                if fits:
                    break
    return batch


def urgency(works: Sequence[Work], slots: Slots, now: float, *, skips: bool = False) -> Batch:
    """By objectives, then the oldest query. The kind of work goes whose first is most urgent."""

    def key(one: Work) -> tuple[float, ...]:
        by = one.asker.finish_by
        return (*((0, by) if by < inf else (1, one.admitted)), one.arrival, one.seq)

    here = sorted((one for one in works if one.affinity in (-1, slots.instance)), key=key)
    for lane in dict.fromkeys(one.spec.lane for one in here):
        batch = Batch(slots)
        for one in here:
            may = one.spec.lane is lane and batch.may(one)
            if may and not batch.take(one) and not (skips and batch.room):
                break
        if batch.taken:
            return batch
    return Batch(slots)


Slow = Callable[[Sequence[Work], Slots, float], Batch]
SLOW: dict[str, tuple[Callable[[], batching.BatchingPolicy], Slow]] = {
    "fifo": (Fifo, fifo),
    "waiting fifo": (partial(Fifo, 1.0), waiting_fifo),
    "per invocation": (PerInvocation, per_invocation),
    "topology": (Topology, topology),
    "urgency": (Urgency, urgency),
    "skipping urgency": (partial(Urgency, skip_unfit=True), partial(urgency, skips=True)),
}


def lives(name: str, seed: int, steps: int = 80) -> None:
    """Works come, are taken, withdrawn and tried again; each batch is compared before it goes."""
    policy, slow = SLOW[name][0](), SLOW[name][1]
    draw, now, works = Random(seed), 0.0, list[Work]()
    since: dict[tuple[str, str], int] = {}
    """Calls of which something waits, each with the number of the first of it."""

    def comes(one: Work) -> None:
        there = {call_of(other) for other in works if other.queued}
        if call_of(one) not in there:
            since[call_of(one)] = len(since) and max(since.values()) + 1
        works.append(one)
        policy.add(one, now)

    for k in range(steps):
        now += draw.choice([0.0, 0.3, 1.0])
        for n in range(draw.choice([0, 1, 3])):
            one = work(
                10 * k + n,
                run=f"q{draw.randrange(3)}",
                component=draw.choice("ab"),
                total=draw.choice([1, 1, 2, 5]),
                arrival=now,
                depth=draw.choice([0, 1, 2]),
                lane=draw.choice([Op.EMBEDDING, Op.EMBEDDING, Op.RERANKING]),
                cuttable=draw.random() < 0.7,
                affinity=draw.choice([-1, -1, -1, 0, 1]),
                avoid=draw.choice([-1, -1, -1, 0]),
                finish_by=draw.choice([inf, draw.random()]),
                admitted=draw.random(),
            )
            comes(one)
        slots = Slots(
            draw.choice([0, 0, 0, 1]),
            draw.choice([1, 2, 4, 7]),
            draw.choice([1, 2, 9]),
            draw.random() < 0.5,
            lane=draw.choice([None, None, Op.RERANKING]),
        )
        if name == "per invocation":
            works.sort(key=lambda one: since[call_of(one)])
        expected = slow(works, slots, now).taken
        assert chosen(policy, slots, now) == expected, f"{name}, {k}: {slots}"
        if isinstance(policy, Fifo) and policy.max_wait_s:
            due = [one.arrival + 1.0 for one in works if one.arrival + 1.0 > now]
            assert policy.wake_at(now) == min(due, default=None)
        if draw.random() < 0.6:
            take(policy, slots, now)
        if works and draw.random() < 0.3:
            gone = draw.choice(works)
            if gone.queued:
                gone.queued = False
                policy.remove(gone, now)
            if draw.random() < 0.5:  # it failed, and is tried again in the end
                again = replace(gone, tries=gone.tries + 1, queued=True)
                again.spans = [(0, again.total)]
                comes(again)
        works = [one for one in works if one.queued]


@pytest.mark.parametrize("name", [name for name in SLOW if "urgency" not in name])
def test_each_batch_is_what_a_slow_policy_takes(name: str) -> None:
    for seed in range(3):
        lives(name, seed)
