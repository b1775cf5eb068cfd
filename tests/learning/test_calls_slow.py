"""What is measured of calls, beside a slow one that adds up every moment of every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest

from teola.graph import Op
from teola.learning.by_instance import Pace, WholeCall
from teola.learning.calls import RIDGE, CallTimes
from teola.learning.habits import Habits
from teola.learning.least_squares import LeastSquares
from teola.learning.lessons import EngineTimes
from teola.policies.work import Slice, Work
from teola.profile import StepTime
from tests.recording import work

BUDGET = 100
"""Prompt tokens of one step."""
Row = tuple[tuple[float, ...], float]
KEPT = {30: 0, 100: 16, 260: 100}
"""Of a prompt, by its planned tokens."""
LENGTH = {30: 30, 100: 130, 260: 250}
"""How long it turns out."""
GOES_ON = 40
"""Tokens of a prompt that goes on with one of 100 planned tokens."""


class Noting(LeastSquares):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(RIDGE)
        self.rows: list[Row] = []

    def add(self, quantities: Sequence[float], seconds: float) -> None:
        self.rows.append((tuple(quantities), seconds))
        super().add(quantities, seconds)


class NotingPace(Pace):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[WholeCall] = []

    def ended(self, whole: WholeCall) -> None:
        self.calls.append(whole)
        super().ended(whole)


@dataclass(eq=False)
class Call:
    """kept: of its prompt, as its instance tells in the end. before: tokens that its prompt goes
    on with. batch: those that were sent with it. queue: those that had no token when it was sent,
    itself among them. first, end: when (-1: not yet)."""

    work: Work
    kept: int
    before: int
    batch: list[Call]
    queue: list[Call]
    sent: float
    alone: bool
    answer: int
    first: float = -1.0
    end: float = -1.0

    @property
    def tokens(self) -> int:
        return self.work.total - self.kept

    @property
    def pairs(self) -> int:
        """Each token attends to all before it and to itself."""
        return sum(range(self.before + self.kept + 1, self.before + self.work.total + 1))


class Life:
    """One instance. Prompts of a kind are always kept alike, so that it is known before the end."""

    def __init__(self, seed: int) -> None:
        self.draw, self.now, self.calls = Random(seed), 0.0, list[Call]()
        self.squares = Noting()
        self.times = CallTimes(Habits(), BUDGET, names=("this", "another"))
        self.times._squares = self.squares
        self.pace = self.times._own[0] = NotingPace()
        self.batches = 0
        self.expected: list[Row] = []
        self.whole: list[Row] = []

    @property
    def flying(self) -> list[Call]:
        return [call for call in self.calls if call.end < 0]

    def send(self) -> None:
        draw, alone, batch = self.draw, not self.flying, list[Call]()
        queue = [call for call in self.flying if call.first < 0]
        for call in queue:
            call.alone = False
        for n in range(draw.choice([1, 1, 2, 3])):
            planned = draw.choice([30, 100, 260, GOES_ON])
            one = work(
                0,
                run=f"{len(self.calls)}/{n}",
                op=Op.PREFILLING,
                lane=None,
                total=LENGTH.get(planned, planned),
                planned_tokens=planned,
                continues=100 if planned == GOES_ON else 0,
                members=(1,),
            )
            before = LENGTH[100] if planned == GOES_ON else 0
            call = Call(one, KEPT.get(planned, 0), before, batch, queue, self.now, alone, 0)
            call.answer = draw.choice([1, 2, 5, 20])
            batch.append(call)
        queue += batch
        self.calls += batch
        self.batches += 1
        slices = [Slice(call.work, 0, call.work.total) for call in batch]
        self.times.sent(0, self.batches, slices, self.now)

    def first(self) -> None:
        """Of one, or of two in one step."""
        waiting = [call for call in self.flying if call.first < 0]
        for call in self.draw.sample(waiting, min(len(waiting), self.draw.choice([1, 1, 2]))):
            call.first = self.now
            self.times.first(0, call.work, self.now)

    def ended(self) -> None:
        going = [call for call in self.flying if 0 <= call.first < self.now]
        if not going:
            return
        call = self.draw.choice(going)
        call.end = self.now
        self.times.ended(call.work, False, call.kept, call.answer, self.now)
        if all(other.end >= 0 for other in call.batch):
            self.prompts(call.batch)
        decoding = self.decoding(call) if call.answer > 1 else (0.0,) * 6
        if call.answer > 1:
            self.expected.append(((*decoding, 0.0), call.end - call.first))
        tokens = sum(other.tokens for other in call.queue)
        pairs = sum(other.pairs for other in call.queue)
        steps = max(1.0, tokens / BUDGET)
        first = (steps, 0.0, 0.0, tokens, pairs, steps)
        quantities = tuple(a + b for a, b in zip(first, decoding, strict=True))
        self.whole.append((quantities, call.end - call.sent))

    def prompts(self, batch: list[Call]) -> None:
        """Nothing else ran there until the last of them had its first token."""
        if not all(call.alone for call in batch):
            return
        tokens, pairs = sum(call.tokens for call in batch), sum(call.pairs for call in batch)
        steps = max(len({call.first for call in batch}), -(-tokens // BUDGET))
        took = max(call.first for call in batch) - batch[0].sent
        self.expected.append(((steps, 0.0, 0.0, tokens, pairs, steps, 0.0), took))

    def decoding(self, call: Call) -> tuple[float, ...]:
        """Its own steps, and what stood and was computed in each of them."""
        steps, passed = call.answer - 1, call.end - call.first
        a_second = steps / passed
        sequences = context = 0.0
        for other in self.calls:
            if other.first < 0:
                continue
            since = max(call.first, other.first)
            until = call.end if other.end < 0 else min(call.end, other.end)
            if until <= since:
                continue
            beside = until - since
            middle_age = (since + until) / 2 - other.first
            sequences += beside * a_second
            context += beside * a_second * (other.before + other.work.total + middle_age * a_second)
        computed = [other for other in self.calls if call.first < other.first <= call.end]
        tokens = sum(other.tokens for other in computed)
        pairs = sum(other.pairs for other in computed)
        prefills = len({other.first for other in computed})
        prefills += sum(other.tokens // BUDGET for other in computed)
        return steps, sequences, context, tokens, pairs, prefills


@pytest.mark.parametrize("seed", range(12))
def test_each_call_is_measured_by_all_that_ran_beside_it(seed: int) -> None:
    life = Life(seed)
    for planned, kept in KEPT.items():  # so that what is kept is known
        one = work(0, lane=None, op=Op.PREFILLING, total=LENGTH[planned], planned_tokens=planned)
        life.times._remember(one, kept)
    for _ in range(300):
        life.now += life.draw.choice([0.05, 0.2, 1.0])
        busy = bool(life.flying) and life.draw.random() < 0.85
        life.draw.choice([life.first, life.ended])() if busy else life.send()
        assert len(life.squares.rows) == len(life.expected)
        for (found, seconds), (quantities, took) in zip(
            life.squares.rows[-2:], life.expected[-2:], strict=True
        ):
            assert seconds == pytest.approx(took)
            assert found == pytest.approx(quantities), life.now
        assert len(life.pace.calls) == len(life.whole)
        for call, (quantities, took) in zip(life.pace.calls[-1:], life.whole[-1:], strict=True):
            assert call.seconds == pytest.approx(took)
            assert call.quantities == pytest.approx(quantities), life.now
    assert len(life.expected) > 40
    assert any(row[0][1] == 0 and row[0][0] > 1 for row in life.expected), "prompts"


def test_times_are_known_from_the_third_measurement_on() -> None:
    """Until then an instance is judged by what was known of its engine before."""
    times = CallTimes(Habits(), BUDGET, names=("this", "another"))
    times.recall(EngineTimes(step=StepTime(base_s=10.0), seen=9))
    slow = []
    for k in range(3):
        one = work(0, run=f"q{k}", op=Op.PREFILLING, lane=None, total=50, members=(1,))
        times.sent(0, k, [Slice(one, 0, 50)], 10.0 * k)
        if k == 0:
            times.late(one, 1.0)  # so that it is known after two calls
        times.first(0, one, 10.0 * k + 1)
        times.ended(one, False, None, 1, 10.0 * k + 1)
        slow.append({name: told.factor for name, told in times.instances().items()})
        assert (times.times() is None) is (k < 2)
    assert slow == [{}, {"this": pytest.approx(0.1)}, {"this": pytest.approx(1.0, rel=0.1)}]


@pytest.mark.parametrize("failed", [False, True])
def test_a_prefix_that_is_computed_ahead_is_measured_to_its_end(failed: bool) -> None:
    """It gives no token. One that failed took no time that says anything."""
    times = CallTimes(Habits(), BUDGET, names=("this", "another"))
    times._squares = squares = Noting()
    one = work(0, op=Op.PARTIAL_PREFILLING, lane=None, total=50)
    times.sent(0, 1, [Slice(one, 0, 50)], 10.0)
    times.ended(one, failed, None, None, 12.0)
    assert squares.rows == ([] if failed else [((1.0, 0.0, 0.0, 50, 1275, 1.0, 0.0), 2.0)])
