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
        one, level = left.pop()
        if isinstance(one, str):
            # a text above the bound is not even quoted
            characters += len(one) if len(one) > most else len(encode_basestring_ascii(one))
        elif one is None or isinstance(one, bool):
            characters += _WORDS[one]
        elif isinstance(one, (int, float)):
            characters += len(json.dumps(one))
        elif isinstance(one, (Mapping, list, tuple)):
            deepest = max(deepest, level + 1)
            items = one
            if isinstance(one, Mapping):
                items = (*map(str, one), *one.values()) if 4 * len(one) <= most else ()
                characters += 2 * len(one)
            # brackets, and separators of two characters between items; with names, behind them too
            characters += max(2, 2 * len(one))
            if characters <= most:
                left += [(item, level + 1) for item in items]
        elif other is not None:
            left.append((other(one), level))
        else:
            raise TypeError(f"{type(one).__name__} is no JSON value")
    return JsonSize(characters, deepest)
