"""`sql_lookup`: a tool that reads a database, and can do nothing else to it.

One SELECT (`select_only.py`), on a connection of its own that may only read and is thrown away
(`sqlite_reader.py`, `postgres_reader.py`), for a limited time and a limited result. The last wall
is a role in the database that may read what the model should see; nobody here can build it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from teola.errors import InputError, ToolError
from teola.tools.base import Tool
from teola.tools.context import ToolContext
from teola.tools.function_tool import tool
from teola.tools.postgres_reader import read_postgres
from teola.tools.select_only import select_only
from teola.tools.sql_rows import LookupLimits
from teola.tools.sqlite_reader import read_sqlite

ROWS: Final = 1_000
SECONDS: Final = 10.0
VALUE_BYTES: Final = 1_000_000
TOTAL_BYTES: Final = 4 * 2**20
"""Half of what any tool's result may have: the names of columns and the note need room."""
ABOUT: Final = "Look something up in a database: runs one SELECT and returns its columns and rows."


def sql_lookup(
    *,
    secret: str = "LOOKUP_DATABASE",
    tables: Collection[str] | None = None,
    about: str = "",
    rows: int = ROWS,
    seconds: float = SECONDS,
    value_bytes: int = VALUE_BYTES,
    total_bytes: int = TOTAL_BYTES,
    name: str = "sql_lookup",
) -> Tool:
    """Make a tool that reads the database whose address is the secret called so: a DSN of
    PostgreSQL (`postgresql://...`), or the path of an SQLite file.

    tables: that may be read, spelled as the database spells them (`schema.table` for those of
    another schema); None: all but the database's own. about: what is in them, for the model, such
    as their columns. rows, seconds: that one statement may take. value_bytes: of one value.
    total_bytes: of all rows; no value has more than its column's share of that. Further rows are
    left out and longer values cut, and the result says so; SQLite refuses longer values. Raises
    InputError.
    """
    limits = LookupLimits(rows, seconds, value_bytes, total_bytes)
    if min(rows, seconds, value_bytes, total_bytes) <= 0:
        raise InputError(
            f"tool {name!r}: rows, seconds, value_bytes and total_bytes must be positive"
        )
    allowed = None if tables is None else tuple(tables)

    def lookup(sql: str, context: ToolContext) -> dict[str, Any]:
        where = _address(context, secret)
        if where.startswith(("postgresql://", "postgres://")):
            return read_postgres(where, select_only(sql, "postgres", allowed), limits).result()
        return read_sqlite(where, select_only(sql, "sqlite", allowed), limits, allowed).result()

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
