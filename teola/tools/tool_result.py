"""ToolResult, how a call ended, and how what a tool returns becomes text for a model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from teola.errors import OutputError

LEAST_CHARS: Final = 200
"""The bound of a result leaves room for the note that it was cut."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended.

    text: for the model, cut to the tool's bound.
    value: what it returned, whole, as JSON has it; None if it failed.
    failed: whether there is no result; the text then says why.
    seconds: from the call to its end, waiting for a place included.
    unknown: whether what it does to the world may have happened although it failed.
    """

    text: str
    value: Any = None
    failed: bool = False
    seconds: float = 0.0
    unknown: bool = False


class Shown(NamedTuple):
    """A result whose text for the model is not just its value."""

    text: str
    value: Any


def read(returned: Any, most_chars: int) -> Shown:
    """What a tool returned, as text within its bound and as JSON. Raises OutputError."""
    if isinstance(returned, Shown):
        return Shown(cut(_clean(returned.text), most_chars), as_json(returned.value))
    value = as_json(returned)
    return Shown(cut(value if isinstance(value, str) else as_text(value), most_chars), value)


def as_json(value: Any) -> Any:
    """A value in JSON's own types: models, dataclasses, dates and arrays become those. Raises
    OutputError for what cannot."""
    if isinstance(value, str) and type(value) is str:
        return _clean(value)
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or inspect.iscoroutine(value):
        raise OutputError(f"it returned a {type(value).__name__}, which is no value; return a list")
    try:
        found = to_jsonable_python(value, fallback=_listed)
        return json.loads(as_text(found))
    except (ValueError, TypeError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise OutputError(f"what it returned cannot be JSON: {first}") from None


def as_text(value: Any) -> str:
    """JSON values as JSON."""
    return _clean(json.dumps(value, ensure_ascii=False, allow_nan=False))


def cut(text: str, most_chars: int) -> str:
    """The beginning of a text that is too long, with a note that says so."""
    if len(text) <= most_chars:
        return text
    note = f"\n[cut: this is the beginning of {len(text):,} characters; ask for less]"
    return text[: max(0, most_chars - len(note))] + note


def _clean(text: str) -> str:
    """Without half surrogate pairs, which no encoding takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _listed(value: Any) -> Any:
    """Arrays and mappings of other libraries."""
    if listed := getattr(value, "tolist", None):
        return listed()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
