"""What values are to a prompt: the text of each kind, of lists in lists, and what has none."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from teola.engine import Chunk, Hit
from teola.errors import OutputError
from teola.runtime.values import text_of

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
