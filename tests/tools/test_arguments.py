"""Arguments are checked, never converted, and what is wrong is told so that a model can mend it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from teola.tools import Tool, Toolbox, tool
from teola.tools.arguments import ArgumentChecker
from teola.tools.base import MOST_BYTES
from teola.tools.bounded_json import bounded


class Leg(BaseModel):
    """A part of a journey."""

    to: str
    hours: Annotated[float, Field(gt=0)]


@tool
def plan(
    start: str,
    days: Annotated[int, Field(ge=1)],
    legs: list[Leg],
    when: date | None = None,
    by: Literal["train", "bus"] = "train",
    note: Annotated[str, Field(max_length=5)] = "",
) -> str:
    """Plans a journey."""
    return "planned"


GOOD: Mapping[str, Any] = {"start": "Oslo", "days": 2, "legs": [{"to": "Bergen", "hours": 7}]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"days": "two"}, "argument 'days' must be an integer >= 1, got 'two'"),
        ({"days": 0}, "argument 'days' must be an integer >= 1, got 0"),
        ({"days": 2.0}, "argument 'days' must be an integer >= 1, got 2.0"),
        ({"days": True}, "argument 'days' must be an integer >= 1, got true"),
        ({"days": "2"}, "argument 'days' must be an integer >= 1, got '2'"),
        ({"start": 3}, "argument 'start' must be a text, got 3"),
        ({"start": None}, "argument 'start' must be a text, got null"),
        ({"by": "car"}, "argument 'by' must be one of 'train', 'bus', got 'car'"),
        ({"when": 5}, "argument 'when' must be a date like '2026-01-31' or null, got 5"),
        ({"legs": []}, ""),
        ({"legs": {}}, "argument 'legs' must be a list, each an object with to, hours, got {}"),
        ({"legs": [{"to": "x"}]}, "argument 'legs[0].hours' is missing: a number > 0"),
        (
            {"legs": [{"to": "x", "hours": 0}]},
            "argument 'legs[0].hours' must be a number > 0, got 0",
        ),
        (
            {"legs": [{"to": "x", "hours": 1, "our": 1}]},
            "argument 'legs[0]' has no field 'our'; did you mean 'hours'? (it takes to, hours)",
        ),
        (
            {"dais": 1},
            "there is no argument 'dais'; did you mean 'days'? "
            "(it takes start, days, legs, when, by, note)",
        ),
        ({"note": "too long"}, "argument 'note' must be a text of at most 5 characters, got "),
    ],
)
def test_what_is_wrong_is_told(change: Mapping[str, Any], told: str) -> None:
    problems = plan.problems({**GOOD, **change})
    assert [one.startswith(told) for one in problems] == [True] * bool(told), problems


def test_a_date_that_is_none_is_told() -> None:
    (told,) = plan.problems({**GOOD, "when": "2026-02-30"})
    assert told.startswith("argument 'when'")
    assert told.endswith("got '2026-02-30'")


def test_all_that_is_wrong_is_told_at_once_but_not_without_end() -> None:
    problems = plan.problems({"days": 0, "when": 1, "x": 1})
    assert len(problems) == 5
    assert any("'start' is missing" in one for one in problems)
    assert len(plan.problems({**GOOD, **{f"x{i}": 1 for i in range(50)}})) == 5


@pytest.mark.parametrize("arguments", [None, [], "x", 3])
def test_arguments_are_an_object(arguments: Any) -> None:
    assert plan.problems(arguments)[0].startswith("arguments must be an object, got ")


async def test_a_wrong_call_is_not_made() -> None:
    calls: list[int] = []

    @tool
    def count(to: int) -> None:
        """Counts."""
        calls.append(to)

    result = await count.call({"to": "3"})
    assert result.failed
    assert result.text == "count was not called: argument 'to' must be an integer, got '3'"
    assert not result.unknown
    assert calls == []


def test_what_is_nested_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    @tool
    def take(x: Any) -> None:
        """Takes anything."""

    assert take.problems({"x": deep})


# --- properties -------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(2**60), 2**60)),
    (Annotated[int, Field(ge=1, le=9)], st.integers(1, 9)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXTS),
    (bool, st.booleans()),
    (int | None, st.none() | st.integers(-9, 9)),
    (int | str, st.integers(-9, 9) | TEXTS),
    (list[int], st.lists(st.integers(-9, 9), max_size=3)),
    (dict[str, bool], st.dictionaries(TEXTS, st.booleans(), max_size=3)),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (tuple[int, str], st.tuples(st.integers(-9, 9), TEXTS).map(list)),
    (date, st.dates().map(str)),
    (list[Leg], st.lists(st.fixed_dictionaries({"to": TEXTS, "hours": st.integers(1, 9)}))),
]
"""Types, and values of them in JSON."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def made(hints: Mapping[str, Any], needed: set[str], seen: list[dict[str, Any]]) -> Tool:
    """A tool with these parameters, which keeps what it is given."""

    async def keep(**values: Any) -> None:
        seen.append(values)

    def default(name: str) -> Any:
        return inspect.Parameter.empty if name in needed else None

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, default=default(name)) for name in hints]
    keep.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    keep.__annotations__ = dict(hints)
    return tool(keep, name="keep", description="Keeps values.")


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, where 1 and 1.0 are, and 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@st.composite
def signatures(draw: st.DrawFn) -> tuple[dict[str, Any], set[str], dict[str, Any]]:
    """Parameters with their types, those that are needed, and arguments that fit."""
    drawn = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=5))
    hints = {f"x{i}": hint for i, (hint, _) in enumerate(drawn)}
    needed = {name for name in hints if draw(st.booleans())}
    arguments = {
        name: draw(values)
        for (name, _), (_, values) in zip(hints.items(), drawn, strict=True)
        if name in needed or draw(st.booleans())
    }
    return hints, needed, arguments


