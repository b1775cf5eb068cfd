"""Looking up a database, and everything that is no looking up.

long because one PostgreSQL serves all of it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from teola.errors import InputError, ToolError
from teola.tools import ToolContext, sql_lookup
from teola.tools.select_only import select_only
from teola.tools.tool_result import ToolResult
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.planted import catches, edited
from tests.tools.sql_statements import (
    ALLOWED,
    ASKED,
    ASKED_OF_POSTGRES,
    CANARY,
    POSTGRES,
    SQLITE,
    TABLES,
)

ATTACKS = (
    "SELECT 1; DROP TABLE berths",
    "DELETE FROM berths",
    "INSERT INTO berths VALUES (1)",
    "UPDATE berths SET boat = 'x'",
    "WITH gone AS (DELETE FROM berths RETURNING *) SELECT * FROM gone",
    "SELECT * INTO copy FROM berths",
    "SELECT * FROM berths FOR UPDATE",
    "CREATE TABLE x (y int)",
    "ALTER TABLE berths ADD COLUMN z int",
    "COPY berths TO '/tmp/x'",
    "SET ROLE admin",
    "DO $$ BEGIN END $$",
    "CALL f()",
    "EXPLAIN ANALYZE DELETE FROM berths",
    "TABLE pg_shadow",
    "SELECT * FROM pg_catalog.pg_shadow",
    "SELECT * FROM information_schema.tables",
    "SELECT pg_sleep(100)",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT current_setting('x')",
    "SELECT set_config('statement_timeout', '0', false)",
    "SELECT lo_import('/etc/passwd')",
    "SELECT dblink('x', 'y')",
    "SELECT repeat('x', 1000000000)",
    "SELECT * FROM generate_series(1, 1000000000)",
    "SELECT pg_advisory_lock(1)",
    "LISTEN x",
    "VACUUM",
    "SHOW ALL",
    "not sql at all",
    "",
)


@catches(
    "any-function",
    "a function that reads files may be called",
    edited("teola.tools.select_only:_Checks.check", "node.name.lower() not in OTHERS", "False"),
)
def test_nothing_but_a_select_is_run() -> None:
    for sql in ATTACKS:
        with pytest.raises(ToolError):
            select_only(sql, "postgres")


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA writable_schema=ON",
        "ATTACH DATABASE '/tmp/x' AS y",
        "SELECT load_extension('x')",
        "SELECT * FROM sqlite_master",
        "SELECT printf('%.*c', 900000000, 'x')",
        "SELECT format('%.*c', 900000000, 'x')",
        "SELECT zeroblob(1000000000)",
        "SELECT readfile('/etc/passwd')",
    ],
)
def test_nor_what_only_sqlite_has(sql: str) -> None:
    with pytest.raises(ToolError):
        select_only(sql, "sqlite")


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_what_people_ask_is_taken(dialect: str) -> None:
    for sql in (
        "SELECT boat, count(*) AS n FROM berths WHERE depth > 3 GROUP BY boat ORDER BY n LIMIT 3",
        "WITH deep AS (SELECT * FROM berths WHERE depth > 4) SELECT max(depth) FROM deep",
        "SELECT a.boat FROM berths a JOIN berths b ON a.id = b.id WHERE a.boat LIKE 'K%'",
        "SELECT boat FROM berths UNION SELECT upper(boat) FROM berths",
        "SELECT CASE WHEN depth > 3 THEN 'deep' ELSE 'flat' END FROM berths",
        "SELECT id, rank() OVER (ORDER BY depth) FROM berths",
        "SELECT boat FROM berths WHERE EXISTS (SELECT 1 FROM berths WHERE depth IS NOT NULL)",
        "SELECT avg(depth), round(sum(depth), 1), coalesce(min(boat), '') FROM berths",
    ):
        assert select_only(sql, dialect, ["berths"]).startswith(("SELECT", "WITH"))


def test_only_the_tables_that_are_named() -> None:
    with pytest.raises(ToolError, match="no table 'crew' to read; there are berths"):
        select_only("SELECT * FROM berths JOIN crew ON true", "postgres", ["berths"])
    with pytest.raises(ToolError, match="no table 'berths'"):
        select_only("SELECT * FROM other.berths", "postgres", ["berths"])


# --- on a database ------------------------------------------------------------------------------


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    path = tmp_path / "harbour.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE berths (id INTEGER, boat TEXT, depth REAL)")
        connection.executemany(
            "INSERT INTO berths VALUES (?, ?, ?)", [(n, f"boat {n}", n / 2) for n in range(30)]
        )
    connection.close()
    return path


@pytest.fixture(scope="module")
def port(servers: None) -> Iterator[str]:
    """Address of a database in PostgreSQL, with a table that is there to be read, as its owner."""
    with temporary_folder() as folder, closing(EmbeddedPostgres(folder)) as embedded:
        dsn = embedded.start()[0]
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE berths (id int, boat text, depth numeric)")
            numbers = "generate_series(0, 29) n"
            connection.execute(f"INSERT INTO berths SELECT n, 'boat ' || n, n / 2.0 FROM {numbers}")
        about = conninfo_to_dict(dsn)
        host, user = quote(str(about["host"]), safe=""), about["user"]
        yield f"postgresql://{user}@/{about['dbname']}?host={host}&port={about['port']}"


def looked_up(where: str | Path, sql: str, **options: Any) -> ToolResult:
    context = ToolContext(secrets={"LOOKUP_DATABASE": str(where)})
    return asyncio.run(sql_lookup(**options).call({"sql": sql}, context))


def test_rows_and_columns(harbour: Path) -> None:
    found = looked_up(harbour, "SELECT boat, depth FROM berths WHERE id < 2 ORDER BY id")
    assert found.value == {"columns": ["boat", "depth"], "rows": [["boat 0", 0.0], ["boat 1", 0.5]]}


def test_so_many_rows_and_no_more(harbour: Path) -> None:
    found = looked_up(harbour, "SELECT id FROM berths", rows=5)
    assert len(found.value["rows"]) == 5
    assert found.value["note"] == "only the first 5 rows"


def test_what_takes_long_is_stopped(harbour: Path) -> None:
    slow = "SELECT count(*) FROM berths a, berths b, berths c, berths d, berths e, berths f"
    found = looked_up(harbour, slow, seconds=0.3)
    assert "took longer than 0.3 s" in found.text
    assert found.seconds < 3


def test_mistakes_are_told(harbour: Path, tmp_path: Path) -> None:
    assert "no such column" in looked_up(harbour, "SELECT hull FROM berths").text
    assert "unable to open" in looked_up(tmp_path / "none.db", "SELECT 1").text
    assert not (tmp_path / "none.db").exists()
    missing = asyncio.run(sql_lookup(secret="NO_SUCH_PLACE").call({"sql": "SELECT 1"}))
    assert "gives its address as the secret NO_SUCH_PLACE" in missing.text


def test_the_model_does_not_choose_the_database() -> None:
    assert list(sql_lookup().schema["properties"]) == ["sql"]


# --- on PostgreSQL ------------------------------------------------------------------------------


def test_a_server_is_read_as_well(port: str) -> None:
    found = looked_up(port, "SELECT boat, depth FROM berths WHERE id < 2 ORDER BY id")
    assert found.value == {"columns": ["boat", "depth"], "rows": [["boat 0", 0.0], ["boat 1", 0.5]]}
    many = looked_up(port, "SELECT id FROM berths", rows=5)
    assert len(many.value["rows"]) == 5
    assert many.value["note"] == "only the first 5 rows"


def test_all_of_its_types_become_json(port: str) -> None:
    columns = {
        "NULL::int": None,
        "true": True,
        "12345678901234567890::numeric": 12345678901234567890.0,
        "'NaN'::float8": "nan",
        "'NaN'::numeric": "NaN",
        "date '2026-02-03'": "2026-02-03",
        "interval '90 minutes'": "1:30:00",
        "'{1.5,2}'::numeric[]": [1.5, 2.0],
        "'{\"a\": [1]}'::jsonb": {"a": [1]},
        "'00000000-0000-0000-0000-000000000001'::uuid": "00000000-0000-0000-0000-000000000001",
        "'abc'::bytea": "(3 bytes)",
    }
    found = looked_up(port, f"SELECT {', '.join(columns)}")
    assert not found.failed, found.text
    assert found.value["rows"] == [list(columns.values())]


def test_its_mistakes_and_its_time_are_told(port: str) -> None:
    assert 'column "hull" does not exist' in looked_up(port, "SELECT hull FROM berths").text
    slow = "SELECT count(*) FROM berths a, berths b, berths c, berths d, berths e, berths f"
    found = looked_up(port, slow, seconds=0.3)
    assert "took longer than 0.3 s" in found.text
    assert "the database says: " in looked_up(port.replace("/postgres?", "/none?"), "SELECT 1").text


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever gets through the first wall: all of it does."""
    module = import_module("teola.tools.sql_lookup")  # the package has a function of that name
    monkeypatch.setattr(module, "select_only", lambda sql, *more: sql)


