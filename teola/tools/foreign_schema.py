"""Schemas that somebody else wrote: those of an MCP server, of a client, of another library.

What such a schema says is held against the rules that JSON Schema has for its keywords, as far as
anything here reads them. `jsonschema` would do that with the schema of schemas, which takes a
hundred times as long. The size is counted first, and no further than it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola.errors import InputError
from teola.tools.json_schema import JsonSchema, shown, target
from teola.tools.json_size import json_size

LARGEST_SCHEMA: Final = 65_536
"""Characters of a foreign tool's schema, as JSON."""
DEEPEST_SCHEMA: Final = 32
"""Lists and objects inside each other in one."""

_KINDS: Final = frozenset(
    {"array", "boolean", "integer", "null", "number", "object", "string"},
)
_ELSEWHERE: Final = ("$dynamicRef", "$recursiveRef", "$id")
"""Keywords by which a schema is more than what stands in it."""


def check_foreign(schema: Any) -> dict[str, Any]:
    """A schema as one that can be used: that of an object, of bounded size, which refers to nothing
    outside itself. Raises InputError."""
    if not isinstance(schema, Mapping):
        raise InputError(f"its schema is {shown(schema)}, not an object")
    try:
        size = json_size(schema, LARGEST_SCHEMA)
    except (TypeError, ValueError):
        raise InputError("its schema cannot be JSON") from None
    if size.characters > LARGEST_SCHEMA or size.levels > DEEPEST_SCHEMA:
        raise InputError(
            f"its schema is too large: it may have {LARGEST_SCHEMA:,} characters and "
            f"{DEEPEST_SCHEMA} levels"
        )
    checked = as_object(schema)
    if checked["type"] != "object":
        raise InputError(f"its arguments are {shown(checked['type'])}, not an object")
    dialect = checked.get("$schema", "")
    if not isinstance(dialect, str):
        raise InputError(f"its schema is none: $schema is {shown(dialect)}, not a text")
    _Checking(checked, _draft(dialect)).schema(checked, "")
    return checked


def as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, which says that it is one of an object, and has no name of its own."""
    return {"type": "object", **{key: schema[key] for key in schema if key != "$id"}}


def _draft(dialect: str) -> int:
    """The draft that a `$schema` names; the newest if it names none."""
    name = dialect.rstrip("#/").removesuffix("/schema").rpartition("/")[2]
    return {"draft-03": 3, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 8}.get(name, 9)


class _Checking:
    """One schema that is being checked. root: what its references are looked up in. draft: 3 to 7
    by their numbers, 8 for 2019-09, 9 for 2020-12."""

    def __init__(self, root: JsonSchema, draft: int) -> None:
        self._root, self._draft = root, draft

    def schema(self, value: Any, place: str) -> None:
        """Raise InputError unless `value` is a schema. Bounded in depth by the caller."""
        if isinstance(value, bool):
            return
        if not isinstance(value, Mapping):
            raise _none(place, "a schema", value)
        for keyword, operand in value.items():
            here = f"{place}.{keyword}" if place else str(keyword)
            if keyword in _ELSEWHERE:
                raise InputError(f"its schema uses {keyword}, which is not supported")
            if keyword == "$ref":
                self._ref(operand)
            elif keyword in _ONE:
                self.schema(operand, here)
            elif keyword in _LISTED or (keyword == "items" and self._draft < 9):
                self._schemas(keyword, operand, here)
            elif keyword == "items":
                self.schema(operand, here)
            elif keyword in _NAMED:
                self._named(operand, here)
            elif keyword in _EXCLUSIVE and self._draft <= 4:
                _check(isinstance(operand, bool), here, "true or false", operand)
            elif keyword in _RULES:
                what, fits = _RULES[keyword]
                _check(fits(operand), here, what, operand)

    def _schemas(self, keyword: str, operand: Any, place: str) -> None:
        if keyword == "items" and not isinstance(operand, list):
            self.schema(operand, place)
            return
        _check(isinstance(operand, list) and bool(operand), place, "a list of schemas", operand)
        for i, item in enumerate(operand):
            self.schema(item, f"{place}[{i}]")

    def _named(self, operand: Any, place: str) -> None:
        _check(isinstance(operand, Mapping), place, "an object of schemas", operand)
        for name, item in operand.items():
            self.schema(item, f"{place}.{name}")

    def _ref(self, ref: Any) -> None:
        try:
            target(self._root, ref)
        except (AttributeError, LookupError, TypeError, ValueError):
            raise InputError(f"its schema refers to {shown(ref)}, which is not in it") from None


def _none(place: str, what: str, value: Any) -> InputError:
    return InputError(f"its schema is none: {place[:200]} is {shown(value)}, not {what}")


def _check(fits: bool, place: str, what: str, value: Any) -> None:
    if not fits:
        raise _none(place, what, value)


# --- what keywords take -----------------------------------------------------------------------


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return _number(value) and value >= 0 and value == int(value)


def _texts(value: Any) -> bool:
    """A list of texts, each once."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        return False
    return len(set(value)) == len(value)


def _kinds(value: Any) -> bool:
    if isinstance(value, str):
        return value in _KINDS
    return bool(value) and _texts(value) and _KINDS.issuperset(value)


def _lists_of_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_texts, value.values()))


_ONE: Final = frozenset(
    {
        "additionalProperties",
        "contains",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
_EXCLUSIVE: Final = frozenset({"exclusiveMaximum", "exclusiveMinimum"})
_NUMBER: Final = ("a number", _number)
_COUNT: Final = ("a whole number of 0 or more", _count)
_TEXT: Final = ("a text", lambda value: isinstance(value, str))
_RULES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "type": ("a type, or several", _kinds),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "required": ("a list of names", _texts),
    "dependentRequired": ("an object of lists of names", _lists_of_texts),
    "uniqueItems": ("true or false", lambda value: isinstance(value, bool)),
    "multipleOf": ("a number above 0", lambda value: _number(value) and value > 0),
    **dict.fromkeys(("maximum", "minimum", *_EXCLUSIVE), _NUMBER),
    **dict.fromkeys(("maxItems", "minItems", "maxLength", "minLength"), _COUNT),
    **dict.fromkeys(("maxProperties", "minProperties", "maxContains", "minContains"), _COUNT),
    **dict.fromkeys(("description", "format", "pattern", "title"), _TEXT),
}
"""What a keyword takes, in words and as a check."""
