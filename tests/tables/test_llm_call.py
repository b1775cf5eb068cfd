"""What may be said of a call: the edge of each option, and what follows from what is not said."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from teola.errors import InputError
from teola.tables.llm_call import (
    BEYOND_CHOICE,
    LEAST_PART,
    MAX_TOKENS,
    PART_TOKENS,
    column_type,
    llm_call_of,
)

CHOICES = ["no", "perhaps", "yes"]


@pytest.mark.parametrize(
    ("option", "allowed", "refused"),
    [
        ("temperature", [0, 0.0, 0.5, 1, 2, 2.0], [-0.001, 2.001, 3, -1, nan, inf, True, "1"]),
        ("max_tokens", [1, 2, 10**6], [0, -1, 1.0, 0.5, True, "1"]),
        ("part_tokens", [LEAST_PART, LEAST_PART + 1], [LEAST_PART - 1, 0, float(LEAST_PART), True]),
        ("shared", [True, False], [0, 1, "true", "false"]),
        ("fixed_order", [True, False], [0, 1, "true"]),
        ("model", ["a", " a"], ["", "  ", 1, True]),
        ("combine", ["a"], ["", "  ", 1]),
        ("pattern", ["a", "[0-9]+"], ["", " ", "a*", "(", 1]),
        ("choices", [["a"], ["a", "b"], [1, 2.5], [True, False], [0]],
         [[], "ab", 1, ["a", 1], [True, 1], [1, "a"], ["a", " "], ["a", "A"], [1, None]]),
        ("schema", [{}, "{}", {"type": "string"}], ["{", "[]", [], 1, {"type": "text"}]),
    ],
)  # fmt: skip
def test_an_option_is_taken_or_refused(option: str, allowed: list[Any], refused: list[Any]) -> None:
    grouped = option in ("part_tokens", "combine")
    for value in allowed:
        llm_call_of("q", {option: value}, grouped=grouped)
    for value in refused:
        with pytest.raises(InputError, match=option):
            llm_call_of("q", {option: value}, grouped=grouped)


def test_what_is_not_said_is_as_it_is_told() -> None:
    """None says nothing either."""
    for nothing in ({}, dict.fromkeys(("temperature", "max_tokens", "shared", "model", "choices"))):
        made = llm_call_of("q", nothing)
        assert (made.temperature, made.max_tokens, made.shared) == (0.0, MAX_TOKENS, False)
        assert (made.model, made.choices, made.type, made.group) == (None, None, "VARCHAR", None)
    grouped = llm_call_of("q", {}, grouped=True).group
    assert grouped is not None
    assert (grouped.part_tokens, grouped.combine) == (PART_TOKENS, None)


@pytest.mark.parametrize(
    ("choices", "type_name", "longest"),
    [
        (["a"], "VARCHAR", 1),
        (["a", "bb", "ccc"], "VARCHAR", 3),
        (["yes", "ж"], "VARCHAR", 3),
        (["жж", "yes"], "VARCHAR", 4),
        ([True, False], "BOOLEAN", 5),
        ([1, 20, 300], "BIGINT", 3),
        ([1, 2.5], "DOUBLE", 3),
        ([2.5, 1], "DOUBLE", 3),
    ],
)
def test_choices_give_a_column_its_type_and_room_for_the_longest(
    choices: list[Any], type_name: str, longest: int
) -> None:
    """In bytes; what is said besides goes before both."""
    made = llm_call_of("q", {"choices": choices})
    assert (made.type, made.max_tokens) == (type_name, longest + BEYOND_CHOICE)
    told = llm_call_of("q", {"choices": choices, "type": " json ", "max_tokens": 1})
    assert (told.type, told.max_tokens) == ("JSON", 1)


@pytest.mark.parametrize(
    ("schema", "type_name"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "array", "items": {"type": "number"}}, "DOUBLE[]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "VARCHAR[][]"),
        ({"type": "array"}, "JSON"),
        ({"type": "object", "properties": {}}, "JSON"),
        (
            {"type": "object", "properties": {'a"b': {"type": "boolean"}, "c": {"enum": ["x"]}}},
            'STRUCT("a""b" BOOLEAN, "c" VARCHAR)',
        ),
        ({"enum": ["a", "b"]}, "VARCHAR"),
        ({"enum": ["a", 1]}, "JSON"),
        ({"enum": []}, "JSON"),
        ({"type": ["string", "null"]}, "JSON"),
        (True, "JSON"),
    ],
)
def test_a_schema_gives_a_column_its_type(schema: Any, type_name: str) -> None:
    assert column_type(schema) == type_name
    if isinstance(schema, dict) and schema.get("enum") != []:
        for given in (schema, json.dumps(schema)):
            assert llm_call_of("q", {"schema": given}).type == type_name


@pytest.mark.parametrize("second", ["pattern", "schema", "choices"])
def test_one_restriction_is_enough(second: str) -> None:
    """And a type beside a schema, which gives one."""
    values: dict[str, Any] = {"pattern": "a", "schema": {}, "choices": CHOICES}
    for first in values.keys() - {second}:
        with pytest.raises(InputError, match="one of choices, pattern and schema"):
            llm_call_of("q", {first: values[first], second: values[second]})
    with pytest.raises(InputError, match="type or schema, not both"):
        llm_call_of("q", {"schema": {}, "type": "JSON"})
