"""The sections of a Markdown text: each goes on to the next heading of any level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .formats import LONGEST_HEADING, MOST_PLACES, short
from .places import NOWHERE, Places

_HEADING: Final = re.compile(rf" {{0,3}}#{{1,6}}[ \t]+(\S.{{0,{2 * LONGEST_HEADING}}})")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.{0,80})")
_UNDERLINE: Final = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_NO_TITLE: Final = re.compile(r"[ \t]*(?:[-+*>|]|\d{1,9}[.)]\s)| {4}|\t")
"""A line that an underline makes no heading of: an item, a quotation, a row, code."""
_MARKS: Final = frozenset("#`~=-")
"""What the lines begin with that are looked at."""


def sections(text: str) -> Places:
    """Headings outside code, as lines of `#` or underlined."""
    starts: list[int] = []
    names: list[str | int] = []
    fence = ""
    lines = 0  # of the paragraph so far
    above, title = 0, ""  # its first line
    for start, line in _lines(text):
        if len(starts) > MOST_PLACES:
            return NOWHERE
        mark = line.lstrip()[:1]
        match = _FENCE.match(line) if mark in _MARKS else None
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            continue
        if match and not (match[1][0] == "`" and "`" in match[2]):  # that would be code in a line
            fence, lines = match[1], 0
        elif mark in _MARKS and (heading := _HEADING.match(line)):
            starts.append(start + len(line) - len(line.lstrip()))
            names.append(short(_unclosed(heading[1])))
            lines = 0
        elif lines == 1 and mark in _MARKS and _UNDERLINE.match(line):
            if not _NO_TITLE.match(title):
                starts.append(above + len(title) - len(title.lstrip()))
                names.append(short(title))
            lines = 0
        elif not mark:
            lines = 0
        else:
            lines += 1
            if lines == 1:
                above, title = start, line
    return Places("section", starts, names)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines, and the characters at which they begin."""
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield start, text[start:end]
        start = end + 1


def _unclosed(title: str) -> str:
    """A title without the `#` that may close it."""
    bare = title.rstrip().rstrip("#")
    return bare if bare != bare.rstrip() else title
