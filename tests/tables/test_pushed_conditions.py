"""Conditions that go below the calls of a subquery, and those that would mean something else."""

from __future__ import annotations

import duckdb
import pytest

from teola.tables.plan_steps import Base
from teola.tables.planner import plan_text

K = "LLM('q', a) AS k"


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INTEGER, a VARCHAR, n INTEGER)")
    con.execute("CREATE TABLE u (id INTEGER, b VARCHAR)")
    return con


def pushed(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Conditions that a plan has moved. Each stands in the statement that makes the first table."""
    for table in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        if table[0].startswith("teola_"):
            con.execute(f"DROP TABLE {table[0]}")
    plan = plan_text(con, sql, ["t", "u"])
    moved = [one.what for one in plan.rewrites if "below the calls of a subquery" in one.reason]
    base = next(step for step in plan.steps if isinstance(step, Base))
    assert (" WHERE " in base.sql) == bool(moved)
    return moved


@pytest.mark.parametrize(
    ("sql", "moved"),
    [
        (f"SELECT * FROM (SELECT id, {K} FROM t) WHERE id = 1 AND k = 'x'", ["id = 1"]),
        (f"SELECT * FROM (SELECT id AS i, {K} FROM t) s WHERE (s.I > 1 AND i < 9)",
         ["s.I > 1", "i < 9"]),
        (f"SELECT * FROM (SELECT *, {K} FROM t) WHERE n = 1 AND id + n > 2",
         ["n = 1", "id + n > 2"]),
        (f"SELECT * FROM (SELECT n + 1 AS m, {K} FROM t WHERE id > 3) WHERE m = 1", ["m = 1"]),
        (f"SELECT s.k FROM (SELECT id, {K} FROM t) s CROSS JOIN u WHERE s.id = 1 AND u.id = 2",
         ["s.id = 1"]),
        (f"SELECT s.k FROM u, (SELECT id, {K} FROM t) s WHERE s.id = u.id AND s.id = 7",
         ["s.id = 7"]),
    ],
)  # fmt: skip
def test_a_condition_over_columns_of_a_subquery_goes_into_it(
    con: duckdb.DuckDBPyConnection, sql: str, moved: list[str]
) -> None:
    assert pushed(con, sql) == moved


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM (SELECT id, {K} FROM t) WHERE k = 'x'",
        f"SELECT * FROM (SELECT id, {K} FROM t) WHERE id = 1 OR k = 'x'",
        f"SELECT * FROM (SELECT id, {K} FROM t) WHERE 1 = 2",
        # Rows of the subquery are not those of its FROM.
        f"SELECT * FROM (SELECT id, {K} FROM t LIMIT 3) WHERE id = 1",
        f"SELECT * FROM (SELECT id, {K} FROM t OFFSET 3) WHERE id = 1",
        f"SELECT * FROM (SELECT DISTINCT id, {K} FROM t) WHERE id = 1",
        "SELECT * FROM (SELECT id, max(LLM('q', a)) AS k FROM t GROUP BY id) WHERE id = 1",
        f"SELECT * FROM (SELECT id, row_number() OVER () AS r, {K} FROM t) WHERE id = 1",
        f"SELECT * FROM (SELECT id, unnest([1, 2]) AS r, {K} FROM t) WHERE id = 1",
        f"SELECT * FROM (SELECT id, {K} FROM t QUALIFY row_number() OVER () = 1) WHERE id = 1",
        # The name is another column's, or perhaps.
        f"SELECT * FROM (SELECT *, n + 1 AS id, {K} FROM t) WHERE id = 1",
        f"SELECT * FROM (SELECT * EXCLUDE (id), n AS id, {K} FROM t) WHERE id = 1",
        f"SELECT * FROM (SELECT id AS x, n AS X, {K} FROM t) WHERE x = 1",
        f"SELECT * FROM (SELECT id, n, {K} FROM t) AS s (n, id) WHERE id = 1",
        f"SELECT s.k FROM (SELECT id, {K} FROM t) s CROSS JOIN u WHERE u.id = 1",
        f"SELECT s.k FROM (SELECT id, {K} FROM t) s JOIN u USING (id) WHERE id = 1",
        "SELECT * FROM (SELECT x.*, y.*, LLM('q', x.a) AS k FROM t x, t y) WHERE id = 1",
        # It has another value elsewhere.
        f"SELECT * FROM (SELECT id, {K} FROM t) WHERE id > random()",
        f"SELECT * FROM (SELECT id, {K} FROM t) WHERE id IN (SELECT id FROM u)",
        f"SELECT * FROM (SELECT id, {K} FROM t) WHERE list_filter([id], lambda x: x > 1) = []",
        # Rows without a partner stay.
        f"SELECT s.k FROM (SELECT id, {K} FROM t) s LEFT JOIN u ON s.id = u.id WHERE s.id = 1",
        f"SELECT s.k FROM u LEFT JOIN (SELECT id, {K} FROM t) s ON s.id = u.id WHERE s.id = 1",
    ],
)
def test_other_conditions_stay_where_they_are(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert pushed(con, sql) == []


def test_one_that_does_not_bind_takes_no_other_one_back(con: duckdb.DuckDBPyConnection) -> None:
    """`id` is of both tables in there, and the first of them further out."""
    inner = "SELECT *, LLM('q', a) AS k FROM t x JOIN u y ON x.id = y.id"
    for conditions in ("n = 1 AND id = 2 AND b = 'z'", "id = 2 AND n = 1 AND b = 'z'"):
        assert pushed(con, f"SELECT k FROM ({inner}) WHERE {conditions}") == ["n = 1", "b = 'z'"]
    assert pushed(con, f"SELECT k FROM ({inner}) WHERE n = 1 AND id = 2") == ["n = 1"]
