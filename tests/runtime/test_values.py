"""What values are: their text in a prompt, their items and tokens, and lists that lie elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from teola.engine import Chunk, Hit
from teola.errors import OutputError
from teola.runtime.values import (
    RemoteList,
    Tokens,
    counts_of,
    joined_lists,
    text_of,
    tokens_of,
)
from teola.schedule.plan import ABSENT

HIT, CHUNK = Hit("a/0", "a", "a hit", 0.5), Chunk("a", 0, "a chunk", "")
LEAVES: list[tuple[Any, str]] = [
    ("", ""),
    ('æ "b"', 'æ "b"'),
    (HIT, "a hit"),
    (CHUNK, "a chunk"),
    (None, ""),
    (0, "0"),
    (False, "false"),
    (1.5, "1.5"),
    ({}, "{}"),
    ({"ü": [HIT, None, {"x": CHUNK}]}, '{"ü": ["a hit", null, {"x": "a chunk"}]}'),
    (np.float32(0.5), "0.5"),
    (np.arange(3), "[0, 1, 2]"),
]


@pytest.mark.parametrize(("value", "text"), LEAVES)
def test_the_text_of_each_kind(value: Any, text: str) -> None:
    assert text_of(value) == text_of([value]) == text_of(value, ", ") == text


def _nested(draw: Random, depth: int) -> list[Any]:
    return [
        _nested(draw, depth - 1) if depth and draw.random() < 0.5 else draw.choice(LEAVES)
        for _ in range(draw.randint(1, 4))
    ]


def _leaves(nested: list[Any]) -> Iterator[str]:
    for one in nested:
        yield from _leaves(one) if isinstance(one, list) else [one[1]]


def _values(nested: list[Any]) -> list[Any]:
    return [_values(one) if isinstance(one, list) else one[0] for one in nested]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("separator", [None, ", ", "\n", ""])
def test_one_separator_stands_between_all_that_lists_hold(seed: int, separator: str | None) -> None:
    """However deep it lies: two blank lines where none is named."""
    nested = _nested(Random(seed), 3)
    more = () if separator is None else (separator,)
    between = "\n\n" if separator is None else separator
    assert text_of(_values(nested), *more) == between.join(_leaves(nested))


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_what_has_no_text_is_refused_wherever_it_lies(value: Any) -> None:
    for whole in (value, ["x", value], [["x", [value]]], {"a": value}, {"a": [{"b": value}]}):
        with pytest.raises(OutputError, match=f"not {type(value).__name__}: give its text"):
            text_of(whole)


# --- lists that lie elsewhere -----------------------------------------------------------------


async def _far(items: list[int]) -> list[int]:
    return items


@pytest.mark.parametrize("seed", range(5))
async def test_a_list_elsewhere_is_cut_and_joined_as_one_that_is_here(seed: int) -> None:
    draw = Random(seed)
    whole, pieces = list[int](), list[tuple[Any, int, int]]()
    for k in range(4):
        source = [*range(10 * k, 10 * k + 6)]
        lo = draw.randrange(6)
        hi = draw.randrange(lo, 7)
        pieces.append((source, lo, hi))
        whole += source[lo:hi]
    remote = RemoteList(pieces)
    assert len(remote) == len(whole)
    assert await remote.fetch() == whole
    for _ in range(30):
        first, end = draw.randrange(12), draw.choice([None, draw.randrange(14)])
        cut, part = remote[first:end], whole[first:end]
        assert await cut.fetch() == part
        assert await cut[1:3].fetch() == part[1:3]
        assert all(low < high for _, low, high in cut.pieces)
        joined = joined_lists([[7, 8], cut, [], [9]])
        assert type(joined) is RemoteList
        assert await joined.fetch() == [7, 8, *part, 9]
    assert joined_lists([[1], [], [2, 3]]) == [1, 2, 3]


async def test_what_is_referred_to_is_fetched_where_it_lies() -> None:
    assert await RemoteList([(_far([1, 2, 3]), 1, 3), ([4], 0, 1)]).fetch() == [2, 3, 4]


def test_a_value_counts_as_its_items_as_one_or_as_none() -> None:
    values = {"list": [1, None], "none": None, "text": "abc", "empty": [], "tuple": (1, 2)}
    assert counts_of({**values, "far": RemoteList([([1, 2, 3], 0, 2)])}) == {
        "list": 2, "none": ABSENT, "text": 1, "empty": 0, "tuple": 1, "far": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("", 1), ("abc", 1), ("abcd", 2), (HIT, 2), (CHUNK, 2), (None, 0), (Tokens(7), 7),
        (["abcd", None, Tokens(7)], 9), (["abcd", ["abcd"]], 4), (123, 1), ({"a": 1}, 3),
    ],
)  # fmt: skip
def test_tokens_are_estimated_at_four_characters_each(value: Any, tokens: int) -> None:
    assert tokens_of(value) == tokens
