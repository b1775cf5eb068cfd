"""Looking up a database, and everything that is no looking up."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from teola.errors import ToolError
from teola.tools import ToolContext, sql_lookup
from teola.tools.select_only import select_only
from teola.tools.tool_result import ToolResult
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.planted import catches, edited

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
    edited(select_only, "node.name.lower() not in OTHERS", "False"),
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


def test_the_server_itself_refuses_to_write(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever gets through the first wall."""
    module = import_module("teola.tools.sql_lookup")  # the package has a function of that name
    monkeypatch.setattr(module, "select_only", lambda sql, *more: sql)
    for sql in (
        "INSERT INTO berths VALUES (99, 'x', 1) RETURNING id",
        "WITH gone AS (DELETE FROM berths RETURNING id) SELECT id FROM gone",
        "SELECT 1; DELETE FROM berths",
    ):
        assert looked_up(port, sql).failed
    assert looked_up(port, "SELECT count(*) FROM berths").value["rows"] == [[30]]
