"""`sql_lookup`: a tool that reads a database, and can do nothing else to it.

What it runs and how is told in `teola/sql`. The last wall is a role in the database that may read
what the model should see; nobody here can build it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from teola.errors import InputError, ToolError
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_schema import Schema
from teola.tools.base import Tool
from teola.tools.context import ToolContext
from teola.tools.function_tool import tool

DEFAULT: Final = LookupLimits()
ABOUT: Final = "Look something up in a database: runs one SELECT and returns its columns and rows."


def sql_lookup(
    *,
    secret: str = "LOOKUP_DATABASE",
    tables: Collection[str] | None = None,
    about: str = "",
    rows: int = DEFAULT.rows,
    seconds: float = DEFAULT.seconds,
    value_bytes: int = DEFAULT.value_bytes,
    total_bytes: int = DEFAULT.total_bytes,
    memory_bytes: int = DEFAULT.memory_bytes,
    trust_role: bool = False,
    name: str = "sql_lookup",
) -> Tool:
    """Make a tool that reads the database whose address is the secret called so: a DSN of
    PostgreSQL (`postgresql://...`), or the path of an SQLite or a DuckDB file.

    tables: that may be read, spelled as the database spells them (`schema.table` for those of
    another schema); None: all but the database's own. about: what is in them, for the model, such
    as their columns. rows, seconds: that one statement may take. value_bytes: of one value.
    total_bytes: of all rows; no value has more than its column's share of that. Further rows are
    left out and longer values cut, and the result says so; SQLite refuses longer values.
    memory_bytes: of the process that reads a file. trust_role: also log in as a superuser, or as
    the owner of what is read. Raises InputError.
    """
    try:
        limits = LookupLimits(rows, seconds, value_bytes, total_bytes, memory_bytes)
    except InputError as error:
        raise InputError(f"tool {name!r}: {error}") from None
    schema = None if tables is None else Schema.of(tables)

    def lookup(sql: str, context: ToolContext) -> dict[str, Any]:
        address = SqlAddress.of(_address(context, secret))
        return look_up(address, sql, limits, schema, trust_role=trust_role).result()

    named = f" The tables are {', '.join(schema.names)}." if schema and schema.names else ""
    description = f"{ABOUT}{named} {about}".strip()
    return tool(lookup, name=name, description=description, pure=True, timeout_s=2 * seconds + 30)


def _address(context: ToolContext, secret: str) -> str:
    try:
        return context.secret(secret)
    except InputError:
        raise ToolError(
            f"no database is set: whoever runs this gives its address as the secret {secret}"
        ) from None
