"""Habits: means, lengths and odds of components. Long because each figure has its edges."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from teola.graph import Graph, Guard, Op
from teola.habit import MOST_TURNS, UNSEEN, Habit
from teola.learning import habits as module
from teola.learning.habits import REMEMBERED, Habits, share
from teola.passes import estimate
from teola.profile import EngineProfile, Profile, StepTime
from tests.planted import catches, edited
from tests.schedule.plans import call, condition, plan, tool

KEY = ("app", "answer")


def of(habits: Habits) -> Habit:
    return habits.now()[KEY]


@catches(
    "habits-last-only",
    "the newest value is the mean",
    edited(module._Means.newest.fget, "max(NEWEST, 1 / self.calls)", "1.0"),
)
def test_a_mean_of_few_counts_all_the_same_and_of_many_mostly_new_ones() -> None:
    habits = Habits()
    for factor in (1.0, 2.0, 3.0):
        habits.prompted(*KEY, factor, None)
    assert of(habits).prompt == pytest.approx(2.0)
    assert of(habits).calls == 3
    for _ in range(200):
        habits.prompted(*KEY, 7.0, None)
    assert of(habits).prompt == pytest.approx(7.0, rel=0.01)


def test_what_caches_had_counts_only_where_it_is_told() -> None:
    habits = Habits()
    for cached in (0, 64, 64, 64):
        habits.prompted(*KEY, 1.0, cached)
        habits.prompted(*KEY, 1.0, None)
    assert 30 < of(habits).cached < 64


@catches(
    "beginning-twice",
    "the beginning of a prompt that is computed ahead counts as a call",
    edited(Habits.billed, "+ bool(prompt_tokens)", "+ 1"),
)
def test_what_is_billed_is_summed_so_that_long_prompts_count_by_their_length() -> None:
    """Ten times as many tokens as planned of a short prompt, half as many of a long one."""
    habits = Habits()
    for _ in range(200):
        habits.billed(*KEY, 10, 100, 0)
        habits.billed(*KEY, 400, 0, 0)
        habits.billed(*KEY, 590, 500, 250)
    habit = of(habits)
    assert habit.billed / habit.planned == pytest.approx(600 / 1_000, rel=0.01)
    assert habit.billed / habit.billed_calls == pytest.approx(300, rel=0.02)
    assert habit.billed_cached / habit.billed == pytest.approx(250 / 600, rel=0.02)
    again = Habits()
    again.recall({KEY: habit})
    again.billed(*KEY, 590, 500, 250)
    assert of(again).billed / of(again).planned == pytest.approx(0.6, rel=0.02)


def test_who_tells_no_tokens_is_not_known_by_its_bill() -> None:
    habits = Habits()
    habits.billed(*KEY, 10, 0, 0)
    assert of(habits) == UNSEEN


@catches(
    "habits-late-is-mean",
    "the longest tenth is as long as all",
    edited(module._Means.habit, "LATE * len", "0.5 * len"),
)
def test_lengths_of_answers_are_a_mean_and_a_late_quantile_of_the_last_ones() -> None:
    habits = Habits()
    for _ in range(100):
        habits.generated(*KEY, 50.0)
    drawn = random.Random(0)
    factors = [drawn.lognormvariate(0.0, 0.5) for _ in range(REMEMBERED)]
    for factor in factors:
        habits.generated(*KEY, factor)
    assert of(habits).output == pytest.approx(sum(factors) / REMEMBERED)
    assert of(habits).output_p90 == sorted(factors)[int(0.9 * REMEMBERED)]


@catches(
    "habits-cut-is-short",
    "an answer that was cut is held to be that short",
    edited(Habits.generated, "if cut:", "if False:"),
)
def test_what_was_withdrawn_would_have_become_as_long_as_what_was_not_over_by_then() -> None:
    habits = Habits()
    for factor in (1.0, 2.0, 4.0):
        habits.generated(*KEY, factor)
    habits.generated(*KEY, 1.5, cut=True)
    assert of(habits).output == pytest.approx((1 + 2 + 4 + 3) / 4)
    habits.generated(*KEY, 9.0, cut=True)
    assert of(habits).output_p90 == 9.0, "at least as long as it was"


def test_seconds_of_functions_and_what_conditions_decided() -> None:
    habits = Habits()
    habits.ran("app", "f", 1.0)
    habits.ran("app", "f", 3.0)
    for branch in ("yes", "no", "yes", "yes"):
        habits.decided("app", "if", branch)
    known = habits.now()
    assert known["app", "f"].seconds == pytest.approx(2.0)
    assert known["app", "if"].branches == {"yes": 3, "no": 1}
    assert known["app", "if"].calls == 4
    assert share(known["app", "if"].branches, "yes") == 0.75
    assert share({}, "yes") == 0.0


MOVES: dict[str, Callable[[Habits, float], None]] = {
    "prompt": lambda habits, factor: habits.prompted(*KEY, factor, None),
    "cached": lambda habits, factor: habits.prompted(*KEY, 1.0, round(1000 * factor)),
    "output": lambda habits, factor: habits.generated(*KEY, factor),
    "seconds": lambda habits, factor: habits.ran(*KEY, factor),
}


@pytest.mark.parametrize("what", MOVES)
def test_they_are_published_when_one_has_moved_by_a_tenth(what: str) -> None:
    habits = Habits()
    for _ in range(REMEMBERED):
        MOVES[what](habits, 1.0)
    assert habits.publish() is not None
    assert habits.publish() is None
    for _ in range(REMEMBERED):
        MOVES[what](habits, 1.05)
    assert habits.publish() is None, "by less than a tenth"
    for _ in range(4 * REMEMBERED):
        MOVES[what](habits, 1.3)
    published = habits.publish()
    assert published == habits.now()


@catches(
    "habits-creep",
    "many small moves are never a large one",
    edited(
        Habits.publish,
        "if before is None or _moved",
        "self._published[key] = habit\n        if before is None or _moved",
    ),
)
def test_small_moves_add_up() -> None:
    habits, factor, epochs = Habits(), 1.0, 0
    for _ in range(200):
        factor *= 1.01
        MOVES["output"](habits, factor)
        epochs += habits.publish() is not None
    assert 8 < epochs < 60
    assert habits.publish() is None
    assert habits._published[KEY].output == pytest.approx(of(habits).output, rel=0.12)


def test_odds_are_published_when_a_branch_is_taken_a_tenth_more_often() -> None:
    habits = Habits()
    for _ in range(50):
        habits.decided(*KEY, "yes")
        habits.decided(*KEY, "no")
    assert habits.publish() is not None
    for _ in range(10):
        habits.decided(*KEY, "yes")
    assert habits.publish() is None
    for _ in range(60):
        habits.decided(*KEY, "yes")
    assert habits.publish() is not None


@catches(
    "habits-shared",
    "what was published is changed afterwards",
    edited(module._Means.habit, "dict(self.branches)", "self.branches"),
)
def test_what_was_published_never_changes() -> None:
    habits = Habits()
    habits.decided(*KEY, "yes")
    habits.generated(*KEY, 2.0)
    published = habits.publish()
    assert published is not None
    before = {key: habit.to_json() for key, habit in published.items()}
    for _ in range(100):
        habits.decided(*KEY, "no")
        habits.generated(*KEY, 9.0)
        habits.ran("app", "new", 1.0)
        habits.publish()
    assert {key: habit.to_json() for key, habit in published.items()} == before


def test_an_earlier_time_is_gone_on_from() -> None:
    known = Habit(100, 1.5, 64.0, 3.0, 6.0, 0.25, {"yes": 30, "no": 10})
    habits = Habits()
    habits.recall({KEY: known})
    assert of(habits) == replace(known, output=of(habits).output)
    assert of(habits).output == pytest.approx(known.output)
    assert habits.publish() is None
    for _ in range(2):
        habits.prompted(*KEY, 1.0, None)
        habits.decided(*KEY, "yes")
    assert of(habits).prompt == pytest.approx(1.5, rel=0.05), "two calls do not undo a hundred"
    assert of(habits).branches == {"yes": 32, "no": 10}


# --- what they are for ---------------------------------------------------------------------------

LLM = EngineProfile(step=StepTime(base_s=0.01, per_token_s=0.001))


def profile(**habits: Habit) -> Profile:
    known = {("test", name): habit for name, habit in habits.items()}
    return Profile("known", {"llm": LLM}, habits=known)


def seconds(graph: Graph, id: str, **habits: Habit) -> float:
    return estimate.seconds(graph, graph[id], profile(**habits))


def test_estimates_of_calls_go_by_them() -> None:
    graph = plan(*call("m", ahead=True)).graph
    prompt, text = seconds(graph, "m.ahead"), seconds(graph, "m")
    assert prompt == pytest.approx(0.01 + 0.016)
    assert seconds(graph, "m.ahead", m=Habit(prompt=3.0)) == pytest.approx(0.01 + 0.048)
    assert seconds(graph, "m.ahead", m=Habit(calls=1, prompt=3.0, cached=32)) == pytest.approx(
        0.01 + 0.016
    )
    assert seconds(graph, "m.ahead", m=Habit(calls=1, cached=500)) == pytest.approx(0.01 + 0.001)
    continued = seconds(graph, "m.prefill", m=Habit(calls=1, cached=500))
    assert continued == seconds(graph, "m.prefill"), "what it continues is not in its prompt"
    assert seconds(graph, "m", m=Habit(output=4.0)) == pytest.approx(4 * text)


def test_estimates_of_functions_are_their_own_times() -> None:
    graph = plan(tool("f")).graph
    assert seconds(graph, "f") == 0.0
    assert seconds(graph, "f", f=Habit(seconds=0.7)) == 0.7
    assert graph["f"].op is Op.TOOL_CALL


@catches(
    "odds-unread",
    "odds that were seen are not used",
    edited(estimate._chance, "seen = _seen(graph, condition, profile)", "seen = {}"),
)
def test_odds_of_branches_go_by_what_was_decided() -> None:
    """The developer's word is one observation: beside 8 others it says little."""
    guarded = [tool("a", guards=(Guard("c", "then", speculative=True),)), tool("b")]
    graph = plan(condition("c"), tool("t", guards=(Guard("c", "then"),)), *guarded).graph
    assert estimate.expected(graph, graph["t"], profile())
    often = profile(c=Habit(branches={"otherwise": 8}))
    assert not estimate.expected(graph, graph["t"], often)
    assert estimate.expected(graph, graph["t"], profile(c=Habit(branches={"then": 8})))
    once = profile(c=Habit(branches={"otherwise": 1, "then": 1}))
    assert estimate.expected(graph, graph["t"], once), "in doubt the developer's word"
    assert estimate._chance(graph, frozenset({("c", "then")}), profile()) == pytest.approx(2 / 3)
    assert estimate._chance(graph, frozenset({("c", "then")}), often) == pytest.approx(2 / 11)


