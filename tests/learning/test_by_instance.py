"""Times of single instances: known after a few calls, and kept by what an instance is."""

from __future__ import annotations

import pytest

from teola.graph import Op
from teola.learning import LearnedProfiles, Learner, Lessons
from teola.learning.by_instance import Pace, WholeCall
from teola.learning.learner import LearnedProfiles as Profiles
from teola.learning.lessons import EngineTimes, Slowness
from teola.policies.work import Slice
from teola.profile import EngineProfile, StepTime
from tests.planted import catches, edited
from tests.recording import work

NAMES = ("fast", "slow")


class World:
    """Calls one after another at two instances; a token of instance i takes `token_s[i]`."""

    def __init__(
        self, *token_s: float, learner: Learner | None = None, turned: bool = False
    ) -> None:
        self.token_s, self.now, self._count = list(token_s), 0.0, 0
        self.learner = learner or Learner()
        names = NAMES[::-1] if turned else NAMES
        self.observer = self.learner.observer("llm", 512, names)
        declared = EngineProfile(max_batch=512)
        self.profiles = LearnedProfiles(self.learner, "llm", declared, len(names), names)

    def call(self, i: int, *, passed_s: float = 0.1, tokens: int = 9) -> None:
        """It has a prompt of 100 tokens, which takes as long as one of its answer."""
        self.now += passed_s
        self._count += 1
        sent = work(0, run=f"q{self._count}", op=Op.PREFILLING, lane=None, total=100, members=(1,))
        self.observer.sent(i, self._count, [Slice(sent, 0, 100)], self.now)
        self.now += self.token_s[i]
        self.observer.first(i, sent, self.now)
        self.now += (tokens - 1) * self.token_s[i]
        self.observer.ended(sent, False, None, tokens, self.now)
        self.learner.publish(self.now)
        self.now += 1.0  # so that the next one may begin an epoch

    def ratio(self) -> float:
        """How many times as long as the first the second takes."""
        first, second = (profile.typical_s for profile in self.profiles)
        return second / first


@catches(
    "paces-unseen",
    "an instance has the times of its engine until much is known of it",
    edited(Pace.slowness, "Slowness(median(ratios), self.seen) if ratios else None", "None"),
)
def test_each_is_known_after_five_calls() -> None:
    world = World(0.01, 0.03)
    for _ in range(5):
        world.call(0)
        world.call(1)
    assert world.ratio() == pytest.approx(3.0, rel=0.2)
    for i, seconds in enumerate(world.token_s):
        assert world.profiles[i].step.seconds(1) == pytest.approx(seconds, rel=0.2)


@catches(
    "paces-against-none",
    "an instance of which nothing is known is faster than all others",
    edited(Profiles._renew, "factors = [usual if", "factors = [1.0 if"),
)
def test_one_of_which_nothing_is_known_is_like_the_others() -> None:
    world = World(0.03, 0.01)
    for i in (1, 1, 0, 0, 0):
        world.call(i)
    assert world.learner.lessons.engines["llm"].instances.keys() == {"fast"}
    assert world.ratio() == 1.0
    world.call(1)
    assert world.ratio() == pytest.approx(1 / 3, rel=0.2)


@catches(
    "declared-unheard",
    "what was declared of an instance counts for nothing, as soon as another is known",
    edited(Profiles._renew, "if instance.timed", "if False"),
)
def test_one_of_which_nothing_is_known_keeps_the_times_that_it_declares() -> None:
    """The first of five is declared; the last one is not, and is as slow as most."""
    own = EngineProfile(max_batch=512, step=StepTime(base_s=9.0))
    learner, names = Learner(), ("declared", "fast", "as fast", "slow", "new")
    learner.recall(Lessons(engines={"llm": EngineTimes(
        step=StepTime(base_s=1.0),
        seen=9,
        instances={"fast": Slowness(1.0, 9), "as fast": Slowness(1.0, 9), "slow": Slowness(3.0, 9)},
    )}))  # fmt: skip
    profile = EngineProfile(max_batch=512, pool=(own,))
    profiles = LearnedProfiles(learner, "llm", profile, 5, names)
    assert [one.step.base_s for one in profiles] == [9.0, 1.0, 1.0, 3.0, 1.0]


def test_one_that_declares_its_times_has_those_that_are_known_of_it() -> None:
    """The first declares 9 s a step, and takes three times as long as most."""
    own = EngineProfile(max_batch=512, step=StepTime(base_s=9.0))
    learner, names = Learner(), ("declared", "fast", "as fast")
    known = {"declared": 3.0, "fast": 1.0, "as fast": 1.0}
    slow = {name: Slowness(factor, 9) for name, factor in known.items()}
    times = EngineTimes(step=StepTime(base_s=1.0), seen=9, instances=slow)
    learner.recall(Lessons(engines={"llm": times}))
    profile = EngineProfile(max_batch=512, pool=(own,))
    profiles = LearnedProfiles(learner, "llm", profile, 3, names)
    assert [one.step.base_s for one in profiles] == [3.0, 1.0, 1.0]


