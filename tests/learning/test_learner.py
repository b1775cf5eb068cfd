"""The learner: when an epoch begins, and what it then says."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from teola.graph import Op
from teola.habit import Habit
from teola.learning import EngineTimes, LearnedProfiles, Learner, Lessons
from teola.learning.learner import AGAIN, EPOCH_S, _moved, _moved_apart, figures
from teola.learning.lessons import Slowness
from teola.learning.observer import Observer
from teola.policies.work import Slice
from teola.profile import Cost, EngineProfile, StepTime
from tests.planted import catches, edited
from tests.recording import work

STEP = StepTime(0.012, 0.0003, 1.5e-6, 2e-4, 5e-8, 0.004)


class Engine:
    """A batch engine that a learner observes."""

    def __init__(self, learner: Learner, name: str = "e") -> None:
        self.observer = learner.observer(name, None)
        self.now, self.count, self.drawn = 0.0, 0, Random(1)

    def batches(self, count: int, factor: float = 1.0, op: Op = Op.EMBEDDING) -> None:
        """Of 1 to 8 items, each of which takes a second times `factor`."""
        for _ in range(count):
            self.count += 1
            size = self.drawn.randint(1, 8)
            slices = [Slice(work(0, total=size, op=op), 0, size)]
            self.observer.sent(0, self.count, slices, self.now)
            self.now += factor * size
            self.observer.completed(self.count, slices, [{"out": size}], self.now)


def of_one(learner: Learner, size: int = 1, op: Op = Op.EMBEDDING) -> float:
    """Seconds of a batch, as it was published."""
    return learner.lessons.engines["e"].costs[op].seconds(size, 0)


def test_it_knows_nothing_at_first() -> None:
    learner = Learner()
    Engine(learner)
    assert not learner.publish(0.0)
    assert learner.lessons == Lessons()


@catches(
    "learner-any-time",
    "epochs begin at any time",
    edited(Learner.publish, "if now < self._next:", "if False:"),
)
def test_an_epoch_begins_at_most_once_a_second() -> None:
    learner = Learner()
    engine = Engine(learner)
    engine.batches(10)
    assert learner.publish(100.0)
    engine.batches(200, factor=3.0)
    assert not learner.publish(100.0 + EPOCH_S - 0.01)
    assert learner.lessons.epoch == 1
    assert learner.publish(100.0 + EPOCH_S)
    assert learner.lessons.epoch == 2


@catches(
    "learner-any-move",
    "epochs begin when nothing has moved",
    edited(Learner.publish, "if _moved(before, times):", "if True:"),
)
def test_an_epoch_begins_only_when_a_figure_has_moved_by_a_tenth() -> None:
    learner = Learner()
    engine = Engine(learner)
    engine.batches(200)
    assert learner.publish(0.0)
    engine.batches(200, factor=1.05)
    assert not learner.publish(10.0)
    assert of_one(learner, 4) == pytest.approx(4.0, rel=0.01)
    engine.batches(400, factor=1.4)
    assert learner.publish(20.0)
    assert of_one(learner, 4) == pytest.approx(5.6, rel=0.05)


def test_habits_begin_epochs_too() -> None:
    learner = Learner()
    learner.habits.decided("app", "if", "yes")
    assert learner.publish(0.0)
    assert learner.lessons.habits["app", "if"].branches == {"yes": 1}
    learner.habits.decided("app", "if", "yes")
    assert not learner.publish(10.0)


def test_a_base_that_is_known_now_is_a_move() -> None:
    """Though what batches take has not changed, one may wait for it now."""
    times = EngineTimes({Op.EMBEDDING: Cost(0.0, 1.0)}, None, 9)
    learner, engine = Learner(), Fixed(times)
    learner._engines["e"] = engine
    assert learner.publish(0.0)
    engine.found = replace(times, varied=frozenset({Op.EMBEDDING}))
    assert learner.publish(1.0)


class Fixed(Observer):
    """Knows these times."""

    def __init__(self, found: EngineTimes) -> None:
        self.found = found

    def times(self) -> EngineTimes:
        return self.found


def test_what_moves_is_what_one_reads() -> None:
    """Not single coefficients, which may trade places."""
    assert set(figures(EngineTimes(step=STEP))) == {
        "a step of 1",
        "a step of 16",
        "prefilling of 64",
        "prefilling of 1,024",
    }
    for term in ("per_sequence_s", "per_context_s"):
        told = figures(EngineTimes(step=StepTime(**{term: 1.0})))
        assert told["a step of 16"] == 16 * told["a step of 1"] > 0
    for change in ({"base_s": 0.02}, {"per_context_s": 1e-5}, {"per_token_s": 3e-4}):
        learner, engine = Learner(), Fixed(EngineTimes(step=STEP))
        learner._engines["llm"] = engine
        assert learner.publish(0.0)
        engine.found = EngineTimes(step=replace(STEP, **change))
        assert learner.publish(1.0), change
        engine.found = EngineTimes(step=replace(engine.found.step or STEP, per_pair_s=5.1e-8))
        assert not learner.publish(2.0)


def test_lessons_that_were_published_never_change() -> None:
    learner = Learner()
    engine = Engine(learner)
    told: list[tuple[Lessons, str]] = []
    for k in range(12):
        engine.batches(40, factor=1.0 + k)
        learner.habits.decided("app", "if", f"b{k}")
        learner.habits.generated("app", "llm", 1.0 + k)
        learner.publish(10.0 * k)
        told.append((learner.lessons, json.dumps(learner.lessons.to_json())))
    assert len({lessons.epoch for lessons, _ in told}) > 8
    assert all(json.dumps(lessons.to_json()) == text for lessons, text in told)


# --- an earlier time -----------------------------------------------------------------------------

EARLIER = Lessons(
    40,
    {
        "e": EngineTimes(
            {Op.EMBEDDING: Cost(0.0, 2.0), Op.SEARCHING: Cost(5.0)},
            None,
            900,
            frozenset({Op.EMBEDDING, Op.SEARCHING}),
        )
    },
    {("app", "llm"): Habit(50, 1.5, 0.0, 3.0, 4.0)},
)


def recalled() -> tuple[Learner, Engine]:
    learner = Learner()
    learner.recall(EARLIER)
    return learner, Engine(learner)


def test_what_is_recalled_is_known_at_once_and_an_epoch_of_its_own() -> None:
    learner, _ = recalled()
    assert learner.lessons.engines == EARLIER.engines
    assert learner.lessons.habits == EARLIER.habits
    assert learner.lessons.epoch == 41
    learner.recall(Lessons(3, {"other": EngineTimes(step=STEP)}))
    assert learner.lessons.epoch == 42
    assert set(learner.lessons.engines) == {"e", "other"}


@catches(
    "learner-forgets",
    "a few batches replace what hundreds have taught",
    edited(Learner._known, "times.seen < min(before.seen, AGAIN)", "False"),
)
def test_a_few_batches_do_not_replace_what_hundreds_have_taught() -> None:
    learner, engine = recalled()
    engine.batches(AGAIN - 1)
    assert not learner.publish(0.0)
    assert learner.snapshot().engines == EARLIER.engines
    engine.batches(10)
    assert learner.publish(10.0)
    assert of_one(learner, 4) == pytest.approx(4.0, rel=0.01)


@catches(
    "learner-forgets-ops",
    "an op that has not been seen since is forgotten",
    edited(Learner._known, "{**before.costs, **times.costs}", "times.costs"),
)
def test_ops_that_have_not_been_seen_since_are_as_they_were() -> None:
    learner, engine = recalled()
    engine.batches(AGAIN + 10)
    learner.publish(0.0)
    assert of_one(learner, op=Op.SEARCHING) == 5.0
    assert learner.snapshot().engines["e"].varied == {Op.EMBEDDING, Op.SEARCHING}


def test_a_snapshot_is_all_that_is_known_by_now() -> None:
    """Also what no epoch has said yet."""
    learner = Learner()
    engine = Engine(learner)
    engine.batches(30)
    learner.publish(0.0)
    engine.batches(30, factor=1.05)
    learner.habits.ran("app", "f", 2.0)
    snapshot = learner.snapshot()
    assert snapshot.engines["e"].seen == 60
    assert learner.lessons.engines["e"].seen == 30
    assert snapshot.habits["app", "f"].seconds == 2.0
    again = Learner()
    again.recall(Lessons.from_json(json.loads(json.dumps(snapshot.to_json()))))
    assert again.lessons.engines == snapshot.engines


def test_of_an_llm_it_knows_a_step_and_of_others_costs() -> None:
    learner = Learner()
    assert learner.observer("llm", 1024).times() is None
    assert learner.observer("e", None).times() is None
    known: dict[str, Any] = {"llm": EngineTimes(step=STEP, seen=9)}
    assert Lessons(1, known).engines["llm"].over(EngineProfile()).timed


@catches(
    "stale-profiles",
    "a routing policy is told what was known of an instance when it began",
    edited(
        "teola.learning.learner:LearnedProfiles._renew",
        "times is self._times",
        "self._times is not None",
    ),
)
def test_profiles_of_instances_are_as_they_are_known_now() -> None:
    slow = EngineProfile(step=StepTime(base_s=0.5))
    learner = Learner()
    known = LearnedProfiles(learner, "llm", EngineProfile(pool=(EngineProfile(), slow)), 3)
    assert [profile.timed for profile in known] == [False, True, False]
    for base_s in (0.02, 0.03):
        times = EngineTimes(step=StepTime(base_s=base_s), seen=9)
        learner.recall(Lessons(1, {"llm": times}))
        assert [profile.step.base_s for profile in known] == [base_s, 0.5, base_s]


@pytest.mark.parametrize("size", [0, 7])
def test_batches_are_compared_by_one_item_and_by_sixteen(size: int) -> None:
    cost = Cost(0.5, 0.0, 0.25, size) if size else Cost(0.5, 0.25)
    each_s = 0.25 * (size or 1)
    assert figures(EngineTimes({Op.EMBEDDING: cost})) == {
        "embedding, 1": pytest.approx(0.5 + each_s),
        "embedding, 16": pytest.approx(0.5 + 16 * each_s),
    }


@pytest.mark.parametrize(
    ("factor", "moved"), [(1.0, False), (1.11, False), (1.12, True), (0.91, False), (0.89, True)]
)
def test_times_have_moved_when_a_figure_has_by_a_tenth(factor: float, moved: bool) -> None:
    before = EngineTimes({Op.EMBEDDING: Cost(0.0, 1.0), Op.RERANKING: Cost(0.0, 9.0)})
    for op in before.costs:
        other = replace(before.costs[op], per_item_s=factor * before.costs[op].per_item_s)
        now = replace(before, costs={**before.costs, op: other})
        assert _moved(before, now) is moved
        assert _moved(now, before) is moved
    one = {"a": Slowness(1.0, 3), "b": Slowness(2.0, 3)}
    for name in one:
        other_one = {**one, name: Slowness(factor * one[name].factor, 99)}
        were, are = (EngineTimes(instances=known) for known in (one, other_one))
        assert _moved_apart(were, are) is moved
        assert _moved_apart(are, were) is moved


def test_what_was_not_known_before_has_moved() -> None:
    none, one = EngineTimes(), EngineTimes({Op.EMBEDDING: Cost(0.0, 1.0)})
    assert _moved(None, none)
    assert not _moved(none, none)
    assert _moved(none, one)
    assert _moved(one, none)
    assert _moved(one, replace(one, varied=frozenset({Op.EMBEDDING})))
    few = EngineTimes(instances={"a": Slowness(1.0, 3)})
    more = EngineTimes(instances={"a": Slowness(1.0, 3), "b": Slowness(1.0, 3)})
    assert _moved_apart(none, few)
    assert _moved_apart(few, more)
    assert _moved_apart(more, few)
    assert not _moved_apart(more, more)


def test_single_instances_are_told_when_one_has_moved_and_begin_no_epoch() -> None:
    times = EngineTimes({Op.EMBEDDING: Cost(0.0, 1.0)}, None, 9)
    learner, engine = Learner(), Apart(times, {"a": Slowness(1.0, 3)})
    learner._engines["e"] = engine
    assert learner.publish(0.0)
    for now, factor, published in ((1.0, 1.05, 1.0), (2.0, 1.2, 1.2), (3.0, 1.25, 1.2)):
        engine.apart = {"a": Slowness(factor, 4)}
        before = learner.lessons
        assert not learner.publish(now)
        assert learner.lessons.epoch == 1
        assert learner.lessons.engines["e"].instances["a"].factor == published
        assert (learner.lessons is before) == (factor != published)


def test_times_that_moved_too_little_for_an_epoch_are_not_told_with_an_instances() -> None:
    """Plans are kept by epoch: what they are made of changes with it and at no other time."""
    times = EngineTimes({Op.EMBEDDING: Cost(0.0, 1.0)}, None, 9)
    learner, engine = Learner(), Apart(times, {"a": Slowness(1.0, 3)})
    learner._engines["e"] = engine
    assert learner.publish(0.0)
    for k, factor in enumerate((1.5, 1.5, 2.5), start=1):
        engine.found = EngineTimes({Op.EMBEDDING: Cost(0.0, 1.0 + 1e-4 * k)}, None, 9 + k)
        engine.apart = {"a": Slowness(factor, 4)}
        assert not learner.publish(float(k))
        told = learner.lessons.engines["e"]
        assert (learner.lessons.epoch, told.costs, told.seen) == (1, times.costs, 9)
        assert told.instances["a"].factor == factor


class Apart(Fixed):
    """Knows single instances, too."""

    def __init__(self, found: EngineTimes, apart: dict[str, Slowness]) -> None:
        super().__init__(found)
        self.apart = apart

    def instances(self) -> dict[str, Slowness]:
        return self.apart
