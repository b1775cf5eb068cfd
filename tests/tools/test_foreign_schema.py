"""Schemas of others: what is taken, and how long it takes to find out."""

from __future__ import annotations

import json
from time import thread_time
from typing import Any

import jsonschema
import pytest

from teola.errors import InputError
from teola.tools.arguments import ArgumentChecker
from teola.tools.foreign_schema import DEEPEST_SCHEMA, LARGEST_SCHEMA, check_foreign
from tests.longest_turn import MOST_S

DRAFTS = {
    "draft-07": "http://json-schema.org/draft-07/schema#",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ([], "not an object"),
        ({"type": "array"}, "its arguments are 'array', not an object"),
        ({"properties": {"x": {"type": "no"}}}, "its schema is none"),
        ({"properties": {"x": {"$ref": "http://localhost/x"}}}, "which is not in it"),
        ({"properties": {"x": {"$ref": "#/$defs/x"}}}, "which is not in it"),
        ({"properties": {"x": {"$ref": "#x"}}}, "which is not in it"),
        ({"properties": {"x": {"$id": "http://localhost/x"}}}, "uses \\$id"),
        ({"properties": {"x": {"$dynamicRef": "#x"}}}, "uses \\$dynamicRef"),
        ({"description": "x" * 70_000}, "too large"),
        ({"properties": {"x": {"default": object()}}}, "cannot be JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        check_foreign(schema)


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"properties": {"x": schema}}
    with pytest.raises(InputError, match="too large"):
        check_foreign(schema)


@pytest.mark.parametrize("over", [0, 1])
def test_a_schema_may_be_exactly_as_large_as_it_may(over: int) -> None:
    empty = len(json.dumps({"description": ""}))
    long = {"description": "x" * (LARGEST_SCHEMA - empty + over)}
    deep: dict[str, Any] = {}
    for _ in range(DEEPEST_SCHEMA - 1 + over):
        deep = {"not": deep}
    for schema in (long, deep):
        if over:
            with pytest.raises(InputError, match="may have 65,536 characters and 32 levels"):
                check_foreign(schema)
        else:
            assert check_foreign(schema) == {"type": "object", **schema}


@pytest.mark.parametrize(
    ("version", "rest", "fits"),
    [
        ("http://json-schema.org/draft-03/schema#", {"exclusiveMinimum": True}, True),
        ("http://json-schema.org/draft-04/schema#", {"exclusiveMinimum": True}, True),
        ("http://json-schema.org/draft-04/schema#", {"exclusiveMinimum": 3}, False),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMinimum": True}, False),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMinimum": 3}, True),
        ("http://json-schema.org/draft-07/schema", {"items": [{"type": "null"}]}, True),
        ("https://json-schema.org/draft/2019-09/schema", {"items": [{"type": "null"}]}, True),
        ("https://json-schema.org/draft/2020-12/schema", {"items": [{"type": "null"}]}, False),
        ("", {"items": [{"type": "null"}]}, False),
        ("", {"items": {"type": "null"}}, True),
        ("http://json-schema.org/draft-07/schema#", {"items": {"type": "none"}}, False),
    ],
)
def test_a_keyword_means_what_its_version_says(
    version: str, rest: dict[str, Any], fits: bool
) -> None:
    schema = {"properties": {"x": rest}, **({"$schema": version} if version else {})}
    if fits:
        assert check_foreign(schema)["properties"] == {"x": rest}
    else:
        with pytest.raises(InputError, match=r"its schema is none: properties\.x\."):
            check_foreign(schema)


def test_older_schemas_are_understood() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "http://localhost/old",
        "definitions": {"pair": {"type": "array", "items": [{"type": "integer"}]}},
        "properties": {"x": {"$ref": "#/definitions/pair"}},
    }
    checker = ArgumentChecker(check_foreign(old), patterns=False)
    assert checker.problems({"x": [1]}) == []
    assert checker.problems({"x": ["a"]}) == ["argument 'x[0]' must be an integer, got 'a'"]