@pytest.mark.parametrize("before", [2, 60])
def test_one_that_turns_slow_is_known_after_five_more(before: int) -> None:
    world = World(0.01, 0.01)
    for _ in range(before):
        world.call(0)
        world.call(1)
    assert world.profiles[0] is world.profiles[1], "they are alike"
    world.token_s[1] = 0.2
    for _ in range(5):
        world.call(1)
        world.call(0)
    assert world.ratio() == pytest.approx(20.0, rel=0.2)


@catches(
    "paces-kept",
    "an instance that recovered is slow until three calls were quick",
    edited(Pace.ended, "last.clear()", "pass"),
)
def test_one_that_recovers_is_known_by_the_first_call_after_a_pause() -> None:
    world = World(0.01, 0.2)
    for _ in range(40):
        world.call(0)
        world.call(1)
    world.token_s[1] = 0.01
    for _ in range(40):
        world.call(0, passed_s=0.5)
    world.call(1)
    assert world.ratio() == 1.0
    assert world.profiles[0] is world.profiles[1]


@catches(
    "alike-apart",
    "instances that are nearly alike have times of their own",
    edited(Profiles._renew, "if unlike(factors):", "if True:"),
)
def test_those_that_are_alike_have_the_very_same_times() -> None:
    world = World(0.010, 0.0108)
    for _ in range(30):
        world.call(0)
        world.call(1)
    assert world.profiles[0] is world.profiles[1]


def test_an_instance_that_moves_begins_no_epoch() -> None:
    world = World(0.01, 0.03)
    for _ in range(40):
        world.call(0)
        world.call(1)
    epoch, version = world.learner.lessons.epoch, world.profiles.version
    world.token_s[1] = 0.06
    for _ in range(3):
        world.call(1)
    assert world.ratio() == pytest.approx(6.0, rel=0.2)
    assert world.learner.lessons.epoch <= epoch + 1, "the engine's mean may have moved"
    assert world.profiles.version > version


def test_they_are_kept_by_name_and_not_by_number() -> None:
    world = World(0.01, 0.03)
    for _ in range(20):
        world.call(0)
        world.call(1)
    kept = Lessons.from_json(world.learner.snapshot().to_json())
    assert set(kept.engines["llm"].instances) == set(NAMES)
    later = Learner()
    later.recall(kept)
    turned = World(0.03, 0.01, learner=later, turned=True)
    assert turned.ratio() == pytest.approx(1 / 3, rel=0.2)
    for _ in range(3):  # what is recalled holds where it is confirmed
        turned.call(0)
        turned.call(1)
    assert turned.ratio() == pytest.approx(1 / 3, rel=0.2)


@pytest.mark.parametrize(("pause_s", "tells"), [(20.0, 3.0), (20.5, 9.0)])
def test_calls_that_follow_one_another_count_together_however_long_all_take(
    pause_s: float, tells: float
) -> None:
    """A median of three; what ends later than 20 s after the one before it counts alone."""
    pace, now = Pace(), 0.0
    for seconds, passed_s in ((1.0, 20.0), (2.0, 20.0), (3.0, 20.0), (4.0, 20.0), (9.0, pause_s)):
        now += passed_s
        pace.ended(WholeCall(now, None, (1.0,), 0.0, seconds))
    found = pace.slowness({None: (1.0, 0.0)})
    assert found == Slowness(tells, 5)


def test_batches_of_unequal_instances_are_told_apart() -> None:
    learner, now = Learner(), 0.0
    observer = learner.observer("embedding", None, NAMES)
    profiles = LearnedProfiles(learner, "embedding", EngineProfile(), 2, NAMES)
    for k in range(10):
        for i, seconds in enumerate((0.1, 0.3)):
            batch, sent = 2 * k + i, work(k, op=Op.EMBEDDING, total=4)
            observer.sent(i, batch, [Slice(sent, 0, 4)], now)
            now += seconds
            observer.completed(batch, [Slice(sent, 0, 4)], [{"vectors": 4}], now)
            now += 1.0
            learner.publish(now)
    costs = [profile.costs[Op.EMBEDDING].seconds(4, 0) for profile in profiles]
    assert costs == pytest.approx([0.1, 0.3], rel=0.2)


def test_a_call_that_is_thought_to_take_no_time_says_nothing_of_an_instance() -> None:
    pace = Pace()
    for now in range(9):
        pace.ended(WholeCall(float(now), None, (1.0,), 0.0, 1.0))
    assert pace.slowness({None: (0.0, 0.0)}) is None
    assert pace.slowness({}) is None
    assert pace.slowness({None: (2.0, 0.0)}) == Slowness(0.5, 9)
