"""The size of a value without writing it, against what json writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.tools.json_size import JsonSize, json_size

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=6,
)


def levels(value: Any) -> int:
    if isinstance(value, (str, int, float)) or value is None:
        return 0
    items = value.values() if isinstance(value, dict) else value
    return 1 + max(map(levels, items), default=0)


@settings(max_examples=40)
@given(values)
def test_it_is_what_json_writes_and_no_more_than_that_may_be_is_enough(value: Any) -> None:
    size = len(json.dumps(value))
    assert json_size(value, 10**6) == JsonSize(size, levels(value))
    assert json_size(value, 4 * size) == JsonSize(size, levels(value))
    assert json_size(value, size - 1).characters > size - 1


def test_what_json_does_not_know_is_told_or_stands_as_another() -> None:
    for value in (object(), [object()], {"a": {1}}):
        with pytest.raises(TypeError, match="is no JSON value"):
            json_size(value, 100)
    assert json_size([{1}, {2}], 100, lambda value: "ab") == JsonSize(len('["ab", "ab"]'), 1)


def test_what_holds_itself_is_longer_than_any_bound() -> None:
    value: list[Any] = []
    value.append(value)
    assert json_size(value, 1000).characters > 1000


@pytest.mark.parametrize(
    "value", [[[], [[[]]]], [[[[]]], []], {"a": [[{}]], "b": {}}, [1, {"a": [{}]}]]
)
def test_the_deepest_place_counts_wherever_it_stands(value: Any) -> None:
    assert json_size(value, 1_000).levels == 4
