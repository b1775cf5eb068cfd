"""How much engines slow each other down is told apart from what their work takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.errors import EngineError
from teola.learning import AtWork, Learner, Lessons
from teola.learning.at_work import Nobody
from teola.learning.batches import ALL_OF, BatchTimes
from teola.learning.calls import CallTimes
from teola.learning.habits import Habits
from teola.policies.work import Slice
from teola.profile import paper
from teola.schedule.events import Cause
from tests.learning.loaded import Loaded, alike
from tests.learning.test_calls import head
from tests.planted import catches, edited
from tests.recording import work

TRUE = paper("13b")
CROWDING = 0.3
SHARED = ("llm", "embedding", "rerank", "vectorstore")


def test_others_are_those_that_work_meanwhile() -> None:
    crowd = AtWork()
    crowd.came(10.0)
    mine = crowd.seconds(10.0)
    crowd.came(12.0)
    crowd.came(12.0)
    crowd.left(13.0)
    assert crowd.others(mine, 4.0, 14.0) == pytest.approx((2 * 1 + 1) / 4)
    crowd.left(14.0)
    crowd.left(14.0)
    assert crowd.seconds(20.0) == crowd.seconds(14.0)


def test_nobody_is_counted_where_nobody_shares() -> None:
    nobody = Nobody()
    nobody.came(1.0)
    assert nobody.others(0.0, 1.0, 2.0) == 0.0


@catches(
    "dead-calls-at-work",
    "an instance that is lost with calls counts as at work for ever",
    edited(CallTimes.lost, "self._crowd.left(now)", "pass"),
)
@catches(
    "idle-dead-left-twice",
    "an instance that is lost without calls leaves work that it had not begun",
    edited(CallTimes.lost, "instance is not None and instance.calls", "instance is not None"),
)
@catches(
    "dead-batches-at-work",
    "batches of an instance that is lost count as at work for ever",
    edited(BatchTimes.lost, "self._crowd.left(now)", "pass"),
)
def test_who_is_lost_is_at_work_no_more() -> None:
    crowd = AtWork()
    calls, batches = CallTimes(Habits(), 1024, crowd), BatchTimes(Habits(), crowd)
    for i, one in enumerate([head("a", 10), head("b", 10)]):
        calls.sent(i, i, [Slice(one, 0, 10)], 0.0)
        batches.sent(i, i, [Slice(work(), 0, 1)], 0.0)
    assert crowd.seconds(1.0) == 4.0
    calls.lost(0, 1.0)
    batches.lost(1, 1.0)
    assert crowd.seconds(2.0) == 6.0
    calls.lost(0, 2.0)  # there is nothing any more
    calls.first(1, head("b", 10), 2.0)
    calls.ended(head("b", 10), False, 0, 5, 2.0)
    calls.lost(1, 3.0)  # it had ended
    assert crowd.seconds(3.0) == 7.0
    batches.lost(0, 3.0)
    assert crowd.seconds(9.0) == 7.0


@pytest.mark.parametrize(
    ("app", "engines"), [("naive_rag", ("embedding", "llm")), ("advanced_rag", ("rerank", "llm"))]
)
def test_what_is_shared_is_learned_apart_from_the_work_itself(
    app: str, engines: tuple[str, str]
) -> None:
    profile = TRUE
    for name in SHARED:
        profile = alike(profile, name, crowding=CROWDING)
    learner = Learner(AtWork())
    Loaded(app, profile, learner=learner).run(250, rate=0.1)
    found = learner.snapshot().engines
    for name in engines:
        assert found[name].crowding == pytest.approx(CROWDING, rel=0.25), name
    for op, cost in found[engines[0]].costs.items():
        true = TRUE.engines[engines[0]].cost(op)
        assert cost.seconds(16, 4096) == pytest.approx(true.seconds(16, 4096), rel=0.1)
    step, real = found["llm"].step, TRUE.engines["llm"].step
    assert step is not None
    assert step.seconds(4) == pytest.approx(real.seconds(4), rel=0.15)


def test_nothing_is_learned_where_nobody_shares() -> None:
    learner = Learner(AtWork())
    Loaded("advanced_rag", TRUE, learner=learner).run(150, rate=0.3)
    for times in learner.snapshot().engines.values():
        assert times.crowding < 0.05


def test_it_is_kept_and_goes_into_profiles() -> None:
    learner = Learner(AtWork())
    made = Loaded("naive_rag", alike(TRUE, "embedding", crowding=CROWDING), learner=learner)
    made.run(60, rate=0.5)
    lessons = Lessons.from_json(learner.snapshot().to_json())
    times = lessons.engines["embedding"]
    assert times.over(TRUE.engines["embedding"]).crowding == times.crowding
    assert replace(times, crowding=0.0) != times or times.crowding == 0.0
    old = learner.snapshot().to_json()
    for engine in old["engines"].values():
        del engine["crowding"]
    assert Lessons.from_json(old).engines["embedding"].crowding == 0.0


@pytest.mark.parametrize(
    "outcomes",
    [
        [{"out": 1}, {"out": 1}],
        [{"out": 1}, Cause(EngineError("it broke"))],
        [Cause(EngineError("it broke"))] * 2,
    ],
)
@pytest.mark.parametrize("seconds", [0.0, 1.0])
@pytest.mark.parametrize("before", [0, ALL_OF, ALL_OF + 1])
def test_whose_batch_is_over_is_at_work_no_more(
    outcomes: list[object], seconds: float, before: int
) -> None:
    """However it ended, and though nothing is learned of it."""
    crowd = AtWork()
    batches = BatchTimes(Habits(), crowd)
    slices = [Slice(work(), 0, 1)] * 2
    for batch in range(before):
        batches.sent(0, batch, slices, 0.0)
        batches.completed(batch, slices, [{"out": 1}] * 2, 0.0)
    batches.sent(0, before, slices, 0.0)
    batches.sent(1, before + 1, slices, 0.0)
    batches.completed(before, slices, outcomes, seconds)
    assert crowd.seconds(9.0) - crowd.seconds(seconds) == pytest.approx(9.0 - seconds)
    batches.completed(before + 1, slices, outcomes, 9.0)
    batches.completed(before + 1, slices, outcomes, 9.5)
    assert crowd.seconds(20.0) == crowd.seconds(9.0)
