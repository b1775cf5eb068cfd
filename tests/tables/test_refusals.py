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
        "SELECT (SELECT LLM('x', c) FROM u WHERE u.id = t.id) FROM t",
        "correlated.*line 1, column 16",
    ),
    (
        "SELECT id FROM t\nWHERE EXISTS (SELECT 1 FROM u\n WHERE LLM('x', t.a) = c)",
        "line 3, column 8",
    ),
    (
        "WITH RECURSIVE r AS (SELECT 1 i UNION SELECT LLM('x', i, type := 'INTEGER') FROM r) "
        "SELECT * FROM r",
        "recursive",
    ),
    ("SELECT t.id FROM t FULL JOIN u ON LLM('x', a, c) = 'y'", "FULL.*line 1, column 35"),
    ("SELECT LLM(a) FROM t", "instruction.*line 1, column 8"),
    ("SELECT LLM('a' || 'b', a) FROM t", "instruction"),
    ("SELECT LLM('x', random()) FROM t", r"random\(\)"),
    ("SELECT LLM('x', now()) FROM t", r"now\(\)"),
    ("SELECT LLM('x', a, choises := ['y']) FROM t", "no option 'choises'; did you mean 'choices'"),
    ("SELECT LLM('x', a, choices := 'y') FROM t", "choices must be a list.*line 1, column 8"),
    ("SELECT LLM('x', a, choices := ['y'], pattern := 'z') FROM t", "one of choices, pattern"),
    ("SELECT LLM('x', a, choices := [a]) FROM t", "no constant"),
    ("SELECT LLM('x', a, pattern := '(') FROM t", "no regular expression"),
    ("SELECT LLM('x', a, schema := '{') FROM t", "schema is no JSON"),
    ("SELECT LLM('x', a, type := 'NUMBERS') FROM t", "no type 'NUMBERS'.*line 1, column 8"),
    ("SELECT LLM('x', a, max_tokens := 0) FROM t", "max_tokens"),
    ("SELECT sum(LLM('x', a)) FROM t", "type := 'INTEGER'"),
    ("SELECT LLM('x', b) FROM t", '"b" not found'),
    ("SELECT LLM('x', a) FROM nowhere", "unknown table 'nowhere'"),
    ("SELECT LLM('x', a) FROM t GROUP BY id", "GROUP BY"),
    ("SELECT 1; SELECT 2", "one SELECT"),
    ("SELECT FROM WHERE", "no SQL"),
    ("", "empty"),
    ("DROP TABLE t", "DROP is no query"),
    ("ATTACH 'x.db'", "ATTACH is no query"),
    ("COPY t TO 'x.csv'", "COPY is no query"),
    ("INSERT INTO t VALUES (1)", "INSERT is no query"),
    ("SELECT * FROM read_csv('x.csv')", r"read_csv\(\).*--table.*"),
    ("SELECT * FROM 'x.parquet'", "is a file"),
    ("SELECT * FROM (SELECT * FROM read_text('/etc/passwd'))", "read_text"),
    ("SELECT * FROM query('SELECT 1')", "query"),
    ("SELECT * FROM duckdb_settings()", "duckdb_settings"),
    ("SELECT list_transform(l, x -> LLM('q', x)) FROM t", "list"),
    ("SELECT LLM('x', unnest(l)) FROM t", "makes rows"),
    ("SELECT teola_llm(0, a) FROM t", "no function teola_llm"),
    ("SELECT id FROM t UNION SELECT id FROM u ORDER BY LLM('x', id)", "UNION"),
]


@pytest.mark.parametrize(("sql", "said"), REFUSED)
def test_refused(con: duckdb.DuckDBPyConnection, sql: str, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        plan_text(con, sql, ["t", "u"])


def test_tables_are_listed(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UnknownName, match="valid: t, u"):
        plan_text(con, "SELECT 1 FROM tt", ["t", "u"])
