"""How long a value would be as JSON, counted up to a bound: who refuses long values must not write
them first, since a value of megabytes is written in one call that nothing interrupts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

_WORDS: Final = {None: 4, True: 4, False: 5}


class JsonSize(NamedTuple):
    """characters: of the value as `json.dumps` writes it. levels: lists and objects inside each
    other."""

    characters: int
    levels: int


def json_size(value: Any, most: int, other: Callable[[Any], str] | None = None) -> JsonSize:
    """The size of a value; some number above `most` where it is longer than that. A value that
    holds itself is longer.

    other: text in place of a value that JSON does not know. Without it TypeError is raised.
    """
    characters = deepest = 0
    left: list[tuple[Any, int]] = [(value, 0)]
    while left and characters <= most:
        current, level = left.pop()
        if isinstance(current, str):
            # a text above the bound is not even quoted
            characters += (
                len(current) if len(current) > most else len(encode_basestring_ascii(current))
            )
        elif current is None or isinstance(current, bool):
            characters += _WORDS[current]
        elif isinstance(current, (int, float)):
            characters += len(json.dumps(current))
        elif isinstance(current, (Mapping, list, tuple)):
            deepest = max(deepest, level + 1)
            items = current
            if isinstance(current, Mapping):
                items = (*map(str, current), *current.values()) if 4 * len(current) <= most else ()
                characters += 2 * len(current)
            # brackets, and separators of two characters between items; with names, behind them too
            characters += max(2, 2 * len(current))
            if characters <= most:
                left += [(item, level + 1) for item in items]
        elif other is not None:
            left.append((other(current), level))
        else:
            raise TypeError(f"{type(current).__name__} is no JSON value")
    return JsonSize(characters, deepest)