def test_the_server_itself_refuses_to_write(port: str, unchecked: None) -> None:
    for sql in (
        "INSERT INTO berths VALUES (99, 'x', 1) RETURNING id",
        "WITH gone AS (DELETE FROM berths RETURNING id) SELECT id FROM gone",
        "SELECT 1; DELETE FROM berths",
    ):
        assert looked_up(port, sql).failed
    assert looked_up(port, "SELECT count(*) FROM berths").value["rows"] == [[30]]


# --- only what it was given -----------------------------------------------------------------------

CHECKS = "teola.tools.select_only:_Checks"
scopes_forgotten = catches(
    "scopes-forgotten",
    "a name that any WITH of the statement has is no table's wherever it stands",
    edited(f"{CHECKS}._table", "_visible(table)", "table.root().find_all(exp.CTE)"),
)
own_body = catches(
    "own-body",
    "a part of WITH that is not recursive reads itself",
    edited("teola.tools.select_only:_visible", "bool(parent.recursive)", "1"),
)
in_a_table = catches(
    "in-a-table",
    "IN takes the name of a table",
    edited(f"{CHECKS}.check", 'isinstance(node, exp.In) and node.args.get("field")', "False"),
)
a_field_is_a_function = catches(
    "a-field-is-a-function",
    "(text).function calls it",
    edited(f"{CHECKS}.check", "not isinstance(node.expression, exp.Star)", "False"),
)


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    """The harbour with its salaries."""
    path = tmp_path / "guarded.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in TABLES:
            connection.execute(statement)
    return path


