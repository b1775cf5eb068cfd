"""Running a filtered statement on a database: a file in a child process, or a server.

address ─▶ which dialect ─▶ select_only ─▶ child process (SQLite, DuckDB)
                                      └──▶ connection that can only read (PostgreSQL)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from teola.errors import LONGEST_NAME, ToolError
from teola.sql.postgres_reader import read_postgres
from teola.sql.select_only import select_only
from teola.sql.sql_children import children
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.sql_schema import Schema
from teola.sql.stopped import Wanted

SERVERS: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class SqlAddress:
    """Where a database is. dialect: sqlite, postgres or duckdb. where: an absolute path, or a
    DSN, which is never printed."""

    dialect: str
    where: str = field(repr=False)

    @classmethod
    def of(cls, where: str) -> SqlAddress:
        """The address in a path or a DSN; a path is taken from the folder that is current now, and
        keeps its place when that changes. Raises ToolError for what is no database."""
        if where.startswith(SERVERS):
            return cls("postgres", where)
        try:
            path = str(Path(where).expanduser().absolute())
        except (OSError, RuntimeError) as error:  # no current folder, no such user
            raise ToolError(f"{where[:LONGEST_NAME]} cannot be read: {error}") from None
        # Not here: a process that opens and closes a file gives up the locks it has on it, and
        # whoever calls this may write to the same database.
        found = children.ask("dialect", LookupLimits(), path=path, name=where[:LONGEST_NAME])
        return cls(found["result"], path)


def look_up(
    address: SqlAddress,
    sql: str,
    limits: LookupLimits,
    schema: Schema | None = None,
    *,
    trust_role: bool = False,
    set_local: Mapping[str, str] | None = None,
    wanted: Wanted | None = None,
) -> Rows:
    """Run one statement and return its rows. schema: see `select_only`. trust_role, set_local: see
    `read_postgres`. wanted: whether anybody still waits. Raises ToolError."""
    checked = select_only(sql, address.dialect, schema)
    if address.dialect == "postgres":
        return read_postgres(
            address.where,
            checked,
            limits,
            trust_role=trust_role,
            set_local=set_local,
            wanted=wanted,
        )
    return children.read(address.dialect, address.where, checked, limits, schema, wanted)
