"""What a tool returned, whatever it is, as JSON values of bounded size.

The value is walked through item by item and the JSON that it makes is counted, so that a million
rows cost no more than those that are kept, and no call into C takes long. Where the bound is
reached the rest is left out at the end of an item: of the outermost list, or mapping, whose item
had not taken more than half of the bound until then. A text is cut only where it is the item.
"""

from __future__ import annotations

import codecs
import inspect
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from json.encoder import JSONEncoder, encode_basestring
from math import isfinite
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from teola.errors import OutputError
from teola.plain_json import fits

DEEPEST: Final = 255
"""Lists and mappings inside each other."""
_ROW: Final = 64
"""Items of a row, and characters of each, that are read in one step."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_encoded: Final = JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_SLICE: Final = 32 * 2**10
"""Bytes of an array that become numbers at once."""


class CutJson(NamedTuple):
    """value: in JSON's own types. characters, bytes: of its JSON. cut: whether something is left
    out. whole: characters of what is a text, before it was cut."""

    value: Any
    characters: int
    bytes: int
    cut: bool
    whole: int = 0


class _Items:
    """What stands for a list that is read item by item."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items


@dataclass(slots=True)
class _Level:
    """A list or a mapping that is being made. items: of the source that are left. key: of the item
    that is being read. begun: bytes, and those beyond characters, before that item."""

    source: Any
    items: Iterator[Any]
    made: Any
    key: str = ""
    begun: tuple[int, int] = (0, 0)

    def add(self, item: Any) -> None:
        if type(self.made) is dict:
            self.made[self.key] = item
        else:
            self.made.append(item)


def bounded(value: Any, most_bytes: int) -> CutJson:
    """A value as JSON of at most so many bytes. Raises OutputError for what cannot be JSON."""
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or inspect.iscoroutine(value):
        raise OutputError(f"it returned a {type(value).__name__}, which is no value; return a list")
    try:
        return _Walk(most_bytes).of(value)
    except (ValueError, TypeError, RecursionError) as error:
        first = str(error)[:1_000].partition("\n")[0]
        raise OutputError(f"what it returned cannot be JSON: {first}") from None


