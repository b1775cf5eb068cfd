"""Filters on the metadata of documents: what a query may write, and the comparisons that it means.

    {"year": {"$gte": 2000, "$lt": 2010}, "lang": {"$in": ["en", "de"]}, "author": {"name": "Ann"}}

A key names a field; a value without an operator means `$eq`; an object without operators leads to
the fields inside it. All comparisons have to hold. Doors check filters here before anything runs,
and the store turns the same comparisons into SQL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import LONGEST_NAME, InputError, UnknownName

NAME_KEY: Final = "name"
"""The key that stands for a document's name and not for its metadata."""

ORDERED: Final = frozenset({"$gt", "$gte", "$lt", "$lte"})
LISTS: Final = frozenset({"$in", "$nin", "$all"})
OPERATORS: Final = frozenset({"$eq", "$ne", "$exists"}) | ORDERED | LISTS

MOST_CHARACTERS: Final = 16_384
"""Of all comparisons of a query, as JSON, without those on the name."""
DEEPEST: Final = 16
"""Objects inside objects."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison. path: keys from the outermost field. value: a JSON scalar; for `LISTS` a
    tuple of them; for `$exists` a bool."""

    path: tuple[str, ...]
    operator: str
    value: Any


def comparisons(filters: Mapping[str, Any]) -> tuple[Comparison, ...]:
    """The comparisons that `filters` mean, in their order.

    Raises InputError, and UnknownName for an operator that is not in `OPERATORS`.
    """
    if not isinstance(filters, Mapping):
        raise InputError(f"filters must be an object, not {type(filters).__name__}")
    parsed = tuple(_fields(filters, ()))
    sized = [(c.path, c.operator, c.value) for c in parsed if c.path != (NAME_KEY,)]
    size = len(json.dumps(sized, ensure_ascii=False))
    if size > MOST_CHARACTERS:
        raise InputError(
            f"filters have {size} characters of JSON, more than the {MOST_CHARACTERS} that are "
            "taken; compare with fewer or shorter values"
        )
    return parsed


def _fields(filters: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[Comparison]:
    for key, value in filters.items():
        where = _where((*above, str(key)))
        if not isinstance(key, str):
            raise InputError(f"a key of the filters is {key!r}, not text")
        if key.startswith("$"):
            inside = f"{_where(above)} mixes operators and fields" if above else f"{key!r} is alone"
            raise InputError(
                f"{inside}: an operator stands below the field that it compares, such as "
                '{"year": {"$gte": 2000}}'
            )
        _check_text(where, key)
        path = (*above, key)
        if not isinstance(value, Mapping):
            yield _condition(path, "$eq", value)
        elif value and all(isinstance(k, str) and k.startswith("$") for k in value):
            yield from (_condition(path, operator, operand) for operator, operand in value.items())
        elif not value or len(path) == DEEPEST or path == (NAME_KEY,):
            raise InputError(
                f"{where} is no comparison: give a value, or an object of operators "
                f"({', '.join(sorted(OPERATORS))})"
            )
        else:
            yield from _fields(value, path)


def _condition(path: tuple[str, ...], operator: str, value: Any) -> Comparison:
    where = _where(path)
    if operator not in OPERATORS:
        raise UnknownName("operator", operator, OPERATORS, where)
    if operator == "$exists":
        if not isinstance(value, bool):
            raise InputError(f"$exists of {where} must be true or false, not {_kind(value)}")
        return Comparison(path, operator, value)
    if operator in LISTS:
        if not isinstance(value, list | tuple):
            raise InputError(f"{operator} of {where} must be a list, not {_kind(value)}")
        for item in value:
            _check_scalar(path, operator, item)
        return Comparison(path, operator, tuple(value))
    if operator == "$eq" and isinstance(value, list | tuple):
        raise InputError(
            f'{where} is compared with a list: write {{"$in": [...]}} for one of its values, '
            '{"$all": [...]} for all of them'
        )
    _check_scalar(path, operator, value)
    if operator in ORDERED and (value is None or isinstance(value, bool)):
        raise InputError(f"{operator} of {where} must be a number or text, not {_kind(value)}")
    return Comparison(path, operator, value)


def _check_scalar(path: tuple[str, ...], operator: str, value: Any) -> None:
    where = _where(path)
    if path == (NAME_KEY,) and not (isinstance(value, str) and value):
        raise InputError(
            f"{operator} of {where} must be the name of a document, not {_kind(value)}"
        )
    if isinstance(value, str):
        _check_text(where, value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{operator} of {where} is {value}: give a finite number")
    elif isinstance(value, int) and value.bit_length() > MOST_CHARACTERS // 4:
        raise InputError(f"{operator} of {where} is a number with too many digits")
    elif value is not None and not isinstance(value, bool | int | float):
        raise InputError(
            f"{operator} of {where} must be text, a number, true, false or null, not {_kind(value)}"
        )


def _check_text(where: str, text: str) -> None:
    """Raise InputError for a NUL character or half a surrogate pair: no metadata can have these."""
    if "\0" in text or text != text.encode("utf-8", "replace").decode():
        raise InputError(f"{where} holds a character that cannot be stored (NUL): remove it")


def _where(path: tuple[str, ...]) -> str:
    return f"the filter {'.'.join(path)[:LONGEST_NAME]!r}"


def _kind(value: Any) -> str:
    """The kind of a value, in the words of JSON."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return "text" if value else "empty text"
    return "a number" if isinstance(value, int | float) else type(value).__name__
