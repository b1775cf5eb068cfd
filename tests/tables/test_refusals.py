"""What cannot be planned is refused before anything is asked, with its place."""

from __future__ import annotations

import duckdb
import pytest

from teola.errors import InputError, UnknownName
from teola.tables.planner import plan_text


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INTEGER, a VARCHAR, l VARCHAR[])")
    con.execute("CREATE TABLE u (id INTEGER, c VARCHAR)")
    return con


REFUSED = [
    (
        "SELECT id FROM t\nWHERE EXISTS (SELECT 1 FROM u\n WHERE LLM('x', t.a) = c)",
        "correlated.*line 3, column 8",
    ),
    ("SELECT LLM('x', now()) FROM t", r"now\(\)"),
    ("SELECT LLM('x', a) FROM t GROUP BY id", "GROUP BY"),
    ("", "empty"),
    ("DROP TABLE t", "DROP is no query"),
    ("COPY t TO 'x.csv'", "COPY is no query"),
    ("SELECT * FROM (SELECT * FROM read_text('/etc/passwd'))", "read_text"),
    ("SELECT * FROM query('SELECT 1')", "query"),
    ("SELECT * FROM duckdb_settings()", "duckdb_settings"),
]
"""Beside those of docs/sql-reference.md, which tests/docs/test_sql_reference.py runs."""


@pytest.mark.parametrize(("sql", "said"), REFUSED)
def test_refused(con: duckdb.DuckDBPyConnection, sql: str, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        plan_text(con, sql, ["t", "u"])


def test_tables_are_listed(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnknownName, match="valid: t, u"):
        plan_text(con, "SELECT 1 FROM tt", ["t", "u"])


def test_without_tables_it_says_how_to_give_one(con: duckdb.DuckDBPyConnection) -> None:
    for name in ("reviews", "reviews.csv"):
        with pytest.raises(InputError, match=f"'{name}' was not given.*--table NAME=FILE"):
            plan_text(con, f"SELECT LLM('x', a) FROM {name}", [])
