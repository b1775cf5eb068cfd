"""Looking up a database, and everything that is no looking up.

long because one PostgreSQL serves all of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from teola.errors import InputError
from teola.sql import lookup
from teola.sql.sql_rows import LookupLimits
from teola.tools import ToolContext, sql_lookup
from teola.tools.tool_result import ToolResult
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.planted import catches, edited
from tests.sql.sql_statements import (
    ALLOWED,
    ASKED_OF_POSTGRES,
    ASKED_OF_SQLITE,
    CANARY,
    TABLES,
)

TWO: Final = {
    "columns": ["boat", "depth"],
    "rows": [["boat 0", 0.0], ["boat 1", 0.5]],
    "truncated": False,
}

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
    options = {"trust_role": True, **options}
    return asyncio.run(sql_lookup(**options).call({"sql": sql}, context))


def test_rows_and_columns(harbour: Path) -> None:
    found = looked_up(harbour, "SELECT boat, depth FROM berths WHERE id < 2 ORDER BY id")
    assert found.value == TWO


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
    assert "there is no file" in looked_up(tmp_path / "none.db", "SELECT 1").text
    assert not (tmp_path / "none.db").exists()
    missing = asyncio.run(sql_lookup(secret="NO_SUCH_PLACE").call({"sql": "SELECT 1"}))
    assert "gives its address as the secret NO_SUCH_PLACE" in missing.text


def test_the_model_does_not_choose_the_database() -> None:
    assert list(sql_lookup().schema["properties"]) == ["sql"]


# --- on PostgreSQL ------------------------------------------------------------------------------


def test_a_server_is_read_as_well(port: str) -> None:
    found = looked_up(port, "SELECT boat, depth FROM berths WHERE id < 2 ORDER BY id")
    assert found.value == TWO
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
    monkeypatch.setattr(lookup, "select_only", lambda sql, *more: sql)


def test_the_server_itself_refuses_to_write(port: str, unchecked: None) -> None:
    for sql in (
        "INSERT INTO berths VALUES (99, 'x', 1) RETURNING id",
        "WITH gone AS (DELETE FROM berths RETURNING id) SELECT id FROM gone",
        "SELECT 1; DELETE FROM berths",
    ):
        assert looked_up(port, sql).failed
    assert looked_up(port, "SELECT count(*) FROM berths").value["rows"] == [[30]]


# --- only what it was given -----------------------------------------------------------------------


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


def test_what_people_ask_of_the_tables_they_have_is_answered(
    guarded: Path, guarded_port: str
) -> None:
    for where, statements in ((guarded, ASKED_OF_SQLITE), (guarded_port, ASKED_OF_POSTGRES)):
        for sql in statements:
            for tables in (ALLOWED, None):
                result = looked_up(where, sql, tables=tables)
                assert not result.failed, (sql, tables, result.text)
                assert result.value["rows"], sql


# --- with a role that can do nothing else ---------------------------------------------------------


@pytest.fixture(scope="module")
def reader(guarded_port: str) -> str:
    """Logs in with a role that may read two tables, of which one shows each tenant its own rows."""
    with psycopg.connect(guarded_port, autocommit=True) as connection:
        for statement in (
            "CREATE TABLE orders (tenant text, amount int)",
            "INSERT INTO orders VALUES ('a', 1), ('a', 2), ('b', 4)",
            "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY own ON orders USING (tenant = current_setting('app.tenant', true))",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT ON berths, orders TO reader",
        ):
            connection.execute(statement)
    return guarded_port.replace("postgres@", "reader@")


@catches(
    "any-role",
    "a superuser logs in",
    edited(
        "teola.sql.postgres_reader:opened_postgres.__wrapped__", "if not trust_role", "if False"
    ),
)
def test_a_role_that_can_do_more_is_refused(guarded_port: str, reader: str) -> None:
    count = "SELECT count(*) FROM berths"
    refused = looked_up(guarded_port, count, trust_role=False)
    assert "is a superuser: give it one that can only read" in refused.text
    assert looked_up(reader, count, trust_role=False).value["rows"] == [[3]]
    assert "permission denied" in looked_up(reader, "SELECT * FROM salaries", trust_role=False).text
    with psycopg.connect(guarded_port, autocommit=True) as connection:
        connection.execute("CREATE TABLE its_own ()")
        connection.execute("ALTER TABLE its_own OWNER TO reader")
        assert "owns its_own" in looked_up(reader, count, trust_role=False).text
        connection.execute("DROP TABLE its_own")


def test_policies_of_the_database_see_who_asks(reader: str) -> None:
    address, total = lookup.SqlAddress.of(reader), "SELECT sum(amount) FROM orders"
    for tenant, amount in (("a", 3), ("b", 4), ("x'; --", None)):
        settings = {"app.tenant": tenant}
        found = lookup.look_up(address, total, LookupLimits(), set_local=settings)
        assert found.rows == [[amount]]
    assert lookup.look_up(address, total, LookupLimits()).rows == [[None]]


def test_a_password_is_told_to_nobody(reader: str) -> None:
    wrong = reader.replace("reader@", "nobody:hush-hush@")
    refused = looked_up(wrong, "SELECT 1")
    assert refused.failed
    assert "hush" not in refused.text


@catches(
    "waits-for-ever",
    "a client waits as long as a server hangs",
    edited(
        "teola.sql.postgres_reader:_watched.__wrapped__",
        "monotonic() + seconds",
        "monotonic() + seconds + 60",
    ),
)
def test_a_server_that_hangs_is_left(port: str) -> None:
    """Its process is stopped in the middle of a statement, so that it cannot tell the time."""
    slow = "SELECT count(*) FROM berths a, berths b, berths c, berths d, berths e, berths f"
    assert not looked_up(port, "SELECT 1").failed  # and everything is imported
    found: list[ToolResult] = []
    asking = threading.Thread(target=lambda: found.append(looked_up(port, slow, seconds=1.5)))
    running = (
        "SELECT pid FROM pg_stat_activity WHERE strpos(query, 'berths AS f') > 0 AND pid <> %s"
    )
    with psycopg.connect(port, autocommit=True) as watching:
        asking.start()
        own, until = watching.info.backend_pid, monotonic() + 1.5
        while not (row := watching.execute(running, (own,)).fetchone()):
            assert monotonic() < until
        os.kill(row[0], signal.SIGSTOP)
        try:
            asking.join(4)
            in_time = bool(found)
        finally:
            os.kill(row[0], signal.SIGCONT)
        until = monotonic() + 10
        while watching.execute(running, (own,)).fetchone():  # or the next test finds it
            assert monotonic() < until
    asking.join()
    assert in_time
    assert "took longer than 1.5 s" in found[0].text


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
    edited("teola.sql.postgres_reader:_bounded", "> {value_bytes}", "> 1000000000"),
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
    edited(
        "teola.sql.postgres_reader:read_postgres", "not result.add(row)", "result.add(row) is None"
    ),
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
    assert "more than 1,048,576 bytes (value_bytes, total_bytes)" in long.text
    assert looked_up(long_file, "SELECT id FROM logs WHERE id = 0").value["rows"] == [[0]]
    assert not looked_up(
        long_file, "SELECT line FROM logs WHERE id = 0", value_bytes=3_000_000
    ).failed
    wide = f"SELECT {', '.join(['line'] * 100)} FROM logs WHERE id = 1"
    assert "more than 41,943 bytes" in looked_up(long_file, wide).text


def test_limits_are_positive() -> None:
    for option in ("rows", "seconds", "value_bytes", "total_bytes", "memory_bytes"):
        with pytest.raises(InputError, match=f"{option} is 0: it must be positive"):
            sql_lookup(**{option: 0})
