"""The formats that the parser's process reads, one module each, loaded by parser.py by its name.

A module has `read(path, limits) -> Extracted`, and imports what it needs at its top: once it is
loaded the process may not reach outside any more. Nothing of Teola's but this package is imported.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file, and how many texts were left out because a reader would not see them."""

    text: str
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Allowed:
    """What reading may take: unpacked_bytes of an archive; whether hidden texts are kept."""

    unpacked_bytes: int
    keep_hidden: bool


class Refused(Exception):
    """The file is not read; the reason is one that sandbox.py knows."""
