"""CSV as RFC 4180 has it, and the types of its columns.

Nothing is guessed from a sample: quote and escape are `"`, the first line has the names, and a
column gets a type only where every value of the file would print as it stands. So `06902` and a
column with `45249` and `45249.0` stay texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from teola.errors import InputError
from teola.tables.duckdb_schema import quoted, said
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb

TYPES: Final = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")


def _reading(path: Path) -> str:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    return (
        f"read_csv({literal(str(path))}, header = true, auto_detect = false, all_varchar = true, "
        f"delim = {literal(delimiter)}, quote = '\"', escape = '\"', nullstr = '', "
        "allow_quoted_nulls = false, strict_mode = true, null_padding = false, "
        "columns = {columns})"
    )


def csv_columns(con: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    """Columns of a file and their types, by all of its rows. Raises InputError."""
    import duckdb

    names = _names(path)
    texts = dict.fromkeys(names, "VARCHAR")
    tests = [
        f"coalesce(bool_and(CAST(TRY_CAST({quoted(name)} AS {type}) AS VARCHAR) IS NOT DISTINCT "
        f"FROM {quoted(name)}) FILTER (WHERE {quoted(name)} IS NOT NULL), false)"
        for name in names
        for type in TYPES
    ]
    try:
        (found,) = con.execute(
            f"SELECT {', '.join(tests)} FROM ({csv_reader(path, texts)})"
        ).fetchall()
    except duckdb.Error as error:
        raise InputError(f"{path} is no CSV as RFC 4180 has it: {said(error)}") from None
    types: dict[str, str] = {}
    for at, name in enumerate(names):
        fits = found[at * len(TYPES) : (at + 1) * len(TYPES)]
        types[name] = next((t for t, fit in zip(TYPES, fits, strict=True) if fit), "VARCHAR")
    return types


def csv_reader(path: Path, types: dict[str, str]) -> str:
    """SQL that reads a file with these columns."""
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in types)
    listed = ", ".join(
        quoted(name) if type == "VARCHAR" else f"CAST({quoted(name)} AS {type}) AS {quoted(name)}"
        for name, type in types.items()
    )
    return f"SELECT {listed} FROM {_reading(path).replace('{columns}', '{' + columns + '}')}"


def _names(path: Path) -> list[str]:
    import csv

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file, delimiter=delimiter, strict=True), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no CSV: {error}") from None
    if not names or not any(name.strip() for name in names):
        raise InputError(f"{path} is no CSV: its first line must have the columns' names")
    folded = [name.lower() for name in names]
    twice = next((n for n in names if folded.count(n.lower()) > 1), None)
    if twice is not None:
        raise InputError(f"{path} has two columns {twice!r}: give them different names")
    if any(not name.strip() for name in names):
        raise InputError(f"{path} has a column without a name in its first line")
    return names