def test_what_has_not_run_is_as_planned() -> None:
    assert profile().habit("test", "m") is UNSEEN
    assert Habit(**UNSEEN.to_json()) == UNSEEN


# --- turns ------------------------------------------------------------------------------------


@catches(
    "turns-of-all",
    "what follows a turn is the mean of all runs, also of those that ended before it",
    edited(Habit.turns_after, "/ self.turns[k]", "/ self.turns[0]"),
)
def test_what_follows_a_turn_is_the_mean_of_the_runs_that_had_it() -> None:
    """Four runs, of 1, 1, 2 and 6 turns: the mean is 2.5. After turn 2, of which there were two,
    none and four followed."""
    habits = Habits()
    for count in (1, 1, 2, 6):
        habits.turned(*KEY, count)
    found = of(habits)
    assert found.turns == (4, 4, 2, 1, 1, 1, 1)
    assert [found.turns_after(k) for k in (0, 1, 2, 3, 6)] == [2.5, 1.5, 2.0, 3.0, 0.0]
    assert found.turns_after(7) is None
    assert UNSEEN.turns_after(0) is None


def test_turns_after_the_sixty_fourth_are_counted_together() -> None:
    """A list of 1,000 items is one of 1,000, but nobody keeps 1,000 figures."""
    habits = Habits()
    for count in (0, 1000, 200):
        habits.turned(*KEY, count)
    found = of(habits)
    assert len(found.turns) == MOST_TURNS + 2
    assert found.turns_after(0) == pytest.approx(400.0)
    assert found.turns_after(1) == pytest.approx(599.0)
    assert found.turns_after(64) == found.turns_after(900) == pytest.approx(536.0)


