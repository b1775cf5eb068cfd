"""Times of single instances: known after a few calls, and kept by what an instance is."""

from __future__ import annotations

import pytest

from teola.graph import Op
from teola.learning import LearnedProfiles, Learner, Lessons
from teola.learning.by_instance import Pace, WholeCall
from teola.learning.calls import CallTimes
from teola.learning.habits import Habits
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


class KeptPrompts:
    """Two instances of which every step takes as long: one keeps every prompt but its last 10
    tokens, the other one keeps none. index: the queue knows that before. told: the server tells it
    when a call is over."""

    def __init__(self, *, index: bool, told: bool) -> None:
        self.index, self.told, self.now, self.count = index, told, 0.0, 0
        self.learner = Learner()
        self.observer = self.learner.observer("llm", 512, NAMES)
        self.profiles = LearnedProfiles(self.learner, "llm", EngineProfile(), 2, NAMES)

    def calls(self, i: int, together: int, tokens: int = 300) -> None:
        """So many prompts that are sent and computed together, and then their answers of 5 tokens.
        What it takes: 0.02 s a step, of 512 tokens of prompts at most, and 1 ms a token."""
        kept = (tokens - 10, 0)[i]
        keys = {"keys": (1,), "found": kept, "affinity": i} if self.index else {}
        given = {"op": Op.PREFILLING, "lane": None, "members": (1,), "planned_tokens": tokens}
        works = []
        for _ in range(together):
            self.count += 1
            works.append(work(0, run=f"q{self.count}", total=tokens, **given, **keys))
        slices = [Slice(one, 0, tokens) for one in works]
        self.observer.sent(i, self.count, slices, self.now)
        computed = together * (tokens - kept)
        self.now += 0.02 * -(-computed // 512) + 0.001 * computed
        for one in works:
            self.observer.first(i, one, self.now)
        self.now += 4 * 0.02
        for one in works:
            self.observer.ended(one, False, kept if self.told else None, 5, self.now)
        self.now += 1.0
        self.learner.publish(self.now)


@catches(
    "paces-index-unheard",
    "what the queue found of a prompt on an instance counts for nothing there",
    edited(CallTimes._computed, "cached = work.found", "cached = 0"),
)
@pytest.mark.parametrize("together", [1, 3])
def test_an_instance_that_is_known_to_have_kept_its_prompts_is_no_faster(together: int) -> None:
    _alike(KeptPrompts(index=True, told=False), together)


@catches(
    "paces-own-prompt",
    "how slow an instance is goes by what was expected of a call's prompt",
    edited(
        CallTimes.ended,
        "self._computed(work, cached) if self._own",
        "self._computed(work, None) if self._own",
    ),
)
def test_an_instance_that_tells_to_have_kept_its_prompts_is_no_faster() -> None:
    _alike(KeptPrompts(index=False, told=True), 1)


@pytest.mark.parametrize("together", [1, 3])
def test_what_is_known_before_and_what_is_told_after_count_once(together: int) -> None:
    _alike(KeptPrompts(index=True, told=True), together)


def _alike(world: KeptPrompts, together: int) -> None:
    for k in range(60):
        world.calls(k // 10 % 2, together, 300 + 10 * (k % 7))
        if k > 30:
            assert world.profiles[0] is world.profiles[1], k


@catches(
    "paces-index-everywhere",
    "nothing found by a policy that does not look counts as nothing kept",
    edited(
        CallTimes._computed,
        "if cached is None and work.keys and work.affinity >= 0",
        "if cached is None",
    ),
)
def test_where_no_policy_looks_for_prompts_they_are_expected_to_be_like_others() -> None:
    observer = CallTimes(Habits(), 512, None, NAMES)
    given = {"op": Op.PREFILLING, "lane": None, "members": (1,), "planned_tokens": 100}
    for k in range(40):
        sent = work(0, run=f"q{k}", total=100, **given)
        observer.sent(0, k, [Slice(sent, 0, 100)], float(k))
        observer.first(0, sent, k + 0.1)
        observer.ended(sent, False, 60, 5, k + 0.5)
    asked = work(0, run="asked", total=100, **given)
    assert observer._computed(asked, None)[0] == pytest.approx(40, abs=1)
    placed = work(0, run="placed", total=100, keys=(1,), found=30, affinity=1, **given)
    assert observer._computed(placed, None)[0] == 70
    free = work(0, run="free", total=100, keys=(1,), **given)
    assert observer._computed(free, None)[0] == pytest.approx(40, abs=1)


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
