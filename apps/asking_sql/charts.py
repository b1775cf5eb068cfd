"""A chart as data: which column is x, y and series, and bar, line or point. No code, no model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

LEAST_ROWS, MOST_ROWS = 2, 500
MOST_BARS: Final = 40
MOST_SERIES: Final = 8
_TIME: Final = re.compile(r"\d{4}(-\d{2}(-\d{2}([ T]\d{2}:\d{2}.*)?)?)?")
_YEARS: Final = re.compile(r"\b(year|month|day|date|week|quarter|hour)\b|_(year|month|date|day)\b")
_KEYS: Final = re.compile(r"(^|_)(id|key|code|zip|phone)$", re.IGNORECASE)


def chart_of(result: Mapping[str, Any]) -> dict[str, str] | None:
    """{"kind", "x", "y"} and perhaps "series"; None: the rows make no chart.

    Times make lines, words bars, and two columns of numbers points.
    """
    columns, rows = result.get("columns") or [], result.get("rows") or []
    if not LEAST_ROWS <= len(rows) <= MOST_ROWS or len(set(columns)) < len(columns):
        return None
    kinds = [_kind(column, [row[i] for row in rows]) for i, column in enumerate(columns)]
    numbers = [i for i, kind in enumerate(kinds) if kind == "number"]
    times = [i for i, kind in enumerate(kinds) if kind == "time"]
    words = [i for i, kind in enumerate(kinds) if kind == "word"]
    if not numbers:
        return None
    if times:
        series = next((i for i in words if _few(rows, i)), None)
        return _chart("line", columns, times[0], numbers[0], series)
    if words and len({row[words[0]] for row in rows}) == len(rows) <= MOST_BARS:
        return _chart("bar", columns, words[0], numbers[0], None)
    if len(words) > 1 and _few(rows, words[1]) and len(rows) <= MOST_BARS * MOST_SERIES:
        return _chart("bar", columns, words[0], numbers[0], words[1])
    if len(numbers) > 1:
        series = next((i for i in words if _few(rows, i)), None)
        return _chart("point", columns, numbers[0], numbers[1], series)
    return None


def _chart(kind: str, columns: Sequence[str], x: int, y: int, series: int | None) -> dict[str, str]:
    found = {"kind": kind, "x": columns[x], "y": columns[y]}
    return found if series is None else {**found, "series": columns[series]}


def _few(rows: Sequence[Sequence[Any]], i: int) -> bool:
    return 1 < len({row[i] for row in rows}) <= MOST_SERIES


def _kind(column: str, values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    name = column.lower().replace("-", "_")
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in known):
        if _YEARS.search(name.replace(" ", "_")) or _YEARS.search(name):
            return "time"
        return "none" if _KEYS.search(name) else "number"
    if all(isinstance(v, str) for v in known):
        return "time" if all(_TIME.fullmatch(v) for v in known) else "word"
    return "none"