def test_an_epoch_begins_when_runs_become_longer() -> None:
    habits = Habits()
    habits.turned(*KEY, 2)
    assert habits.publish() is not None
    habits.turned(*KEY, 2)
    assert habits.publish() is None
    habits.turned(*KEY, 9)
    assert habits.publish() is not None
    again = Habits()
    again.recall(habits.now())
    again.turned(*KEY, 2)
    assert of(again).turns[:4] == (4, 4, 4, 1)


@pytest.mark.parametrize(
    ("output", "late"), [(1.0, 2.0), (2.0, 1.0), (2.0, 2.0), (3.0, 5.0), (0.1, 1.0), (0.5, 5.0)]
)
def test_lengths_of_an_earlier_time_are_ten_answers(output: float, late: float) -> None:
    habits = Habits()
    habits.recall({KEY: Habit(calls=3, output=output, output_p90=late)})
    assert of(habits).output == pytest.approx(output)
    assert of(habits).output_p90 == max(late, (10 * output - late) / 9)
    habits.generated(*KEY, 20.0)
    assert of(habits).output == pytest.approx((10 * output + 20.0) / 11)


def test_of_no_answers_at_an_earlier_time_nothing_is_gone_on_from() -> None:
    habits = Habits()
    habits.recall({KEY: Habit(calls=3, output=1.0, output_p90=1.0)})
    assert (of(habits).output, of(habits).output_p90) == (1.0, 1.0)
    habits.generated(*KEY, 20.0)
    assert (of(habits).output, of(habits).output_p90) == (20.0, 20.0)


