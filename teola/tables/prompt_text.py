"""Values in prompts: canonical text, as SQL, so that DuckDB makes all of it.

    number as it is printed, ISO date, true or false, JSON for lists and structs, nothing for NULL

A line break within a value is escaped, so a value is one line whatever it holds. Values that give
the same text give the same prompt, and so are one question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BREAKS: Final = (
    ("\r", "\\r"),
    ("\n", "\\n"),
    ("\v", "\\v"),
    ("\f", "\\f"),
    ("\x1c", "\\x1c"),
    ("\x1d", "\\x1d"),
    ("\x1e", "\\x1e"),
    ("\x85", "\\x85"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)
"""Characters that end a line, as `str.splitlines` knows them, and what replaces each."""
NESTED: Final = ("STRUCT", "MAP", "UNION", "JSON")
PLAIN: Final = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "BOOLEAN",
    "DATE",
    "UUID",
)
"""Types whose text has no line break."""


def literal(text: str) -> str:
    """A text as a literal of SQL."""
    return "'{}'".format(text.replace("'", "''"))


def _character(escaped: str) -> str:
    return f"chr({ord(escaped)})"


def canonical(sql: str, type: str) -> str:
    """SQL of a value's text. sql: the value; type: DuckDB's, as it describes it."""
    name = type.upper()
    if name.endswith("]") or name.startswith(NESTED):
        text = f"CAST(to_json({sql}) AS VARCHAR)"
    elif name.startswith("TIMESTAMP WITH TIME ZONE"):
        text = f"strftime(({sql}) AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    elif name.startswith("TIMESTAMP"):
        text = f"replace(CAST({sql} AS VARCHAR), ' ', 'T')"
    else:
        text = f"CAST({sql} AS VARCHAR)"
    if not name.startswith(PLAIN) or name.endswith("]"):
        class_ = "[\\x0a-\\x0d\\x1c-\\x1e\\x{85}\\x{2028}\\x{2029}]"
        escaped = text
        for character, shown in BREAKS:
            escaped = f"replace({escaped}, {_character(character)}, {literal(shown)})"
        text = f"CASE WHEN regexp_matches({text}, '{class_}') THEN {escaped} ELSE {text} END"
    return f"coalesce({text}, '')"


def key_of(operator: str, names: Sequence[str], texts: Sequence[str], more: str = "") -> str:
    """SQL of the digest of one question: the call, and its values by name. texts: SQL of each.
    more: SQL of what else tells it from others."""
    ordered = sorted(range(len(names)), key=lambda at: names[at])
    parts = [literal(operator)]
    for at in ordered:
        parts += [f"length({texts[at]})", "':'", texts[at]]
    if more:
        parts += ["'|'", more]
    return f"md5(concat({', '.join(parts)}))"


def lines_of(names: Sequence[str], texts: Sequence[str]) -> str:
    """SQL of the text after the instruction in a prompt: one line for each field."""
    if not names:
        return "''"
    parts: list[str] = []
    for name, text in zip(names, texts, strict=True):
        parts += [literal(f"\n{one_line(name)}: "), text]
    return f"concat({', '.join(parts)})"


def one_line(name: str) -> str:
    """A field's name without line breaks."""
    for character, shown in BREAKS:
        name = name.replace(character, shown)
    return name
