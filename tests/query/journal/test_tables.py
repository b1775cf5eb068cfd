"""The journal's tables: made from those of any older version, or it is said why they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString, cast
from uuid import uuid4

import psycopg
import pytest

from teola.errors import EngineUnavailable
from teola.query.journal import tables
from tests.serve.journal.conftest import rows

COLUMNS: Final = """
SELECT table_name, column_name, data_type, is_nullable, column_default
FROM information_schema.columns WHERE table_schema = 'teola_journal' ORDER BY 1, 2
"""
GUARDED: Final = """
SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'teola_journal' ORDER BY 1, 2
"""
VERSIONS: Final = "SELECT version, sealed FROM teola_journal.settings ORDER BY version"
MAY: Final = """
SELECT name, right_ FROM unnest(ARRAY['queries', 'files', 'steps', 'asks', 'settings']) AS n (name),
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r (right_)
WHERE has_table_privilege('teola_journal', 'teola_journal.' || name, right_)
"""
ALL: Final = {"SELECT", "INSERT", "UPDATE", "DELETE"}


def rights(dsn: str) -> dict[str, set[str]]:
    """What the role at work may do with each table."""
    found: dict[str, set[str]] = {}
    for table, right in rows(dsn, MAY):
        found.setdefault(table, set()).add(right)
    return found


@asynccontextmanager
async def connected(dsn: str, role: str | None = None) -> Any:
    """A connection that acts as a role."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        if role is not None:
            await connection.execute(cast("LiteralString", f"SET ROLE {role}"))
        yield connection


@pytest.fixture
def guest(dsn: str) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    name = f"guest_{uuid4().hex[:8]}"
    rows(dsn, f"CREATE ROLE {name} LOGIN")
    yield name
    rows(dsn, f"DROP OWNED BY {name}")
    rows(dsn, f"DROP ROLE {name}")


@pytest.mark.parametrize("version", range(len(tables.MIGRATIONS) + 1))
async def test_tables_of_any_version_become_those_of_this_one(dsn: str, version: int) -> None:
    """Once: what has been made is not made again."""
    async with connected(dsn) as connection:
        if version:
            await connection.execute("CREATE SCHEMA teola_journal")
            await connection.execute("CREATE TABLE teola_journal.settings (version int)")
        for number, statements in enumerate(tables.MIGRATIONS[:version], 1):
            await connection.execute(statements)
            names = "(version) VALUES (%s)"
            insert = cast("LiteralString", f"INSERT INTO teola_journal.settings {names}")
            await connection.execute(insert, (number,))
        if version == len(tables.MIGRATIONS):
            for table in tables.TABLES:
                await connection.execute(tables.SECURITY.replace("{table}", table))
        for _ in range(2):
            await tables.migrate(connection)
    assert rows(dsn, VERSIONS) == [(n + 1, None) for n in range(len(tables.MIGRATIONS))]
    names = {name for name, *_ in rows(dsn, COLUMNS)}
    assert names == {*tables.TABLES, "settings"}
    assert {column for table, column, *_ in rows(dsn, COLUMNS) if table == "queries"} >= {
        *("holder", "left_s", "code", "seal"),
    }
    guards = [(table, by) for table in sorted(tables.TABLES) for by in ("server", "tenant")]
    assert rows(dsn, GUARDED) == guards
    if version < len(tables.MIGRATIONS):
        assert rights(dsn) == {**dict.fromkeys(tables.TABLES, ALL), "settings": {"SELECT"}}


@pytest.mark.parametrize("more", [1, 96])
async def test_tables_of_a_newer_version_are_left_as_they_are(made: str, more: int) -> None:
    newer, here = len(tables.MIGRATIONS) + more, len(tables.MIGRATIONS)
    rows(made, "INSERT INTO teola_journal.settings VALUES (%s)", newer)
    before = rows(made, COLUMNS)
    async with connected(made) as connection:
        with pytest.raises(EngineUnavailable) as raised:
            await tables.migrate(connection)
    assert (str(raised.value), raised.value.retryable) == (
        f"the schema 'teola_journal' has version {newer}, this Teola knows {here}: update Teola, "
        "or set server.journal to another database",
        False,
    )
    assert rows(made, COLUMNS) == before


async def test_who_may_not_make_a_schema_is_told_what_to_grant(dsn: str, guest: str) -> None:
    async with connected(dsn, guest) as connection:
        with pytest.raises(EngineUnavailable) as raised:
            await tables.migrate(connection)
        assert (str(raised.value), raised.value.retryable) == (
            "the role that logs in may not create the schema 'teola_journal': grant it CREATE on "
            "the database, or set server.journal to false",
            False,
        )
        assert isinstance(raised.value.__cause__, psycopg.errors.InsufficientPrivilege)
    assert rows(dsn, COLUMNS) == []


async def test_who_may_make_a_schema_and_no_role_works_as_it_is(dsn: str, guest: str) -> None:
    """There is a role of that name already, of somebody else."""
    (name,) = rows(dsn, "SELECT current_database()")[0]
    rows(dsn, f"GRANT CREATE ON DATABASE {name} TO {guest}")
    rows(dsn, tables._MAKE_ROLE)
    async with connected(dsn, guest) as connection:
        for _ in range(2):
            await tables.migrate(connection)
        await connection.execute(tables.TAKE_ROLE)
        row = await (await connection.execute("SELECT current_user")).fetchone()
        assert row == (guest,)
    assert rows(dsn, VERSIONS) == [(n + 1, None) for n in range(len(tables.MIGRATIONS))]
    assert rights(dsn) == {}


@pytest.mark.parametrize("alone", [True, False])
async def test_rights_are_given_anew_only_where_the_role_had_gone(made: str, alone: bool) -> None:
    """As after a restore into another server; else who took them away is left to it."""
    if alone:
        rows(made, "DROP OWNED BY teola_journal")
        rows(made, "ALTER ROLE teola_journal RENAME TO set_aside")
    else:
        rows(made, "REVOKE ALL ON teola_journal.files FROM teola_journal")
    try:
        async with connected(made) as connection:
            await tables.migrate(connection)
        given = {**dict.fromkeys(tables.TABLES, ALL), "settings": {"SELECT"}}
        if not alone:
            del given["files"]
        assert rights(made) == given
    finally:
        if alone:
            rows(made, "DROP OWNED BY teola_journal")
            rows(made, "DROP ROLE teola_journal")
            rows(made, "ALTER ROLE set_aside RENAME TO teola_journal")
