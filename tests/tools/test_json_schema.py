"""References within a schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.tools.json_schema import target


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
