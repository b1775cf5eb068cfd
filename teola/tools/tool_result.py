"""ToolResult, how a call ended, and how what a tool returns becomes text for a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from teola.plain_json import beginning, json_of
from teola.tools.bounded_json import CutJson, bounded, without_surrogates

LEAST_CHARS: Final = 200
"""The bound of a result leaves room for the note that it was cut."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended.

    text: for the model, cut to the tool's bound.
    value: what it returned, as JSON has it, cut to the tool's bound in bytes; None if it failed.
    failed: whether there is no result; the text then says why.
    seconds: from the call to its end, waiting for a place included.
    unknown: whether what it does to the world may have happened although it failed.
    nbytes: that the value has as JSON.
    """

    text: str
    value: Any = None
    failed: bool = False
    seconds: float = 0.0
    unknown: bool = False
    nbytes: int = field(default=0, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, of which none is copied; `ToolResult(**...)` makes it again."""
        return {
            "text": self.text,
            "value": self.value,
            "failed": self.failed,
            "seconds": self.seconds,
            "unknown": self.unknown,
        }


class Shown(NamedTuple):
    """A result whose text for the model is not just its value."""

    text: str
    value: Any


def read_result(returned: Any, most_chars: int, most_bytes: int) -> ToolResult:
    """What a tool returned, as text and as JSON within its bounds. Raises OutputError."""
    if isinstance(returned, Shown):
        kept = bounded(returned.value, most_bytes)
        text_and_length = without_surrogates(returned.text[:most_chars]), len(returned.text)
    else:
        kept = bounded(returned, most_bytes)
        text_and_length = _told(kept, most_chars)
    return ToolResult(
        _noted(*text_and_length, kept, most_chars, most_bytes), kept.value, nbytes=kept.bytes
    )


def as_text(value: Any) -> str:
    """JSON values as JSON."""
    return without_surrogates(json_of(value))


def cut(text: str, most_chars: int) -> str:
    """The beginning of a text that is too long, with a note that says so."""
    if len(text) <= most_chars:
        return text
    note = _CUT.format(f"{len(text):,}", "")
    return text[: max(0, most_chars - len(note))] + note


_CUT: Final = "\n[cut: this is the beginning of {} characters{}; ask for less]"
_LEFT_OUT: Final = "; of the result {} bytes are kept (most_bytes), and the rest is left out"


def _told(kept: CutJson, most_chars: int) -> tuple[str, int]:
    """The beginning of a value as text, and how many characters it has in all."""
    if isinstance(kept.value, str):
        return kept.value[:most_chars], kept.whole or len(kept.value)
    if kept.characters <= most_chars:
        return json_of(kept.value), kept.characters
    return beginning(kept.value, most_chars), kept.characters


def _noted(text: str, whole: int, kept: CutJson, most_chars: int, most_bytes: int) -> str:
    """A text within its bound, with a note where it or the value was cut. whole: characters that
    there were."""
    if not kept.cut:
        if whole <= most_chars:
            return text
        note = _CUT.format(f"{whole:,}", "")
    else:
        note = _CUT.format(f"{whole:,}", _LEFT_OUT.format(f"{most_bytes:,}"))
    return text[: max(0, most_chars - len(note))] + note
