"""What batches of an engine take, as an observer learns it."""

from __future__ import annotations

import random

import pytest

from teola.errors import EngineError
from teola.graph import Op
from teola.learning.batches import ALL_OF, SPREAD, BatchTimes
from teola.learning.habits import Habits
from teola.learning.lessons import EngineTimes
from teola.policies.work import Slice
from teola.profile import Cost, EngineProfile
from teola.schedule.events import Cause
from tests.planted import catches, edited
from tests.recording import work

BASE_S, ITEM_S = 0.05, 0.01
FAILED = Cause(EngineError("wrong"))


class Batches:
    """Sends one after another. habits: of functions."""

    def __init__(self) -> None:
        self.habits = Habits()
        self.observer = BatchTimes(self.habits)
        self.now, self.count = 0.0, 0

    def run(self, *sizes: int, seconds: float | None = None, **spec: object) -> None:
        """A batch of slices of these sizes; by default in the time that is true."""
        self.count += 1
        slices = [Slice(work(k, total=size, **spec), 0, size) for k, size in enumerate(sizes)]
        self.observer.sent(0, self.count, slices, self.now)
        self.now += BASE_S + ITEM_S * sum(sizes) if seconds is None else seconds
        outcomes = [{"out": size} for size in sizes]
        self.observer.completed(self.count, slices, outcomes, self.now)

    def fail(self, *outcomes: object, seconds: float = 99.0) -> None:
        """A batch, slices of which failed."""
        self.count += 1
        slices = [Slice(work(k), 0, 1) for k in range(len(outcomes))]
        self.observer.sent(0, self.count, slices, self.now)
        self.now += seconds
        self.observer.completed(self.count, slices, outcomes, self.now)

    @property
    def times(self) -> EngineTimes:
        found = self.observer.times()
        assert found is not None
        return found

    def cost(self, op: Op = Op.EMBEDDING) -> Cost:
        return self.times.costs[op]


@catches(
    "batch-one-slice",
    "only the first slice of a batch counts",
    edited(BatchTimes.completed, "units += (hi - lo)", "units = (hi - lo)"),
)
def test_the_base_and_what_each_item_takes() -> None:
    batches, drawn = Batches(), random.Random(1)
    for _ in range(60):
        batches.run(*[drawn.randint(1, 8) for _ in range(drawn.randint(1, 4))])
    cost = batches.cost()
    assert (cost.base_s, cost.per_item_s) == pytest.approx((BASE_S, ITEM_S), rel=0.02)
    assert batches.times.varied == {Op.EMBEDDING}
    assert batches.times.seen == 60


def test_where_time_goes_by_tokens_it_is_learned_by_tokens() -> None:
    batches = Batches()
    for size in [1, 2, 4, 8] * 5:
        batches.run(size, seconds=0.05 + size * 256 * 1e-4, item_tokens=256)
    cost = batches.cost()
    assert cost.item_tokens == 256
    assert (cost.base_s, cost.per_token_s) == pytest.approx((0.05, 1e-4), rel=0.02)
    assert cost.seconds(4, 4 * 256) == pytest.approx(0.05 + 1024e-4, rel=0.01)


@catches(
    "batch-guesses-base",
    "a base is made up where all batches were of one size",
    edited(BatchTimes.times, "of.cost()", "Cost(*of.squares.solve())"),
)
def test_nothing_is_held_to_be_base_where_sizes_did_not_vary() -> None:
    """What a policy waits for is the base; and the engine's own limit of a batch stands."""
    batches = Batches()
    for size in [10, 11, 12] * 10:
        batches.run(size)
    cost = batches.cost()
    assert cost.base_s == 0.0
    assert cost.seconds(11, 0) == pytest.approx(BASE_S + 11 * ITEM_S, rel=0.05)
    assert not batches.times.varied
    limited = EngineProfile(max_batch=64, max_efficient=64)
    assert batches.times.over(limited).max_efficient_batch(Op.EMBEDDING) == 64


