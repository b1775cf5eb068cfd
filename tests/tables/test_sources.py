"""Tables from files, frames and databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teola import tables
from teola.errors import InputError

FRAME = {"id": [1, 2, 3], "a": ["x", None, 'y, "z"\n']}
ROWS = [(1, "x"), (2, None), (3, 'y, "z"\n')]


def test_kinds(tmp_path: Path) -> None:
    table = pa.table(FRAME)
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text('id,a\r\n1,x\r\n2,\r\n3,"y, ""z""\n"\r\n', newline="")
    (tmp_path / "t.jsonl").write_text(
        '{"id": 1, "a": "x"}\n{"id": 2, "a": null}\n{"id": 3, "a": "y, \\"z\\"\\n"}\n'
    )
    with duckdb.connect(str(tmp_path / "t.duckdb")) as con:
        con.register("given", table)
        con.execute("CREATE TABLE mine AS SELECT * FROM given")
    db = sqlite3.connect(tmp_path / "t.sqlite")
    db.execute("CREATE TABLE mine (id INTEGER, a TEXT)")
    db.executemany("INSERT INTO mine VALUES (?, ?)", ROWS)
    db.commit()
    db.close()
    for name in ("t.parquet", "t.csv", "t.jsonl", "t.duckdb::mine", "t.sqlite::mine"):
        made = tables.sql("SELECT id, a FROM t ORDER BY id", {"t": str(tmp_path / name)})
        assert made.run().rows == ROWS, name
    assert tables.read(tmp_path / "t.duckdb", "mine").run().rows == ROWS
    for value in (pd.DataFrame(FRAME), table, table.to_reader()):
        assert tables.sql("SELECT id, a FROM t ORDER BY id", {"t": value}).run().rows == ROWS


def test_a_column_of_a_csv_stays_text_where_a_value_would_not_print_as_it_stands(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "zip,mixed,n,x,day,yes,empty\n06902,45249,1,1.5,2026-01-02,true,\n"
        '10001,45249.0,-2,2.25,2026-01-03,false,""\n'
    )
    assert [(c.name, c.type) for c in tables.read(path).columns] == [
        ("zip", "VARCHAR"),
        ("mixed", "VARCHAR"),
        ("n", "BIGINT"),
        ("x", "DOUBLE"),
        ("day", "DATE"),
        ("yes", "BOOLEAN"),
        ("empty", "VARCHAR"),
    ]
    rows = tables.read(path).run().rows
    assert rows[0][0] == "06902"
    assert [row[-1] for row in rows] == [None, ""]


def test_a_quote_that_comes_late(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    plain = "".join(f"{at},text\n" for at in range(30_000))
    path.write_text(f'id,a\n{plain}30000,"one, two"\n')
    rows = tables.sql("SELECT a FROM t WHERE id = 30000", {"t": path}).run().rows
    assert rows == [("one, two",)]


@pytest.mark.parametrize(
    "content",
    [b"\x00\xff", b"a,b\n1,2,3\n", b"a,a\n1,2\n", b"a,\n1,2\n", b"", b'a,b\n"x,2\n'],
)
def test_a_csv_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"t\.csv"):
        tables.read(path).run()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t.xlsx", "what kind"),
        ("none.csv", "no file"),
        ("t.sqlite", "which table"),
        ("postgresql://h/db", "which table"),
    ],
)
def test_wrong_names(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "t.sqlite").write_bytes(b"")
    where: Any = name if "://" in name else tmp_path / name
    with pytest.raises(InputError, match=said):
        tables.read(where)
