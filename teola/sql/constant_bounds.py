"""Calls that make much of little: series, paddings and formats. Their bounds have to be constants.

    generate_series(1, 1000)     generate_series(DATE '2026-01-01', DATE '2026-12-31', '1 day')
    rpad(name, 20)               repeat('*', least(stars, 50))              printf('%8.2f', price)

Otherwise one call could take all the memory that there is.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from teola.errors import ToolError
from teola.sql.dialects.dialect import SqlDialect

if TYPE_CHECKING:
    from sqlglot import exp

MOST_ROWS: Final = 100_000
"""Rows of one series."""
WIDEST: Final = 10_000
"""Characters that a padding, a repetition or a format may ask for."""
MOST_REPEATED: Final = 10**8
"""Product of all repetitions of a statement and its widest padding, which may repeat one another's
texts."""

_LEAST: Final = frozenset(("least", "min"))
_TODAY: Final = frozenset(("now", "current_date", "today", "get_current_timestamp"))
_SPEC: Final = re.compile(r"%(?:\d+\$)?[-+ 0#,!']*(\*|\d+)?(?:\.(\*|\d+))?")
_FIELD: Final = re.compile(r"\{[^{}]*\{|\{[^{}:]*:([^{}]*)\}")
_SPAN: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)")
_UNITS: Final = {
    "microsecond": 1e-6, "us": 1e-6, "millisecond": 1e-3, "ms": 1e-3, "second": 1.0, "sec": 1.0,
    "s": 1.0, "minute": 60.0, "min": 60.0, "m": 60.0, "hour": 3600.0, "h": 3600.0, "day": 86400.0,
    "d": 86400.0, "week": 604800.0, "w": 604800.0, "month": 2419200.0, "mon": 2419200.0,
    "quarter": 7776000.0, "year": 31536000.0, "y": 31536000.0, "decade": 315360000.0,
    "century": 3153600000.0, "centurie": 3153600000.0,
}  # fmt: skip
"""Seconds of each unit; for a month, those of the shortest."""


def check_series(call: exp.Expr, name: str) -> None:
    """Refuse a series that is long, or that may be. Raises ToolError."""
    arguments = list(call.args.get("expressions") or ())
    first: float | None
    last: float | None
    step: float | None
    if len(arguments) == 1:  # DuckDB counts from 0
        first, last, step = 0.0, _point(arguments[0]), 1.0
    elif 2 <= len(arguments) <= 3:
        first, last = _point(arguments[0]), _point(arguments[1])
        step = _step(arguments[2]) if len(arguments) == 3 else 1.0
    else:
        raise ToolError(f"{name} takes two bounds and a step")
    if first is None or last is None or step is None:
        raise ToolError(
            f"the bounds of {name} have to be constants: numbers, or dates and an interval as a "
            "step; for others take WITH RECURSIVE"
        )
    rows = abs(last - first) / abs(step) + 1 if step else float("inf")
    if not rows <= MOST_ROWS:  # nor where it is no number
        raise ToolError(f"{name} would give more than {MOST_ROWS:,} rows: take a larger step")


def check_width(call: exp.Expr, name: str, dialect: SqlDialect) -> int:
    """The width that a padding or a repetition asks for. Raises ToolError."""
    arguments = list(call.args.get("expressions") or ())
    place = dialect.widths[name][0]
    width = _bound(arguments[place]) if place < len(arguments) else None
    if width is None and len(arguments) <= place and name == "bar":
        return 80
    if width is None:
        raise ToolError(
            f"the width of {name} has to be a constant, or bounded by one: least(n, 100)"
        )
    if abs(width) > WIDEST:
        raise ToolError(f"{name} is asked for {width:,.0f} characters; {WIDEST:,} are taken")
    return max(1, int(width))


def check_format(call: exp.Expr, name: str, dialect: SqlDialect) -> None:
    """Refuse a format whose widths are not known or too large. Raises ToolError."""
    from sqlglot import exp

    arguments = list(call.args.get("expressions") or ())
    place = dialect.formats[name]
    text = arguments[place] if place < len(arguments) else None
    if not isinstance(text, exp.Literal) or not text.is_string:
        raise ToolError(f"the format of {name} has to be a constant text")
    widths = [width for spec in _SPEC.findall(text.this) for width in spec]
    for fields in _FIELD.finditer(text.this):
        if fields.group(1) is None:
            raise ToolError(f"a width of {name} has to stand in its format, as in '{{:8.2f}}'")
        widths += re.findall(r"\d+", fields.group(1))
    if "*" in widths:
        raise ToolError(f"a width of {name} has to stand in its format, as in '%8.2f'")
    if sum(int(width[:9]) for width in widths if width) > WIDEST:
        raise ToolError(f"{name} is asked for more than {WIDEST:,} characters")


def _bound(node: exp.Expr) -> float | None:
    """A constant that the value does not exceed."""
    from sqlglot import exp

    node = _inner(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _LEAST:
        if len(node.expressions) < 2:  # min(x) is an aggregate
            return None
        bounds = [_bound(argument) for argument in node.expressions]
        return min((bound for bound in bounds if bound is not None), default=None)
    return _number(node)


def _inner(node: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    while isinstance(node, (exp.Paren, exp.Cast)) and isinstance(node.this, exp.Expr):
        node = node.this
    return node


def _number(node: exp.Expr) -> float | None:
    from sqlglot import exp

    node = _inner(node)
    if isinstance(node, exp.Neg):
        value = _number(node.this)
        return None if value is None else -value
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        left, right = _number(node.left), _number(node.right)
        if left is None or right is None:
            return None
        if isinstance(node, exp.Mul):
            return left * right
        return left + right if isinstance(node, exp.Add) else left - right
    if isinstance(node, exp.Literal) and not node.is_string:
        try:
            return float(node.this)
        except ValueError:
            return None
    return None


def _point(node: exp.Expr) -> float | None:
    """A number, or a date in seconds."""
    from sqlglot import exp

    node = _inner(node)
    if isinstance(node, (exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp)):
        return datetime.now().timestamp()
    if isinstance(node, exp.Anonymous) and node.name.lower() in _TODAY and not node.expressions:
        return datetime.now().timestamp()
    if isinstance(node, exp.Anonymous) and node.name.lower() == "date_trunc":
        return _point(node.expressions[-1]) if node.expressions else None
    if isinstance(node, (exp.Add, exp.Sub)):
        left = _point(node.left)
        right = _point(node.right)
        if right is None:
            right = _step(node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    if isinstance(node, exp.Literal) and node.is_string:
        try:
            # Seconds since a day of its own: timestamp() fails for the year 1.
            moment = datetime.fromisoformat(node.this.strip()).replace(tzinfo=None)
        except ValueError:
            return None
        return (moment - datetime(1970, 1, 1)) / timedelta(seconds=1)
    return _number(node)


def _step(node: exp.Expr) -> float | None:
    """A number, or a span of time in seconds, at least."""
    from sqlglot import exp

    node = _inner(node)
    if isinstance(node, exp.Neg):
        return _step(node.this)
    if isinstance(node, exp.Interval):
        amount, unit = node.this, node.args.get("unit")
        if not isinstance(amount, exp.Literal):
            return None
        return _span(f"{amount.this} {unit.name if unit else ''}")
    if isinstance(node, exp.Literal) and node.is_string:
        return _span(node.this)
    return _number(node)


def _span(text: str) -> float | None:
    pieces = _SPAN.findall(text.lower())
    seconds = 0.0
    for amount, unit in pieces:
        length = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if length is None:
            return None
        seconds += float(amount) * length
    return abs(seconds) if pieces else None
