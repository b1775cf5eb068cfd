"""What the steps of an LLM take, learned from calls that disturb each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from teola.graph import Op
from teola.learning import Learner
from teola.learning.calls import KINDS, CallTimes, _Instance
from teola.learning.habits import Habits
from teola.policies.work import Slice, Work
from teola.profile import Profile, StepTime, paper
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from tests.learning.loaded import Loaded, alike, growing
from tests.planted import catches, edited
from tests.recording import work
from tests.schedule.plans import call, plan

TRUE = StepTime(base_s=0.02, per_token_s=1e-3, prefill_s=0.1)
PROFILES = {"two terms": paper("13b"), "all terms": growing()}


def learned(learner: Learner | None, engine: str = "llm") -> StepTime:
    assert learner is not None
    step = learner.snapshot().engines[engine].step
    assert step is not None
    return step


def close(found: StepTime, true: StepTime, within: float = 0.1) -> None:
    """Steps that decode alone and beside others, and prompts, short and long."""
    for sequences, context in [(1, 400), (4, 1600), (8, 4000)]:
        expected = true.seconds(sequences, context)
        assert found.seconds(sequences, context) == pytest.approx(expected, rel=within), sequences
    for tokens in (100, 300, 800):
        assert found.prefill(tokens) == pytest.approx(true.prefill(tokens), rel=within), tokens


@catches(
    "calls-context-still",
    "answers do not grow",
    edited(CallTimes.ended, "(sums.ages - began.ages) * share", "0.0"),
    edited(CallTimes._before, "return like.length if like else planned", "return 0"),
)
@catches(
    "calls-no-interference",
    "what is computed beside a call is not seen",
    edited(CallTimes.ended, "sums.tokens - began.tokens", "0.0"),
)
@catches(
    "calls-others-unseen",
    "others that decode beside it are not seen",
    edited(_Instance.advance, "sequences += self.decoding * passed", "sequences += passed"),
)
def test_steps_and_prompts_are_known_after_a_hundred_queries() -> None:
    made = Loaded("advanced_rag", growing())
    made.run(100, rate=0.6)
    close(learned(made.learner), growing().engines["llm"].step, 0.06)


def loads() -> Iterator[Any]:
    """Every application, profile, rate and seed. The six that are not nightly have every pair of
    an application, a profile and a rate."""
    apps, rates = ("naive_rag", "advanced_rag", "chat_rag"), (0.3, 1.0)
    for seed, (a, app), (p, name), (r, rate) in product(
        (0, 1), enumerate(apps), enumerate(PROFILES), enumerate(rates)
    ):
        pair = seed == 0 and (a + p + r) % 2 == 0
        yield pytest.param(app, name, rate, seed, marks=() if pair else pytest.mark.nightly)


@pytest.mark.slow
@pytest.mark.parametrize(("app", "name", "rate", "seed"), [*loads()])
def test_they_are_known_under_any_load(app: str, name: str, rate: float, seed: int) -> None:
    profile = PROFILES[name]
    made = Loaded(app, profile)
    made.run(150, rate, seed)
    close(learned(made.learner), profile.engines["llm"].step, 0.13)


# --- one call after another, by hand -------------------------------------------------------------


def head(run: str, tokens: int, **more: object) -> Work:
    given = {"op": Op.PREFILLING, "lane": None, "members": (9,), "planned_tokens": tokens}
    return work(0, run=run, total=tokens, **{**given, "planned_output": 10, **more})


class Calls:
    """An instance of which every step takes as long as is true."""

    def __init__(self) -> None:
        self.habits = Habits()
        self.observer = CallTimes(self.habits, budget=1024)
        self.now, self.count = 0.0, 0

    def alone(self, tokens: int, answer: int, *, cached: int | None = None, **more: object) -> None:
        """A call that has the instance to itself."""
        self.count += 1
        one = head(f"q{self.count}", tokens, **more)
        self.observer.sent(0, self.count, [Slice(one, 0, tokens)], self.now)
        self.now += TRUE.prefill(tokens - (cached or 0))
        self.observer.first(0, one, self.now)
        self.now += (answer - 1) * TRUE.seconds(1)
        self.observer.ended(one, False, cached, answer, self.now)

    @property
    def step(self) -> StepTime:
        found = self.observer.times()
        assert found is not None
        assert found.step is not None
        return found.step


@catches(
    "calls-cache-ignored",
    "what was kept of a prompt counts as computed",
    edited(CallTimes._computed, "kept = min(cached, total - 1)", "kept = 0"),
)
def test_what_was_kept_of_a_prompt_took_no_time() -> None:
    calls = Calls()
    for k in range(60):
        calls.alone(400 + 10 * (k % 9), 5, cached=(k % 4) * 96)
    for tokens in (100, 400):
        assert calls.step.prefill(tokens) == pytest.approx(TRUE.prefill(tokens), rel=0.05)


@pytest.mark.parametrize("cached", [0, 1, 98, 99, 100, 101])
def test_the_last_token_of_a_prompt_is_always_computed(cached: int) -> None:
    computed = Calls().observer._computed(head("q", 100), cached)
    positions = range(min(cached, 99) + 1, 101)
    assert computed == (len(positions), sum(positions))


@catches(
    "calls-untold-computed",
    "a prefix of which nothing is told is held to be computed",
    edited(CallTimes._prefilled, "batch.took = 0.0", "pass"),
)
def test_of_what_is_not_told_nothing_is_learned() -> None:
    """A live prefix was kept, and took no time for that reason; only whole calls tell so."""
    calls = Calls()
    for k in range(40):
        calls.alone(300 + 10 * (k % 9), 5, cached=0)
        prefix = head(f"p{k}", 300, members=())
        calls.observer.sent(0, 1000 + k, [Slice(prefix, 0, 300)], calls.now)
        calls.now += TRUE.prefill(1)
        calls.observer.ended(prefix, False, None, None, calls.now)
    assert calls.step.prefill(300) == pytest.approx(TRUE.prefill(300), rel=0.05)


@catches(
    "calls-steps-of-batch",
    "prompts that were sent together are held to take one step",
    edited(CallTimes._prefilled, "max(batch.steps, ", "max(1, "),
)
def test_prompts_that_were_sent_together_took_as_many_steps_as_gave_first_tokens() -> None:
    calls = Calls()
    for k in range(40):
        ones = [head(f"{k}/{n}", 50 + 10 * (k % 7)) for n in range(2)]
        calls.observer.sent(0, k, [Slice(one, 0, one.total) for one in ones], calls.now)
        for one in ones:  # equal prefixes: the second one waits for the blocks of the first
            calls.now += TRUE.prefill(one.total)
            calls.observer.first(0, one, calls.now)
        for one in ones:
            calls.observer.ended(one, False, 0, 1, calls.now)
    for tokens in (50, 110):
        assert calls.step.prefill(tokens) == pytest.approx(TRUE.prefill(tokens), rel=0.05)


@catches(
    "calls-crowded-alone",
    "a prompt is held to be alone when another one has come",
    edited(CallTimes.sent, "instance.last.alone = False", "pass"),
)
@catches(
    "calls-late-alone",
    "a prompt is held to be alone that comes to another one",
    edited(CallTimes.sent, "alone=not instance.calls", "alone=True"),
)
def test_a_prompt_that_waits_for_another_teaches_nothing_of_prompts() -> None:
    calls = Calls()
    for k in range(20):
        first, second = head(f"a{k}", 100 + k), head(f"b{k}", 100 + k)
        calls.observer.sent(0, 2 * k, [Slice(first, 0, 100)], calls.now)
        calls.observer.sent(0, 2 * k + 1, [Slice(second, 0, 100)], calls.now)
        calls.now += 1.0
        calls.observer.first(0, second, calls.now)
        calls.observer.ended(second, False, 0, 1, calls.now)
        calls.now += 1.0
        calls.observer.first(0, first, calls.now)
        calls.observer.ended(first, False, 0, 1, calls.now)
    assert calls.observer.times() is None


@catches(
    "calls-failed-length",
    "what failed tells how long answers are",
    edited(CallTimes.ended, "(work.withdrawn or not failed)", "True"),
)
@catches(
    "calls-failed-steps",
    "what failed tells how long steps take",
    edited(CallTimes.ended, "if failed or work.withdrawn:", "if False:"),
)
def test_calls_that_fail_teach_nothing() -> None:
    calls = Calls()
    for k in range(20):
        one = head(f"q{k}", 100)
        calls.observer.sent(0, k, [Slice(one, 0, 100)], calls.now)
        calls.observer.first(0, one, calls.now + 1.0)
        calls.now += 60.0
        calls.observer.ended(one, True, 0, 3, calls.now)
    assert calls.observer._squares.count <= 20, "their prompts were computed"
    assert calls.habits.now().get(("", "c")) is None


@catches(
    "calls-withdrawn-short",
    "an answer that was withdrawn is held to be short",
    edited(CallTimes.ended, "cut=work.withdrawn", "cut=False"),
)
def test_answers_that_are_withdrawn_are_not_short_ones() -> None:
    """Half of them are cancelled after two tokens; the others have 20."""
    calls = Calls()
    for k in range(30):
        calls.alone(100, 20)
        one = head(f"w{k}", 100)
        calls.observer.sent(0, 1000 + k, [Slice(one, 0, 100)], calls.now)
        calls.observer.first(0, one, calls.now + 0.1)
        one.withdrawn = True
        calls.now += 0.5
        calls.observer.ended(one, True, 0, 2, calls.now)
    habit = calls.habits.now()["", "c"]
    assert habit.output == pytest.approx(2.0)
    assert calls.step.seconds(1) == pytest.approx(TRUE.seconds(1), rel=0.05)


def test_prompts_are_compared_with_their_plan() -> None:
    calls = Calls()
    for _ in range(40):
        calls.alone(150, 30, planned_tokens=100, cached=32)
        calls.alone(60, 30, planned_tokens=100, continues=500)
    habit = calls.habits.now()["", "c"]
    assert habit.prompt == pytest.approx(1.05, rel=0.2)
    assert habit.cached == pytest.approx(32, rel=0.2), "what is continued is in no cache"
    assert habit.output == 3.0


def test_kinds_of_prompts_do_not_pile_up() -> None:
    calls = Calls()
    for k in range(KINDS + 50):
        calls.alone(100, 1, planned_tokens=1 + k)
    assert len(calls.observer._prompts) <= KINDS


def test_what_an_instance_tells_of_calls_that_it_was_not_sent_is_ignored() -> None:
    calls = Calls()
    one = head("q", 100)
    calls.observer.first(0, one, 1.0)
    calls.observer.ended(one, False, 0, 5, 2.0)
    calls.observer.sent(0, 1, [Slice(one, 0, 100)], 3.0)
    calls.observer.first(1, one, 4.0)
    assert calls.observer._calls["q", 0].first < 0
    calls.observer.lost(0, 4.5)
    calls.observer.ended(one, False, 0, 5, 5.0)
    assert calls.observer.times() is None


# --- through the core ----------------------------------------------------------------------------


def one_engine(**more: object) -> Profile:
    found = alike(paper("13b"), "llm", step=TRUE, instances=1, **more)
    return Profile("one", {"llm": found.engines["llm"]})


def test_the_last_call_of_a_query_is_heard_of_too() -> None:
    """Its answer ends the query before the call itself is over."""
    learner = Learner()
    sim = Sim(one_engine(), outcomes=Planned(answer_tokens=40), learner=learner)
    made = plan(*call("m"))
    for k in range(8):
        sim.submit(made, {"question": Tokens(10 + k)}, at=float(10 * k), app="a")
    sim.run()
    assert learner.snapshot().habits["a", "m"].output == 40 / 16
    assert learned(learner).seconds(1) == pytest.approx(TRUE.seconds(1), rel=0.02)


def test_cancelled_queries_do_not_shorten_answers() -> None:
    learner = Learner()
    sim = Sim(one_engine(), outcomes=Planned(answer_tokens=80), learner=learner)
    made = plan(*call("m"))
    for k in range(30):
        late = None if k % 2 == 0 else 0.6
        given = {"question": Tokens(10)}
        sim.submit(made, given, at=float(10 * k), app="a", cancel_after_s=late)
    found = [result.state for result in sim.run()]
    assert found.count(State.CANCELLED) == 15
    assert learner.snapshot().habits["a", "m"].output == pytest.approx(5.0)


def test_instances_that_are_slower_are_one_engine() -> None:
    """What is learned is of an engine: of two unequal instances, something between them."""
    fast = one_engine().engines["llm"]
    slow = replace(fast, step=replace(TRUE, base_s=0.04))
    both = replace(fast, instances=2, pool=(fast, slow))
    learner = Learner()
    sim = Sim(Profile("two", {"llm": both}), outcomes=Planned(answer_tokens=40), learner=learner)
    for k in range(60):
        sim.submit(plan(*call("m")), {"question": Tokens(10 + k % 9)}, at=0.2 * k, app="a")
    sim.run()
    assert 0.019 < learned(learner).seconds(1) < 0.041


def test_an_instance_adds_up_the_same_in_one_stretch_and_in_many() -> None:
    """Where three calls decode, with a context of 50 tokens, from the second second on."""
    whole, parts = _Instance(), _Instance()
    for instance, times in ((whole, [9.0]), (parts, [2.0, 2.5, 4.0, 9.0])):
        instance.advance(1.0)
        instance.decoding, instance.context, instance.ages = 3, 50.0, 6.0
        for now in times:
            instance.advance(now)
    assert parts.ages == whole.ages == 6.0 + 3 * 8.0
    assert (parts.sums.sequences, parts.sums.context) == (24.0, 400.0)
    assert parts.sums.ages == whole.sums.ages == 6.0 * 8.0 + 3 * 8.0**2 / 2
