"""What one LLM call of a query asks, and how its answers become values of a column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, Final

from teola.errors import InputError
from teola.tables.folding import folds_of

Choice = str | int | float | bool
MAX_TOKENS: Final = 256
"""Output tokens of a call without `max_tokens`."""
BEYOND_CHOICE: Final = 8
"""Tokens that an answer by choices may have beside the longest choice."""
OPTIONS: Final = (
    "choices",
    "pattern",
    "schema",
    "type",
    "model",
    "max_tokens",
    "temperature",
    "fixed_order",
    "shared",
    "fold",
)
GROUP_OPTIONS: Final = (
    *(one for one in OPTIONS if one not in ("fixed_order", "fold")),
    "part_tokens",
    "combine",
)
"""Of LLM_AGG: its rows stand in an order of their own, and parts of them are the questions."""
PART_TOKENS: Final = 4096
"""Tokens of rows in one prompt of LLM_AGG: models read long lists badly, and parts run at once."""
LEAST_PART: Final = 64
TEXT: Final = "VARCHAR"


@dataclass(frozen=True, slots=True)
class GroupCall:
    """How LLM_AGG asks for a group of rows, in parts and then for the parts' answers.

    part_tokens: of rows, in one prompt. combine: the instruction over answers; None: the call's
    own, and that they are answers. rows: the table with a text for each row ("": not planned yet).
    """

    part_tokens: int = PART_TOKENS
    combine: str | None = None
    rows: str = ""


@dataclass(frozen=True, slots=True)
class LlmCall:
    """One call: an instruction over fields, without their values.

    names: of the fields, in the order in which they were written. type: of the column, a DuckDB
    type. choices, pattern, schema: at most one; what is searched for in an answer. model: the name
    of the runtime's engine; None: `llm`. fixed_order: the fields stay in their order. shared: at a
    temperature above 0, too, equal prompts have one answer, which is kept. fold: rules by which
    texts that differ are one question (folding). group: of LLM_AGG.
    listed: the one field holds lines of the prompt as they are sent. contexts: positions of fields
    that are lists whose order is free in prompts.
    """

    instruction: str
    names: tuple[str, ...] = ()
    choices: tuple[Choice, ...] | None = None
    pattern: str | None = None
    schema: str | None = None
    type: str = TEXT
    model: str | None = None
    max_tokens: int = MAX_TOKENS
    temperature: float = 0.0
    fixed_order: bool = False
    shared: bool = False
    fold: tuple[str, ...] = ()
    group: GroupCall | None = None
    listed: bool = False
    contexts: tuple[int, ...] = ()

    @property
    def prompt(self) -> str:
        """The instruction as it is sent: `{name}` stands for the field's name."""
        text = self.instruction
        for name in self.names:
            text = text.replace("{" + name + "}", name)
        return text

    def operator(self, model: str, tenant: str = "") -> str:
        """Digest of all that decides an answer beside the fields' values. model: its identity.
        tenant: whose answers they are."""
        said: list[Any] = [
            [model, tenant] if tenant else model,
            self.prompt,
            list(self.choices) if self.choices else None,
            self.pattern,
            self.schema,
            self.max_tokens,
            self.temperature,
            sorted(self.names),
            list(self.names) if self.fixed_order else None,
        ]
        if self.group is not None:
            said.append([self.group.part_tokens, self.group.combine])
        if self.listed:
            said.append("listed")
        if self.fold:
            said.append(list(self.fold))
        return sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()[:32]


def llm_call_of(
    instruction: str,
    options: Mapping[str, Any],
    names: Sequence[str] = (),
    *,
    grouped: bool = False,
) -> LlmCall:
    """The call with these options. grouped: whether it is an LLM_AGG. Raises InputError."""
    called, valid = ("LLM_AGG", GROUP_OPTIONS) if grouped else ("LLM", OPTIONS)
    check_call_options(called, options, valid)
    if not instruction.strip():
        raise InputError(f"{called} needs an instruction that says something")
    restrictions = [
        name for name in ("choices", "pattern", "schema") if options.get(name) is not None
    ]
    if len(restrictions) > 1:
        raise InputError(
            f"LLM takes one of choices, pattern and schema, not {' and '.join(restrictions)}"
        )
    choices = _choices(options.get("choices"))
    pattern = _pattern(options.get("pattern"))
    schema = _schema(options.get("schema"))
    default = MAX_TOKENS
    if choices is not None:
        default = max(len(str(choice).encode()) for choice in choices) + BEYOND_CHOICE
    shared = _flag("shared", options.get("shared"))
    temperature = _temperature(options.get("temperature"))
    fold = folds_of(options.get("fold"))
    if fold and temperature > 0 and not shared:
        raise InputError(
            "fold makes one question of several rows, and at a temperature above 0 each row has "
            "its own: leave temperature out, or give shared := true"
        )
    return LlmCall(
        instruction=instruction,
        names=tuple(names),
        choices=choices,
        pattern=pattern,
        schema=schema,
        type=_type(options.get("type"), choices, schema),
        model=_text("model", options.get("model")),
        max_tokens=_count("max_tokens", options.get("max_tokens"), default),
        temperature=temperature,
        fixed_order=_flag("fixed_order", options.get("fixed_order")),
        shared=shared,
        fold=fold,
        group=_group(options) if grouped else None,
    )


