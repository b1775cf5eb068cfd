"""What the process that reads files can be asked for, by name."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, Final

from teola.errors import ToolError
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.sql_schema import Schema

SQLITE_MAGIC: Final = b"SQLite format 3\0"
DUCKDB_MAGIC: Final = b"DUCK"


def read(request: dict[str, Any], limits: LookupLimits, schema: Schema | None) -> Rows:
    """Rows of one statement. Raises ToolError."""
    if request["dialect"] == "duckdb":
        from teola.sql.duckdb_reader import read_duckdb

        return read_duckdb(request["path"], request["sql"], limits)
    from teola.sql.sqlite_reader import read_sqlite

    return read_sqlite(request["path"], request["sql"], limits, schema)


def dialect(request: dict[str, Any], limits: LookupLimits, schema: Schema | None) -> str:
    """Whether a file is a database of SQLite or of DuckDB; `name` is what its path is called in
    errors. Raises ToolError."""
    name, place = request["name"], Path(request["path"])
    try:
        if stat.S_ISFIFO(place.stat().st_mode) or stat.S_ISSOCK(place.stat().st_mode):
            raise ToolError(f"{name} is a pipe or a socket, and no file of a database")
        with open(place, "rb") as file:
            head = file.read(16)
    except IsADirectoryError:
        raise ToolError(f"{name} is a folder, and no file of a database") from None
    except FileNotFoundError:
        raise ToolError(f"there is no file {name}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no path"
        raise ToolError(f"{name} cannot be read: {reason}") from None
    if head == SQLITE_MAGIC or not head:  # SQLite takes an empty file for an empty database
        return "sqlite"
    if head[8:12] == DUCKDB_MAGIC:
        return "duckdb"
    raise ToolError(
        f"{name} is neither an SQLite nor a DuckDB file; it may be encrypted, broken or cut"
    )


def tables(
    request: dict[str, Any], limits: LookupLimits, schema: Schema | None
) -> list[dict[str, Any]]:
    """The tables of a file, see `sql_tables.py`. Raises ToolError."""
    if request["dialect"] == "duckdb":
        from teola.sql.duckdb_catalogue import describe_duckdb

        return describe_duckdb(
            request["path"], limits, request["private"], sampled=request["sampled"]
        )
    from teola.sql.sqlite_catalogue import describe_sqlite

    return describe_sqlite(request["path"], limits, request["private"], sampled=request["sampled"])


def plan(request: dict[str, Any], limits: LookupLimits, schema: Schema | None) -> dict[str, Any]:
    """How a statement would run. Raises ToolError."""
    if request["dialect"] == "duckdb":
        from teola.sql.duckdb_catalogue import plan_duckdb

        return plan_duckdb(request["path"], request["sql"], limits)
    from teola.sql.sqlite_catalogue import plan_sqlite

    return plan_sqlite(request["path"], request["sql"], limits)
