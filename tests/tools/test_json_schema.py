"""Schemas: references within them, what they say in words, and what decoding is held to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.tools.json_schema import (
    DEEPEST,
    LARGEST,
    LISTED,
    REFERENCE,
    SHOWN,
    decodable,
    embedded,
    flattened,
    in_words,
    mapped,
    shown,
    target,
)


@given(st.lists(st.text("~01/a", max_size=4), max_size=4))
def test_a_reference_finds_what_stands_under_its_names(names: list[str]) -> None:
    """`~0` is a tilde and `~1` a slash; `~01` is a tilde and a one."""
    schema: Any = "found"
    for name in reversed(names):
        schema = {name: schema, name + "x": "another"}
    ref = "#" + "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
    assert target(schema, ref) == "found"


@pytest.mark.parametrize("key", ["-1", "01", "2", "x", "+1", "\u0662", ""])
def test_a_place_in_a_list_has_one_spelling(key: str) -> None:
    root = {"anyOf": ["first", "second"]}
    assert [target(root, f"#/anyOf/{place}") for place in (0, 1)] == ["first", "second"]
    with pytest.raises(LookupError):
        target(root, f"#/anyOf/{key}")


@pytest.mark.parametrize("ref", ["", "a", "/a", "#a", "other.json#/a", "https://x.org/a"])
def test_what_is_no_place_in_the_schema_itself_is_not_found(ref: str) -> None:
    with pytest.raises(LookupError):
        target({"a": "found"}, ref)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (True, "anything"),
        ({}, "anything"),
        ({"type": "integer"}, "an integer"),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, "a number >= 0 and < 1"),
        ({"type": "number", "maximum": 9, "exclusiveMinimum": 1}, "a number > 1 and <= 9"),
        ({"type": "integer", "multipleOf": 5}, "an integer a multiple of 5"),
        ({"type": "string"}, "a text"),
        ({"type": "string", "minLength": 0, "maxLength": 3}, "a text of at most 3 characters"),
        ({"type": "string", "minLength": 2}, "a text of at least 2 characters"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "a text of 2 to 3 characters"),
        ({"type": "string", "minLength": 2, "maxLength": 2}, "a text of 2 characters"),
        ({"type": "string", "maxLength": 0}, "a text of at most 0 characters"),
        ({"type": "string", "pattern": "^a"}, "a text that matches ^a"),
        ({"type": "string", "format": "uuid"}, "a UUID"),
        ({"type": "string", "format": "odd"}, "a text (format odd)"),
        ({"type": "boolean"}, "true or false"),
        ({"type": "null"}, "null"),
        ({"type": "array"}, "a list"),
        ({"type": "array", "minItems": 1, "maxItems": 2}, "a list of 1 to 2 items"),
        ({"type": "array", "items": {"type": "null"}}, "a list, each null"),
        ({"type": "object"}, "an object"),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, "an object with a, b"),
        ({"type": ["string", "null"]}, "a text or null"),
        ({"const": None}, "null"),
        ({"const": "x" * 70}, "'" + "x" * (SHOWN - 1) + "..."),
        ({"enum": ["a"]}, "'a'"),
        ({"enum": ["a", 2]}, "one of 'a', 2"),
        ({"anyOf": []}, "anything"),
        ({"anyOf": [{"type": "null"}, REFERENCE, {"type": "null"}]}, "null"),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "null or a text"),
        ({"allOf": [{"type": "null"}]}, "null"),
        ({"allOf": [{"type": "null"}, {}], "type": "string"}, "a text"),
        ({"$ref": "#/$defs/a"}, "true or false"),
        ({"$ref": "#/$defs/none"}, "anything"),
    ],
)
def test_a_schema_in_words(schema: Any, words: str) -> None:
    assert in_words(schema, {"$defs": {"a": {"type": "boolean"}}}) == words


def test_long_lists_and_deep_schemas_are_cut_in_words() -> None:
    for count in (LISTED, LISTED + 1):
        more = count > LISTED
        listed = ", ".join(map(str, range(LISTED)))
        assert in_words({"enum": list(range(count))}, {}) == f"one of {listed}{', ...' * more}"
        parts = [{"const": n} for n in range(count)]
        told = " or ".join(map(str, range(LISTED)))
        assert in_words({"anyOf": parts}, {}) == f"{told}{' or ...' * more}"
    schema: Any = {"type": "null"}
    for _ in range(DEEPEST):
        schema = {"type": "array", "items": schema}
    assert in_words(schema, {}) == "a list, each " * DEEPEST + "null"
    assert in_words({"type": "array", "items": schema}, {}) == ", each ".join(
        ["a list"] * (DEEPEST + 1)
    )


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda inner: {"allOf": [inner]},
        lambda inner: {"type": ["array"], "items": inner},
        lambda inner: {"anyOf": [inner]},
    ],
)
def test_schemas_inside_each_other_are_told_so_deep_and_no_deeper(wrapped: Any) -> None:
    """A list by two levels, as alternatives are: their alternatives multiply."""
    step = 1 if "allOf" in wrapped({}) else 2
    for levels in (DEEPEST // step, DEEPEST // step + 1):
        schema: Any = {"type": "null"}
        for _ in range(levels):
            schema = wrapped(schema)
        assert in_words(schema, {}).endswith("null") is (levels * step <= DEEPEST)


def test_a_value_is_shown_whole_where_it_is_short() -> None:
    for count in (SHOWN - 3, SHOWN - 2, SHOWN - 1):
        whole = repr("x" * count)
        assert shown("x" * count) == (whole if count <= SHOWN - 2 else f"{whole[:SHOWN]}...")
    assert shown([1, {"a": None}]) == '[1, {"a": null}]'
    assert shown(object()) == "a object"


def test_a_change_reaches_every_schema_once_from_within() -> None:
    """Values of keywords that hold no schemas stay as they are."""
    a, b = {"type": "null"}, {"type": "string"}
    schema = {
        "items": a,
        "prefixItems": [a, b],
        "properties": {"x": b, "items": {"not": a}},
        "additionalProperties": False,
        "enum": [{"type": "null"}],
        "default": {"items": {"type": "null"}},
    }
    seen: list[dict[str, Any]] = []

    def change(inner: dict[str, Any]) -> Any:
        seen.append(inner)
        return {"seen": len(seen)} if inner in (a, b) else inner

    whole = mapped(schema, change)
    assert seen[:-1] == [a, a, b, b, a, {"not": {"seen": 5}}]
    assert whole == {
        "items": {"seen": 1},
        "prefixItems": [{"seen": 2}, {"seen": 3}],
        "properties": {"x": {"seen": 4}, "items": {"not": {"seen": 5}}},
        "additionalProperties": False,
        "enum": [{"type": "null"}],
        "default": {"items": {"type": "null"}},
    }
    assert mapped({"items": [a, b]}, change)["items"] == [{"seen": 8}, {"seen": 9}]


def test_definitions_stand_side_by_side_and_refer_to_each_other() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/one"}, "b": {"$ref": "#/$defs/two"}},
        "$defs": {
            "one": {"items": {"$ref": "#/$defs/two"}},
            "two": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/one"}], "$defs": {"x": {}}},
        },
    }
    assert flattened(schema, "t") == {
        "t": {"properties": {"a": {"$ref": "#/$defs/t.1"}, "b": {"$ref": "#/$defs/t.2"}}},
        "t.1": {"items": {"$ref": "#/$defs/t.2"}},
        "t.2": {"anyOf": [{"$ref": "#/$defs/t"}, {"$ref": "#/$defs/t.1"}]},
    }


@pytest.mark.parametrize(
    ("schema", "part", "definitions"),
    [
        ({"type": "null"}, {"type": "null"}, {}),
        ({"type": "null", "$defs": {"a": {}}}, {"type": "null"}, {}),
        (
            {"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}},
            {"properties": {"a": {"type": "null"}, "b": {"$ref": "#/$defs/t.1"}}},
            {"t.1": {"type": "null"}},
        ),
        (
            {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "null"}}},
            {"items": {"$ref": "#/$defs/t.1"}},
            {"t.1": {"type": "null"}},
        ),
        (
            {"items": {"$ref": "#"}},
            {"items": {"$ref": "#/$defs/t"}},
            {"t": {"items": {"$ref": "#/$defs/t"}}},
        ),
    ],
)
def test_a_schema_that_becomes_a_part_takes_along_what_it_refers_to(
    schema: Any, part: Any, definitions: Any
) -> None:
    assert embedded(schema, "t") == (part, definitions)


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        (
            {"type": "string", "pattern": "a", "maxLength": 3, "title": "x"},
            {"type": "string", "maxLength": 3},
        ),
        (
            {"type": "string", "format": "uuid", "maxLength": 3},
            {"type": "string", "format": "uuid"},
        ),
        ({"type": "string", "format": "email", "minLength": 1}, {"type": "string", "minLength": 1}),
        ({"oneOf": [{"type": "null", "title": "x"}]}, {"anyOf": [{"type": "null"}]}),
        ({"allOf": [{"type": "null"}]}, {"type": "null"}),
        ({"allOf": [{"type": "null"}, {}], "type": "null"}, {"type": "null"}),
        ({"allOf": [{"$ref": "#/a"}], "default": 1}, {"$ref": "#/a"}),
        ({"allOf": [True], "type": "null"}, {"type": "null"}),
        (
            {"properties": {"a": {}}, "required": ["a", "b"]},
            {"properties": {"a": {}}, "required": ["a"]},
        ),
        ({"minimum": -LARGEST, "maximum": LARGEST}, {"minimum": -LARGEST, "maximum": LARGEST}),
        ({"minimum": -LARGEST - 1, "exclusiveMaximum": LARGEST + 1}, {}),
        ({"minimum": "1", "minItems": 2}, {"minItems": 2}),
    ],
)
def test_what_servers_may_refuse_is_not_asked_of_decoding(schema: Any, kept: Any) -> None:
    assert decodable(schema) == kept
