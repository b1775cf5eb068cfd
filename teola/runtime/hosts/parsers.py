"""Incremental parsers: the items of a list, each as soon as the model has written it.

A partial decoding (paper, section 4.3) is done when its item is, so the stream is read character
by character and never twice: a text of n characters costs O(n), however it is cut. Each grammar
is a generator that is sent characters, then `END`, and calls `emit` for each complete item:

    lines       one item a line; blank lines, code fences and bullets (-, *, •) are dropped
    numbered    "1. x" or "2) y"; following lines join the item with a space, until a blank line
    json_list   a JSON array, or an object that holds a single one, amid prose or code fences
    json_calls  the array `calls` of a JSON object, which may have none
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from teola.engine import LONGEST_ITEM
from teola.errors import OutputError, UnknownName
from teola.runtime.hosts.grammar import END, Emit, Grammar, Malformed, Scan
from teola.runtime.hosts.json_list import json_calls, json_list

EXCERPT: Final = 80
"""Characters of the output that an error shows."""

_FENCE: Final = "```"
_BULLETS: Final = ("- ", "* ", "• ", "-\t", "*\t", "•\t")
_DIGITS: Final = frozenset("0123456789")


class ListParser:
    """Feeds pieces of a stream to a grammar and hands out the items that each one completes.

    Every chunking of a text gives the same items and, if the text is malformed, then an error:
    items that were completed by the failing piece are handed out first. Pieces of LONGEST_ITEM
    characters that complete none are malformed.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._items: list[Any] = []
        self._seen, self._unread = "", 0
        self._over = False
        self._error: OutputError | None = None
        self._scan = grammar(self._items.append)
        next(self._scan)

    def feed(self, text: str) -> list[Any]:
        """The items completed by this piece. Raises OutputError once the text is malformed."""
        if len(self._seen) < EXCERPT:
            self._seen += text[: EXCERPT - len(self._seen)]
        self._unread += len(text)
        done = self._advance(text)
        if done:
            self._unread = 0
        elif self._unread > LONGEST_ITEM and not self._over:
            self._error = OutputError(
                f"no item of the list ends within {LONGEST_ITEM:,} characters; the output begins "
                f"{self._seen!r}"
            )
            raise self._error
        return done

    def close(self) -> list[Any]:
        """The items that the end of the stream completes. Raises OutputError (nothing found,
        not closed)."""
        return self._advance((END,))

    def _advance(self, characters: str | tuple[str, ...]) -> list[Any]:
        if self._error is None:
            try:
                for character in characters:
                    self._scan.send(character)
            except StopIteration:
                self._over = True  # the list is complete; what follows it is prose
            except Malformed as found:
                self._error = OutputError(f"{found}; the output begins {self._seen!r}")
        if self._error is not None and not self._items:
            raise self._error
        done = self._items.copy()
        self._items.clear()
        return done


def make_parser(kind: str) -> ListParser:
    """A fresh parser. Raises UnknownName."""
    if kind not in PARSERS:
        raise UnknownName("parser", kind, PARSERS)
    return ListParser(PARSERS[kind])


# --- lines and numbers ----------------------------------------------------------------------


def lines(emit: Emit) -> Scan:
    """One item a line. Any text is well formed, the empty one has no items."""
    character = ""
    while character != END:
        line: list[str] = []
        while (character := (yield)) not in ("\n", END):
            line.append(character)
        text = "".join(line).strip()
        if (text + " ").startswith(_BULLETS):
            text = text[1:].strip()
        if text and not text.startswith(_FENCE):
            emit(text)


def numbered(emit: Emit) -> Scan:
    """Numbered items; an item is complete when the next number begins, or the text ends.

    After a blank line only indented text still belongs to the item: the rest is prose.
    """
    item: list[str] | None = None  # its lines; None before the first number
    blank, character = False, ""
    while character != END:
        indented, number, character = yield from _line_start()
        begins = number.endswith((".", ")")) and (character.isspace() or character == END)
        if begins:
            if item:
                emit(" ".join(item))
            item, number, blank = [], "", False
        line = [number]
        while character not in ("\n", END):
            line.append(character)
            character = yield
        text = "".join(line).strip()
        if item is not None and text and not text.startswith(_FENCE) and (indented or not blank):
            item.append(text)
        blank = blank or not (text or begins)
    if item is None:
        raise Malformed("expected a numbered list ('1. ...'), found none")
    if item:
        emit(" ".join(item))


def _line_start() -> Generator[None, str, tuple[bool, str, str]]:
    """Whether the line is indented, its number with the mark behind it, the next character."""
    indented, number = False, ""
    while (character := (yield)) in (" ", "\t"):
        indented = True
    while character in _DIGITS and len(number) < 4:
        number += character
        character = yield
    if number and character in (".", ")"):
        number += character
        character = yield
    return indented, number, character


PARSERS: Final[dict[str, Grammar]] = {
    "json_calls": json_calls,
    "json_list": json_list,
    "lines": lines,
    "numbered": numbered,
}
