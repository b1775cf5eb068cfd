"""What a list grammar is: a generator that is sent a text's characters, then `END`.

It calls `emit` for each item as soon as the item is complete, raises `Malformed`, and returns
early if the rest of the text does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

END: Final = "end of text"
"""Sent after the last character; no character equals it."""

Emit = Callable[[Any], None]
Scan = Generator[None, str, None]
Grammar = Callable[[Emit], Scan]


class Malformed(Exception):
    """What was expected and what was found instead; ListParser makes it an OutputError."""
