"""What values are: how many items, how many tokens, and what text they make in a prompt.

A simulated query's values are `Tokens`: texts of which only the length is known. They go through
the same store, slices and Aggregates as real ones.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from sys import getsizeof
from typing import Any

from teola.engine import Chunk, Hit
from teola.errors import OutputError
from teola.kv import Excerpt, excerpt_keys
from teola.schedule.plan import ABSENT

CHARACTERS_PER_TOKEN = 4
LITERAL = 1 << 56


class Tokens(int):
    """A simulated text (or chunk, or hit) of that many tokens: those of the text number `text` from
    the `start`th on. Texts with the same number say the same; without one it is a text of its own,
    numbered when that is asked for (`excerpt`)."""

    text: int = 0
    start: int = 0

    @classmethod
    def of(cls, text: int, start: int, length: int) -> Tokens:
        """Part of a numbered text."""
        made = cls(length)
        made.text, made.start = text, start
        return made

    def excerpt(self) -> Excerpt:
        """What it says."""
        if not self.text:
            self.text = new_text()
        return Excerpt(self.text, self.start, int(self))


class Composite(Tokens):
    """A simulated text made of parts of numbered texts, as a trace's prompts are. It remembers the
    keys of its blocks, so that they are worked out once, however often it is asked."""

    excerpts: tuple[Excerpt, ...] = ()
    _known: tuple[int, int, tuple[int, ...]] = (0, 0, ())

    @classmethod
    def made_of(cls, excerpts: Iterable[Excerpt]) -> Composite:
        """A prompt made of these parts, one after another."""
        parts = tuple(excerpts)
        made = cls(sum(part.length for part in parts))
        made.excerpts = parts
        return made

    def continued(self, length: int, *more: Excerpt) -> Composite:
        """Its first `length` tokens, and then `more`. What keys are known of those stay known."""
        parts, tokens_left = list[Excerpt](), length
        for text, start, tokens in self.excerpts:
            if tokens_left <= 0:
                break
            parts.append(Excerpt(text, start, min(tokens, tokens_left)))
            tokens_left -= tokens
        composite = Composite.made_of([*parts, *more])
        block_tokens, salt, keys = self._known
        if block_tokens:
            composite._known = (block_tokens, salt, keys[: length // block_tokens])
        return composite

    def keys(self, block_tokens: int, salt: int) -> tuple[int, ...]:
        """Keys of its blocks; see `excerpt_keys`."""
        size, by, known = self._known
        if (size, by) != (block_tokens, salt):
            known = ()
        if not known or len(known) < self // block_tokens:
            known = excerpt_keys(self.excerpts, block_tokens, salt, known)
            self._known = (block_tokens, salt, known)
        return known


new_text = itertools.count(1).__next__
"""The number of a text that nobody had before."""


@lru_cache(4096)
def number_of(text: str) -> int:
    """The number of a real text: the same in every process, and none that `new_text` gives."""
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big") | LITERAL


def is_literal(number: int) -> bool:
    """Whether it is the number of a real text."""
    return number >= LITERAL


class RemoteList:
    """A list that lies elsewhere, in pieces: (source, lo, hi), a reference to a list or one itself.

    Only engines read it, never a prompt, a control primitive or the caller (`Plan.keepable`).
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Iterable[tuple[Any, int, int]]) -> None:
        self.pieces = tuple(pieces)

    def __len__(self) -> int:
        return sum(hi - lo for _, lo, hi in self.pieces)

    def __getitem__(self, items: slice) -> RemoteList:
        first, last, _ = items.indices(len(self))
        found, at = [], 0
        for source, lo, hi in self.pieces:
            a, b = max(first - at, 0), min(last - at, hi - lo)
            if a < b:
                found.append((source, lo + a, lo + b))
            at += hi - lo
        return RemoteList(found)

    async def fetch(self) -> list[Any]:
        """The items themselves."""
        found: list[Any] = []
        for source, lo, hi in self.pieces:
            items = source if type(source) is list else await source
            found += items[lo:hi]
        return found


def joined_lists(parts: list[Any]) -> Any:
    """Lists, one after another; remote if one of them is."""
    if not any(type(part) is RemoteList for part in parts):
        return [x for part in parts for x in part]
    return RemoteList(
        piece
        for part in parts
        for piece in (part.pieces if type(part) is RemoteList else [(part, 0, len(part))])
    )


def counts_of(values: Mapping[str, Any]) -> dict[str, int]:
    """Items of each value: a list's length, 1 for anything else, ABSENT for None."""
    return {
        name: len(value) if type(value) in _LISTS else ABSENT if value is None else 1
        for name, value in values.items()
    }


_LISTS = (list, RemoteList)
_NUMBERS = (int, float, bool, type(None))


def tokens_of(value: Any) -> int:
    """Tokens of a value's text, estimated at four characters each."""
    kind = type(value)
    if kind is str:
        return len(value) // CHARACTERS_PER_TOKEN + 1
    if kind is Tokens or kind is Composite:
        return int(value)
    if kind is list:
        return sum(map(tokens_of, value))
    if kind is Hit or kind is Chunk:
        return len(value.text) // CHARACTERS_PER_TOKEN + 1
    return 0 if value is None else len(json.dumps(value, default=str)) // CHARACTERS_PER_TOKEN + 1


def bytes_of(value: Any) -> int:
    """Bytes that a value holds in this process, about: of its texts and numbers, each once."""
    if (kind := type(value)) is str:
        return len(value)
    if kind in _NUMBERS:
        return getsizeof(value)
    total, uncounted, seen = 0, [value], set()
    while uncounted:
        part = uncounted.pop()
        kind = type(part)
        if kind is str:
            total += len(part)
        elif kind is Hit or kind is Chunk:
            total += len(part.text)
            if kind is Hit and part.metadata:
                uncounted.append(part.metadata)
        elif kind is list or kind is tuple or kind is dict:
            if id(part) not in seen:  # it may hold itself
                seen.add(id(part))
                uncounted += part
                uncounted += part.values() if kind is dict else ()
        elif kind is not RemoteList:
            size = getattr(part, "nbytes", None)
            total += size if type(size) is int else getsizeof(part, 0)
    return total


def text_of(value: Any, separator: str = "\n\n") -> str:
    """The text that a value contributes to a prompt. Raises OutputError for one that has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, (Hit, Chunk)):
        return value.text
    if isinstance(value, list):
        return separator.join(text_of(item, separator) for item in value)
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What stands in JSON for `value`."""
    if isinstance(value, (Hit, Chunk)):
        return value.text
    if listed := getattr(value, "tolist", None):  # an array, or a number of its kind
        return listed()
    raise OutputError(
        f"a prompt takes texts, JSON values and hits, not {type(value).__qualname__}: give its text"
    )
