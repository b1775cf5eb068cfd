"""Reads a list of statements from a file, and prepares the databases that they name.

    [{"database": PATH, "dialect": "sqlite", "sql": "..."},
     {"schema": {"berths": [["id", "INTEGER"]]} or null, "dialect": "postgres", "sql": "..."}]

A database is a file of SQLite or DuckDB, a `.sql` dump for PostgreSQL, or a DSN. What a file or a
dump has is what its statements may read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from experiments.sql_safety.harbour import as_role
from experiments.sql_safety.running import Statement
from teola.errors import InputError
from teola.sql.lookup import SERVERS
from teola.sql.sql_schema import Schema


class _Place(NamedTuple):
    """Where a database is, and what it has."""

    where: str
    schema: Schema | None


def statements(file: Path, superuser: Callable[[], str]) -> Iterator[Statement]:
    """Those of a file, in order. superuser: starts a PostgreSQL and gives the DSN of its superuser.
    Raises InputError."""
    entries = json.loads(file.read_text(encoding="utf-8"))
    places: dict[str, _Place] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not {"dialect", "sql"} <= entry.keys():
            raise InputError(f"{file}: entry {number} needs dialect and sql")
        dialect, sql = entry["dialect"], entry["sql"]
        if "database" in entry:
            database = str(entry["database"])
            if database not in places:
                base = Path(database)
                found = base if base.exists() or base.is_absolute() else file.parent / base
                places[database] = _place(database, found, dialect, superuser, len(places))
            where, schema = places[database]
            yield Statement(dialect, sql, where, schema)
        else:
            tables = entry.get("schema")
            named = None if tables is None else Schema.of(_columns(tables))
            yield Statement(dialect, sql, None, named)


def _columns(tables: dict[str, Any]) -> dict[str, list[str]]:
    return {
        table: [column if isinstance(column, str) else column[0] for column in columns]
        for table, columns in tables.items()
    }


def _place(
    database: str, path: Path, dialect: str, superuser: Callable[[], str], number: int
) -> _Place:
    if database.startswith(SERVERS):
        return _Place(database, None)
    if path.suffix == ".sql":
        return loaded(path, superuser(), f"run{number}")
    if dialect == "duckdb":
        return _Place(str(path), _of_duckdb(path))
    return _Place(str(path), _of_sqlite(path))


def _of_sqlite(path: Path) -> Schema | None:
    listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    columns = "SELECT name FROM pragma_table_xinfo(?)"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            tables = [row[0] for row in connection.execute(listed)]
            return Schema.of(
                {
                    table: [row[0] for row in connection.execute(columns, (table,))]
                    for table in tables
                    if not table.lower().startswith("sqlite_")
                }
            )
    except sqlite3.Error:
        return None  # each of its statements will tell


def _of_duckdb(path: Path) -> Schema | None:
    import duckdb

    try:
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            rows = connection.execute(
                "SELECT table_schema, table_name, column_name FROM information_schema.columns "
                "WHERE table_catalog = current_database()"
            ).fetchall()
    except duckdb.Error:
        return None
    return _schema(rows, "main")


def loaded(path: Path, admin: str, database: str) -> _Place:
    """A dump in a database of its own, which a role may only read."""
    import psycopg

    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
        connection.execute(f"CREATE ROLE {database}_reader LOGIN".encode())
    with psycopg.connect(as_role(admin, "postgres", database), autocommit=True) as connection:
        connection.execute(path.read_text(encoding="utf-8").encode())
        schemas = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' "
            "AND nspname <> 'information_schema'"
        ).fetchall()
        for (schema,) in schemas:
            connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {database}_reader'.encode())
            connection.execute(
                f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {database}_reader'.encode()
            )
        rows = connection.execute(
            "SELECT table_schema, table_name, column_name FROM information_schema.columns "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') "
            "ORDER BY ordinal_position"
        ).fetchall()
    return _Place(as_role(admin, f"{database}_reader", database), _schema(rows, "public"))


def _schema(rows: list[Any], default: str) -> Schema:
    """Tables of the default schema are named with it and without."""
    tables: dict[str, list[str]] = {}
    for schema, table, column in rows:
        names = [f"{schema}.{table}", *([table] if schema == default else [])]
        for name in names:
            tables.setdefault(name, []).append(column)
    return Schema.of(tables)
