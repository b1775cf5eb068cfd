"""Excerpts of values, for people who have to know what a call was given: JSON of a bounded size.

Nothing is converted before its size is known: what is not shown is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final

from teola.engine import Chunk, Hit, Scope
from teola.runtime.values import RemoteList

TEXT_CHARACTERS: Final = 4_000
"""Characters of one text."""
CHARACTERS: Final = 20_000
"""Characters of a whole excerpt, about: each value that is no text counts as `FEW`."""
DEPTH: Final = 8
FEW: Final = 8
SLACK: Final = 8_000
"""Characters behind a cut that are searched, too, so that no half of a secret stays before it."""
LARGEST: Final = 2**63
_WHOLE: Final = frozenset({int, bool})


Hide = Callable[[str], str]


def excerpts(values: Mapping[str, Any], hide: Hide, most: int = CHARACTERS) -> dict[str, Any]:
    """Excerpts of values by name, each of which has an equal part of `most` characters. hide: takes
    secrets out of a text."""
    share = most // max(1, len(values))
    return {name: ValueExcerpt(hide, share).of(value) for name, value in values.items()}


def bytes_of_text(text: str) -> int:
    """Bytes of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class ValueExcerpt:
    """Makes one excerpt. hide: takes secrets out of a text; None: there are none. most: characters,
    or bytes, of all of it. longest_text: of one text. left: how many may still come."""

    __slots__ = ("_bytes", "_hide", "_longest", "left")

    def __init__(
        self,
        hide: Hide | None,
        most: int,
        longest_text: int = TEXT_CHARACTERS,
        *,
        in_bytes: bool = False,
    ) -> None:
        self._hide, self.left, self._longest, self._bytes = hide, most, longest_text, in_bytes

    def of(self, value: Any, depth: int = 0) -> Any:
        """What is shown of a value."""
        if isinstance(value, str):
            return self._text(value)
        self.left -= FEW
        # Most containers, without the checks for rarer types.
        if depth < DEPTH:
            if type(value) is dict:
                return self._mapping(value, depth)
            if type(value) is list:
                return self._list(value, depth)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            plain = isfinite(value) if isinstance(value, float) else abs(value) < LARGEST
            return value if plain else f"({type(value).__name__})"
        if isinstance(value, Hit):
            shown = {"document": value.document, "score": value.score, "text": value.text}
            return self.of(shown, depth)
        if isinstance(value, Chunk):
            return self.of(value.text, depth)
        if depth < DEPTH and isinstance(value, Mapping):
            return self._mapping(value, depth)
        if depth < DEPTH and isinstance(value, (list, tuple)):
            return self._list(value, depth)
        if isinstance(value, Scope):
            shown = {"collection": value.collection, "documents": value.documents}
            return self.of({**shown, "filters": value.filters}, depth)
        if isinstance(value, RemoteList):
            return f"({len(value):,} items, which their engine keeps)"
        if type(shape := getattr(value, "shape", None)) is tuple:  # an array or a tensor
            return f"({type(value).__name__} of {' x '.join(map(str, shape))})"
        return f"({type(value).__name__})"

    def _text(self, text: str) -> str:
        size = len(text)
        plain = self._hide is None and type(text) is str
        if plain and size <= self._longest and size <= self.left and text.isascii():
            self.left -= size  # a character is a byte
            return text
        most = max(0, min(self._longest, self.left))
        slack = SLACK if self._hide is not None else 0
        shown = text[: most + slack]
        if self._hide is not None:
            shown = self._hide(shown)
        size = bytes_of_text(shown) if self._bytes else len(shown)
        if size <= most and len(text) <= most + slack:
            self.left -= size
            return shown
        self.left -= most
        return f"{self._cut(shown, most)} [cut: {len(text):,} characters]"

    def _cut(self, text: str, most: int) -> str:
        if not self._bytes or text.isascii():
            return text[:most]
        return text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in self._fitting(value.items()):
            shown = self._text(str(name))
            found[shown] = self.of(item, depth + 1)
        return found if len(found) == len(value) else {**found, "[cut]": _more(value, found)}

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        if 0 < len(value) * FEW <= self.left and _are_whole_numbers(value):
            self.left -= len(value) * FEW
            return list(value)
        found = [self.of(item, depth + 1) for item in self._fitting(value)]
        return found if len(found) == len(value) else [*found, f"[cut: {_more(value, found)}]"]

    def _fitting(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            if self.left <= 0:
                return
            yield item


def _are_whole_numbers(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether all of them may be shown as they are."""
    return set(map(type, values)) <= _WHOLE and max(values) < LARGEST and min(values) > -LARGEST


def _more(value: Any, shown: Any) -> str:
    return f"{len(value) - len(shown):,} more"
