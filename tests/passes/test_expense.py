"""What explain says that a query costs, before and after one knows its habits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola import Agent, App, Condition, Each, Generate, Loop
from teola.graph import Guard
from teola.habit import MOST_TURNS, Habit
from teola.learning.habits import Habits
from teola.passes.estimate import planned_tokens, taken_share
from teola.passes.expense import Expense, expenses
from teola.price import Price
from teola.profile import Profile, paper
from teola.tools import tool
from tests.planted import catches, edited
from tests.schedule.plans import call, condition, plan
from tests.schedule.plans import tool as primitive

PRICE = Price(prompt=1.0, answer=10.0, cached=0.5)


def price_of(engine: str) -> Price:
    return PRICE


@tool(pure=True)
def look(query: str) -> str:
    """Look something up."""
    return query


def profile(**habits: Habit) -> Profile:
    known = {("app", name): habit for name, habit in habits.items()}
    return replace(paper("13b"), habits=known)


def note(**more: int) -> Generate:
    return Generate("note", mode="simple", inputs={"question": "topic"}, **more)


@catches(
    "once-only",
    "what grows counts once",
    edited("teola.passes.expense:_grown", "NOTHING.plus(part.expected, usual)", "part.expected"),
)
def test_what_grows_counts_as_often_as_it_is_expected_to() -> None:
    each = Each(note(max_tokens=100), over="topics", item="topic", gives={"notes": "answer"})
    made = App("app", each, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    graph = made.builder.build(made.builder.configure({}), {"topics": 4})
    low, usual, high = expenses(graph, profile(), price_of)
    assert usual.calls == 4
    assert (usual.answer, high.answer) == (64, 400)
    assert low.answer < usual.answer
    assert usual.cost == pytest.approx((usual.prompt - usual.cached + usual.cached / 2 + 640) / 1e6)
    turns = (10, 10, 10, 10, 10, 10, 10, 5)  # six turns, and every other run has seven
    seen = profile(note=Habit(20, 0.5, 8.0, 2.0, 3.0), each=Habit(turns=turns))
    low, usual, high = expenses(graph, seen, price_of)
    assert usual.calls == pytest.approx(6.5)
    assert (low.calls, high.calls) == (6, 7)
    assert usual.answer == pytest.approx(6.5 * 32)
    assert high.answer == pytest.approx(7 * 48)
    assert usual.cached == pytest.approx(6.5 * 8)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1000] * 10, (MOST_TURNS, 1000, 1000)),
        ([3] * 5 + [1000] * 5, (3, 501.5, 1000)),
        ([1] * 9 + [200], (1, 20.9, 200)),
        ([MOST_TURNS + 1] * 2, (MOST_TURNS, MOST_TURNS + 1, MOST_TURNS + 1)),
        ([MOST_TURNS] * 2, (MOST_TURNS,) * 3),
        ([MOST_TURNS - 1] * 2, (MOST_TURNS - 1,) * 3),
        ([0, 0], (0, 0, 0)),
    ],
)
def test_lists_that_are_longer_than_what_is_told_apart_are_no_shorter_at_most(
    counts: list[int], expected: tuple[float, float, float]
) -> None:
    habits = Habits()
    for count in counts:
        habits.turned("app", "each", count)
    each = Each(note(), over="topics", item="topic", gives={"notes": "answer"})
    made = App("app", each, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    graph = made.builder.build(made.builder.configure({}), {"topics": 4})
    found = expenses(graph, replace(paper("13b"), habits=habits.now()), price_of)
    assert tuple(expense.calls for expense in found) == pytest.approx(expected)


def test_a_branch_counts_as_often_as_it_was_taken() -> None:
    """Four calls against one: at first the expected branch alone, then by what was decided."""
    condition = Condition(
        lambda question: True,
        reads=["question"],
        then=Generate("short", mode="simple"),
        otherwise=Generate("long", mode="tree", inputs={"context": "notes"}),
        name="if",
    )
    inputs = {"question": "text", "notes": "texts"}
    made = App("app", condition, inputs=inputs, outputs={"answer": "answer"})
    graph = made.builder.build(made.builder.configure({}), {"notes": 3})
    assert expenses(graph, profile(), price_of).expected.calls == 1
    seen = profile(**{"if": Habit(branches={"then": 1, "otherwise": 3})})
    low, usual, high = expenses(graph, seen, price_of)
    assert (low.calls, usual.calls, high.calls) == (0, 0.25 * 1 + 0.75 * 4, 5)


def test_within_two_branches_both_decisions_count() -> None:
    outer, inner = Guard("a", "then"), Guard("b", "then")
    last = (outer, Guard("b", "otherwise"))
    primitives = (
        condition("a"),
        condition("b", guards=(outer,)),
        primitive("x", guards=(outer, inner)),
        primitive("y", guards=last),
    )
    graph = plan(*primitives).graph
    rarely = {"then": 1, "otherwise": 3}

    def shares(**branches: dict[str, int]) -> list[float]:
        habits = {(graph.name, name): Habit(branches=seen) for name, seen in branches.items()}
        known = replace(paper("13b"), habits=habits)
        return [taken_share(graph, graph[id], known) for id in ("b", "x", "y")]

    assert shares() == [1, 1, 0]
    assert shares(a=rarely) == [1 / 4, 1 / 4, 0]
    assert shares(a=rarely, b={"then": 1, "otherwise": 1}) == [1 / 4, 1 / 8, 1 / 8]
    assert shares(b=rarely) == [1, 1 / 4, 3 / 4]


def test_of_a_prompt_in_pieces_the_first_one_alone_begins_as_others_did() -> None:
    graph = plan(*call("m", ahead=True)).graph
    known = replace(paper("13b"), habits={(graph.name, "m"): Habit(calls=9, cached=5.0)})
    prompts = [planned_tokens(graph, graph[id]) for id in ("m.ahead", "m.prefill")]
    assert min(prompts) >= 5
    assert expenses(graph, known, price_of).expected.cached == 5


def test_prompts_are_as_long_as_they_were_billed() -> None:
    """By their plan, which knows lists and documents; in parts, whose inputs nobody knows before,
    as long as those until now."""
    habit = Habit(
        calls=9, prompt=7.0, billed_calls=5.0, planned=1_000.0, billed=3_000.0, billed_cached=500.0
    )
    alone = App("app", note(), inputs={"topic": "text"}, outputs={"note": "answer"})
    graph = alone.builder.build(alone.builder.configure({}), {})
    planned = sum(planned_tokens(graph, p) for p in graph.primitives)
    usual = expenses(graph, profile(note=habit), price_of).expected
    assert (usual.prompt, usual.cached) == pytest.approx((3 * planned, planned / 2))
    each = Each(note(), over="topics", item="topic", gives={"notes": "answer"})
    made = App("app", each, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    graph = made.builder.build(made.builder.configure({}), {"topics": 4})
    usual = expenses(graph, profile(note=habit), price_of).expected
    assert (usual.prompt, usual.cached) == pytest.approx((4 * 600, 4 * 100))


def test_loops_and_agents_have_a_turn_at_least_and_all_that_they_may_at_most() -> None:
    loop = Loop(
        Generate("draft", mode="simple", outputs={"answer": "better"}),
        carry={"question": "better"},
        until=lambda better: True,
        reads=["better"],
        gives=["better"],
        at_most=5,
    )
    for body, port in ((loop, "better"), (Agent([look], at_most=5), "answer")):
        made = App("app", body, inputs={"question": "text"}, outputs={"out": port})
        graph = made.builder.build(made.builder.configure({}), {})
        low, usual, high = expenses(graph, profile(), price_of)
        assert low.calls == 1
        assert 1 <= usual.calls <= 5
        assert high.calls == 5
        assert expenses(graph, profile(), lambda engine: None).expected.cost is None


def test_an_expense_is_told_in_whole_tokens_and_an_unknown_price_as_none() -> None:
    told = {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 3, "calls": 1.67}
    spent = Expense(10.4, 3.6, 2.5 + 0.1, 5 / 3, 2 / 3)
    assert spent.to_json() == {**told, "cost": 0.6666666667}
    assert replace(spent, cost=None).to_json() == {**told, "cost": None}


@catches(
    "unknown-times-nothing",
    "what never happens makes a cost unknown",
    edited(Expense.plus, "(other.cost is None and times)", "other.cost is None"),
)
def test_a_sum_has_a_cost_if_all_of_it_has_one_that_happens() -> None:
    known, unknown = Expense(10, 4, 2, 1, 0.5), Expense(1, 1, 1, 1, None)
    assert known.plus(known, 3.0) == Expense(40, 16, 8, 4, 2.0)
    assert known.plus(unknown).cost is None
    assert unknown.plus(known).cost is None
    assert known.plus(unknown, 0.0) == known
    assert known.plus(unknown, 0.5).cost is None
    assert Expense().plus(known) == known
