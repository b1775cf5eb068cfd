"""`$1` in arguments: read, put in, and never mistaken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from teola.errors import InputError
from teola.tools import ToolResult
from teola.tools.json_schema import REFERENCE, REFERENCES
from teola.tools.references import (
    NAMES,
    Reference,
    lone,
    referred,
    referring,
    substituted,
    unknown,
)
from tests.planted import catches, edited

RESULTS = {
    1: ToolResult("", [3, 4]),
    2: ToolResult("", {"city": {"name": "Oslo", "people": 709_000}, "odd key": 1}),
    3: ToolResult("", "a text with $1 in it"),
    4: ToolResult("", None),
    5: ToolResult("", '{"hits": [{"title": "Fjord"}]}'),
    6: ToolResult("it broke", failed=True),
    12: ToolResult("", 2.5),
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("$1", [3, 4]),
        ("${1}", [3, 4]),
        ("$1[0]", 3),
        ("$2.city.name", "Oslo"),
        ("${2.city.people}", 709_000),
        ("$4", None),
        ("$12", 2.5),
        ("$5.hits[0].title", "Fjord"),
        ("$3", "a text with $1 in it"),
        ("in ${2.city.name}.", "in Oslo."),
        ("of ${1} and ${1[1]}!", "of [3, 4] and 4!"),
        ("${1[0]}${1[1]}", "34"),
        ("in ${2.city}", 'in {"name": "Oslo", "people": 709000}'),
        ("it is ${4}", "it is null"),
        ("from ${3}", "from a text with $1 in it"),
        # what is none
        ("$$1", "$1"),
        ("$$$1", "$$1"),
        ("$$2.city", "$2.city"),
        ("$${1}", "${1}"),
        ("$$${1}", "$${1}"),
        ("a $${1} b ${1} c $$${1[0]}", "a ${1} b [3, 4] c $${1[0]}"),
        ("a $${1", "a $${1"),
        ("costs $1, $2.50 or $$1", "costs $1, $2.50 or $$1"),
        ("You owe $1 and awk '{print $1}' ${HOME}", "You owe $1 and awk '{print $1}' ${HOME}"),
        ("SELECT * FROM t WHERE a = $1", "SELECT * FROM t WHERE a = $1"),
        ("$$", "$$"),
        ("a $$ b", "a $$ b"),
        ("$0", "$0"),
        ("$x", "$x"),
        ("$", "$"),
        ("costs $7", "costs $7"),
        ("costs $1.50, $1,000 or $12.5", "costs $1.50, $1,000 or $12.5"),
        ("$1000000000", "$1000000000"),
        ("${1", "${1"),
        ("plain", "plain"),
        # anywhere
        ({"a": ["$1[0]", {"b": "$2.city.name"}], "$1": 1}, {"a": [3, {"b": "Oslo"}], "$1": 1}),
        ([1, True, None, 2.5], [1, True, None, 2.5]),
    ],
)
def test_results_come_in_the_place_of_references(given: Any, found: Any) -> None:
    assert substituted(given, RESULTS) == found
    assert type(substituted(given, RESULTS)) is type(found)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("$6", "$6 cannot be read, because call 6 failed"),
        ("so ${6.x} is", "$6.x cannot be read, because call 6 failed"),
        ("$2.town", "$2.town leads nowhere: there is no 'town' (there is city, odd key)"),
        ("$1[2]", "$1[2] leads nowhere: there are 2 items, counted from 0"),
        ("$1.x", "$1.x leads nowhere: [3, 4] has no 'x'"),
        ("$2[0]", "$2[0] leads nowhere: {"),
        ("$12.x", "$12.x leads nowhere: 2.5 has no 'x'"),
        ("$3.x", "$3.x leads nowhere: 'a text with $1 in it' has no 'x'"),
    ],
)
def test_what_cannot_be_read_is_told(given: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        substituted([given], RESULTS)
    assert str(caught.value).startswith(told)


def test_references_are_found_wherever_they_stand() -> None:
    value = {"a": "$2.x", "b": ["from ${1[0]} to ${12}", {"c": "$7"}], "d": "$$1", "e": "at $5"}
    earlier = {1, 2, 3, 5, 12}
    assert list(map(str, referred(value, earlier))) == ["$2.x", "$1[0]", "$12"]
    assert unknown(value, earlier) == [Reference(7, ())]
    assert lone("$2.x[3].y") == Reference(2, ("x", 3, "y"))


# --- properties -------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab$12{}.[] é"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def escaped(value: Any) -> Any:
    """Written so that it stands for itself."""
    if isinstance(value, str):
        path = r"(?:\.[A-Za-z_]\w*|\[\d{1,6}\])*"
        if re.fullmatch(rf"\$+[1-9]\d{{0,5}}{path}", value, re.ASCII):
            return f"${value}"
        return re.sub(rf"\$(?={{[1-9]\d{{0,5}}{path}}})", "$$", value, flags=re.ASCII)
    if isinstance(value, list):
        return list(map(escaped, value))
    if isinstance(value, dict):
        return {key: escaped(one) for key, one in value.items()}
    return value


@given(VALUES, st.dictionaries(st.integers(1, 12), VALUES))
def test_whatever_is_written_out_stands_for_itself(value: Any, values: Mapping[int, Any]) -> None:
    results = {number: ToolResult("", one) for number, one in values.items()}
    assert substituted(escaped(value), results) == value
    assert referred(escaped(value), results) == []


@given(VALUES)
def test_without_earlier_calls_nothing_is_put_in(value: Any) -> None:
    plain = json.loads(json.dumps(value).replace("$$", "$"))
    assert referred(plain, ()) == []
    if "$$" not in json.dumps(plain):
        assert substituted(plain, {}) == plain


@catches(
    "values-looked-through",
    "references in results are followed",
    edited(
        "teola.tools.references:_Filling.of",
        "return self._value(reference)",
        "return self.of(self._value(reference))",
    ),
)
@given(
    shape=st.recursive(
        st.just("HERE") | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    found=VALUES | st.sampled_from(["$1000", "from $1000", ["$$1"]]),
    number=st.integers(1, 99),
)
def test_a_lone_reference_is_the_value_itself(shape: Any, found: Any, number: int) -> None:
    def filled(shape: Any, value: Any) -> Any:
        if shape == "HERE":
            return value
        if isinstance(shape, list):
            return [filled(one, value) for one in shape]
        if isinstance(shape, dict):
            return {key: filled(one, value) for key, one in shape.items()}
        return shape

    results = {number: ToolResult("", found), 1_000: ToolResult("", "never")}
    asked = filled(shape, f"${number}")
    assert substituted(asked, results) == filled(shape, found)
    asked = filled(shape, f"${{{number}}}")
    assert substituted(asked, results) == filled(shape, found)


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 9))
def test_in_a_text_it_is_the_text(before: str, found: str, after: str, number: int) -> None:
    asked = f"{escaped(before)} ${{{number}}} {escaped(after)}"
    results = {number: ToolResult("", found)}
    assert substituted(asked, results) == f"{before} {found} {after}"


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, lambda v: {"a": v}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, lambda v: {"a": v}),
        ({"type": "array", "items": {"type": "integer"}}, lambda v: [1, v]),
        ({"type": "array", "prefixItems": [True, {"type": "integer"}]}, lambda v: [1, v]),
    ],
)
def test_a_reference_may_stand_for_any_value_of_a_schema(
    schema: dict[str, Any], where: Callable[[Any], Any]
) -> None:
    inside = {"type": "object", "properties": {"deeper": schema}}
    deeper: list[tuple[Any, Callable[[Any], Any]]] = [
        (schema, where),
        (inside, lambda value: {"deeper": where(value)}),
    ]
    for closed, put in deeper:
        takes = Draft202012Validator({"$defs": dict(REFERENCES), **referring(closed)}).is_valid
        assert takes(put(1))
        assert takes(put("$1"))
        assert takes(put("$2[0]"))
        assert not takes(put("no number"))


def test_what_stands_there_already_counts_as_well() -> None:
    results = {1: ToolResult("", "xy")}
    assert substituted(["abc", "$1"], results, 5) == ["abc", "xy"]
    for value in (["abcd", "$1"], ["abc${1}", "x"], "abcdef"):
        with pytest.raises(InputError, match="more than 5 characters"):
            substituted(value, results, 5)


def test_braces_around_a_number_that_no_call_has_stay() -> None:
    assert (
        substituted("${1} and ${2} and ${10}", {1: ToolResult("", "a")}) == "a and ${2} and ${10}"
    )


@pytest.mark.parametrize(("characters", "opens"), [(11, True), (20, True), (21, False)])
def test_a_text_is_looked_into_up_to_twice_what_arguments_may_have(
    characters: int, opens: bool
) -> None:
    text = '{"a": 1}'.ljust(characters)
    if opens:
        assert substituted("$1.a", {1: ToolResult("", text)}, 10) == 1
    else:
        with pytest.raises(InputError, match="it is a text of 21 characters, and is looked into"):
            substituted("$1.a", {1: ToolResult("", text)}, 10)


@pytest.mark.parametrize(("text", "told"), [("3", "'3' has no 'a'"), ("null", "'null' has no 'a'")])
def test_a_text_that_is_no_object_in_json_is_a_text(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        substituted("$1.a", {1: ToolResult("", text)})


def test_so_many_fields_are_listed_and_the_rest_counted() -> None:
    for count, more in ((NAMES, False), (NAMES + 1, True)):
        value = {f"f{k:02}": k for k in range(count)}
        with pytest.raises(InputError) as error:
            substituted("$1.none", {1: ToolResult("", value)})
        assert str(error.value).count(", f") == NAMES - 1
        assert ("and 1 more" in str(error.value)) is more


@pytest.mark.parametrize("free", [{}, {"description": "x"}, {"type": "string", "default": "y"}])
def test_what_takes_any_text_takes_a_reference_anyway(free: dict[str, Any]) -> None:
    bound = {"type": "string", "maxLength": 3}
    opened = referring({"properties": {"a": free, "b": bound}})["properties"]
    assert opened == {"a": free, "b": {"anyOf": [bound, REFERENCE]}}