@pytest.fixture(scope="module")
def guarded_port(port: str) -> str:
    """The same in PostgreSQL, with what only that has, in a database of its own."""
    with psycopg.connect(port, autocommit=True) as connection:
        connection.execute("CREATE DATABASE guarded")
        connection.execute(f"CREATE ROLE mara{CANARY}")
    address = port.replace("/postgres?", "/guarded?")
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in TABLES:
            connection.execute(statement)
        connection.execute("CREATE SCHEMA vault")
        for hidden in ("vault.berths", '"BERTHS"'):
            connection.execute(f"CREATE TABLE {hidden} AS SELECT * FROM salaries")
    return address


def taken(where: str | Path, statements: tuple[str, ...]) -> list[str]:
    """The statements that were not refused."""
    return [sql for sql in statements if not looked_up(where, sql, tables=ALLOWED).failed]


@scopes_forgotten
@in_a_table
def test_no_select_leaves_the_tables_of_an_sqlite_file(guarded: Path) -> None:
    assert taken(guarded, SQLITE) == []


@scopes_forgotten
@own_body
@a_field_is_a_function
def test_no_select_leaves_the_tables_of_a_server(guarded_port: str) -> None:
    assert taken(guarded_port, POSTGRES) == []


def test_what_people_ask_of_the_tables_they_have_is_answered(
    guarded: Path, guarded_port: str
) -> None:
    for where, statements in ((guarded, ASKED), (guarded_port, ASKED_OF_POSTGRES)):
        for sql in statements:
            for tables in (ALLOWED, None):
                result = looked_up(where, sql, tables=tables)
                assert not result.failed, (sql, tables, result.text)
                assert result.value["rows"], sql


