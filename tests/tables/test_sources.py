"""Tables from files, frames and databases."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teola import tables
from teola.errors import InputError
from teola.tables.copied_rows import copy_rows
from teola.tables.sources import source_of
from teola.tables.workspace import Workspace, _sweep

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


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ([None, None, "06902"], [None, None, "06902"]),
        ([1, 2, 1.5], [1.0, 2.0, 1.5]),
        ([1.5, 2.5, 1, None], [1.5, 2.5, 1.0, None]),
        ([Decimal("1.25"), Decimal(2), Decimal("1.2345")], [Decimal("1.25"), 2, Decimal("1.2345")]),
        ([[], [], [7]], [[], [], [7]]),
    ],
)
def test_later_rows_of_a_database_change_no_value(values: list[Any], right: list[Any]) -> None:
    with duckdb.connect() as con:
        copy_rows(con, "t", ["a"], ([(one,)] for one in values))
        assert [row[0] for row in con.execute("SELECT a FROM t").fetchall()] == right


@pytest.mark.parametrize("values", [["x", b"x"], [b"x", None, "x"]])
def test_texts_beside_bytes_are_no_bytes(values: list[Any]) -> None:
    with duckdb.connect() as con, pytest.raises(InputError, match="several types"):
        copy_rows(con, "t", ["a"], iter([[(value,) for value in values]]))


@pytest.mark.parametrize("values", [[1, "x"], ["06902", 6902], [2**60, 1.5], [1.5, 2**60]])
def test_a_column_of_several_types_is_an_error(values: list[Any], tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "t.sqlite")
    db.execute("CREATE TABLE mine (a)")
    db.executemany("INSERT INTO mine VALUES (?)", [(values[0],)] * 10_000 + [(values[1],)])
    db.commit()
    db.close()
    with pytest.raises(InputError, match="several types"):
        tables.read(tmp_path / "t.sqlite", "mine").run()


def test_a_frame_may_have_a_column_that_is_called_like_a_method() -> None:
    frame = pd.DataFrame({"register": [1, 2], "columns": ["x", "y"]})
    assert tables.sql("FROM t", {"t": frame}).run().rows == [(1, "x"), (2, "y")]


def test_numbers_of_a_frames_rows_are_no_column() -> None:
    """An index that has a name is a column."""
    frame = pd.DataFrame({"a": ["x", "y", "z"], "n": [3, 2, 1]})
    for part in (frame[frame.n < 3], frame.sort_values("n")[:2], frame.iloc[1:]):
        made = tables.sql("SELECT * FROM t ORDER BY a", {"t": part})
        assert made.run().rows == [("y", 2), ("z", 1)]
        assert [column.name for column in tables.table(part).columns] == ["a", "n"]
    named = tables.table(frame.set_index("a"))
    assert [column.name for column in named.columns] == ["n", "a"]
    own = pa.table({"__index_level_0__": [1]})
    assert tables.sql("FROM t", {"t": own}).run().rows == [(1,)]
    with pytest.raises(InputError, match=r"'t' cannot be read: .* at least one column"):
        tables.sql("FROM t", {"t": pd.DataFrame(index=["x", "y"])}).run()


def test_a_stream_can_be_read_as_often_as_it_takes() -> None:
    t = tables.table(pa.table(FRAME).to_reader())
    made = t.filter(t.id < 3).select("id")
    assert made.explain().stages == ()
    assert made.run().rows == made.run().rows == [(1,), (2,)]


def test_two_tables_have_two_names() -> None:
    one, other = (tables.table(pa.table({"id": [at]}), name="r") for at in (1, 2))
    with pytest.raises(InputError, match="two tables are called 'r'"):
        one.join(other, "id")
    assert one.join(one.select("id"), "id").run().rows == [(1,)]


def test_where_a_table_of_a_database_is(tmp_path: Path) -> None:
    found: Any = source_of("postgresql://user@[::1]/db::sales.orders")
    assert (found.dsn, found.table) == ("postgresql://user@[::1]/db", "sales.orders")
    with pytest.raises(InputError, match="which table"):
        source_of("postgresql://user@[::1]/db")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as con:
        con.execute("CREATE SCHEMA s; CREATE TABLE s.mine AS SELECT 7 AS a")
    assert tables.read(f"{tmp_path}/t.duckdb::s.mine").run().rows == [(7,)]


def test_what_killed_processes_left_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, own = tmp_path / "teola-tables-4194305-x", tmp_path / f"teola-tables-{os.getpid()}-y"
    for one in (dead, own):
        one.mkdir()
    _sweep.cache_clear()
    with Workspace({}):
        assert (dead.exists(), own.exists()) == (False, True)


def test_a_quote_that_comes_late(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    plain = "".join(f"{at},text\n" for at in range(30_000))
    path.write_text(f'id,a\n{plain}30000,"one, two"\n')
    rows = tables.sql("SELECT a FROM t WHERE id = 30000", {"t": path}).run().rows
    assert rows == [("one, two",)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x00\xff", ""),
        (b"a,b\n1,2\n1,2,3\n", ": line 3: Expected Number of Columns: 2 Found: 3$"),
        (b"a,a\n1,2\n", ""),
        (b"a,\n1,2\n", ""),
        (b"", ""),
        (b'a,b\n1,2\n"x,2\n' + 9 * b"3,4\n", ": line 3: Value with unterminated quote found.$"),
        (b"a,b\n1,\xff\n", " is no CSV: .* byte 0xff in position 6"),
    ],
)
def test_a_csv_that_is_none(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"t\.csv.*{why}"):
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