@given(signatures())
async def test_what_fits_arrives_as_it_is(
    drawn: tuple[dict[str, Any], set[str], dict[str, Any]],
) -> None:
    hints, needed, arguments = drawn
    seen: list[dict[str, Any]] = []
    result = await made(hints, needed, seen).call(arguments)
    assert not result.failed, result.text
    (values,) = seen
    for name, value in arguments.items():
        assert same(bounded(values[name], MOST_BYTES).value, value)
    assert all(values[name] is None for name in hints.keys() - arguments.keys())


@given(st.sampled_from(VALUES), JSON)
async def test_whatever_arrives_is_what_was_given(
    kind: tuple[Any, st.SearchStrategy[Any]], value: Any
) -> None:
    seen: list[dict[str, Any]] = []
    keep = made({"x": kind[0]}, {"x"}, seen)
    result = await keep.call({"x": value})
    if result.failed:
        assert seen == []
        assert "argument 'x" in result.text
    else:
        assert same(bounded(seen[0]["x"], MOST_BYTES).value, value)


@given(signatures(), st.data())
async def test_what_lacks_or_adds_something_is_refused_by_name(
    drawn: tuple[dict[str, Any], set[str], dict[str, Any]], data: st.DataObject
) -> None:
    hints, needed, arguments = drawn
    keep = made(hints, needed, [])
    assert any("'y'" in one for one in keep.problems({**arguments, "y": 1}))
    if needed:
        gone = data.draw(st.sampled_from(sorted(needed)))
        rest = {name: value for name, value in arguments.items() if name != gone}
        assert any(f"argument '{gone}' is missing" in one for one in keep.problems(rest))


@given(signatures(), st.booleans())
def test_what_fits_a_tool_fits_a_decision(
    drawn: tuple[dict[str, Any], set[str], dict[str, Any]], references: bool
) -> None:
    hints, needed, arguments = drawn
    box = Toolbox([made(hints, needed, [])])
    schema = box.decision(references=references)
    jsonschema.validate({"thought": "", "calls": [{"tool": "keep", "args": arguments}]}, schema)
    refers = dict.fromkeys(arguments, "$1")
    written = {"calls": [{"tool": "keep", "args": refers}], "thought": ""}
    fits = jsonschema.Draft202012Validator(schema).is_valid(written)
    assert fits or not references
    assert not box.read_call(written["calls"][0], 2, [1]).problem


TEXT: Any = {"type": "string"}
CLOSED: Any = {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False}
A, B = ({"type": "object", "required": [name], "properties": {name: TEXT}} for name in "ab")


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"anyOf": [TEXT, CLOSED]}, {"b": 1}, "argument 'x' has no field 'b' (it takes a)"),
        ({"anyOf": [TEXT, A]}, {}, "argument 'x.a' is missing: a text"),
        (
            {"anyOf": [A, B]},
            {},
            "argument 'x' must be an object with a or an object with b, got {}",
        ),
        (
            {"type": "array", "uniqueItems": True},
            [1, 1],
            "argument 'x' must not repeat an item, got [1, 1]",
        ),
    ],
)
def test_what_is_told_leads_to_what_has_to_change(schema: Any, value: Any, told: str) -> None:
    checker = ArgumentChecker({"type": "object", "properties": {"x": schema}})
    assert checker.problems({"x": value}) == [told]


def test_who_takes_nothing_says_so() -> None:
    checker = ArgumentChecker({"type": "object", "properties": {}, "additionalProperties": False})
    assert checker.problems({"b": 1}) == ["there is no argument 'b' (it takes none)"]


def test_without_patterns_a_name_may_be_one_that_a_pattern_allows() -> None:
    schema = {"patternProperties": {"^a": TEXT}, "additionalProperties": False}
    assert ArgumentChecker(schema, patterns=False).problems({"abc": 1}) == []
    assert ArgumentChecker(schema).problems({"abc": "x"}) == []


def test_problems_are_told_in_the_order_of_their_places() -> None:
    checker = ArgumentChecker({"properties": dict.fromkeys("cab", TEXT)})
    told = [problem.split("'")[1] for problem in checker.problems({"c": 1, "b": 2, "a": 3})]
    assert told == ["a", "b", "c"]
