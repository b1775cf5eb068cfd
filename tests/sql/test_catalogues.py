"""What files of databases are told to have, and what their statements would cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from teola.errors import InputError
from teola.sql.duckdb_catalogue import describe_duckdb, plan_duckdb
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_tables import (
    LONGEST_SAMPLE,
    LOOKS_S,
    SAMPLED_ROWS,
    LookTime,
    SqlColumn,
    SqlTable,
    rounded,
    samples,
    schema_of,
    tables_as_json,
    tables_from_json,
)
from teola.sql.sqlite_catalogue import MOST_COST, describe_sqlite, plan_sqlite

LIMITS = LookupLimits(seconds=20.0)
HARBOUR = (
    "CREATE TABLE boats (id INTEGER, yard INTEGER, name TEXT, PRIMARY KEY (id, yard))",
    "CREATE TABLE berths (depth REAL, boat INTEGER, yard INTEGER, note TEXT, "
    "FOREIGN KEY (boat, yard) REFERENCES boats (id, yard))",
    "CREATE VIEW deep AS SELECT depth, note FROM berths WHERE depth > 2",
    "INSERT INTO boats VALUES (1, 7, 'Petrel'), (2, 7, 'Skua')",
    "INSERT INTO berths VALUES (2.5, 1, 7, NULL), (1.5, 2, 7, 'mud'), (2.5, 1, 7, 'mud')",
)
Describe = Callable[..., list[dict[str, Any]]]


def duck(path: Path, *statements: str) -> str:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return str(path)


def lite(path: Path, *statements: str) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return str(path)


KINDS = pytest.mark.parametrize(
    ("make", "describe"), [(lite, describe_sqlite), (duck, describe_duckdb)]
)


@KINDS
def test_tables_with_their_keys_samples_and_rows(
    make: Callable[..., str], describe: Describe, tmp_path: Path
) -> None:
    path = make(tmp_path / "harbour", *HARBOUR)
    berths, boats, deep = tables_from_json(describe(path, LIMITS, ["boats.name"]))
    assert [table.name for table in (berths, boats, deep)] == ["berths", "boats", "deep"]
    assert [column.key for column in boats.columns] == [True, True, False]
    assert [c.references for c in berths.columns] == ["", "boats.id", "boats.yard", ""]
    assert [c.samples for c in boats.columns] == [("1", "2"), ("7",), ()]
    assert [c.samples for c in berths.columns][::3] == [("2.5", "1.5"), ("mud",)]
    assert [c.samples for c in deep.columns] == [("2.5",), ("mud",)]
    assert [(t.rows, t.view, t.note) for t in (berths, boats, deep)] == [
        (3, False, ""),
        (2, False, ""),
        (None, True, ""),
    ]


@KINDS
def test_what_is_not_looked_into_has_columns_all_the_same(
    make: Callable[..., str], describe: Describe, tmp_path: Path
) -> None:
    path = make(tmp_path / "harbour", *HARBOUR, "CREATE TABLE none (a TEXT)")
    whole = tables_from_json(describe(path, LIMITS, []))
    shapes = tables_from_json(describe(path, LIMITS, [], sampled=False))
    assert [[(c.name, c.type, c.key) for c in t.columns] for t in shapes] == [
        [(c.name, c.type, c.key) for c in t.columns] for t in whole
    ]
    assert all(not column.samples for table in shapes for column in table.columns)
    assert make is duck or all(table.rows is None for table in shapes)
    (empty,) = [table for table in whole if table.name == "none"]
    assert (empty.rows, empty.columns[0].samples) == (0, ())


@KINDS
def test_a_view_that_fails_says_why_and_others_are_read(
    make: Callable[..., str], describe: Describe, tmp_path: Path
) -> None:
    broken = ("CREATE VIEW ago AS SELECT name FROM boats", "ALTER TABLE boats DROP COLUMN name")
    first = "CREATE TABLE boats (id INTEGER, name TEXT)"
    if make is lite:
        broken = ("CREATE VIEW ago AS SELECT name FROM nowhere", "SELECT 1")
    path = make(tmp_path / "harbour", first, *broken, "CREATE TABLE z (a TEXT)")
    ago, boats, z = describe(path, LIMITS, [])
    assert ("name" in ago["note"] or "nowhere" in ago["note"], "\n" in ago["note"]) == (True, False)
    assert (boats["note"], z["note"], boats["rows"]) == ("", "", 0)


def test_values_of_duckdb_are_shown_as_it_writes_them(tmp_path: Path) -> None:
    path = duck(
        tmp_path / "odd.duckdb",
        "CREATE TABLE t AS SELECT DATE 'infinity' AS day, INTERVAL 1 MONTH AS span, true AS yes, "
        "[1, NULL] AS list, {'x': NULL} AS struct, 'a\\x00'::BLOB AS bytes, "
        f"repeat('é', {LONGEST_SAMPLE + 1}) AS long, '-inf'::FLOAT AS least",
    )
    (table,) = describe_duckdb(path, LIMITS, [])
    assert [column["samples"] for column in table["columns"]] == [
        ["infinity"],
        ["1 month"],
        ["true"],
        ["[1, NULL]"],
        ["{'x': NULL}"],
        ["a\\x00"],
        ["é" * LONGEST_SAMPLE],
        ["-inf"],
    ]


def test_tables_of_other_schemas_are_called_with_them(tmp_path: Path) -> None:
    path = duck(
        tmp_path / "harbour.duckdb",
        "CREATE TABLE boats (id INTEGER)",
        "CREATE SCHEMA yard",
        "CREATE TABLE yard.boats (id INTEGER PRIMARY KEY, secret TEXT)",
        "INSERT INTO yard.boats VALUES (1, 'x')",
        f"COMMENT ON TABLE yard.boats IS '{'c' * 300}'",
        f"COMMENT ON COLUMN yard.boats.id IS '{'d' * 300}'",
    )
    plain, yard = tables_from_json(describe_duckdb(path, LIMITS, ["yard.boats.secret"]))
    assert (plain.name, yard.name) == ("boats", "yard.boats")
    assert [column.key for column in (*plain.columns, *yard.columns)] == [False, True, False]
    assert [column.samples for column in yard.columns] == [("1",), ()]
    assert (yard.comment, yard.columns[0].comment) == ("c" * 200, "d" * 200)


def test_tables_of_sqlites_own_are_not_told(tmp_path: Path) -> None:
    path = lite(
        tmp_path / "own.db",
        "CREATE TABLE a (id INTEGER PRIMARY KEY AUTOINCREMENT, b BLOB, c REFERENCES a)",
        "INSERT INTO a VALUES (1, x'00ff', NULL)",
        'CREATE TABLE "sqlitely" (a TEXT, b TEXT GENERATED ALWAYS AS (a || a))',
    )
    a, other = tables_from_json(describe_sqlite(path, LIMITS, []))
    assert (a.name, other.name) == ("a", "sqlitely")
    assert [column.name for column in other.columns] == ["a", "b"]
    assert (a.columns[1].samples, a.columns[2].references) == (("(2 bytes)",), "a")


def test_samples_are_the_first_that_differ() -> None:
    assert samples([None, "b", "a", "b", 3, "c"]) == ("b", "a", "3")
    assert samples([None, None]) == ()
    assert samples(["x" * LONGEST_SAMPLE, "x" * (LONGEST_SAMPLE + 1), ""]) == (
        "x" * LONGEST_SAMPLE,
        "",
    )


@KINDS
def test_samples_are_looked_for_in_the_first_rows(
    make: Callable[..., str], describe: Describe, tmp_path: Path
) -> None:
    nulls = ", ".join(["(NULL)"] * (SAMPLED_ROWS - 1))
    path = make(
        tmp_path / "late",
        "CREATE TABLE t (a TEXT)",
        f"INSERT INTO t VALUES {nulls}, ('last'), ('later')",
    )
    (table,) = describe(path, LIMITS, [])
    assert table["columns"][0]["samples"] == ["last"]


@pytest.mark.parametrize(
    ("rows", "told"),
    [(None, None), (0, 0), (9, 9), (10, 10), (14, 10), (16, 20), (96, 100), (123_456, 100_000)],
)
def test_rows_are_told_by_their_first_digit(rows: int | None, told: int | None) -> None:
    assert rounded(rows) == told


def test_half_of_the_time_is_for_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("teola.sql.sql_tables.monotonic", lambda: now[0])
    time = LookTime(10.0)
    assert (time.ends, time.left_s()) == (110.0, LOOKS_S)
    now[0] = 105.0 - LOOKS_S / 2
    assert time.left_s() == LOOKS_S / 2
    now[0] = 105.5
    assert time.left_s() == 0.0
    assert LookTime(10.0, sampled=False).left_s() == 0.0


def test_tables_come_back_from_json_as_they_were() -> None:
    column = SqlColumn("a", "INT", "about", True, "b.c", ("1", "2"))
    tables = (SqlTable("t", (column, SqlColumn("b", "")), 3, "c", True, "n"), SqlTable("u", ()))
    assert tables_from_json(tables_as_json(tables)) == tables


def test_a_schema_has_tables_with_and_without_its_own_name() -> None:
    tables = [
        SqlTable("boats", (SqlColumn("id", "INTEGER"), SqlColumn("kind", '"Kind"[]'))),
        SqlTable("yard.boats", (SqlColumn("id", "numeric(3,1)"),)),
    ]
    schema = schema_of(tables, ["boats.kind", "yard.boats.id"], "public")
    assert dict(schema.tables) == {
        "boats": ("id", "kind"),
        "yard.boats": ("id",),
        "public.boats": ("id", "kind"),
    }
    assert schema.private == {"boats.kind", "public.boats.kind", "yard.boats.id"}
    assert schema.types == {"INTEGER", "Kind", "numeric"}
    assert set(schema_of(tables, []).tables) == {"boats", "yard.boats"}
    for wrong in ("kind", "boats.depth", "yard.id", "yard.boats.kind"):
        with pytest.raises(InputError, match=r"write table\.column"):
            schema_of(tables, [wrong])


# --- costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "cost", "scans"),
    [
        ("SELECT * FROM berths", 3, ["berths"]),
        ("SELECT * FROM berths AS x JOIN boats y ON x.depth > y.yard", 6, ["berths", "boats"]),
        ("SELECT * FROM berths a, berths b", 9, ["berths"]),
        ("SELECT 1 FROM boats WHERE id = 1 AND yard = 7", 0, []),
        ("SELECT 1 FROM berths UNION ALL SELECT 1 FROM empty", 4, ["berths", "empty"]),
        ("SELECT 1", 1, []),
    ],
)
def test_sqlite_costs_rows_of_tables_that_are_read_as_a_whole(
    sql: str, cost: float, scans: list[str], tmp_path: Path
) -> None:
    path = lite(tmp_path / "harbour.db", *HARBOUR, "CREATE TABLE empty (a TEXT)")
    assert plan_sqlite(path, sql, LIMITS) == {"rows": None, "cost": cost, "scans": scans}


def test_a_cost_has_an_end(tmp_path: Path) -> None:
    path = lite(
        tmp_path / "wide.db",
        "CREATE TABLE t (a INTEGER)",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) "
        "INSERT INTO t SELECT i FROM n",
    )
    joined = ", ".join(f"t AS t{k}" for k in range(10))
    assert plan_sqlite(path, f"SELECT 1 FROM {joined}", LIMITS)["cost"] == MOST_COST


def test_duckdb_costs_rows_of_all_steps(tmp_path: Path) -> None:
    rows = "CREATE TABLE t AS SELECT range AS a FROM range(1000)"
    path = duck(tmp_path / "t.duckdb", rows, "CREATE SCHEMA s", "CREATE TABLE s.u AS FROM t")
    plain = plan_duckdb(path, "SELECT a FROM t", LIMITS)
    assert (plain["rows"], plain["scans"]) == (1000, ["t"])
    assert plain["cost"] >= 1000
    pairs = plan_duckdb(path, "SELECT 1 FROM t, s.u", LIMITS)
    assert pairs["scans"] == ["t", "u"]
    assert pairs["cost"] >= 1_000_000 > plain["cost"]
