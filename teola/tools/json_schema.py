"""JSON schemas as data: rewritten, told in words, and made fit for constrained decoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from teola.plain_json import beginning

JsonSchema = Mapping[str, Any]

_ONE: Final = frozenset(
    {
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LISTED: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords that hold a schema, a list of schemas, and schemas by name."""

REFERENCES: Final[Mapping[str, JsonSchema]] = {
    ".reference": {
        "type": "string",
        "pattern": r"^\$[1-9][0-9]*(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*$",
    }
}
"""The definition of a text that is a reference to a result (references.py), under a name that no
tool can have."""
REFERENCE: Final[JsonSchema] = {"$ref": "#/$defs/.reference"}

DEEPEST: Final = 6
"""Schemas inside each other that are told in words."""
SHOWN: Final = 60
"""Characters of a value that a message repeats."""
LISTED: Final = 20
"""Values of an enumeration that a message lists."""
LARGEST: Final = 2**53 - 1
"""Beyond it, numbers are not the same to every reader of JSON."""
FORMATS: Final = frozenset({"date", "date-time", "time", "uuid"})
"""Formats of texts that decoding can be held to and models do get wrong."""


def mapped(schema: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """The schema with `change` made to every schema inside it, the innermost first."""
    if not isinstance(schema, Mapping):
        return schema  # true or false
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LISTED and isinstance(value, list):
            result[key] = [mapped(inner, change) for inner in value]
        elif key in _NAMED and isinstance(value, Mapping):
            result[key] = {name: mapped(inner, change) for name, inner in value.items()}
        elif key in _ONE:
            result[key] = mapped(value, change)
        else:
            result[key] = value
    return change(result)


def target(root: JsonSchema, ref: str) -> Any:
    """What `$ref` names within `root`: its whole, or a place in it. Raises LookupError, which has
    the reference."""
    if ref != "#" and not ref.startswith("#/"):
        raise LookupError(ref)
    value: Any = root
    try:
        for part in ref.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            value = value[_index(key)] if isinstance(value, list) else value[key]
    except (LookupError, TypeError):
        raise LookupError(ref) from None
    return value


def _index(key: str) -> int:
    """The place in a list that a reference names, which has one spelling: `flattened` copies a
    definition once for each spelling of its name."""
    if not (key.isascii() and key.isdecimal() and (key == "0" or key[0] != "0")):
        raise LookupError(key)
    return int(key)


# --- in words ---------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value as a message repeats it."""
    most = SHOWN + 1
    try:
        text = repr(value[:most]) if isinstance(value, str) else beginning(value, most)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def in_words(schema: Any, root: JsonSchema, depth: int = 0) -> str:
    """What a value has to be: "an integer >= 1", "a list of texts or null"."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return "anything"
    if "$ref" in schema:
        try:
            return in_words(target(root, schema["$ref"]), root, depth + 1)
        except (LookupError, TypeError, ValueError):
            return "anything"
    if "const" in schema:
        return shown(schema["const"])
    if "enum" in schema:
        return _one_of(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            these = [alternative for alternative in schema[key] if alternative != REFERENCE]
            # two levels each: alternatives of alternatives multiply
            more = ["..."] if len(these) > LISTED else []
            return _either(
                [*(in_words(alternative, root, depth + 2) for alternative in these[:LISTED]), *more]
            )
    if len(schema.get("allOf", ())) == 1:
        return in_words(schema["allOf"][0], root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _either(
            in_words({**schema, "type": alternative}, root, depth + 1) for alternative in kind
        )
    return _of_kind(kind, schema, root, depth)


def _of_kind(kind: Any, schema: JsonSchema, root: JsonSchema, depth: int) -> str:
    match kind:
        case "integer" | "number":
            return f"{'an integer' if kind == 'integer' else 'a number'}{_bounds(schema)}"
        case "string":
            return _text(schema)
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case "array":
            of = in_words(schema.get("items", {}), root, depth + 1)
            each = "" if of == "anything" else f", each {of}"
            return f"a list{_count(schema, 'minItems', 'maxItems', 'items')}{each}"
        case "object":
            names = ", ".join(schema.get("properties", ()))
            return f"an object with {names}" if names else "an object"
    return "anything"


def _one_of(values: Iterable[Any]) -> str:
    listed = [shown(value) for value in values]
    if len(listed) == 1:
        return listed[0]
    more = ", ..." if len(listed) > LISTED else ""
    return f"one of {', '.join(listed[:LISTED])}{more}"


def _either(parts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(parts)) or "anything"


def _bounds(schema: JsonSchema) -> str:
    signs = {
        "minimum": ">=",
        "exclusiveMinimum": ">",
        "maximum": "<=",
        "exclusiveMaximum": "<",
    }
    bounds = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    if "multipleOf" in schema:
        bounds.append(f"a multiple of {schema['multipleOf']}")
    return f" {' and '.join(bounds)}" if bounds else ""


def _text(schema: JsonSchema) -> str:
    examples = {
        "date": "a date like '2026-01-31'",
        "time": "a time like '13:45:00'",
        "date-time": "a date and time like '2026-01-31T13:45:00Z'",
        "uuid": "a UUID",
    }
    form = schema.get("format")
    words = examples.get(form, f"a text (format {form})") if isinstance(form, str) else "a text"
    words += _count(schema, "minLength", "maxLength", "characters")
    return f"{words} that matches {schema['pattern']}" if "pattern" in schema else words


def _count(schema: JsonSchema, least: str, most: str, of: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low and high is not None:
        return f" of {low} to {high} {of}" if low != high else f" of {low} {of}"
    if low:
        return f" of at least {low} {of}"
    return "" if high is None else f" of at most {high} {of}"


# --- for constrained decoding -----------------------------------------------------------------


def flattened(schema: JsonSchema, name: str) -> dict[str, Any]:
    """The schema as definitions that stand side by side: itself as `name`, and all that it refers
    to as `name.1`, `name.2`, ... References then hold wherever these become `$defs`."""
    definitions: dict[str, Any] = {}
    names = {"#": name}
    waiting = ["#"]

    def renamed(inner: dict[str, Any]) -> dict[str, Any]:
        ref = inner.get("$ref")
        if not isinstance(ref, str):
            return inner
        if ref not in names:
            names[ref] = f"{name}.{len(names)}"
            waiting.append(ref)
        return {**inner, "$ref": f"#/$defs/{names[ref]}"}

    while waiting:
        ref = waiting.pop(0)
        part = target(schema, ref)
        if isinstance(part, Mapping):
            part = {key: part[key] for key in part if key not in ("$defs", "definitions")}
        definitions[names[ref]] = mapped(part, renamed)
    return definitions


def embedded(schema: JsonSchema, name: str) -> tuple[Any, dict[str, Any]]:
    """The schema as a part of another one, and the definitions that it needs there, whose names
    begin with `name`. Raises LookupError for a reference to what is not in it."""
    definitions = flattened(schema, name)
    part = definitions[name]
    if f'"#/$defs/{name}"' not in json.dumps(list(definitions.values()), default=str):
        del definitions[name]
    return part, definitions


_KEPT: Final = frozenset(
    {
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "prefixItems",
        "properties",
        "required",
        "type",
    }
)


def decodable(schema: Any) -> Any:
    """The schema with what a server may refuse to be held to taken out, so that it allows more.

    vLLM refuses a whole request for one keyword that its grammars lack (backend_xgrammar.py), and
    other servers lack others. What was taken out is checked once the arguments are there.
    """
    return mapped(schema, _plainer)


def _plainer(schema: dict[str, Any]) -> dict[str, Any]:
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    whole = schema.get("allOf")
    if isinstance(whole, list) and len(whole) == 1 and isinstance(whole[0], dict):
        schema = {**schema, **whole[0]}
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    form = schema.get("format")
    kept = {key: value for key, value in schema.items() if key in _KEPT and _fits(key, value)}
    if form in FORMATS:
        kept = {key: value for key, value in kept.items() if key not in ("minLength", "maxLength")}
        kept["format"] = form
    if "required" in kept:
        properties = kept.get("properties", {})
        kept["required"] = [name for name in kept["required"] if name in properties]
    return kept


def _fits(key: str, value: Any) -> bool:
    """Whether the bound that a keyword sets is one that every reader takes alike."""
    if key not in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        return True
    return isinstance(value, (int, float)) and abs(value) <= LARGEST