TELLING: Final = (
    "SELECT count(*) FROM salaries",
    f"SELECT {CANARY} IN secrets",
    "SELECT EXISTS (SELECT 1 FROM secrets)",
    "SELECT 1 FROM sqlite_master",
    "SELECT count(*) FROM pragma_table_info('salaries')",
    "SELECT pay FROM berths, (WITH berths AS (SELECT * FROM salaries) SELECT * FROM berths)",
)


@catches(
    "one-wall",
    "an SQLite file is read by whatever statement comes",
    edited("teola.tools.sqlite_reader:read_sqlite", "if tables is not None", "if False"),
)
def test_an_sqlite_file_is_guarded_by_sqlite_too(guarded: Path, unchecked: None) -> None:
    """Also where a part of WITH has the name of a view that may read what it reads."""
    for sql in SQLITE:
        result = looked_up(guarded, sql, tables=ALLOWED)
        assert result.failed or CANARY not in str(result.value["rows"]), sql
    for sql in TELLING:
        assert looked_up(guarded, sql, tables=ALLOWED).failed, sql
    for sql in ASKED:
        assert not looked_up(guarded, sql, tables=[name.upper() for name in ALLOWED]).failed, sql
    assert looked_up(guarded, "WITH a AS (SELECT 1) SELECT count(*) FROM a", tables=[]).value


@catches(
    "own-tables",
    "SQLite's own tables are read where all others may be",
    edited("teola.tools.sqlite_reader:_reads", 'is_system(table or "")', "False"),
)
def test_not_even_all_tables_are_sqlites_own(guarded: Path, unchecked: None) -> None:
    assert looked_up(guarded, "SELECT pay FROM salaries").value["rows"] == [[int(CANARY)]]
    assert looked_up(guarded, "SELECT sql FROM sqlite_master").failed


def test_a_part_of_with_needs_a_name_of_its_own() -> None:
    """Both readings are told apart for the model, and a table in quotes is another one."""
    itself = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    for dialect in ("sqlite", "postgres"):
        with pytest.raises(ToolError, match="'berths', which names a table: give it another name"):
            select_only("WITH berths AS (SELECT 1) SELECT 1", dialect, ["berths"])
        with pytest.raises(ToolError, match="needs WITH RECURSIVE"):
            select_only(itself, dialect, ["berths"])
        shadow = "WITH crew AS (SELECT * FROM berths) SELECT * FROM crew"
        assert select_only(shadow, dialect, ["berths"])
    assert select_only('SELECT * FROM "BERTHS"', "sqlite", ["Berths"])
    assert select_only('SELECT * FROM "Berths"', "postgres", ["Berths"])
    with pytest.raises(ToolError, match="no table 'berths'"):
        select_only("SELECT * FROM Berths", "postgres", ["Berths"])


# --- and only so much of it -----------------------------------------------------------------------

LONG: Final = 30_000_000
ROOM: Final = 10_000_000
"""Bytes that a lookup may take in this process beyond what it gives."""


