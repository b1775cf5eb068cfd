"""The formats that the parser's process reads, one module each, loaded by parser.py by its name.

A module has `read(path, limits) -> Extracted`, and imports what it needs at its top: once it is
loaded the process may not reach outside any more. Nothing of Teola's but this package is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PlaceName = str | int
"""A heading, the name of a sheet, or the number of a page or slide, from 1."""
LONGEST_HEADING = 200
"""Characters: some mark whole paragraphs as headings."""
MOST_PLACES = 100_000
"""Of one file. With more, none is told: a few bytes of a hostile file make each of them."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file, and how many texts were left out because a reader would not see them.

    kind: of its places: page, slide, sheet or section. places: at which character each begins, in
    order, and its name. None begins with white space.
    """

    text: str
    hidden: int = 0
    kind: str = "section"
    places: Sequence[tuple[int, PlaceName]] = ()


@dataclass(frozen=True, slots=True)
class Allowed:
    """What reading may take: unpacked_bytes of an archive; whether hidden texts are kept."""

    unpacked_bytes: int
    keep_hidden: bool


class Refused(Exception):
    """The file is not read; the reason is one that sandbox.py knows."""


def joined(
    parts: Iterable[tuple[str, PlaceName | None]], gap: str, kind: str, hidden: int = 0
) -> Extracted:
    """Texts with `gap` between them; those with a name begin a place."""
    texts: list[str] = []
    places: list[tuple[int, PlaceName]] = []
    at = 0
    for text, name in parts:
        shown = text.replace("\0", "")
        visible = shown.lstrip()
        if visible and name is not None and (named := short(name)):
            places.append((at + len(shown) - len(visible), named))
        texts.append(shown)
        at += len(shown) + len(gap)
    return Extracted(gap.join(texts), hidden, kind, places)


def short(name: PlaceName) -> PlaceName:
    """A name on one line, of at most `LONGEST_HEADING` characters, that can be stored."""
    if isinstance(name, int):
        return name
    line = " ".join(name.replace("\0", "").encode("utf-8", "replace").decode().split())
    return line if len(line) <= LONGEST_HEADING else f"{line[: LONGEST_HEADING - 1]}…"
