"""JSON values and the event loop: which are small enough to be handled there, and how the others
are written elsewhere.

One call into C keeps the interpreter, whatever thread it runs in. So what is large is written in
pieces, each by a short call, and what has been weighed once is not walked through again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

SMALL_VALUES: Final = 1_000
SMALL_BYTES: Final = 64 * 2**10
"""Of a value that may be converted or written on the event loop: about a millisecond."""
FEW: Final = 16
SHORT_TEXT: Final = 512
LARGE_INT: Final = 2**63
"""Bounds of what is tiny."""
LONG_TEXT: Final = 2**20
"""Characters of a text that are written at once."""
_BATCH: Final = 64
"""Items of a list that are tried in one piece."""
_OTHER: Final = 64
"""Bytes of a value of a type that is not known: a date, a path, a number of another library."""
_NUMBERS: Final = (int, float, bool, type(None))


class Weighed(dict[str, Any]):
    """A mapping of JSON values that were weighed when they were made. nbytes: what they hold."""

    __slots__ = ("nbytes",)

    def __init__(self, values: Mapping[str, Any], nbytes: int) -> None:
        super().__init__(values)
        self.nbytes = nbytes


def is_small(value: Any) -> bool:
    """Whether the event loop may convert, copy or write a value."""
    return fits(value, SMALL_VALUES, SMALL_BYTES)


def tiny_bytes(values: Collection[Any]) -> int | None:
    """Bytes, about, of values that are few, and each a whole number, true, false, None or a short
    text: what most functions give, told sooner than by `is_small`. None: they are more."""
    if len(values) > FEW:
        return None
    size = 0
    for value in values:
        kind = type(value)
        if kind is str:
            if len(value) > SHORT_TEXT:
                return None
            size += len(value) if value.isascii() else 4 * len(value)
        elif value is None or kind is bool or (kind is int and -LARGE_INT < value < LARGE_INT):
            size += 8
        else:
            return None
    return size


def fits(value: Any, values: int, size: int) -> bool:
    """Whether a value has at most so many values inside it and about so many bytes. Stops counting
    where it does not; what cannot be counted, such as a generator, does not fit."""
    left: list[Collection[Any]] = [(value,)]
    values -= 1
    while left:
        for item in left.pop():  # which were counted when they were put there
            kind = type(item)
            if kind is str:
                size -= len(item)
                continue
            if kind in _NUMBERS:
                size -= item.bit_length() // 3 + 1 if kind is int else 8
                continue
            inside: tuple[Collection[Any], ...] = ()
            if isinstance(item, dict):
                inside = item.keys(), item.values()
            elif isinstance(item, (list, tuple, set, frozenset)):
                inside = (item,)
            elif isinstance(item, (str, bytes, bytearray)):
                size -= len(item)
            elif type(nbytes := getattr(item, "nbytes", None)) is int:
                size -= nbytes
            elif hasattr(item, "__next__") or hasattr(item, "__len__"):
                return False
            else:
                size -= _OTHER
                named: Any = getattr(item, "__dataclass_fields__", None) or getattr(
                    item, "__dict__", ()
                )
                inside = ([getattr(item, name, None) for name in named],)
            for items in inside:
                values -= len(items)
                left.append(items)
            if values < 0:
                return False
        if values < 0 or size < 0:
            return False
    return True


class Style(NamedTuple):
    """write: makes JSON of a small value. comma, colon: as it writes them."""

    write: Callable[[Any], str]
    comma: str = ", "
    colon: str = ": "


STRICT: Final = Style(json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode)
"""As values are kept and shown to models."""
SPACED: Final = Style(json.JSONEncoder(ensure_ascii=False, default=str).encode)
"""The same, but what is no JSON value is written as its text."""
TIGHT: Final = Style(
    json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode, ",", ":"
)
"""As bodies of answers are written."""


def json_of(value: Any, style: Style = STRICT) -> str:
    """JSON values as JSON, written in pieces."""
    return "".join(json_pieces(value, style))


def json_pieces(value: Any, style: Style = STRICT) -> Iterator[str]:
    """The JSON of a value, whose names are texts, in pieces that each take a short call."""
    write, comma, colon = style
    if isinstance(value, str) and len(value) > LONG_TEXT:
        yield '"'
        for at in range(0, len(value), LONG_TEXT):
            yield write(value[at : at + LONG_TEXT])[1:-1]
        yield '"'
    elif not isinstance(value, (list, tuple, Mapping)) or not value or is_small(value):
        yield write(dict(value) if isinstance(value, Mapping) else value)
    elif isinstance(value, Mapping):
        before = "{"
        for name, item in value.items():
            yield f"{before}{write(name)}{colon}"
            yield from json_pieces(item, style)
            before = comma
        yield "}"
    else:
        before = "["
        for at in range(0, len(value), _BATCH):
            batch = value[at : at + _BATCH]
            if is_small(batch):
                yield f"{before}{write(batch)[1:-1]}"
                before = comma
                continue
            for item in batch:
                yield before
                yield from json_pieces(item, style)
                before = comma
        yield "]"


def beginning(value: Any, characters: int) -> str:
    """The first characters of a JSON value as JSON; no more of it is written than that takes."""
    pieces, length = list[str](), 0
    for piece in _LOOSE.iterencode(value):
        pieces.append(piece)
        length += len(piece)
        if length >= characters:
            break
    return "".join(pieces)[:characters]


_LOOSE: Final = json.JSONEncoder(ensure_ascii=False)
