"""Statements from a grammar, and mutations of them: no row tells what may not be read.

Every table but `berths` has a canary in each value. What the filter lets through runs on the file
without the database's own check of names, so that the filter alone is tested.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teola.errors import ToolError
from teola.sql.select_only import _filtered, select_only
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_schema import Schema
from teola.sql.sqlite_reader import read_sqlite
from tests.planted import catches, edited

CANARY = 424242
SCHEMA = Schema.of({"berths": ["id", "pay"]})
LIMITS = LookupLimits(rows=20, seconds=1.0)
NAMES = ("berths", "salaries", "secrets", "Salaries", '"salaries"', "[secrets]", "main.secrets")
MUTATIONS = (
    ("SELECT", "select/**/"),
    ("(", "("),
    (" FROM ", " FROM main."),
    (" AS x", ""),
    ("berths", "salaries"),
    ("pay", "(SELECT pay FROM secrets)"),
    ("WITH ", "WITH RECURSIVE "),
    (" IN (SELECT pay FROM ", " IN "),
    ("1", "(VALUES ((SELECT max(pay) FROM salaries)))"),
    ("'", '"'),
)

names = st.sampled_from(NAMES)


def _selects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger queries of smaller ones."""
    return st.one_of(
        st.builds("SELECT * FROM ({}) AS x".format, inner),
        st.builds("SELECT pay FROM {} WHERE EXISTS ({})".format, names, inner),
        st.builds("SELECT pay FROM {} WHERE pay IN ({})".format, names, inner),
        st.builds("SELECT ({}) AS pay FROM {}".format, inner, names),
        st.builds("{} UNION ALL {}".format, inner, inner),
        st.builds("WITH {} AS ({}) SELECT * FROM {}".format, names, inner, names),
        st.builds("WITH x AS ({}), {} AS ({}) SELECT * FROM x".format, inner, names, inner),
        st.builds("SELECT * FROM {}, (WITH {} AS ({}) SELECT 1) y".format, names, names, inner),
        st.builds("SELECT * FROM {} a JOIN ({}) b ON 1 = 1".format, names, inner),
    )


queries = st.recursive(
    st.one_of(
        st.builds("SELECT * FROM {}".format, names),
        st.builds("SELECT pay FROM {} AS x".format, names),
        st.builds("SELECT max(pay) AS pay FROM {}".format, names),
        st.just("VALUES (1)"),
    ),
    _selects,
    max_leaves=5,
)
mutated = st.builds(
    lambda sql, changes: [sql := sql.replace(*change) for change in changes][-1:] or [sql],
    queries,
    st.lists(st.sampled_from(MUTATIONS), max_size=2),
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generated") / "guarded.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, pay in (("berths", 7), ("salaries", CANARY), ("secrets", CANARY)):
            connection.execute(f"CREATE TABLE {table} (id INTEGER, pay INTEGER)")
            connection.execute(f"INSERT INTO {table} VALUES ({pay}, {pay})")
    return path


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    _filtered.cache_clear()
    yield
    _filtered.cache_clear()


@catches(
    "scopes-lost",
    "any part of WITH hides a table anywhere",
    edited(
        "teola.sql.statement_checks:_Checks._table",
        "visible_parts(table)",
        "table.root().find_all(exp.CTE)",
    ),
)
@example(["SELECT * FROM salaries, (WITH salaries AS (SELECT 1) SELECT 1) y"])
@settings(max_examples=150)
@given(mutated)
def test_no_generated_statement_tells_a_canary(guarded: Path, texts: list[str]) -> None:
    for text in texts:
        try:
            sql = select_only(text, "sqlite", SCHEMA)
            rows = read_sqlite(str(guarded), sql, LIMITS, None).rows
        except ToolError:
            continue
        assert str(CANARY) not in str(rows), text
