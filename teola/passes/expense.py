"""What a query may cost before it runs: tokens of its calls of LLMs, and money.

    low        branches that are certain, short answers, few turns and items
    expected   branches as often as they were taken, prompts, answers and turns as they were until
               now, on average
    high       every branch, answers and turns as the longest tenth

Prompts are as long as they were billed, which is how engines count, as soon as they have told.
Before anything has run, the branches are those that are expected, answers are as long as passes
plan them, a loop has a turn at least and as many as it may at most, and a list as many items as it
is planned to have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from teola.graph import DecodeParams, Graph, GrowParams, Primitive
from teola.graph.ops import DECODES, GROUP_HEADS, PREFILLS
from teola.habit import MOST_TURNS, Habit
from teola.passes.estimate import kept_tokens, planned_output, planned_tokens, taken_share
from teola.price import Price
from teola.profile import Profile

PriceOf = Callable[[str], Price | None]
"""Price of the model of an engine; None: not known."""
FEW, MANY = 0.1, 0.9
"""Quantiles of turns, for low and high."""


@dataclass(frozen=True, slots=True)
class Expense:
    """Tokens of calls of LLMs, and their cost. cached: of the prompts'. cost: None where a price is
    not known."""

    prompt: float = 0.0
    cached: float = 0.0
    answer: float = 0.0
    calls: float = 0.0
    cost: float | None = 0.0

    def plus(self, other: Expense, times: float = 1.0) -> Expense:
        """The sum of both, the other one `times` times."""
        unknown = self.cost is None or (other.cost is None and times)
        return Expense(
            self.prompt + other.prompt * times,
            self.cached + other.cached * times,
            self.answer + other.answer * times,
            self.calls + other.calls * times,
            None if unknown else (self.cost or 0.0) + (other.cost or 0.0) * times,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "prompt_tokens": round(self.prompt),
            "cached_tokens": round(self.cached),
            "completion_tokens": round(self.answer),
            "calls": round(self.calls, 2),
            "cost": None if self.cost is None else round(self.cost, 10),
        }


NOTHING: Final = Expense()


class Expenses(NamedTuple):
    """What a query takes at least, on average, and at most, as far as that is known."""

    low: Expense
    expected: Expense
    high: Expense

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: expense.to_json() for name, expense in self._asdict().items()}


def expenses(
    graph: Graph, profile: Profile, price_of: PriceOf, *, in_part: bool = False
) -> Expenses:
    """Expenses of a graph, with the parts that it is expected to grow. profile: with habits.
    in_part: it is a part's, whose inputs nobody knows before it begins; so a prompt there is as
    long as those before it, and not as its plan says."""
    total = Expenses(NOTHING, NOTHING, NOTHING)
    for p in graph.primitives:
        own = _primitive(graph, p, profile, price_of, in_part)
        if own is None:
            continue
        total = Expenses(
            total.low if p.guards else total.low.plus(own.low),
            total.expected.plus(own.expected, taken_share(graph, p, profile)),
            total.high.plus(own.high),
        )
    return total


def _primitive(
    graph: Graph, p: Primitive, profile: Profile, price_of: PriceOf, in_part: bool
) -> Expenses | None:
    habit = profile.habit(graph.name, p.component)
    if type(p.params) is GrowParams:
        return _grown(graph, p, p.params, habit, profile, price_of)
    if p.op in PREFILLS:
        planned = planned_tokens(graph, p)
        prompt = planned * habit.prompt
        kept = float(kept_tokens(graph, p, profile.engine(p.engine)))
        if habit.calls and "sequence" not in dict(p.inputs):
            kept = habit.cached
        cached = min(kept, prompt)
        calls = float(p.op in GROUP_HEADS)
        if habit.planned:
            share = calls / habit.billed_calls if in_part else planned / habit.planned
            prompt, cached = share * habit.billed, share * habit.billed_cached
        expense = _priced(p, price_of, prompt, cached, 0.0, calls)
        if habit.calls:
            return Expenses(expense, expense, expense)
        return Expenses(expense, expense, _priced(p, price_of, prompt, 0.0, 0.0, calls))
    if p.op in DECODES:
        assert isinstance(p.params, DecodeParams)
        planned = planned_output(p)
        usual, long = planned * habit.output, planned * habit.output_p90
        if (habit.output, habit.output_p90) == (1.0, 1.0):
            long = p.params.max_tokens
        short = max(min(1.0, usual), 2 * usual - long)
        estimates = (_priced(p, price_of, 0.0, 0.0, n, 0.0) for n in (short, usual, long))
        return Expenses(*estimates)
    return None


def _priced(
    p: Primitive, price_of: PriceOf, prompt: float, cached: float, answer: float, calls: float
) -> Expense:
    price = price_of(p.engine)
    cost = None
    if price is not None:
        cost = price.cost(prompt, answer, cached)
    return Expense(prompt, cached, answer, calls, cost)


def _grown(
    graph: Graph,
    p: Primitive,
    params: GrowParams,
    habit: Habit,
    profile: Profile,
    price_of: PriceOf,
) -> Expenses:
    """Expenses of all parts of a primitive that grows."""
    repeated = params.grower.repeated
    body = params.grower.bodies[repeated.body].planned(graph.name)
    part = expenses(body, profile, price_of, in_part=True)
    few, usual, many = _times(p, params, habit)
    return Expenses(
        NOTHING.plus(part.low, few),
        NOTHING.plus(part.expected, usual),
        NOTHING.plus(part.high, many),
    )


def _times(p: Primitive, params: GrowParams, habit: Habit) -> tuple[float, float, float]:
    """How many parts: few, as usual, and many."""
    repeated = params.grower.repeated
    if (usual := habit.turns_after(0)) is not None:
        few, many = _quantile(habit, FEW), _quantile(habit, MANY)
        if many == MOST_TURNS:  # and more, which are not told apart
            many += habit.turns_after(MOST_TURNS) or 0.0
        return few, usual, many
    if repeated.times is None:
        return float(p.items), float(p.items), float(p.items)
    most = repeated.times if repeated.at_most is None else repeated.at_most
    return 1.0, float(repeated.times), float(most)


def _quantile(habit: Habit, share: float) -> float:
    """How many turns `share` of the runs have at most, up to MOST_TURNS."""
    told_apart = habit.turns[: MOST_TURNS + 1]
    runs = told_apart[0]
    longer = (k for k in range(1, len(told_apart)) if told_apart[k] < runs * (1 - share))
    return float(next(longer, len(told_apart)) - 1)
