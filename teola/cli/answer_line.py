"""A text that is written as it comes: on a terminal no word is broken at the edge."""

from __future__ import annotations

import re
import shutil
import sys
from typing import Final

from rich.cells import cell_len

from teola.cli.visible import visible

_WORDS: Final = re.compile(r"\n|[^\S\n]+|\S+")


class AnswerLine:
    """A line of text that is written as it comes. written: whether any text came. open: whether the
    line has text and no end yet. Leaving the block ends the line, however that happens: the next
    message begins a line of its own.

    width: columns of the terminal; 0: there is none, and every text goes on as it is. A word that
    has just begun is held back until it is known whether it fits, but no longer than a line.
    """

    def __init__(self, width: int | None = None) -> None:
        self.written = self.open = False
        if width is None:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        self._width, self._column, self._gap, self._word = width, 0, "", ""

    def write(self, text: str) -> None:
        """Write, or hold back, a piece of the text."""
        self.written = self.open = True  # first: an interrupt may come in between
        text = visible(text)
        if not self._width:
            print(text, end="", flush=True)
            return
        shown = "".join(self._laid(piece) for piece in _WORDS.findall(text))
        print(shown, end="", flush=True)

    def __enter__(self) -> AnswerLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the line, if it is open."""
        if self.open:
            self.open = False
            print(self._placed(), flush=True)
            self._column, self._gap = 0, ""

    def _laid(self, piece: str) -> str:
        """What can be written now that this piece has come."""
        if piece == "\n":
            before, self._column, self._gap = self._placed(), 0, ""
            return f"{before}\n"
        if piece.isspace():
            before, self._gap = self._placed(), self._gap + piece
            return before
        shown = ""
        for character in piece:
            wide = cell_len(character) > 1  # such writing has no spaces: any place is an end
            if wide or cell_len(self._word) >= self._width:
                shown += self._placed()
            self._word += character
            if wide:
                shown += self._placed()
        return shown

    def _placed(self) -> str:
        """The word that is held back, and what stands between it and the word before."""
        if not self._word:
            return ""
        gap, word, self._gap, self._word = self._gap, self._word, "", ""
        needed = cell_len(gap) + cell_len(word)
        if self._column and self._column + needed > self._width:
            self._column = cell_len(word)
            return f"\n{word}"
        self._column += needed
        return gap + word
