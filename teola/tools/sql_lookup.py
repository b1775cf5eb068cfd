"""`sql_lookup`: a tool that reads a database, and can do nothing else to it.

One SELECT (`select_only.py`), on a connection of its own that may only read, for a limited time and
a limited number of rows, and is thrown away. A role in the database that may only read what the
model should see belongs to that; it is the last wall, and nobody here can build it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from decimal import Decimal
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

from teola.errors import InputError, ToolError
from teola.tools.base import Tool
from teola.tools.context import ToolContext
from teola.tools.function_tool import tool
from teola.tools.select_only import select_only

ROWS: Final = 1_000
SECONDS: Final = 10.0
VALUE_CHARACTERS: Final = 1_000_000
STEPS: Final = 10_000
"""Of SQLite's machine, after which the time is looked at."""
ABOUT: Final = "Look something up in a database: runs one SELECT and returns its columns and rows."
READS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)


def sql_lookup(
    *,
    secret: str = "LOOKUP_DATABASE",
    tables: Collection[str] | None = None,
    about: str = "",
    rows: int = ROWS,
    seconds: float = SECONDS,
    name: str = "sql_lookup",
) -> Tool:
    """Make a tool that reads the database whose address is the secret called so: a DSN of
    PostgreSQL (`postgresql://...`), or the path of an SQLite file.

    tables: that may be read; None: all but the database's own. about: what is in them, for the
    model, such as their columns. rows, seconds: that one statement may take; further rows are left
    out, and the result says so. Raises InputError.
    """
    if rows < 1 or seconds <= 0:
        raise InputError(f"tool {name!r}: rows and seconds must be positive")
    allowed = None if tables is None else tuple(tables)

    def lookup(sql: str, context: ToolContext) -> dict[str, Any]:
        where = _address(context, secret)
        postgres = where.startswith(("postgresql://", "postgres://"))
        statement = select_only(sql, "postgres" if postgres else "sqlite", allowed)
        read: Callable[[str, str, int, float], Any] = _postgres if postgres else _sqlite
        columns, found = read(where, statement, rows + 1, seconds)
        listed = [[_value(cell) for cell in row] for row in found[:rows]]
        more = {"note": f"only the first {rows} rows"} if len(found) > rows else {}
        return {"columns": columns, "rows": listed, **more}

    named = f" The tables are {', '.join(allowed)}." if allowed else ""
    told = f"{ABOUT}{named} {about}".strip()
    return tool(lookup, name=name, description=told, pure=True, timeout_s=2 * seconds + 5)


def _address(context: ToolContext, secret: str) -> str:
    try:
        return context.secret(secret)
    except InputError:
        raise ToolError(
            f"no database is set: whoever runs this gives its address as the secret {secret}"
        ) from None


def _sqlite(path: str, sql: str, rows: int, seconds: float) -> tuple[list[str], list[Any]]:
    address = f"file:{quote(str(Path(path).expanduser().absolute()))}?mode=ro"
    until = monotonic() + seconds
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=seconds)) as connection:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_CHARACTERS)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_authorizer(
                lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY
            )
            connection.set_progress_handler(lambda: monotonic() > until, STEPS)
            with closing(connection.execute(sql)) as cursor:
                found = cursor.fetchmany(rows)
                return [column[0] for column in cursor.description], found
    except sqlite3.Error as error:
        late = monotonic() > until
        raise ToolError(_late(seconds) if late else f"the database says: {error}") from None


def _postgres(dsn: str, sql: str, rows: int, seconds: float) -> tuple[list[str], list[Any]]:
    import psycopg

    limit = f"-c statement_timeout={int(seconds * 1000)} -c default_transaction_read_only=on"
    try:
        with psycopg.connect(dsn, options=limit, connect_timeout=max(2, int(seconds))) as reading:
            reading.read_only = True
            with reading.cursor(name="lookup", binary=True) as cursor:  # the extended protocol
                cursor.execute(sql.encode())
                found = cursor.fetchmany(rows)
                columns = [column.name for column in cursor.description or ()]
            reading.rollback()
            return columns, found
    except psycopg.errors.QueryCanceled:
        raise ToolError(_late(seconds)) from None
    except psycopg.Error as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ToolError(f"the database says: {said}") from None


def _late(seconds: float) -> str:
    return f"it took longer than {seconds:g} s: ask for less"


def _value(cell: Any) -> Any:
    """A value as JSON has it; what JSON has not, as text."""
    if isinstance(cell, (bytes, memoryview)):
        return f"({len(cell)} bytes)"
    if isinstance(cell, list):
        return [_value(one) for one in cell]
    if isinstance(cell, (Decimal, float)):
        return float(cell) if isfinite(cell) else str(cell)
    return cell if cell is None or isinstance(cell, (str, int, dict)) else str(cell)
