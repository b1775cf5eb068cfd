"""Rules by which texts that differ are one question, on request: `fold := ['case', 'space']`.

    case          Upper and lower case do not count.
    space         Spaces, tabs and line breaks count as one space, and not at all at the ends.
    punctuation   Punctuation does not count, but before a digit: -5, 4.5 and 1,000 stay.

The first row of several asks, with its own text. Only texts are folded: 4.5 is a number, and a date
has its form. A text of which nothing would be left stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from teola.errors import InputError, UnknownName

FOLDS: Final = ("case", "space", "punctuation")
TEXT: Final = "VARCHAR"


def folds_of(rules: Any) -> tuple[str, ...]:
    """Names of rules, each once, in the order of `FOLDS`. Raises InputError."""
    if rules is None:
        return ()
    if isinstance(rules, str) or not isinstance(rules, Sequence) or not rules:
        raise InputError(f"fold must be a list, such as ['case', 'space'], not {rules!r}")
    for rule in rules:
        if rule not in FOLDS:
            raise UnknownName("rule of fold", str(rule), FOLDS)
    return tuple(rule for rule in FOLDS if rule in rules)


def folded(sql: str, type: str, folds: Sequence[str]) -> str:
    """SQL of a value that is the same for all values that are one. sql: the value. type: DuckDB's,
    as it describes it."""
    if type.upper() != TEXT or not folds:
        return sql
    text = f"({sql})"
    if "punctuation" in folds:
        # What follows is taken along and put back: RE2 cannot look ahead.
        text = rf"regexp_replace({text}, '\p{{P}}+([^\p{{P}}\p{{Nd}}]|$)', '\1', 'g')"
    if "space" in folds:
        text = rf"trim(regexp_replace({text}, '[\s\p{{Z}}]+', ' ', 'g'))"
    if "case" in folds:
        text = f"lower({text})"
    return f"coalesce(nullif({text}, ''), {sql})"