@pytest.fixture(scope="module")
def long_port(port: str) -> str:
    with psycopg.connect(port, autocommit=True) as connection:
        connection.execute("CREATE TABLE logs (id int, line text, raw bytea, tree jsonb)")
        line, tree = f"repeat('x', {LONG})", f"to_jsonb(repeat('y', {LONG}))"
        connection.execute(f"INSERT INTO logs SELECT 0, {line}, {line}::bytea, {tree}")
        many = "SELECT n, repeat('x', 500000), NULL, NULL FROM generate_series(1, 80) n"
        connection.execute(f"INSERT INTO logs {many}")
    return port


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    path = tmp_path / "long.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE logs (id INTEGER, line TEXT)")
        rows = [(0, "x" * 3_000_000), *((n, "x" * 500_000) for n in range(1, 81))]
        connection.executemany("INSERT INTO logs VALUES (?, ?)", rows)
    return path


def peak_of(where: str | Path, sql: str, **options: Any) -> tuple[ToolResult, int]:
    """What was looked up, and the most bytes that Python had for it at a time."""
    tracemalloc.start()
    try:
        return looked_up(where, sql, **options), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@catches(
    "values-whole",
    "long values come whole",
    edited("teola.tools.postgres_reader:_bounded", "> {value_bytes}", "> 1000000000"),
)
def test_no_long_value_comes_from_a_server_whole(long_port: str) -> None:
    sql = "SELECT line, raw, tree, id FROM logs WHERE id = 0"
    found, peak = peak_of(long_port, sql, value_bytes=4_000)
    assert found.value["rows"] == [["x" * 1_000, f"({LONG} bytes)", None, 0]]
    assert found.value["note"] == (
        "values of more than 4,000 bytes (value_bytes, total_bytes) are cut to 1,000 characters, "
        "or null where they are no text (in these rows: 2); "
        "ask for parts of them, or for fewer columns"
    )
    assert peak < ROOM
    wide = f"SELECT {', '.join(['line'] * 100)} FROM logs WHERE id = 0"  # a row has a bound, too
    found, peak = peak_of(long_port, wide)
    assert "(in these rows: 100)" in found.value["note"]
    assert peak < ROOM


@catches(
    "rows-whole",
    "rows are read however many bytes they have",
    edited("teola.tools.sql_rows:Rows.add", "> self.limits.total_bytes", "< 0"),
)
def test_rows_are_read_until_there_are_bytes_enough(long_port: str, long_file: Path) -> None:
    sql = "SELECT line, id FROM logs WHERE id > 0 ORDER BY id"
    for where in (long_port, long_file):
        found, peak = peak_of(where, sql, total_bytes=1_600_000)
        assert [row[1] for row in found.value["rows"]] == [1, 2, 3]
        assert found.value["note"] == (
            "only the first 3 rows: more would be over 1,600,000 bytes (total_bytes); "
            "ask for fewer columns or shorter values"
        )
        assert peak < ROOM
        found = looked_up(where, sql)
        assert 7 <= len(found.value["rows"]) <= 8, "of the 4 MiB that hold unless told otherwise"


def test_a_long_value_of_a_file_is_refused(long_file: Path) -> None:
    long = looked_up(long_file, "SELECT line FROM logs WHERE id = 0")
    assert "more than 1,000,000 bytes (value_bytes, total_bytes)" in long.text
    assert looked_up(long_file, "SELECT id FROM logs WHERE id = 0").value["rows"] == [[0]]
    assert not looked_up(
        long_file, "SELECT line FROM logs WHERE id = 0", value_bytes=3_000_000
    ).failed
    wide = f"SELECT {', '.join(['line'] * 100)} FROM logs WHERE id = 1"
    assert "more than 41,943 bytes" in looked_up(long_file, wide).text


def test_limits_are_positive() -> None:
    for option in ("rows", "seconds", "value_bytes", "total_bytes"):
        with pytest.raises(InputError, match=f"{option}.* must be positive"):
            sql_lookup(**{option: 0})
