"""Comparisons of metadata as SQL: each is one JSON path, and both path and value are parameters.

JSON paths do here what filters promise: a field that is a list is compared item by item, values of
different kinds are never equal nor in order, and a field that a document lacks is no error. Texts
are in the order of their characters' code points.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from teola.filters import NAME_KEY, Comparison

_COMPARED: Final = {
    "$eq": "@ == $v",
    "$ne": "@ == $v",
    "$in": "@ == $v[*]",
    "$nin": "@ == $v[*]",
    "$gt": "@ > $v",
    "$gte": "@ >= $v",
    "$lt": "@ < $v",
    "$lte": "@ <= $v",
}
_NEGATED: Final = frozenset({"$ne", "$nin"})


def where(comparisons: Sequence[Comparison]) -> tuple[str, dict[str, Any]]:
    """SQL on a row of teola.documents, and its parameters; TRUE if none is given."""
    tests: list[str] = []
    values: dict[str, Any] = {}
    for comparison in _single(comparisons):
        n = len(tests)
        fields = "metadata"
        if comparison.path == (NAME_KEY,):
            fields = f"jsonb_build_object('{NAME_KEY}', name)"
        arguments = f"%(path{n})s::text::jsonpath, %(value{n})s::text::jsonb"
        test = f"jsonb_path_exists({fields}, {arguments}, true)"
        tests.append(f"NOT {test}" if _is_negated(comparison) else test)
        values[f"path{n}"] = _path(comparison)
        values[f"value{n}"] = json.dumps({"v": comparison.value})
    return " AND ".join(tests) or "TRUE", values


def _single(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """With `$all` as one `$eq` for each value."""
    singles: list[Comparison] = []
    for comparison in comparisons:
        if comparison.operator == "$all":
            singles += [Comparison(comparison.path, "$eq", value) for value in comparison.value]
        else:
            singles.append(comparison)
    return singles


def _is_negated(comparison: Comparison) -> bool:
    if comparison.operator == "$exists":
        return not comparison.value
    return comparison.operator in _NEGATED


def _path(comparison: Comparison) -> str:
    keys = (json.dumps(key, ensure_ascii=False) for key in comparison.path)
    path = "$" + "".join(f".{key}" for key in keys)
    compared = _COMPARED.get(comparison.operator)
    return path if compared is None else f"{path} ? ({compared})"