def check_call_options(called: str, options: Iterable[str], valid: Sequence[str]) -> None:
    """Raise InputError for an option that the function does not have."""
    for name in options:
        if name not in valid:
            near = get_close_matches(name, valid, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"{called} has no option {name!r}{hint} (valid: {', '.join(sorted(valid))})"
            )


def _group(options: Mapping[str, Any]) -> GroupCall:
    tokens = _count("part_tokens", options.get("part_tokens"), PART_TOKENS)
    if tokens < LEAST_PART:
        raise InputError(f"part_tokens must be at least {LEAST_PART}, not {tokens}")
    return GroupCall(tokens, _text("combine", options.get("combine")))


def _choices(value: Any) -> tuple[Choice, ...] | None:
    if value is None:
        return None
    wrong = "choices must be a list of texts, numbers or booleans, such as ['Yes', 'No']"
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise InputError(f"{wrong}, not {value!r}")
    choices = tuple(value)
    if not all(isinstance(choice, (str, int, float, bool)) for choice in choices):
        raise InputError(f"{wrong}, not {list(choices)!r}")
    if any(isinstance(choice, str) and not choice.strip() for choice in choices):
        raise InputError(f"{wrong}: one of them is empty")
    kinds = {
        str if isinstance(choice, str) else bool if isinstance(choice, bool) else float
        for choice in choices
    }
    if len(kinds) > 1:
        raise InputError(f"{wrong}: all of one kind, not {list(choices)!r}")
    if len({str(choice).casefold() for choice in choices}) < len(choices):
        raise InputError(
            f"choices must differ by more than upper and lower case: {list(choices)!r}"
        )
    return choices


def _pattern(value: Any) -> str | None:
    import re

    pattern = _text("pattern", value)
    if pattern is not None:
        try:
            compiled = re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            raise InputError(f"pattern {pattern!r} is no regular expression: {error}") from None
        if compiled.match("") is not None and compiled.fullmatch("") is not None:
            raise InputError(
                f"pattern {pattern!r} matches nothing at all: it would always be found"
            )
    return pattern


def _schema(value: Any) -> str | None:
    if value is None:
        return None
    schema = value
    if isinstance(value, str):
        try:
            schema = json.loads(value)
        except ValueError as error:
            raise InputError(f"schema is no JSON: {error}") from None
    if not isinstance(schema, Mapping):
        raise InputError(f"schema must be a JSON schema (an object), not {value!r}")
    from teola.validators import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise InputError(f"schema is no JSON schema: {error.message}") from None
    return json.dumps(schema, ensure_ascii=False)


def _type(value: Any, choices: tuple[Choice, ...] | None, schema: str | None) -> str:
    if value is not None:
        if schema is not None:
            raise InputError("LLM takes type or schema, not both: a schema gives the type")
        type_name = _text("type", value)
        assert type_name is not None
        return type_name.strip().upper()
    if schema is not None:
        return column_type(json.loads(schema))
    if choices is None or isinstance(choices[0], str):
        return TEXT
    if isinstance(choices[0], bool):
        return "BOOLEAN"
    return "BIGINT" if all(isinstance(choice, int) for choice in choices) else "DOUBLE"


def column_type(schema: Any) -> str:
    """The DuckDB type for values of a JSON schema: STRUCT, list, number, text; else JSON."""
    plain = {"string": TEXT, "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, str) and kind in plain:
        return plain[kind]
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"{column_type(schema['items'])}[]"
    if kind == "object" and schema.get("properties"):
        parts = (
            '"{}" {}'.format(name.replace('"', '""'), column_type(part))
            for name, part in schema["properties"].items()
        )
        return f"STRUCT({', '.join(parts)})"
    listed = schema.get("enum") if isinstance(schema, Mapping) else None
    if listed and all(isinstance(value, str) for value in listed):
        return TEXT
    return "JSON"


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} must be a text, not {value!r}")
    return value


def _count(name: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number from 1, not {value!r}")
    return value


def _temperature(value: Any) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2:
        raise InputError(f"temperature must be a number from 0 to 2, not {value!r}")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, not {value!r}")
    return value
