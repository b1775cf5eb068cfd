"""The text of a field, however the JSON around it is cut into pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.runtime.hosts.field_text import FieldText


def read(text: str, cuts: list[int]) -> list[str]:
    field = FieldText("answer")
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    return [field.feed(text[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text().filter(lambda key: key != "answer"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.text() | st.text('\\ud8a0"é😀'),
    values,
    st.lists(st.integers(0, 200), max_size=12),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_it_is_the_text_whatever_stands_before_and_behind(
    text: str, other: Any, cuts: list[int], plain: bool, indent: int | None
) -> None:
    given = json.dumps(
        [{"thought": other, "answer": text, "then": '"answer": "no"'}],
        ensure_ascii=plain,
        indent=indent,
    )
    assert "".join(read(given, cuts)) == text


def test_it_comes_as_it_is_written() -> None:
    field = FieldText("answer")
    pieces = [
        '[{"ans',
        'wer" ',
        ': "It',
        " is \\",
        'n\\"so\\"',
        " \\ud83d",
        '\\ude00."}, {"answer": "x"}]',
    ]
    assert [field.feed(piece) for piece in pieces] == ["", "", "It", " is ", '\n"so"', " ", "😀."]


@pytest.mark.parametrize("backslashes", range(5))
@pytest.mark.parametrize("plain", [True, False])
def test_what_looks_like_half_a_pair_is_text_behind_a_backslash(
    backslashes: int, plain: bool
) -> None:
    """Wherever a piece ends."""
    text = f"a{chr(92) * backslashes}ud83d{chr(92) * backslashes}😀"
    given = json.dumps({"answer": text}, ensure_ascii=plain)
    for cut in range(len(given)):
        assert "".join(read(given, [cut])) == text


@pytest.mark.parametrize("text", ["", "no JSON", '{"answer": 3}', '{"answers": "x"}', '"answer'])
def test_where_there_is_none_there_is_nothing(text: str) -> None:
    assert "".join(read(text, [])) == ""
