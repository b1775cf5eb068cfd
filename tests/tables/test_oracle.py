"""Plans give DuckDB's own answer, with a plain function as the model."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest

from teola.tables.plan_builder import PASSES
from tests.tables.oracle import (
    FunctionAsker,
    connected,
    model,
    oracle_rows,
    planned_rows,
    same,
)
from tests.tables.random_queries import Writer, fill

QUERIES = [
    one.strip()
    for one in (Path(__file__).parent / "queries.sql").read_text().split(";\n")
    if one.strip()
]
CHUNK = 10


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = connected()
    con.execute(
        "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 7 = 0 THEN NULL ELSE 'w' || (i % 3) END a,"
        " 'b' || (i % 4) b, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 5 END n, i * 1.5::DOUBLE x"
        " FROM range(40) r(i)"
    )
    con.execute(
        "CREATE TABLE u AS SELECT i AS id, 'v' || (i % 2) c,"
        " CASE WHEN i % 3 = 0 THEN NULL ELSE 'b' || i END b FROM range(9) r(i)"
    )
    return con


def check(
    con: duckdb.DuckDBPyConnection, sql: str, passes: frozenset[str] = frozenset(PASSES)
) -> FunctionAsker:
    asker = FunctionAsker()
    wanted = oracle_rows(con, sql, ["t", "u"])
    got = planned_rows(con, sql, ["t", "u"], asker, passes)
    ordered = "ORDER BY" in sql.rsplit(")", 1)[-1]
    assert wanted == got if ordered else same(wanted, got), sql
    if "dedup" in passes:
        assert len(asker.prompts) == len(set(asker.prompts)), sql
    return asker


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(at, marks=pytest.mark.nightly if at % 40 else pytest.mark.slow)
        for at in range(0, len(QUERIES), CHUNK)
    ],
)
def test_queries(con: duckdb.DuckDBPyConnection, start: int) -> None:
    for sql in QUERIES[start : start + CHUNK]:
        check(con, sql)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_queries(seed: int) -> None:
    chance = Random(seed)
    con = connected()
    fill(con, chance)
    writer = Writer(chance)
    for _ in range(4):
        check(con, writer.query(), frozenset(p for p in PASSES if chance.random() < 0.7))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, LLM('k', a) FROM t WHERE n > 1 AND LLM('p', b) = 'Yes' ORDER BY id LIMIT 3",
        "SELECT n, count(*) FILTER (WHERE LLM('p', a, b) = 'Yes') AS c FROM t GROUP BY n",
        "SELECT t.id, u.c FROM t LEFT JOIN u ON t.id = u.id AND LLM('m', t.a, u.c) <> 'No'",
        "SELECT CASE WHEN n > 2 OR LLM('p', b) = 'No' THEN LLM('x', a) ELSE LLM('y', a) END FROM t",
        "SELECT id, LLM('x', rank() OVER v, b) FROM t WINDOW v AS (PARTITION BY a ORDER BY id), "
        "w AS (ORDER BY id) QUALIFY row_number() OVER w < 20 AND LLM('q', count(*) OVER v) <> 'x'",
    ],
)
@pytest.mark.parametrize("off", [None, "all"])
def test_passes_change_no_row(con: duckdb.DuckDBPyConnection, sql: str, off: str | None) -> None:
    check(con, sql, frozenset() if off else frozenset(PASSES))


def test_guards_ask_only_what_is_needed(con: duckdb.DuckDBPyConnection) -> None:
    asker = check(
        con, "SELECT CASE WHEN n = 1 THEN LLM('x', id) WHEN id < 5 THEN LLM('y', id) END FROM t"
    )
    wanted = [f"x\nid: {i}" for i in range(40) if i % 5 == 1]
    wanted += [f"y\nid: {i}" for i in range(5) if i % 5 != 1]
    assert sorted(asker.prompts) == sorted(wanted)


def test_cheap_conditions_come_first(con: duckdb.DuckDBPyConnection) -> None:
    asker = check(con, "SELECT id FROM t WHERE LLM('p', id) = 'Yes' AND n = 1 AND b = 'b1'")
    wanted = [i for i in range(40) if i % 5 == 1 and i % 4 == 1]
    assert sorted(asker.prompts) == sorted(f"p\nid: {i}" for i in wanted)


def test_a_limit_stops_early(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE OR REPLACE TABLE many AS SELECT i AS id FROM range(2000) r(i)")
    asker = FunctionAsker()
    sql = "SELECT id FROM many WHERE LLM('p', id) = 'Yes' ORDER BY id DESC LIMIT 2"
    got = planned_rows(con, sql, ["many"], asker)
    wanted = [i for i in range(1999, -1, -1) if model("p", [str(i)])[0] == "Yes"][:2]
    assert got == [(i,) for i in wanted]
    assert len(asker.prompts) < 100


def test_what_nobody_reads_is_not_asked(con: duckdb.DuckDBPyConnection) -> None:
    asker = check(con, "WITH q AS (SELECT LLM('never', a) k FROM t) SELECT LLM('x', n) FROM t")
    assert not [one for one in asker.prompts if one.startswith("never")]


def test_rows_keep_the_order_of_their_source(con: duckdb.DuckDBPyConnection) -> None:
    got = planned_rows(con, "SELECT id, LLM('x', b, a) FROM t WHERE LLM('y', a) <> 'q'", ["t"])
    ids = [row[0] for row in got]
    assert ids == sorted(ids)


def test_without_a_call_it_is_duckdb(con: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT n, list(id ORDER BY id DESC)[:2] FROM t GROUP BY n ORDER BY n NULLS FIRST"
    assert planned_rows(con, sql, ["t"]) == con.execute(sql).fetchall()
