"""Reading an SQLite file: a connection that can only read, and only the tables that are allowed.

    statement ─▶ compiled on an empty database  ─▶ run on the file
                 that has the allowed tables        (read-only, limited)

The first step holds whatever the statement says: SQLite itself resolves the names, and no table is
there but those allowed, without their private columns. A view is a table there, so what a view
reads is the view's alone. (On the file this could not be told: the authorizer is given the name of
a view that reads a table, but a part of WITH may have the same name.) A * names no column, so on
the file the authorizer refuses the private ones, unless a view reads them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import monotonic
from typing import Final
from urllib.parse import quote

from teola.errors import ToolError
from teola.sql.dialects.sqlite import SQLITE
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.sql_schema import Schema, folded_tables
from teola.sql.stopped import StatementStopped

CLOCK_STEPS: Final = 10_000
"""Steps of SQLite's machine after which the clock is read."""
READS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
FUNCTIONS: Final = SQLITE.callable | {
    *("->", "->>", "match", "regexp"),
    *("current_date", "current_time", "current_timestamp"),
}
"""Operators are functions, too."""
LIMITS: Final = (
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 500),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 200),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 1),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
TOO_BIG: Final = "string or blob too big"
WARMING: Final = " UNION ALL ".join(f"SELECT 1 FROM {name}('[]')" for name in SQLITE.row_functions)
"""Makes SQLite declare its functions that stand for tables: an authorizer would not let it."""
COLUMNS: Final = "SELECT name FROM pragma_table_xinfo(?, 'main')"


def read_sqlite(path: str, sql: str, limits: LookupLimits, schema: Schema | None) -> Rows:
    """Run one statement on the file. schema: what it may read; None: all but SQLite's own. Raises
    ToolError."""
    result = Rows(limits)
    value_bytes = limits.value_bytes
    with opened_sqlite(path, limits) as connection:
        if schema is not None:
            _check_names(connection, sql, schema)
        connection.set_authorizer(_reading(schema))
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
        try:
            with closing(connection.execute(f"SELECT * FROM ({sql}\n) LIMIT 0")) as cursor:
                value_bytes = limits.value_bytes_among(len(cursor.description))
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
            with closing(connection.execute(sql)) as cursor:
                result.columns = [column[0] for column in cursor.description]
                for row in cursor:
                    if not result.add(row):
                        break
        except sqlite3.Error as error:
            if TOO_BIG not in str(error):
                raise
            raise StatementStopped(
                f"a value or a row that is sorted has more than {value_bytes:,} bytes "
                "(value_bytes, total_bytes): ask for fewer columns, or leave the long one out",
                "size",
            ) from None
    return result


@contextmanager
def opened_sqlite(path: str, limits: LookupLimits) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, for limited seconds. Errors of SQLite become ToolError."""
    address = f"file:{quote(path)}?mode=ro"
    until = monotonic() + limits.seconds
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=limits.seconds)) as connection:
            for pragma in ("query_only=ON", "trusted_schema=OFF", "temp_store=MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
            for limit, most in LIMITS:
                connection.setlimit(limit, most)
            connection.execute(WARMING).close()
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.set_progress_handler(lambda: monotonic() > until, CLOCK_STEPS)
            yield connection
    except sqlite3.Error as error:
        if monotonic() > until:
            raise StatementStopped(limits.late, "time", limits.seconds) from None
        if "unable to open" in str(error) and _writes_ahead(path):
            raise ToolError(
                "the file is in WAL mode, which needs a folder that can be written: let whoever "
                "runs this write there, or give a copy without WAL"
            ) from None
        raise ToolError(f"the database says: {error}") from None


def _writes_ahead(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(20)[18:] == b"\2\2"
    except OSError:
        return False


def _reading(schema: Schema | None) -> Callable[..., int]:
    """An authorizer for SQLite: whether a statement may do an action."""
    tables = {} if schema is None else folded_tables(schema, SQLITE)

    def reads(
        action: int,
        table: str | None,
        second: str | None,
        _database: str | None = None,
        view: str | None = None,
    ) -> int:
        if action == sqlite3.SQLITE_READ:
            folded_table = tables.get(SQLITE.folded(table or ""))
            secret = (
                folded_table is not None and SQLITE.folded(second or "") in folded_table.private
            )
            if SQLITE.is_system(table or "") or (
                secret and SQLITE.folded(view or "") not in tables
            ):
                return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY

    return reads


def _check_names(connection: sqlite3.Connection, sql: str, schema: Schema) -> None:
    """Compile the statement where there is no table but those allowed. Raises sqlite3.Error."""
    tables = {
        name.removeprefix("main."): table for name, table in folded_tables(schema, SQLITE).items()
    }
    names = tables.keys() | SQLITE.row_functions

    def reads(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        # Tables that SQLite brings along, such as its schema, are there too. A part of WITH of
        # which no column is used is asked for like a table, without a column.
        if action == sqlite3.SQLITE_READ and SQLITE.folded(table or "") not in names:
            return (
                sqlite3.SQLITE_DENY
                if column or SQLITE.is_system(table or "")
                else sqlite3.SQLITE_OK
            )
        return sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY

    with closing(sqlite3.connect(":memory:")) as empty:
        for name, table in tables.items():
            columns = [
                quoted_name(column)
                for (column,) in connection.execute(COLUMNS, (name,))
                if SQLITE.folded(column) not in table.private
            ]
            if columns:
                # Without a rowid, which may be another name of a private key.
                ending = f", PRIMARY KEY ({columns[0]})) WITHOUT ROWID" if table.private else ")"
                empty.execute(f"CREATE TABLE {quoted_name(name)} ({', '.join(columns)}{ending}")
        empty.execute(WARMING).close()
        empty.set_authorizer(reads)
        empty.execute(f"EXPLAIN {sql}").close()


def quoted_name(name: str) -> str:
    """A name in double quotes."""
    return '"' + name.replace('"', '""') + '"'
