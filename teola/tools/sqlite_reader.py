"""Reading an SQLite file: a connection that can only read, and only the tables that are allowed.

    statement ─▶ compiled on an empty database  ─▶ run on the file
                 that has the allowed tables        (read-only, limited)

The first step holds whatever the statement says: SQLite itself resolves the names, and no table is
there but those allowed. A view is a table there, so what a view reads is the view's alone. (On the
file this could not be told: the authorizer is given the name of a view that reads a table, but a
part of WITH may have the same name.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.parse import quote

from teola.errors import ToolError
from teola.tools.select_only import folded, is_system
from teola.tools.sql_rows import LookupLimits, Rows

STEPS: Final = 10_000
"""Of SQLite's machine, after which the time is looked at."""
READS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
TOO_BIG: Final = "string or blob too big"
COLUMNS: Final = "SELECT name FROM pragma_table_xinfo(?, 'main')"


def read_sqlite(path: str, sql: str, limits: LookupLimits, tables: Collection[str] | None) -> Rows:
    """Run one statement on the file. tables: that it may read; None: all but SQLite's own. Raises
    ToolError."""
    address = f"file:{quote(str(Path(path).expanduser().absolute()))}?mode=ro"
    until = monotonic() + limits.seconds
    found = Rows(limits)
    value_bytes = limits.value_bytes
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=limits.seconds)) as connection:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_progress_handler(lambda: monotonic() > until, STEPS)
            if tables is not None:
                _check_names(connection, sql, tables)
            connection.set_authorizer(_reads)
            with closing(connection.execute(f"SELECT * FROM ({sql}\n) LIMIT 0")) as cursor:
                value_bytes = limits.value_bytes_among(len(cursor.description))
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_bytes)
            with closing(connection.execute(sql)) as cursor:
                found.columns = [column[0] for column in cursor.description]
                for row in cursor:
                    if not found.add(row):
                        break
    except sqlite3.Error as error:
        if monotonic() > until:
            raise ToolError(limits.late) from None
        if TOO_BIG in str(error):
            raise ToolError(
                f"a value or a row that is sorted has more than {value_bytes:,} bytes "
                "(value_bytes, total_bytes): ask for fewer columns, or leave the long one out"
            ) from None
        raise ToolError(f"the database says: {error}") from None
    return found


def _reads(action: int, table: str | None, *_: str | None) -> int:
    """SQLite's answer to whether a statement may do that to the file."""
    own = action == sqlite3.SQLITE_READ and is_system(table or "")
    return sqlite3.SQLITE_OK if action in READS and not own else sqlite3.SQLITE_DENY


def _check_names(connection: sqlite3.Connection, sql: str, tables: Collection[str]) -> None:
    """Compile the statement where there is no table but those allowed. Raises sqlite3.Error."""
    names = {folded(table, "sqlite").removeprefix("main.") for table in tables}

    def reads(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        # Tables that SQLite brings along, such as its schema, are there too. A part of WITH of
        # which no column is used is asked for like a table, without a column.
        if action == sqlite3.SQLITE_READ and folded(table or "", "sqlite") not in names:
            return sqlite3.SQLITE_DENY if column or is_system(table or "") else sqlite3.SQLITE_OK
        return sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY

    with closing(sqlite3.connect(":memory:")) as empty:
        for name in names:
            columns = [_quoted(row[0]) for row in connection.execute(COLUMNS, (name,))]
            if columns:
                empty.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(columns)})")
        empty.set_authorizer(reads)
        empty.execute(f"EXPLAIN {sql}").close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