def test_patterns_of_others_cost_no_time() -> None:
    slow = {"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    assert (
        ArgumentChecker(check_foreign(slow), patterns=False).problems({"x": "a" * 60 + "b"}) == []
    )


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("keyword", "given"),
    [
        *(("type", given) for given in ("text", ["string", "null"], ["string", "no"], [], 3)),
        *(("items", given) for given in ({}, [{}], [], 3)),
        *(("required", given) for given in (["a"], ["a", "a"], [1], "a")),
        *(("properties", given) for given in ({"a": {"type": "no"}}, [], {"a": 1})),
        *(("anyOf", given) for given in ([{}], [], {}, [3])),
        *(("minimum", given) for given in (0, 1.5, "0", None)),
        *(("exclusiveMinimum", given) for given in (0, "0")),
        *(("minLength", given) for given in (0, 2.0, -1, 1.5, "1")),
        *(("multipleOf", given) for given in (0.1, 0)),
        *(("enum", given) for given in ([1, "a"], "a")),
        *(("additionalProperties", given) for given in (False, {"type": "null"}, 3)),
        *(("not", given) for given in ({}, {"type": 1})),
        *(("uniqueItems", given) for given in (True, 1)),
        *(("title", given) for given in ("a", 1)),
        *(("x-ours", given) for given in (1, {"type": "no"})),
    ],
)
def test_the_schema_of_schemas_says_the_same(draft: str, keyword: str, given: Any) -> None:
    schema = {"$schema": DRAFTS[draft], "type": "object", "properties": {"x": {keyword: given}}}
    rules = jsonschema.validators.validator_for(schema)
    try:
        rules.check_schema(schema)
        right = True
    except jsonschema.SchemaError:
        right = False
    try:
        check_foreign(schema)
        taken = True
    except InputError:
        taken = False
    assert taken == right


def test_a_large_schema_takes_no_time() -> None:
    wide = {f"name-{i}": {"type": "string"} for i in range(1_500)}
    began = thread_time()
    check_foreign({"properties": wide})
    assert thread_time() - began < MOST_S


@pytest.mark.parametrize("size", [30, 300_000])
def test_what_is_too_large_is_not_read_to_its_end(size: int) -> None:
    class Endless(list[Any]):
        """Says when it is read."""

        def __iter__(self) -> Any:
            raise AssertionError("it was read")

    with pytest.raises(InputError, match="too large: it may have 65,536 characters"):
        check_foreign({"enum": Endless([0] * size), "description": "x" * 70_000})


# --- arguments held against them --------------------------------------------------------------


def doubling(levels: int, keyword: str, times: int) -> dict[str, Any]:
    """A schema of a kilobyte that asks for `times` to the power of `levels` looks."""
    parts = {f"a{i}": {keyword: [{"$ref": f"#/$defs/a{i + 1}"}] * times} for i in range(levels)}
    last = {f"a{levels}": {"type": "integer"}}
    return {"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": {**parts, **last}}


@pytest.mark.parametrize(
    ("levels", "keyword", "times"),
    [(24, "allOf", 2), (5, "anyOf", 20)],
)
def test_references_that_multiply_come_to_an_end(levels: int, keyword: str, times: int) -> None:
    checker = ArgumentChecker(check_foreign(doubling(levels, keyword, times)), patterns=False)
    checker.problems({})
    began = thread_time()
    (problem,) = checker.problems({"x": "no"})
    assert thread_time() - began < 2 * MOST_S
    assert "too many arguments to check" in problem


def test_alternatives_of_alternatives_are_told_in_a_few_words() -> None:
    needed = {**doubling(6, "anyOf", 40), "required": ["x"]}
    began = thread_time()
    (problem,) = ArgumentChecker(check_foreign(needed), patterns=False).problems({})
    assert thread_time() - began < MOST_S
    assert problem.startswith("argument 'x' is missing: ")


def test_a_place_in_a_list_has_one_spelling() -> None:
    """Each spelling would be a copy of the definition."""
    schema = {"$defs": {"a": {"anyOf": [{"type": "null"}]}}, "properties": {"x": {}}}
    for name in ("00", "+0", "-1", "\u0660"):
        schema["properties"] = {"x": {"$ref": f"#/$defs/a/anyOf/{name}"}}
        with pytest.raises(InputError, match="which is not in it"):
            check_foreign(schema)
