"""Excerpts of values, for people who have to know what a call was given: JSON of a bounded size.

Nothing is converted before its size is known: what is not shown is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final

from teola.engine import Hit

TEXT_CHARACTERS: Final = 4_000
"""Of one text."""
CHARACTERS: Final = 20_000
"""Of all of an excerpt, about: each value that is no text counts as `FEW`."""
DEPTH: Final = 8
FEW: Final = 8
SLACK: Final = 8_000
"""Characters behind a cut that are searched, too, so that no half of a secret stays before it."""
LARGEST: Final = 2**63


def excerpts(
    values: Mapping[str, Any], hide: Callable[[str], str], most: int = CHARACTERS
) -> dict[str, Any]:
    """Excerpts of values by name, each of which has an equal part of `most` characters. hide: takes
    secrets out of a text."""
    share = most // max(1, len(values))
    return {name: _Excerpt(hide, share).of(value) for name, value in values.items()}


class _Excerpt:
    """Makes one excerpt."""

    def __init__(self, hide: Callable[[str], str], most: int) -> None:
        self._hide, self._left = hide, most

    def of(self, value: Any, depth: int = 0) -> Any:
        """What is shown of a value."""
        if isinstance(value, str):
            return self._text(value)
        self._left -= FEW
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            plain = isfinite(value) if isinstance(value, float) else abs(value) < LARGEST
            return value if plain else f"({type(value).__name__})"
        if isinstance(value, Hit):
            return self.of({"document": value.document, "text": value.text}, depth)
        if depth < DEPTH and isinstance(value, Mapping):
            return self._mapping(value, depth)
        if depth < DEPTH and isinstance(value, (list, tuple)):
            return self._list(value, depth)
        return f"({type(value).__name__})"

    def _text(self, text: str) -> str:
        most = max(0, min(TEXT_CHARACTERS, self._left))
        shown = self._hide(text[: most + SLACK])
        whole = len(text) <= most + SLACK and len(shown) <= most
        self._left -= min(len(shown), most)
        return shown if whole else f"{shown[:most]} [cut: {len(text):,} characters]"

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in self._fitting(value.items()):
            shown = self._text(str(name))
            found[shown] = self.of(item, depth + 1)
        return found if len(found) == len(value) else {**found, "[cut]": _more(value, found)}

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        found = [self.of(item, depth + 1) for item in self._fitting(value)]
        return found if len(found) == len(value) else [*found, f"[cut: {_more(value, found)}]"]

    def _fitting(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            if self._left <= 0:
                return
            yield item


def _more(value: Any, shown: Any) -> str:
    return f"{len(value) - len(shown):,} more"
