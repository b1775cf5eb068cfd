"""critical_path without patience beside a slow one, which sorts all that waits for each batch."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from teola.graph import Op
from teola.policies.batching.critical_path import CriticalPath
from teola.policies.work import Estimate, Slice, Slots, Work
from tests.recording import work

HALF_A_MINUTE = 30.0
LOOKS = 32
Key = tuple[float, ...]


class Batch:
    """What goes together. items, calls: for which there is room. longer_s: by how much each query
    in it makes it longer, in the order of their first items. passed: works that stayed behind."""

    def __init__(self, slots: Slots) -> None:
        self.slots, self.items, self.calls = slots, slots.weight, slots.entries
        self.slices: list[Slice] = []
        self.longer_s: dict[str, float] = {}
        self.passed = 0

    def holds(self, one: Work) -> bool:
        """Whether there is room for anything, and it may go there."""
        return self.items > 0 and self.calls > 0 and one.avoid != self.slots.instance

    def take(self, one: Work) -> bool:
        """All of it, or as much as there is room for; what cannot be cut and is larger goes alone,
        to an instance that has nothing to do."""
        ((lo, hi),) = one.spans
        if hi - lo > self.items:
            if one.spec.cuttable:
                hi = lo + self.items
            elif self.slices or not self.slots.idle:
                return False
        more_s = min(hi - lo, self.items) * one.spec.estimate.item_s
        self.longer_s[one.run] = self.longer_s.get(one.run, 0.0) + more_s
        self.slices.append(Slice(one, lo, hi))
        self.items -= hi - lo
        self.calls -= 1
        return True


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
        """What is in a hurry and has time to spare, by its deadline; then all others by place."""
        batch = Batch(slots)
        hurried = [one for one in works if self.hurries(one, now)]
        for one in sorted(hurried, key=lambda one: (one.deadline, *self.ties(one))):
            spent_s = sum(map(seconds, self.first))
            if self.earned_s > spent_s and self.goes(one, batch):
                self.first.append(one)
        for one in sorted(works, key=self.place):
            if one not in self.first:
                self.goes(one, batch)
        return batch.slices

    def goes(self, one: Work, batch: Batch) -> bool:
        """Whether it is taken along. One that is not, though it might have a place in a batch of
        its own, is the first of the next one: behind it, none goes before it but in a batch that
        begins anew, and behind few."""
        if batch.passed > (LOOKS if batch.slots.idle else 0) or not batch.holds(one):
            return False
        shares = one.spec.lane is None or batch.slots.rationed
        if (shares or self.pays(one, batch)) and batch.take(one):
            return True
        batch.passed += 1
        return False

    def pays(self, one: Work, batch: Batch) -> bool:
        """Whether queries before it wait no longer for all of its query's items than a batch less
        saves: for each that waits, four times what a batch costs. Who leads waits for nobody."""
        estimate, before = one.spec.estimate, {*batch.longer_s} - {one.run}
        if not before or one.run == next(iter(batch.longer_s)):
            return True
        items = min(one.remaining, batch.items)
        mine_s = batch.longer_s.get(one.run, 0.0) + items * estimate.item_s
        behind = {other.run for other in self.works} - before
        return len(before) * mine_s <= 4 * estimate.base_s * len(behind)

    def sent(self, one: Work) -> None:
        """What is in no hurry earns; what went before others pays."""
        if one in self.first:
            self.earned_s -= seconds(one)
        else:
            self.earned_s = min(HALF_A_MINUTE, self.earned_s + seconds(one))


def seconds(one: Work) -> float:
    """Of its engine; 1 where none are known."""
    return one.spec.estimate.call_s or 1.0


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
    policy, slow, lengths = CriticalPath(patience=0), Slow(), dict[str, float]()
    for k in range(steps):
        now += draw.choice([0.0, 0.5, 1.0])
        if k % 9 == 0:
            lengths = {f"q{n}": draw.choice([0.0, 1.0, 8.0]) for n in range(5)}
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


# --- patience -------------------------------------------------------------------------------

BASE_S = 0.25


def prefill(seq: int, arrival: float, **more: object) -> Work:
    """A call of 100 tokens; the first ones in order are the first to come."""
    estimate = Estimate(rest_s=1.0, latest_s=more.pop("latest_s", 0.0), base_s=BASE_S)  # type: ignore[arg-type]
    given = {"lane": None, "op": Op.PREFILLING, "total": 100, "cuttable": False, **more}
    return work(seq, run=f"q{seq}", arrival=arrival, estimate=estimate, **given)


def waited_s(works: list[Work], behind: int, room_at: float, now: float) -> float:
    """What waiting has cost by then, all together: those of the batch since they press, of the time
    before there was room as much as they save one another; those behind it since then."""
    company_s = BASE_S * (len(works) + behind - 1)
    presses = [max(one.arrival, one.spec.estimate.latest_s) for one in works]
    batch = [now - max(at, room_at - company_s) for at in presses]
    return sum(max(0.0, each) for each in batch) + behind * (now - room_at)


@pytest.mark.parametrize("seed", range(25))
def test_a_prefill_waits_until_that_has_cost_as_much_as_going_does(seed: int) -> None:
    """Asked again and again, until it goes; calls come meanwhile. Where the batch is full, all that
    is queued waits for it."""
    draw = Random(seed)
    for _ in range(20):
        patience, running = draw.choice([0.5, 1.0, 3.0]), draw.randint(1, 9)
        policy, works, room_at = CriticalPath(patience), list[Work](), draw.choice([3.0, 5.0])
        places = draw.choice([1, 2, 99])
        for seq in range(draw.randint(1, 4)):
            latest_s = draw.choice([0.0, 0.0, 6.0])
            works.append(prefill(seq, draw.choice([0.0, 2.5, 3.0]), latest_s=latest_s))
            policy.add(works[-1], works[-1].arrival)
        for k in range(300):
            now = room_at + 0.125 * k
            if draw.random() < 0.1 and len(works) < 6:
                works.append(prefill(len(works), now))
                policy.add(works[-1], now)
            batch = sorted(works, key=lambda one: (one.arrival, one.seq))[:places]
            behind = len(works) - len(batch) if len(works) >= places else 0
            going_s = patience * BASE_S * running
            slices = policy.choose(Slots(0, 100 * places, 99, True, running), now)
            goes = waited_s(batch, behind, room_at, now) >= going_s - 1e-5
            assert [one.seq for one, _, _ in slices] == [one.seq for one in batch if goes], now
            wake_at = policy.wake_at(now)
            if goes:
                break
            assert wake_at is not None
            assert now < wake_at
            presses = [one.spec.estimate.latest_s for one in batch]
            later = [at for at in presses if at > now]
            assert waited_s(batch, behind, room_at, wake_at) <= going_s + 1e-9, "not too late"
            assert wake_at in map(pytest.approx, later) or waited_s(
                batch, behind, room_at, wake_at
            ) == pytest.approx(going_s), "nor for nothing"
        else:
            raise AssertionError("it never goes")


@pytest.mark.parametrize("seed", range(12))
def test_a_piece_stays_until_no_other_query_has_had_urgent_work_there_for_long(seed: int) -> None:
    """Prefills of three queries go to two instances; then a piece of one of them is queued."""
    draw = Random(seed)
    for _ in range(10):
        policy, now, gone = CriticalPath(), 0.0, list[tuple[float, str, int]]()
        for seq in range(draw.randint(0, 7)):
            now += draw.choice([0.5, 4.0])
            one = prefill(seq, now)
            one.run = draw.choice("abc")
            i = draw.choice([0, 0, 1])
            policy.add(one, now)
            assert policy.choose(Slots(i, 1000, 9, True), now)
            one.queued = False
            policy.remove(one, now)
            gone.append((now, one.run, i))
        piece = prefill(99, now, ahead=True)
        piece.run = "a"
        policy.add(piece, now)
        last = max((at for at, run, i in gone if i == 0 and run != "a"), default=-inf)
        quiet_at = last + 40 * BASE_S
        for later in (0.0, 5.0, 9.0, 10.0, 11.0):
            slices = policy.choose(Slots(0, 1000, 9, True), now + later)
            assert bool(slices) is (now + later >= quiet_at), (gone, later)
            if not slices:
                assert policy.wake_at(now + later) == pytest.approx(quiet_at)


@pytest.mark.parametrize("patience", [0, 0.5, 7])
def test_patience_may_be_any_number_from_0_on(patience: float) -> None:
    assert CriticalPath(patience).patience == patience