class _Walk:
    """One walk through a value. bytes: of the JSON so far. more: bytes beyond its characters."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes, self.more = most, 0, 0
        self.levels = [_Level(None, iter(()), [])]

    def of(self, value: Any) -> CutJson:
        root, levels = self.levels[0], self.levels
        root.items = iter((value,))
        cut = False
        while levels and not cut:
            top = levels[-1]
            for item in top.items:
                if not self._takes(top, item):
                    cut = True
                    break
                if levels[-1] is not top:  # the item is a list or a mapping: its items come first
                    break
            else:
                levels.pop()
                if levels:
                    levels[-1].add(top.made)
        json_value = root.made[0] if root.made else None
        whole = len(value) if type(value) is str else 0
        return CutJson(json_value, self.bytes - self.more, self.bytes, cut, whole)

    def _takes(self, top: _Level, item: Any) -> bool:
        """Read an item. False where the bound is reached, and what is left out is."""
        top.begun = self.bytes, self.more
        if top.made:
            self.bytes += 2  # a comma and a blank
        if type(top.made) is dict:
            key, item = item
            top.key = key if type(key) is str and key.isascii() else _key(key)
            if len(top.key) > self.most - self.bytes:
                return self._end(None)
            self.bytes += len(encode_basestring(top.key)) + 2
            self._widen(top.key)
        while True:
            kind = type(item)
            if kind is str:
                return self._text(top, item)
            if kind is int:
                size = len(repr(item))
            elif kind is bool or item is None:
                size = 5 if item is False else 4
            elif kind is float:
                if not isfinite(item):
                    raise ValueError("Out of range float values are not JSON compliant")
                size = len(repr(item))
            elif kind is list or kind is tuple or kind is _Items:
                if kind is list and len(item) <= _ROW and self._row(top, item):
                    return True
                return self._opens(item, iter(item.items if kind is _Items else item), [])
            elif isinstance(item, Mapping):
                if kind is dict and len(item) <= _ROW and self._row(top, item):
                    return True
                return self._opens(item, iter(item.items()), {})
            else:
                item = self._plainer(item)
                continue
            self.bytes += size
            if self.bytes > self.most:
                return self._end(None)
            top.add(item)
            return True

    def _row(self, top: _Level, row: Any) -> bool:
        """Read a short list or mapping of short values in one step, as most are. False where it is
        none, or has no room."""
        named = type(row) is dict
        for item in row.values() if named else row:
            if type(item) not in _PLAIN or (type(item) is str and len(item) > _ROW):
                return False
        if named and not all(type(key) is str and len(key) <= _ROW for key in row):
            return False
        text = _encoded(row)
        wide = 0
        if not text.isascii():
            try:
                wide = len(text.encode()) - len(text)
            except UnicodeEncodeError:  # half a surrogate pair
                return False
        if self.bytes + len(text) + wide > self.most:
            return False
        self.bytes, self.more = self.bytes + len(text) + wide, self.more + wide
        top.add(row.copy())
        return True

    def _opens(self, source: Any, items: Iterator[Any], target: Any) -> bool:
        self.bytes += 2
        if self.bytes > self.most:
            return self._end(None)
        if len(self.levels) > DEEPEST:
            if any(level.source is source for level in self.levels):
                raise ValueError("Circular reference detected")
            raise ValueError(f"lists and mappings nest deeper than {DEEPEST} levels")
        self.levels.append(_Level(source, items, target))
        return True

    def _text(self, top: _Level, text: str) -> bool:
        room = self.most - self.bytes
        if len(text) > room:
            return self._end(text)
        text = without_surrogates(text)
        size = len(encode_basestring(text))
        wide = 0 if text.isascii() else len(text.encode()) - len(text)
        if size + wide > room:
            return self._end(text)
        self.bytes += size + wide
        self.more += wide
        top.add(text)
        return True

    def _widen(self, text: str) -> None:
        if not text.isascii():
            wide = len(text.encode()) - len(text)
            self.bytes += wide
            self.more += wide

    def _end(self, text: str | None) -> bool:
        """Leave out the item that reaches the bound, and close what is open. text: that does."""
        levels = self.levels
        place = len(levels) - 1
        if place and self.most - self.bytes < 2:
            text = None  # not even its quotes have room
        for outer, level in enumerate(levels):
            if level.made and self.most - level.begun[0] <= self.most // 2:
                place, text = outer, None
                break
        if text is None:
            self.bytes, self.more = levels[place].begun
        else:
            self._shorten(levels[-1], text)
        for outer in reversed(range(place)):
            levels[outer].add(levels[outer + 1].made)
        return False

    def _shorten(self, top: _Level, text: str) -> None:
        room, short = self.most - self.bytes, text
        while True:
            short = without_surrogates(short[: max(room - 2, 0)])
            size = len(encode_basestring(short))
            wide = 0 if short.isascii() else len(short.encode()) - len(short)
            if size + wide <= room or not short:
                break
            short = short[: min(len(short) - 1, len(short) * room // (size + wide))]
        self.bytes, self.more = self.bytes + size + wide, self.more + wide
        top.add(short)

    def _plainer(self, value: Any) -> Any:
        """A value of another type, a step nearer to those of JSON."""
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, str):
            return value[:]
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, (list, tuple, set, frozenset, deque)) or inspect.isgenerator(value):
            return _Items(value)
        if isinstance(value, (bytes, bytearray)) and len(value) > self.most:
            # A character has at most four bytes: what is read has more than there is room for.
            decoder = codecs.getincrementaldecoder("utf-8")()
            return decoder.decode(bytes(value[: 4 * self.most + 8]))
        if hasattr(value, "__pydantic_serializer__") and not isinstance(value, type):
            if not fits(value, self.most // 2, self.most):
                raise self._too_large(value)
        elif is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        elif hasattr(value, "tolist") and not isinstance(value, type):
            return self._listed(value)
        return to_jsonable_python(value, fallback=_formless)

    def _listed(self, array: Any) -> Any:
        """An array, or a number of its kind, slice by slice where it has any."""
        dimensions, size = getattr(array, "ndim", None), getattr(array, "nbytes", None)
        if isinstance(dimensions, int) and dimensions > 0 and isinstance(size, int) and len(array):
            return _Items(_slices(array, size // len(array)))
        if dimensions != 0 and len(array) > self.most // 2:
            raise self._too_large(array)
        return array.tolist()

    def _too_large(self, value: Any) -> OutputError:
        return OutputError(
            f"it returned a {type(value).__name__} that may be larger than {self.most:,} bytes "
            "(most_bytes) and cannot be cut: return less, or a list of its parts"
        )


def _slices(array: Any, row: int) -> Iterator[Any]:
    """Items of an array whose rows have so many bytes."""
    rows = getattr(array, "iloc", array)  # of pandas, where numbers in brackets may be labels
    if row > _SLICE:
        for place in range(len(array)):
            yield rows[place]
        return
    count = max(1, _SLICE // max(row, 1))
    for place in range(0, len(array), count):
        yield from rows[place : place + count].tolist()


def _formless(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _key(key: Any) -> str:
    """The name that a key becomes."""
    (name,) = to_jsonable_python({key: None})
    return without_surrogates(name)


def without_surrogates(text: str) -> str:
    """Without half surrogate pairs, which no encoding takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