EDGES: list[tuple[str, float, float, bool]] = [
    ("prompt", 2.0, 2.0, False),
    ("prompt", 2.0, 2.22, False),
    ("prompt", 2.0, 2.23, True),
    ("prompt", 2.0, 1.8, False),
    ("prompt", 2.0, 1.79, True),
    ("prompt", 0.0, 0.0, False),
    ("output", 4.0, 4.44, False),
    ("output", 4.0, 4.45, True),
    ("output", 4.0, 3.59, True),
    ("seconds", 1.0, 1.11, False),
    ("seconds", 1.0, 1.12, True),
    ("seconds", 0.0, 1e-12, False),
    ("seconds", 0.0, 1e-3, True),
    ("cached", 0.0, 16.0, False),
    ("cached", 0.0, 16.5, True),
    ("cached", 1000.0, 1016.5, False),
    ("cached", 1000.0, 900.0, False),
    ("cached", 1000.0, 899.0, True),
]


@pytest.mark.parametrize(("name", "before", "now", "moved"), EDGES)
def test_a_tenth_is_told_from_a_little_less(
    name: str, before: float, now: float, moved: bool
) -> None:
    """Of prompts in caches, more than a block, too."""
    were, are = (replace(UNSEEN, **{name: value}) for value in (before, now))
    assert module._moved(were, are) is moved
    assert module._moved(are, were) is moved
    assert not module._moved(are, are)


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        ((5, 10), (5, 10), False),
        ((5, 10), (5, 11), False),
        ((5, 10), (5, 12), True),
        ((0, 0), (5, 1), True),
        ((5, 0), (9, 0), False),
    ],
)
def test_runs_that_become_longer_by_a_tenth_are_a_move(
    before: tuple[int, ...], now: tuple[int, ...], moved: bool
) -> None:
    """Of so many runs, turns in all."""
    were, are = (replace(UNSEEN, turns=turns) for turns in (before, now))
    assert module._moved(were, are) is moved


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        ({"a": 5, "b": 5}, {"a": 6, "b": 4}, False),
        ({"a": 5, "b": 5}, {"a": 61, "b": 39}, True),
        ({"a": 5, "b": 5}, {"a": 39, "b": 61}, True),
        ({}, {"a": 1}, True),
        ({"a": 10}, {"a": 10, "b": 1}, False),
        ({"a": 10}, {"a": 10, "b": 2}, True),
    ],
)
def test_odds_that_are_others_by_a_tenth_are_a_move(
    before: dict[str, int], now: dict[str, int], moved: bool
) -> None:
    were, are = (replace(UNSEEN, branches=branches) for branches in (before, now))
    assert module._moved(were, are) is moved
    assert share({}, "a") == 0.0
    assert share({"a": 1, "b": 3}, "b") == 0.75


def test_nothing_is_published_but_what_moved() -> None:
    habits = Habits()
    assert habits.publish() is None
    habits.prompted(*KEY, 2.0, None)
    first = habits.publish()
    assert first is not None
    assert first[KEY].prompt == 2.0
    assert habits.publish() is None, "it was published"
    habits.prompted(*KEY, 2.1, None)
    assert habits.publish() is None, "it has moved by little"
    habits.prompted("app", "other", 1.0, None)
    second = habits.publish()
    assert second is not None
    assert second[KEY] is first[KEY]
    assert second.keys() == {KEY, ("app", "other")}
