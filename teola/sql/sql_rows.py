"""Rows that a lookup of a database gives, within its limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from teola.errors import InputError

SEPARATOR_BYTES: Final = 2
"""Bytes of the comma and the blank after a value, and of the brackets around a row."""


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """What one statement may take.

    rows: of its result. seconds: of its run. value_bytes: of one value. total_bytes: of all rows,
    as JSON: half of what any tool's result may have, since names of columns and notes need room.
    memory_bytes: of the process that reads a file. Raises InputError.
    """

    rows: int = 1_000
    seconds: float = 5.0
    value_bytes: int = 2**20
    total_bytes: int = 4 * 2**20
    memory_bytes: int = 512 * 2**20

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise InputError(f"{name} is {value}: it must be positive")

    def value_bytes_among(self, columns: int) -> int:
        """Bytes that one value may have beside so many others: a row has no more than total_bytes,
        whatever stands in it, since a database gives whole rows."""
        return max(1, min(self.value_bytes, self.total_bytes // max(1, columns)))

    @property
    def late(self) -> str:
        """The message to the model about a statement that was stopped."""
        return f"it took longer than {self.seconds:g} s: ask for less"


@dataclass(slots=True)
class Rows:
    """Rows that were read, as JSON has them.

    columns: their names. notes: what was cut or left out, for the model. truncated: whether there
    are more rows; it is known, because one row more was asked for. peak_bytes: most memory of the
    process that read them, 0 where that is not known.
    """

    limits: LookupLimits
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    truncated: bool = False
    total_bytes: int = 0
    peak_bytes: int = 0

    def add(self, row: Sequence[Any]) -> bool:
        """Whether the row was within the limits. After one that was not, no more are needed."""
        count = len(self.rows)
        if count == self.limits.rows:
            self.truncated = True
            self.notes.append(f"only the first {count} rows")
            return False
        values = [_value(cell) for cell in row]
        self.total_bytes += SEPARATOR_BYTES + sum(map(_json_bytes, values))
        if self.total_bytes > self.limits.total_bytes:
            self.truncated = True
            self.notes.append(
                f"only the first {count} rows: more would be over {self.limits.total_bytes:,} "
                "bytes (total_bytes); ask for fewer columns or shorter values"
            )
            return False
        self.rows.append(values)
        return True

    def result(self) -> dict[str, Any]:
        """The tool's result."""
        note = {"note": "; ".join(self.notes)} if self.notes else {}
        shown = {"columns": self.columns, "rows": self.rows, "truncated": self.truncated}
        return {**shown, **note}


def _json_bytes(value: Any) -> int:
    written = json.dumps(value, ensure_ascii=False)
    length = len(written) if written.isascii() else len(written.encode("utf-8", "replace"))
    return length + SEPARATOR_BYTES


def _value(cell: Any) -> Any:
    """A value as JSON has it; what JSON has not, as text."""
    if isinstance(cell, (bytes, memoryview)):
        return f"({len(cell)} bytes)"
    if isinstance(cell, (list, tuple)):
        return [_value(part) for part in cell]
    if isinstance(cell, dict):
        return {str(key): _value(part) for key, part in cell.items()}
    if isinstance(cell, (Decimal, float)):
        return float(cell) if isfinite(cell) else str(cell)
    if isinstance(cell, str):
        return cell.encode("utf-8", "replace").decode() if not cell.isascii() else cell
    return cell if cell is None or isinstance(cell, int) else str(cell)
