"""Excerpts of values: what is shown as it is, where they are cut, and what stands for the rest."""

from __future__ import annotations

from collections import OrderedDict
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

from teola.engine import Chunk, Hit, Scope
from teola.runtime.observe.excerpts import (
    DEPTH,
    FEW,
    LARGEST,
    SLACK,
    ValueExcerpt,
    bytes_of_text,
    excerpts,
)
from teola.runtime.values import RemoteList

SECRET = "correct-horse-battery"


def hide(text: str) -> str:
    return text.replace(SECRET, "***")


def shown(value: Any, most: int = 1000, **more: Any) -> Any:
    return ValueExcerpt(more.pop("hide", None), most, **more).of(value)


class Text(str):
    """A text that is none of the usual ones."""


# --- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Text])
@pytest.mark.parametrize("hides", [None, hide])
@pytest.mark.parametrize(("longest", "most"), [(5, 100), (100, 5), (5, 5)])
def test_a_text_is_whole_up_to_its_bound_and_what_is_left(
    kind: type[str], hides: Any, longest: int, most: int
) -> None:
    for length, told in (
        (4, "xxxx"),
        (5, "xxxxx"),
        (6, "xxxxx [cut: 6 characters]"),
        (SLACK + 9_999, "xxxxx [cut: 17,999 characters]"),
    ):
        excerpt = ValueExcerpt(hides, most, longest)
        assert excerpt.of(kind("x" * length)) == told
        assert excerpt.left == most - min(5, length)
    empty = ValueExcerpt(hides, 0)
    assert (empty.of(""), empty.of("x")) == ("", " [cut: 1 characters]")


def test_bytes_are_counted_where_they_are_asked_for_and_no_character_is_cut_in_two() -> None:
    assert [bytes_of_text(text) for text in ("", "ab", "aæ", "\ud800")] == [0, 2, 3, 1]
    for most, in_bytes, told in (
        (3, False, "æææ"),
        (6, True, "æææ"),
        (5, True, "ææ [cut: 3 characters]"),
        (4, True, "ææ [cut: 3 characters]"),
        (2, False, "ææ [cut: 3 characters]"),
    ):
        excerpt = ValueExcerpt(None, most, in_bytes=in_bytes)
        assert excerpt.of("æææ") == told
        assert excerpt.left == 0
    assert shown("aæ", 3, in_bytes=True) == "aæ"


@pytest.mark.parametrize("before", range(0, 12, 3))
def test_a_secret_is_hidden_wherever_the_cut_goes(before: int) -> None:
    told = shown("x" * before + SECRET + "y" * 50, 10, hide=hide)
    assert told == f"{('x' * before + '***' + 'y' * 50)[:10]} [cut: {before + 71} characters]"
    assert shown("x" + SECRET, 4, hide=hide) == "x***", "what is left of it is whole"
    key = shown({SECRET: SECRET}, hide=hide)
    assert key == {"***": "***"}


# --- other values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, None),
        (True, True),
        (0.5, 0.5),
        (LARGEST - 1, LARGEST - 1),
        (1 - LARGEST, 1 - LARGEST),
        (LARGEST, "(int)"),
        (-LARGEST, "(int)"),
        (inf, "(float)"),
        (nan, "(float)"),
        (object, "(type)"),
        ({1}, "(set)"),
        (b"x", "(bytes)"),
        (RemoteList([([0] * 1500, 0, 1234)]), "(1,234 items, which their engine keeps)"),
        (SimpleNamespace(shape=(2, 3)), "(SimpleNamespace of 2 x 3)"),
        (SimpleNamespace(shape=()), "(SimpleNamespace of )"),
        (SimpleNamespace(shape=[2]), "(SimpleNamespace)"),
        (Chunk("d", 0, "text", "name"), "text"),
        (Hit("1", "a.md", "text", 0.5, {"page": 1}), {
            "document": "a.md", "score": 0.5, "text": "text"}),
        (Scope("t", "c", ("a",), {"year": 1}), {
            "collection": "c", "documents": ["a"], "filters": {"year": 1}}),
        ((1, "a"), [1, "a"]),
        (OrderedDict(a=1), {"a": 1}),
        ({1: 2}, {"1": 2}),
    ],
)  # fmt: skip
def test_a_value_is_shown_as_json_has_it_or_named(value: Any, told: Any) -> None:
    assert shown(value) == told
    assert type(shown(value)) is type(told)


@pytest.mark.parametrize("around", [dict, OrderedDict, list, tuple])
def test_what_lies_too_deep_is_named(around: Any) -> None:
    value: Any = "deep"
    for depth in range(DEPTH + 1):
        assert "deep" in str(shown(value)) or depth > DEPTH
        value = around({"a": value}) if issubclass(around, dict) else around([value])
    assert str(shown(value)).count(f"({around.__name__})") == 1
    assert "deep" not in str(shown(value))


def test_of_a_list_and_a_mapping_it_is_said_how_much_more_there_is() -> None:
    texts = [f"t{k}" for k in range(5)]
    most = FEW + 3
    assert shown(texts, most) == ["t0", "t [cut: 2 characters]", "[cut: 3 more]"]
    assert shown(texts, FEW + 4) == ["t0", "t1", "[cut: 3 more]"]
    assert shown(texts, FEW + 10) == texts
    assert shown(["x"] * 2000, FEW) == ["[cut: 2,000 more]"]
    mapping = {f"k{k}": "v" for k in range(3)}
    assert shown(mapping, FEW + 3) == {"k0": "v", "[cut]": "2 more"}
    assert shown(mapping, FEW + 9) == mapping


@pytest.mark.parametrize("kind", [list, tuple])
def test_whole_numbers_are_shown_together_where_all_of_them_have_room(kind: type) -> None:
    """Each counts as `FEW`, as others do."""
    for last in (3, True, LARGEST - 1):
        excerpt = ValueExcerpt(None, 4 * FEW)
        assert excerpt.of(kind([1, 2, last])) == [1, 2, last]
        assert excerpt.left == 0
    assert shown(kind([1, 2, 3]), 4 * FEW - 1) == [1, 2, 3]
    assert shown(kind([1, 2, 3]), 3 * FEW) == [1, 2, "[cut: 1 more]"]
    assert shown(kind([1, LARGEST])) == [1, "(int)"]
    assert shown(kind([-LARGEST, 1])) == ["(int)", 1]
    assert shown(kind([])) == []


def test_each_of_several_values_has_an_equal_part() -> None:
    told = excerpts({"a": "x" * 100, "b": "y" * 100, "c": "z"}, hide, 30)
    assert told == {"a": "x" * 10 + " [cut: 100 characters]",
                    "b": "y" * 10 + " [cut: 100 characters]", "c": "z"}  # fmt: skip
    assert excerpts({}, hide, 30) == {}
