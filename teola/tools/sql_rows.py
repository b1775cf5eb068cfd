"""Rows that a lookup of a database gives, within its limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Final

SEPARATOR_BYTES: Final = 2
"""Of the comma and the blank after a value, and of the brackets around a row."""


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """What one statement may take.

    rows: of its result. seconds: of its run. value_bytes: of one value. total_bytes: of all rows,
    as JSON.
    """

    rows: int
    seconds: float
    value_bytes: int
    total_bytes: int

    def value_bytes_among(self, columns: int) -> int:
        """Bytes that one value may have beside so many others: a row has no more than total_bytes,
        whatever stands in it, since a database gives whole rows."""
        return max(1, min(self.value_bytes, self.total_bytes // max(1, columns)))

    @property
    def late(self) -> str:
        """What the model is told of a statement that was stopped."""
        return f"it took longer than {self.seconds:g} s: ask for less"


@dataclass(slots=True)
class Rows:
    """Rows that were read, as JSON has them.

    columns: their names. notes: what was cut or left out, for the model.
    """

    limits: LookupLimits
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    total_bytes: int = 0

    def add(self, row: Sequence[Any]) -> bool:
        """Whether the row was within the limits. After one that was not, no more are needed."""
        kept = len(self.rows)
        if kept == self.limits.rows:
            self.notes.append(f"only the first {kept} rows")
            return False
        values = [_value(cell) for cell in row]
        self.total_bytes += SEPARATOR_BYTES + sum(map(_json_bytes, values))
        if self.total_bytes > self.limits.total_bytes:
            self.notes.append(
                f"only the first {kept} rows: more would be over {self.limits.total_bytes:,} bytes "
                "(total_bytes); ask for fewer columns or shorter values"
            )
            return False
        self.rows.append(values)
        return True

    def result(self) -> dict[str, Any]:
        """The tool's result."""
        note = {"note": "; ".join(self.notes)} if self.notes else {}
        return {"columns": self.columns, "rows": self.rows, **note}


def _json_bytes(value: Any) -> int:
    written = json.dumps(value, ensure_ascii=False)
    length = len(written) if written.isascii() else len(written.encode("utf-8", "replace"))
    return length + SEPARATOR_BYTES


def _value(cell: Any) -> Any:
    """A value as JSON has it; what JSON has not, as text."""
    if isinstance(cell, (bytes, memoryview)):
        return f"({len(cell)} bytes)"
    if isinstance(cell, list):
        return [_value(one) for one in cell]
    if isinstance(cell, (Decimal, float)):
        return float(cell) if isfinite(cell) else str(cell)
    return cell if cell is None or isinstance(cell, (str, int, dict)) else str(cell)