def test_where_they_did_a_batch_is_as_large_as_pays() -> None:
    batches = Batches()
    for size in [1, 2, 64] * 10:
        batches.run(size)
    found = batches.times.over(EngineProfile(max_batch=1024, max_efficient=1024))
    true = EngineProfile({Op.EMBEDDING: Cost(BASE_S, ITEM_S)}, max_batch=1024)
    assert found.max_efficient_batch(Op.EMBEDDING) == true.max_efficient_batch(Op.EMBEDDING) < 1024


@catches(
    "batch-failed-counts",
    "a batch that failed teaches how long it took to fail",
    edited(
        BatchTimes.completed,
        "not all(isinstance(outcome, Mapping) for outcome in outcomes)",
        "False",
    ),
)
@pytest.mark.parametrize("outcomes", [(FAILED,), ({"out": 1}, FAILED)])
def test_batches_that_fail_teach_nothing(outcomes: tuple[object, ...]) -> None:
    batches = Batches()
    for size in [1, 2, 4] * 5:
        batches.run(size)
        batches.fail(*outcomes)
    assert batches.times.seen == 15
    assert batches.cost().base_s == pytest.approx(BASE_S, rel=0.05)
    assert not batches.observer._sent


def test_batches_that_take_no_time_teach_nothing() -> None:
    """A clock that stands still, or a batch that is heard of for the first time."""
    batches = Batches()
    for _ in range(10):
        batches.run(3, seconds=0.0)
    one = [Slice(work(), 0, 1)]
    batches.observer.completed(999, one, [{"out": 1}], 5.0)
    assert batches.observer.times() is None


def test_ops_are_learned_apart() -> None:
    batches = Batches()
    for size in [1, 2, 4] * 5:
        batches.run(size, op=Op.INGESTION, seconds=1.0 * size)
        batches.run(size, op=Op.SEARCHING, seconds=0.1)
    batches.run(1, op=Op.RERANKING)
    assert batches.cost(Op.INGESTION).seconds(8, 0) == pytest.approx(8.0, rel=0.02)
    assert batches.cost(Op.SEARCHING).seconds(8, 0) == pytest.approx(0.1, rel=0.1)
    assert set(batches.times.costs) == {Op.INGESTION, Op.SEARCHING, Op.RERANKING}


@catches(
    "batch-lost-kept",
    "what a lost instance ran is kept",
    edited(BatchTimes.lost, "if sent.instance == i", "if False"),
)
def test_a_lost_instance_leaves_nothing_behind() -> None:
    batches = Batches()
    for i in range(3):
        batches.observer.sent(i, 100 + i, [Slice(work(), 0, 1)], 0.0)
    batches.observer.lost(1, 9.0)
    assert set(batches.observer._sent) == {100, 102}


def test_functions_are_learned_by_component_and_alone() -> None:
    """Not as an op of their engine, since each one takes its own time."""
    batches = Batches()
    for _ in range(10):
        batches.run(1, op=Op.TOOL_CALL, component="fast", app="a", seconds=0.01)
        batches.run(1, op=Op.TOOL_CALL, component="slow", app="a", seconds=2.0)
    batches.run(1, 1, op=Op.TOOL_CALL, component="fast", app="a", seconds=50.0)
    known = batches.habits.now()
    assert known["a", "fast"].seconds == pytest.approx(0.01)
    assert known["a", "slow"].seconds == pytest.approx(2.0)
    assert batches.observer.times() is None


@catches(
    "batch-all-for-ever",
    "every batch is worked in for ever",
    edited(BatchTimes.completed, "self._seen % ONE_OF", "False"),
)
def test_after_many_only_some_are_taken_in() -> None:
    batches = Batches()
    for k in range(ALL_OF + 80):
        batches.run(1 + k % 7)
    assert batches.times.seen == ALL_OF + 10


@pytest.mark.parametrize(("most", "varied"), [(SPREAD * 10 - 1, False), (SPREAD * 10, True)])
def test_sizes_vary_from_just_so_many_times_the_least_on(most: int, varied: bool) -> None:
    batches = Batches()
    for size in [10, int(most), 10] * 10:
        batches.run(size)
    assert bool(batches.times.varied) is varied
    assert bool(batches.cost().base_s) is varied
