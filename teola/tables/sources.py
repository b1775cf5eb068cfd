"""Tables that a query reads: files, data frames, and tables of databases.

A source is registered on the connection of a query under its name. Files are read as the query
needs them; what can be read only once is copied to a file first.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from teola.errors import InputError
from teola.tables.copied_rows import copy_rows
from teola.tables.csv_types import csv_columns, csv_reader
from teola.tables.duckdb_schema import quoted, said
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FETCHED: Final = 10_000
"""Rows of another database that are read at a time."""
_NUMBERS: Final = re.compile(r"__index_level_\d+__")
"""Names that pandas gives to levels of an index that have none."""
SPILLED: Final = "teola-tables-"
"""The beginning of temporary files' names. The number of the process follows."""


class TableSource(Protocol):
    """A source of rows that can be registered as a table."""

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it the table `name` of a connection. Raises InputError."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ArrowSource:
    """A table in memory: of pyarrow, or a Polars or pandas frame."""

    value: Any

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """See `TableSource`."""
        import duckdb
        import pyarrow as pa

        try:
            table = pa.table(self.value)
            own = isinstance(self.value, (pa.Table, pa.RecordBatch))
            con.register(name, table if own else _without_numbers(table))
        except (duckdb.Error, pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"table {name!r} cannot be read: {error}") from None


def _without_numbers(table: pa.Table) -> pa.Table:
    """A table without the numbers of its rows, which a pandas frame that was filtered or sorted
    keeps as an index without a name."""
    return table.drop_columns([name for name in table.column_names if _NUMBERS.fullmatch(name)])


class StreamSource:
    """A stream that can perhaps be read only once. The first reading copies it to a file, from
    which it is read as often as needed. The file is removed with the source."""

    def __init__(self, value: Any) -> None:
        self._value, self._path = value, ""

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """See `TableSource`."""
        import duckdb
        import pyarrow as pa

        if not self._path:
            handle, path = tempfile.mkstemp(".parquet", f"{SPILLED}{os.getpid()}-")
            os.close(handle)
            weakref.finalize(self, _remove, path)
            try:
                stream = pa.RecordBatchReader.from_stream(self._value)
                con.register("teola_stream", stream)
                try:
                    con.execute(
                        f"COPY (SELECT * FROM teola_stream) TO {literal(path)} (FORMAT parquet)"
                    )
                finally:
                    con.unregister("teola_stream")
            except (duckdb.Error, pa.ArrowException, TypeError, ValueError) as error:
                raise InputError(f"table {name!r} cannot be read: {error}") from None
            self._path, self._value = path, None
        con.execute(
            f"CREATE VIEW {quoted(name)} AS SELECT * FROM read_parquet({literal(self._path)})"
        )


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FileSource:
    """A file. kind: parquet, csv, jsonl or duckdb. table: of a database."""

    path: Path
    kind: str
    table: str | None = None

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """See `TableSource`."""
        import duckdb

        where = literal(str(self.path))
        try:
            if self.kind == "csv":
                columns = csv_columns(con, self.path)
                con.execute(f"CREATE VIEW {quoted(name)} AS {csv_reader(self.path, columns)}")
            elif self.kind == "duckdb":
                self._attach(con, name, where)
            else:
                read = {
                    "parquet": f"read_parquet({where})",
                    "jsonl": f"read_json({where}, format = 'newline_delimited', sample_size = -1)",
                }[self.kind]
                con.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {read}")
        except duckdb.Error as error:
            raise InputError(f"table {name!r}: {self.path} cannot be read: {said(error)}") from None

    def _attach(self, con: duckdb.DuckDBPyConnection, name: str, where: str) -> None:
        alias = f"teola_db_{name}"
        con.execute(f"ATTACH {where} AS {quoted(alias)} (READ_ONLY)")
        parts = (self.table or "").split(".")
        called = ".".join(map(quoted, [alias, *parts]))
        con.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {called}")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SqliteSource:
    """A table of an SQLite file."""

    path: Path
    table: str

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """See `TableSource`."""
        try:
            with closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            ) as db:
                cursor = db.execute(f"SELECT * FROM {quoted(self.table)}")
                copy_rows(con, name, [column[0] for column in cursor.description], _fetched(cursor))
        except sqlite3.Error as error:
            raise InputError(f"table {name!r}: {self.path} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PostgresSource:
    """A table of a PostgreSQL server."""

    dsn: str
    table: str

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """See `TableSource`."""
        import psycopg
        from psycopg import sql

        parts = self.table.split(".")
        try:
            with psycopg.connect(self.dsn) as db:
                db.read_only = True
                with db.cursor(name="teola_rows") as cursor:
                    cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(*parts)))
                    first = cursor.fetchmany(FETCHED)
                    names = [column.name for column in cursor.description or ()]
                    copy_rows(con, name, names, _then(first, _fetched(cursor)))
        except psycopg.Error as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise InputError(f"table {name!r}: {self.table} cannot be read: {lines[0]}") from None


def _fetched(cursor: Any) -> Iterator[list[Any]]:
    while batch := cursor.fetchmany(FETCHED):
        yield batch


def _then(first: list[Any], rest: Iterator[list[Any]]) -> Iterator[list[Any]]:
    if first:
        yield first
        yield from rest


KINDS: Final[Mapping[str, str]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".duckdb": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}


def source_of(value: Any, table: str | None = None) -> TableSource:
    """The source for a file's path, a database's address, or a data frame.

    table: of a database; it may also stand behind `::`, as in `shop.duckdb::orders`. Raises
    InputError.
    """
    if isinstance(value, (str, Path)):
        return _by_name(str(value), table)
    if hasattr(value, "__arrow_c_stream__"):
        return ArrowSource(value) if _can_be_read_again(value) else StreamSource(value)
    raise InputError(
        f"a table must be a file's path or have __arrow_c_stream__ (pyarrow, Polars, pandas 2.2 "
        f"and newer), not {type(value).__name__}"
    )


def _can_be_read_again(value: Any) -> bool:
    """Whether a value is a table in memory, and no stream."""
    import pyarrow as pa

    frames = ("pandas", "polars")
    return isinstance(value, (pa.Table, pa.RecordBatch)) or (
        type(value).__module__.partition(".")[0] in frames and hasattr(value, "columns")
    )


def _by_name(text: str, table: str | None) -> TableSource:
    where, _, behind = text.rpartition("::")
    if not where or "/" in behind:  # no table stands there; `::` is also part of some addresses
        where, behind = text, ""
    table = table or behind or None
    if urlsplit(where).scheme in ("postgresql", "postgres"):
        if table is None:
            raise InputError("which table of the server? Write postgresql://.../db::TABLE")
        return PostgresSource(where, table)
    path = Path(where).expanduser()
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        valid = ", ".join(KINDS)
        raise InputError(f"{where}: what kind of file is it? Its name must end in one of {valid}")
    if not path.is_file():
        raise InputError(f"there is no file {where}")
    if kind in ("duckdb", "sqlite"):
        if table is None:
            raise InputError(f"which table of {where}? Write {where}::TABLE")
        return SqliteSource(path, table) if kind == "sqlite" else FileSource(path, kind, table)
    return FileSource(path, kind)
