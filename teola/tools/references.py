"""References in arguments to the results of earlier calls.

    "$1"                the result of call 1, of whatever type it is
    "$2.city.name"      a field of it; "$2.hits[0]" an item
    "from ${1} on"      a result as text, within a text: in braces only
    "$$1", "a $${1}"    the texts $1 and a ${1}

Only a model that was told of references writes any (mode `plan` of an agent). Without braces a
dollar within a text is a dollar: prices, shells and SQL are full of them. In braces, a number that
no earlier call has stays as it is; alone it is an error. A value is never looked through for
further references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from teola.errors import InputError
from teola.plain_json import fits
from teola.tools.json_schema import REFERENCE, SHOWN, JsonSchema, mapped, shown
from teola.tools.tool_result import ToolResult, as_text

_PATH: Final = r"(?:\.[A-Za-z_]\w*+|\[\d{1,6}+\])*+"
_BRACED: Final = rf"\${{([1-9]\d{{0,5}}+)({_PATH})}}"
_ALONE: Final = re.compile(rf"\$([1-9]\d{{0,5}}+)({_PATH})|{_BRACED}", re.ASCII)
_WITHIN: Final = re.compile(rf"{_BRACED}|\$(\$+{_BRACED[2:]})", re.ASCII)
_ESCAPED: Final = re.compile(rf"\$(?:\$+[1-9]\d{{0,5}}+{_PATH}|\$+{_BRACED[2:]})", re.ASCII)
"""A dollar more than what would mean a result: one of them is taken away."""
_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]", re.ASCII)


MOST_ARGUMENT_CHARS: Final = 2**20
"""Characters of arguments as JSON, with results in the place of references, unless a tool says
otherwise."""
NAMES: Final = 30
"""Fields that are listed to a model which has named none of them."""


class Reference(NamedTuple):
    """What a text refers to. path: field names and indices, from the result on."""

    call: int
    path: tuple[str | int, ...]

    def __str__(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"${self.call}{''.join(steps)}"


def lone(value: Any) -> Reference | None:
    """The reference that a value is, if it is nothing else."""
    match = _ALONE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    return _reference(match[1] or match[3], match[2] if match[1] else match[4])


def referred(value: Any, earlier: Collection[int]) -> list[Reference]:
    """All references to `earlier` calls, wherever they stand, in order."""
    references: list[Reference] = []
    for text in _texts(value):
        whole = lone(text)
        within = map(_referring, _WITHIN.finditer(text)) if whole is None else (whole,)
        references += [
            reference for reference in within if reference is not None and reference.call in earlier
        ]
    return references


def unknown(value: Any, earlier: Collection[int]) -> list[Reference]:
    """Lone references to calls that are not among the `earlier` ones."""
    references = (lone(text) for text in _texts(value))
    return [
        reference
        for reference in references
        if reference is not None and reference.call not in earlier
    ]


def substituted(
    value: Any, results: Mapping[int, ToolResult], most_chars: int = MOST_ARGUMENT_CHARS
) -> Any:
    """The value with results in the place of references. Raises InputError for a call that failed,
    for a path that leads nowhere, and for more than `most_chars` characters."""
    return _Filling(results, most_chars).of(value)


class _Filling:
    """Puts results into one value. Each is looked up, parsed and written once, however often it is
    referred to, and nothing is written that has no room. left: characters that there is room for.
    """

    def __init__(self, results: Mapping[int, ToolResult], most: int) -> None:
        self._results, self._most, self.left = results, most, most
        self._found: dict[Reference, Any] = {}
        self._texts: dict[Reference, str] = {}
        self._parsed: dict[int, Any] = {}  # by the id of a text, which its result keeps

    def of(self, value: Any) -> Any:
        """The value with what it refers to."""
        if isinstance(value, Mapping):
            return {key: self.of(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if not isinstance(value, str):
            return value
        reference = lone(value)
        if reference is not None and reference.call in self._results:
            self._text(reference)
            return self._value(reference)
        if _ESCAPED.fullmatch(value):
            return value[1:]
        filled = _WITHIN.sub(self._in_text, value)
        self._take(len(value))
        return filled

    def _in_text(self, match: re.Match[str]) -> str:
        reference = _referring(match)
        if reference is None:
            return match[3]
        return self._text(reference) if reference.call in self._results else match[0]

    def _text(self, reference: Reference) -> str:
        """What it refers to as text, for which there is room."""
        text = self._texts.get(reference)
        if text is None:
            value = self._value(reference)
            if isinstance(value, str):
                text = value
            elif fits(value, self.left, self.left):
                text = as_text(value)
            else:
                raise self._too_long()
            self._texts[reference] = text
        self._take(len(text))
        return text

    def _take(self, characters: int) -> None:
        self.left -= characters
        if self.left < 0:
            raise self._too_long()

    def _too_long(self) -> InputError:
        return InputError(
            f"its arguments would have more than {self._most:,} characters (most_argument_chars) "
            "with the results that they refer to; refer to fields or items of these"
        )

    def _value(self, reference: Reference) -> Any:
        if reference in self._found:
            return self._found[reference]
        result = self._results[reference.call]
        if result.failed:
            raise InputError(f"{reference} cannot be read, because call {reference.call} failed")
        value: Any = result.value
        for step in reference.path:
            if isinstance(value, str):
                value = self._opened(value)
            listed = isinstance(value, list) and isinstance(step, int) and step < len(value)
            if not listed and not (isinstance(value, dict) and step in value):
                raise InputError(f"{reference} leads nowhere: {_told(step, value, self._most)}")
            value = value[step]
        self._found[reference] = value
        return value

    def _opened(self, text: str) -> Any:
        """A text that is an object or a list in JSON, as many tools answer. A longer one than that
        is not parsed: one call does it, which nothing can interrupt."""
        if len(text) > 2 * self._most:
            return text
        if id(text) not in self._parsed:
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):
                parsed = text
            self._parsed[id(text)] = parsed if isinstance(parsed, (dict, list)) else text
        return self._parsed[id(text)]


def _referring(match: re.Match[str]) -> Reference | None:
    """What stands in braces refers to; None for braces that are escaped."""
    return None if match[1] is None else _reference(match[1], match[2])


def _reference(number: str, path: str) -> Reference:
    steps = (int(step[2]) if step[2] else step[1] for step in _STEP.finditer(path))
    return Reference(int(number), tuple(steps))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _told(step: str | int, value: Any, most: int) -> str:
    if isinstance(value, dict) and isinstance(step, str):
        names = ", ".join(str(name)[:SHOWN] for name in islice(value, NAMES)) or "nothing"
        more = f" and {len(value) - NAMES:,} more" if len(value) > NAMES else ""
        return f"there is no {step!r} (there is {names}{more})"
    if isinstance(value, list) and isinstance(step, int):
        return f"there are {len(value)} items, counted from 0"
    if isinstance(value, str) and len(value) > 2 * most:
        return (
            f"it is a text of {len(value):,} characters, and is looked into up to {2 * most:,}, "
            "twice most_argument_chars"
        )
    return f"{shown(value)} has no {step!r}"


# --- schemas that take them -------------------------------------------------------------------


def referring(schema: JsonSchema) -> dict[str, Any]:
    """The schema of arguments in which any value may be a lone reference instead. Its `$defs` need
    the definition REFERENCES."""
    return mapped(schema, _opened)  # type: ignore[no-any-return]


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    opened = dict(schema)
    if "properties" in opened:
        opened["properties"] = {k: _or_reference(v) for k, v in opened["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(opened.get(key), Mapping):
            opened[key] = _or_reference(opened[key])
    if isinstance(opened.get("prefixItems"), list):
        opened["prefixItems"] = list(map(_or_reference, opened["prefixItems"]))
    return opened


def _or_reference(schema: Any) -> Any:
    if not isinstance(schema, Mapping) or (
        set(schema) <= _FREE and schema.get("type", "string") == "string"
    ):
        return schema  # it takes any text
    if set(schema) - {"description", "default"} == {"anyOf"}:
        return {**schema, "anyOf": [*schema["anyOf"], REFERENCE]}
    outside = {key: schema[key] for key in ("description", "default") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in outside}
    return {**outside, "anyOf": [inside, REFERENCE]}


_FREE: Final = frozenset({"type", "description", "default"})
