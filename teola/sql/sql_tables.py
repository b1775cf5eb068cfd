"""What a database has: tables, columns, keys, comments, and a few values of each column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Final

from teola.errors import InputError
from teola.sql.sql_schema import Schema

SAMPLED_ROWS: Final = 20
"""Rows of a table that samples are taken from."""
SAMPLES: Final = 3
"""Samples of one column."""
LONGEST_SAMPLE: Final = 200
"""Characters of a sample or a comment: they are untrusted texts, and stand in prompts."""
LOOKS_S: Final = 0.5
"""Seconds that looking into one table may take. A view may compute for minutes before it gives its
first row, and counting a large table reads all of it."""


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """key: part of the primary key. references: the column that it points to, as table.column."""

    name: str
    type: str
    comment: str = ""
    key: bool = False
    references: str = ""
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqlTable:
    """name: as statements write it, schema.table where it is not the default one's. rows: how many,
    perhaps an estimate; None: not known. note: why it cannot be read, if it cannot."""

    name: str
    columns: tuple[SqlColumn, ...]
    rows: int | None = None
    comment: str = ""
    view: bool = False
    note: str = ""


def rounded(rows: int | None) -> int | None:
    """A number of rows by its first digit, which stays while a table lives."""
    return None if rows is None else int(float(f"{rows:.0e}"))


class LookTime:
    """Time for looking into tables: for all of them half of what reading the catalogue may take, so
    that slow ones lack samples, and do not make the whole database unreadable. ends: when the
    catalogue has to be read. sampled: whether there is any time for tables."""

    def __init__(self, seconds: float, *, sampled: bool = True) -> None:
        self.ends = monotonic() + seconds
        self._until = self.ends - seconds / 2 if sampled else 0.0

    def left_s(self) -> float:
        """Seconds for the next table; 0: none are left."""
        return max(0.0, min(LOOKS_S, self._until - monotonic()))


def tables_as_json(tables: Iterable[SqlTable]) -> list[dict[str, Any]]:
    """Tables as JSON has them."""
    return [
        {
            **asdict(table),
            "columns": [
                {**asdict(column), "samples": list(column.samples)} for column in table.columns
            ],
        }
        for table in tables
    ]


def tables_from_json(listed: Iterable[Mapping[str, Any]]) -> tuple[SqlTable, ...]:
    """Tables from JSON."""
    return tuple(
        SqlTable(
            **{
                **table,
                "columns": tuple(
                    SqlColumn(**{**column, "samples": tuple(column["samples"])})
                    for column in table["columns"]
                ),
            }
        )
        for table in listed
    )


def schema_of(tables: Sequence[SqlTable], private: Iterable[str], default: str = "") -> Schema:
    """The schema that the filter checks statements against. default: the schema whose tables may be
    written with it and without. Raises InputError for a private column that is not there."""
    columns = {table.name: [column.name for column in table.columns] for table in tables}
    hidden = list(private)
    for name in hidden:
        table, _, column = name.rpartition(".")
        if column not in columns.get(table, ()):
            raise InputError(f"there is no column {name!r} to be private: write table.column")
    if default:
        hidden += [f"{default}.{name}" for name in hidden if name.count(".") == 1]
        columns |= {f"{default}.{t}": names for t, names in columns.items() if "." not in t}
    types = {
        column.type.partition("[")[0].partition("(")[0].strip('"')
        for table in tables
        for column in table.columns
    }
    return Schema.of(columns, hidden, types)


def samples(values: Iterable[Any]) -> tuple[str, ...]:
    """A few different values of a column, as texts."""
    texts = (str(value)[:LONGEST_SAMPLE] for value in values if value is not None)
    return tuple(dict.fromkeys(texts))[:SAMPLES]
