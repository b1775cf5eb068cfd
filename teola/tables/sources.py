"""Tables that a query reads: files, data frames, and tables of databases.

A source is registered on the connection of a query under its name. Files are read as the query
needs them; what can be read only once is kept in DuckDB first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from teola.errors import InputError
from teola.tables.csv_types import csv_columns, csv_reader
from teola.tables.duckdb_schema import quoted, said
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb

FETCHED: Final = 10_000
"""Rows of another database that are read at a time."""


class TableSource(Protocol):
    """Something that can be a table."""

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it the table `name` of a connection. Raises InputError."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrowSource:
    """Anything with `__arrow_c_stream__`: a pyarrow table, a Polars or pandas frame, a relation."""

    value: Any

    def register(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """See `TableSource`."""
        import pyarrow as pa

        try:
            if isinstance(self.value, pa.RecordBatchReader):
                con.register("teola_stream", self.value)
                con.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM teola_stream")
                con.unregister("teola_stream")
                return
            con.register(name, pa.table(self.value))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"table {name!r} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
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
        table = f"{quoted(alias)}.{quoted(self.table or '')}"
        con.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {table}")


@dataclass(frozen=True, slots=True)
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
                _copy(con, name, [one[0] for one in cursor.description], _fetched(cursor))
        except sqlite3.Error as error:
            raise InputError(f"table {name!r}: {self.path} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
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
                    names = [one.name for one in cursor.description or ()]
                    _copy(con, name, names, _then(first, _fetched(cursor)))
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


def _copy(
    con: duckdb.DuckDBPyConnection, name: str, columns: list[str], batches: Iterator[list[Any]]
) -> None:
    """Copy rows to a table. A column has the type of its first batches; one that does not fit
    later is an error and never a changed value."""
    import duckdb
    import pyarrow as pa

    made = False
    for batch in batches:
        try:
            table = pa.table(
                {c: pa.array(v) for c, v in zip(columns, zip(*batch, strict=True), strict=True)}
            )
        except (pa.ArrowException, TypeError) as error:
            raise InputError(f"table {name!r} has a column of several types: {error}") from None
        con.register("teola_rows", table)
        try:
            if made:
                con.execute(f"INSERT INTO {quoted(name)} SELECT * FROM teola_rows")
            else:
                con.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM teola_rows")
        except duckdb.Error as error:
            raise InputError(
                f"table {name!r} has a column of several types: {said(error)}"
            ) from None
        finally:
            con.unregister("teola_rows")
        made = True
    if not made:
        listed = ", ".join(f"{quoted(one)} VARCHAR" for one in columns)
        con.execute(f"CREATE TABLE {quoted(name)} ({listed})")


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
        return ArrowSource(value)
    raise InputError(
        f"a table must be a file's path or have __arrow_c_stream__ (pyarrow, Polars, pandas 2.2 "
        f"and newer), not {type(value).__name__}"
    )


def _by_name(text: str, table: str | None) -> TableSource:
    where, _, behind = text.partition("::")
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
