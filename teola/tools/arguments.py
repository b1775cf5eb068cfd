"""What a model gives a tool, held against the tool's schema.

Nothing is converted: '2' is no integer, 2.0 is none either. What is wrong is said so that the model
can mend it: "argument 'days' must be an integer >= 1, got 'two'".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from teola.errors import InputError
from teola.tools.json_schema import JsonSchema, in_words, mapped, shown
from teola.tools.schema_steps import at_most, counted

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MOST_PROBLEMS: Final = 5
"""Told at once."""
MOST_STEPS: Final = 20_000
"""Keywords that are looked at for the arguments of one call on the event loop. That takes a fifth
of a second."""
MOST_STEPS_ASIDE: Final = 2_000_000
"""The same in a thread, for arguments of up to a megabyte with results of other calls in them."""

_COSTS: Final = {"$ref": 8}
"""Steps: a reference takes about eight times as long as another keyword."""


class ArgumentChecker:
    """Says what is wrong with arguments.

    patterns: whether `pattern` is looked at. Schemas of others may make that as slow as they like,
    or be written for another kind of regular expressions.
    """

    def __init__(self, schema: JsonSchema, *, patterns: bool = True) -> None:
        self.schema: JsonSchema = schema if patterns else mapped(schema, _without_patterns)
        self._made: Validator | None = None

    def problems(self, arguments: Any, most_steps: int = MOST_STEPS) -> list[str]:
        """What is wrong, most important first; empty if nothing is. most_steps: keywords that are
        looked at."""
        if not isinstance(arguments, Mapping):
            return [f"arguments must be an object, got {shown(arguments)}"]
        if self._made is None:
            self._made = _validator(_dialect(self.schema))(self.schema, registry=_no_others())
        try:
            with at_most(most_steps):
                errors = sorted(self._made.iter_errors(dict(arguments)), key=_place)
        except RecursionError:
            return ["the arguments are nested too deeply"]
        except InputError:
            return ["there are too many arguments to check them; give fewer, or shorter lists"]
        lines: dict[str, None] = {}
        for line in (line for error in errors for line in self._told(error)):
            lines[line] = None
            if len(lines) == MOST_PROBLEMS:
                break
        return list(lines)

    def _told(self, error: ValidationError) -> Iterator[str]:
        keyword: Any = error.validator
        schema: Any = error.schema
        instance: Any = error.instance
        expected: Any = error.validator_value
        where = argument_at(error.absolute_path)
        if keyword == "required":
            for name in expected:
                if name not in instance:
                    of = schema.get("properties", {}).get(name, {})
                    path = argument_at([*error.absolute_path, name])
                    yield f"{path} is missing: {in_words(of, self.schema)}"
        elif keyword == "additionalProperties" and not expected:
            for name in instance:
                if name not in schema.get("properties", {}):
                    yield self._unknown(name, schema, where if error.absolute_path else "")
        elif keyword in ("anyOf", "oneOf") and (nearest := _nearest(error)):
            for inner in nearest:
                yield from self._told(inner)
        elif keyword == "uniqueItems":
            yield f"{where} must not repeat an item, got {shown(instance)}"
        else:
            yield f"{where} must be {in_words(schema, self.schema)}, got {shown(instance)}"

    def _unknown(self, name: str, schema: JsonSchema, where: str) -> str:
        valid = list(schema.get("properties", ()))
        near = get_close_matches(name, valid, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        takes = f" (it takes {', '.join(valid) or 'none'})"
        of = f"{where} has no field" if where else "there is no argument"
        return f"{of} {shown(name)}{hint}{takes}"


def argument_at(path: Iterable[str | int]) -> str:
    """Where a value stands: argument 'places[0].name'."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f"argument {text!r}" if text else "the arguments"


def _place(error: ValidationError) -> tuple[str, ...]:
    return tuple(map(str, error.absolute_path))


def _nearest(error: ValidationError) -> list[ValidationError]:
    """The errors in the only alternative that is of the right kind, if there is one."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    right = [branch for branch in branches.values() if all(map(_inside, branch))]
    return right[0] if len(right) == 1 else []


def _inside(error: ValidationError) -> bool:
    """Whether the error is about a part of the value and not about its kind."""
    return bool(error.relative_path) or error.validator in ("required", "additionalProperties")


# --- schemas ----------------------------------------------------------------------------------


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    loose = {"pattern", "patternProperties"}
    if "patternProperties" in schema:
        loose.add("additionalProperties")
    return {key: value for key, value in schema.items() if key not in loose}


def _dialect(schema: JsonSchema) -> type[Validator]:
    """The version of JSON Schema that it says it is written in; else the newest."""
    from teola.validators import Draft202012Validator, validator_for

    return validator_for(schema, default=Draft202012Validator)


@cache
def _validator(dialect: type[Validator]) -> type[Validator]:
    """JSON Schema, but that 1.0 is no integer: a function would get another type than it asks
    for."""

    def whole(_: object, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    checker = dialect.TYPE_CHECKER.redefine("integer", whole)
    validator: type[Validator] = counted(dialect, _COSTS, type_checker=checker)
    return validator


@cache
def _no_others() -> Any:
    """A registry that fetches nothing."""
    from teola.validators import Registry

    return Registry()
