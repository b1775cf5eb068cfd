"""What values are: how many items, how many tokens, and what text they make in a prompt.

A simulated query's values are `Tokens`: texts of which only the length is known. They go through
the same store, slices and Aggregates as real ones.
"""

from __future__ import annotations

import json
from typing import Any

from teola.engine import Chunk, Hit
from teola.schedule.plan import ABSENT

CHARACTERS_PER_TOKEN = 4


class Tokens(int):
    """A simulated text (or chunk, or hit) of that many tokens."""


def count_of(value: Any) -> int:
    """Items of a value: a list's length, 1 for anything else, ABSENT for None."""
    if value is None:
        return ABSENT
    return len(value) if type(value) is list else 1


def tokens_of(value: Any) -> int:
    """Tokens of a value's text, estimated at four characters each."""
    kind = type(value)
    if kind is str:
        return len(value) // CHARACTERS_PER_TOKEN + 1
    if kind is Tokens:
        return int(value)
    if kind is list:
        return sum(map(tokens_of, value))
    if kind is Hit or kind is Chunk:
        return len(value.text) // CHARACTERS_PER_TOKEN + 1
    return 0 if value is None else tokens_of(text_of(value))


def text_of(value: Any, separator: str = "\n\n") -> str:
    """The text that a value contributes to a prompt."""
    if isinstance(value, str):
        return value
    if isinstance(value, (Hit, Chunk)):
        return value.text
    if isinstance(value, list):
        return separator.join(text_of(item, separator) for item in value)
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str)
