"""A harbour's database in SQLite, DuckDB and PostgreSQL, with tables that may not be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from teola.sql.sql_schema import Schema

CANARY: Final = 424242
"""Stands in all rows that may not be read."""
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "berths": ("id", "boat", "depth", "kind", "arrived"),
    "visits": ("id", "berth_id", "moored", "fee"),
    "notes": ("id", "body", "data"),
    "table": ("select", "from", "order"),
    "paid": ("boat", "paid"),
}
SCHEMA: Final = Schema.of(ALLOWED)
JSON: Final = {"sqlite": "TEXT", "duckdb": "JSON", "postgres": "JSONB"}
REAL: Final = {"sqlite": "REAL", "duckdb": "DOUBLE", "postgres": "NUMERIC"}


def statements(dialect: str) -> tuple[str, ...]:
    """Make the database."""
    boats = ("Kittiwake", "Petrel", "Skua", "Gannet", "Tern", "Puffin")
    berths = ", ".join(
        f"({n}, '{boat}', {n * 1.5 + 1}, '{'quay' if n % 2 else 'buoy'}', '2026-0{n + 1}-03')"
        for n, boat in enumerate(boats)
    )
    visits = ", ".join(
        f"({n}, {n % 6}, '2026-0{n % 8 + 1}-10 12:00:00', {n * 3 % 17})" for n in range(40)
    )
    data = '{"name": "x", "crew": ["mara", "ben"]}'
    notes = ", ".join(
        f"({n}, 'note {n}: DROP TABLE salaries; -- of the lamp', '{data}')" for n in range(3)
    )
    json, real = JSON[dialect], REAL[dialect]
    return (
        f"CREATE TABLE berths (id INTEGER, boat TEXT, depth {real}, kind TEXT, arrived DATE)",
        "CREATE INDEX berths_kind ON berths (kind)",
        f"CREATE TABLE visits (id INTEGER, berth_id INTEGER, moored TIMESTAMP, fee {real})",
        f"CREATE TABLE notes (id INTEGER, body TEXT, data {json})",
        'CREATE TABLE "table" ("select" INTEGER, "from" INTEGER, "order" INTEGER)',
        "CREATE TABLE salaries (name TEXT, pay INTEGER)",
        "CREATE TABLE secrets (token INTEGER)",
        f"INSERT INTO berths VALUES {berths}",
        f"INSERT INTO visits VALUES {visits}",
        f"INSERT INTO notes VALUES {notes}",
        'INSERT INTO "table" VALUES (1, 2, 3)',
        f"INSERT INTO salaries VALUES ('mara', {CANARY})",
        f"INSERT INTO secrets VALUES ({CANARY})",
        "CREATE VIEW paid AS SELECT boat, (SELECT count(*) FROM salaries) AS paid FROM berths",
    )


def make_file(path: Path, dialect: str) -> Path:
    """The database in a file."""
    if dialect == "duckdb":
        import duckdb

        with closing(duckdb.connect(str(path))) as connection:
            for statement in statements(dialect):
                connection.execute(statement)
        return path
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements(dialect):
            connection.execute(statement)
    return path


def make_server(admin: str) -> str:
    """The database in a server, by the DSN of its superuser. The DSN of a role that may read the
    allowed tables alone."""
    import psycopg

    with psycopg.connect(admin, autocommit=True) as connection:
        for statement in statements("postgres"):
            connection.execute(statement.encode())
        connection.execute("CREATE SEQUENCE numbers")
        connection.execute("CREATE ROLE visitor LOGIN")
        for table in ALLOWED:
            connection.execute(f'GRANT SELECT ON "{table}" TO visitor'.encode())
    return as_role(admin, "visitor")


def as_role(dsn: str, role: str, database: str | None = None) -> str:
    """The address of a server for another role, and perhaps another database, as a URL."""
    from urllib.parse import quote

    from psycopg.conninfo import conninfo_to_dict

    about = conninfo_to_dict(dsn)
    host = quote(str(about["host"]), safe="")
    port, name = about.get("port", 5432), database or about.get("dbname", "postgres")
    return f"postgresql://{role}@/{name}?host={host}&port={port}"
