"""What a tool returns becomes text for a model, and JSON for other calls."""

from __future__ import annotations

import json
from collections import UserDict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from teola.tools import tool
from teola.tools.bounded_json import bounded
from teola.tools.tool_result import cut


@dataclass
class Point:
    x: int
    y: float


class Model(BaseModel):
    when: date


class Word(StrEnum):
    YES = "yes"


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("returned", "text", "value"),
    [
        ("plain", "plain", "plain"),
        ("", "", ""),
        (None, "null", None),
        (3, "3", 3),
        (True, "true", True),
        ([1, "æ"], '[1, "æ"]', [1, "æ"]),
        ((1, 2), "[1, 2]", [1, 2]),
        ({1: date(2026, 1, 2)}, '{"1": "2026-01-02"}', {"1": "2026-01-02"}),
        (Point(1, 2.5), '{"x": 1, "y": 2.5}', {"x": 1, "y": 2.5}),
        (Model(when=date(2026, 1, 2)), '{"when": "2026-01-02"}', {"when": "2026-01-02"}),
        (Word.YES, "yes", "yes"),
        (Decimal("1.50"), "1.50", "1.50"),
        (Path("a/b"), "a/b", "a/b"),
        (UUID(int=1), str(UUID(int=1)), str(UUID(int=1))),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"),
        (np.arange(3), "[0, 1, 2]", [0, 1, 2]),
        (np.zeros(0), "[]", []),
        (np.zeros((0, 3)), "[]", []),
        (np.zeros((2, 0)), "[[], []]", [[], []]),
        (np.array(3), "3", 3),
        ({"n": np.float32(0.5)}, '{"n": 0.5}', {"n": 0.5}),
        (UserDict(a=1), '{"a": 1}', {"a": 1}),
        ("half \ud83d pair", "half ? pair", "half ? pair"),
        (["\ud83d"], '["?"]', ["?"]),
        (b"bytes", "bytes", "bytes"),
    ],
)
async def test_a_result_becomes_text(returned: Any, text: str, value: Any) -> None:
    @tool
    def give() -> Any:
        """Gives."""
        return returned

    result = await give.call({})
    assert not result.failed, result.text
    assert result.text == text
    assert result.value == value
    assert type(result.value) in (str, int, float, bool, list, dict, type(None))


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (object(), "object has no form in JSON"),
        ({"lock": object()}, "object has no form in JSON"),
        (float("nan"), "not JSON compliant"),
        ([float("inf")], "not JSON compliant"),
        (b"\xff", "invalid utf-8"),
        (LOOP, "Circular reference"),
        (DEEP, ""),
        ((i for i in range(3)), "it returned a generator, which is no value; return a list"),
    ],
)
async def test_what_cannot_be_json_is_told(returned: Any, told: str) -> None:
    @tool
    def give() -> Any:
        """Gives."""
        return returned

    result = await give.call({})
    assert result.failed
    assert result.value is None
    assert result.text.startswith("give failed: ")
    assert told in result.text


async def test_a_long_result_is_cut_and_says_so() -> None:
    @tool(most_chars=300)
    def give(count: int) -> list[int]:
        """Gives."""
        return list(range(count))

    result = await give.call({"count": 1_000})
    assert len(result.text) == 300
    assert result.text.startswith("[0, 1, 2")
    assert result.text.endswith("[cut: this is the beginning of 4,890 characters; ask for less]")
    assert result.value == list(range(1_000)), "other calls may read all of it"
    whole = await give.call({"count": 10})
    assert whole.text == json.dumps(list(range(10)))


@given(st.text(max_size=500), st.integers(200, 400))
def test_a_cut_text_is_as_long_as_it_may_be(text: str, most: int) -> None:
    found = cut(text, most)
    assert len(found) == min(len(text), most)
    assert found == text or found.startswith(text[: most - 100])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_json_stays_json(value: Any) -> None:
    try:
        clean = json.loads(json.dumps(value, allow_nan=False))
    except ValueError:  # infinity
        return
    try:
        json.dumps(clean, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a pair
        return
    found = bounded(value, 2**20)
    text = json.dumps(clean, ensure_ascii=False)
    assert (found.value, found.cut) == (clean, False)
    assert (found.characters, found.bytes) == (len(text), len(text.encode()))


@given(st.data())
def test_a_value_is_cut_where_it_is_too_long_and_nowhere_else(data: st.DataObject) -> None:
    """Also where it fits exactly. What is left stands at the beginning of the whole."""
    value = data.draw(VALUES)
    size = len(json.dumps(value, ensure_ascii=False).encode())
    whole = bounded(value, size)
    assert (whole.value, whole.cut, whole.bytes) == (value, False, size)
    most = data.draw(st.integers(0, max(0, size - 1)))
    part = bounded(value, most)
    assert part.cut
    if part.value is not None:
        text = json.dumps(part.value, ensure_ascii=False)
        assert (part.characters, part.bytes) == (len(text), len(text.encode()))
        assert part.bytes <= max(most, 2)
        assert begins(part.value, value)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=20)
    ),
    max_leaves=25,
)


def begins(part: Any, whole: Any) -> bool:
    """Whether the items of a value are the first of another, the last of them perhaps cut."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(begins, part, whole))
    if isinstance(part, dict) and isinstance(whole, dict):
        return [*part] == [*whole][: len(part)] and all(begins(part[k], whole[k]) for k in part)
    return bool(part == whole)


def test_a_text_without_room_for_its_quotes_is_left_out() -> None:
    for value, most, kept in (
        ([""], 3, []),
        (["a"], 2, []),
        ({"": ""}, 7, {}),
        (["", ""], 7, [""]),
    ):
        part = bounded(value, most)
        assert (part.value, part.cut) == (kept, True)
        assert part.bytes <= most


def test_a_text_that_ends_what_is_kept_is_kept_as_far_as_there_is_room() -> None:
    for text in ("a" * 100, "æ" * 100, '"' * 100, "a\U0001f600" * 50):
        for most in range(2, 40):
            part = bounded(text, most)
            assert most - 7 <= part.bytes <= most or not part.value
            assert part.whole == len(text)
