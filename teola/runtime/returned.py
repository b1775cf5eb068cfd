"""What a function may return where something else than another function reads it.

Prompts, engines and answers know texts, JSON values, vectors, and what was found (`Hit`, `Chunk`).
Of any other object they would have nothing but its `repr`, which no reader can make sense of and no
test notices. Between functions any object may pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Final

from teola.engine import Chunk, Hit, Scope, Source
from teola.errors import OutputError
from teola.plain_json import Weighed
from teola.runtime.values import RemoteList, bytes_of

_KNOWN: Final = frozenset(
    {str, int, float, bool, type(None), Hit, Chunk, Scope, Source, RemoteList, Weighed}
)
_HIT: Final = "teola.engine.Hit(id, document, text, score)"
_WAYS: Final = (
    ("page_content", f"return its `page_content`, or {_HIT}"),
    ("get_content", f"return its `get_content()`, or {_HIT}"),
    ("model_dump", "return its `model_dump()`"),
    ("text", f"return its `text`, or {_HIT}"),
)
"""Attribute -> what to return in the place of what has it: documents of LangChain, those of
LlamaIndex, pydantic models, anything else with a text."""


class LookedThrough(dict[str, Any]):
    """What a function gave, looked through where it holds up nobody: on the event loop the look at
    a million rows would take seconds. nbytes: see bytes_of. refusals: by port, why only another
    function could read it."""

    __slots__ = ("nbytes", "refusals")

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.nbytes = sum(map(bytes_of, given.values()))
        refused = ((port, refusal(port, value)) for port, value in given.items())
        self.refusals = {port: error for port, error in refused if error is not None}


def port_refusal(port: str, result: Mapping[str, Any]) -> OutputError | None:
    """Why a function cannot give what `result` has for this port, if it cannot."""
    if type(result) is LookedThrough:
        return result.refusals.get(port)
    return refusal(port, result[port])


def refusal(port: str, value: Any) -> OutputError | None:
    """Why a function cannot give `value`, if it cannot. Looks at every item once."""
    unseen, seen = [value], set()
    while unseen:
        part = unseen.pop()
        if type(part) in _KNOWN:
            continue
        if isinstance(part, (Mapping, list, tuple)):
            if id(part) not in seen:  # it may hold itself
                seen.add(id(part))
                unseen += [*part.keys(), *part.values()] if isinstance(part, Mapping) else part
        elif not isinstance(part, (str, int, float)) and not hasattr(part, "tolist"):
            return _told(port, part)
    return None


def _told(port: str, value: Any) -> OutputError:
    kind = type(value)
    name = kind.__qualname__
    name = name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
    way = next((way for has, way in _WAYS if hasattr(value, has)), "")
    if not way and is_dataclass(value):
        way = "return its `dataclasses.asdict`"
    if not way:
        way = f"return text, JSON values (dict, list, number, bool, None), vectors or {_HIT}"
    return OutputError(
        f"it gives {port!r} as {name}, which prompts, engines and answers cannot read: {way}"
    )
