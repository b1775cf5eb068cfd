"""Files that results are written to, and what stands beside them until they are whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from teola.errors import InputError
from teola.tables.written_files import OLD_S, PartFolder, checked_out, part_of, write_result


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        yield con


def test_a_result_can_be_written_where_a_file_may_be(tmp_path: Path) -> None:
    for name in ("o.csv", "o.PARQUET", "o.x.jsonl"):
        assert checked_out(tmp_path / name) == tmp_path / name
    (tmp_path / "taken.csv").mkdir()
    for wrong, why in (
        ("o.txt", r"must end in one of \.parquet, \.csv, \.jsonl"),
        ("csv", "must end in"),
        ("none/o.csv", "there is no folder"),
        ("taken.csv", "cannot be written"),
    ):
        with pytest.raises(InputError, match=why):
            checked_out(tmp_path / wrong)


def test_parts_are_numbered_and_those_without_rows_are_not_there(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    parts = PartFolder(tmp_path / "o.csv")
    parts.write(con, "SELECT 1 AS a WHERE false")
    assert list(parts.folder.iterdir()) == []
    for sql in ("SELECT 1 AS a", "SELECT 2 AS a WHERE false", "SELECT 3 AS a"):
        parts.write(con, sql)
    assert sorted(path.name for path in parts.folder.iterdir()) == ["001.csv", "002.csv"]
    assert (parts.folder / "002.csv").read_text() == "a\n3\n"
    assert parts.folder.name == f".o.csv.{os.getpid()}.rows"
    parts.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_there_once_it_is_whole(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text("before")
    with pytest.raises(InputError, match=r"o\.jsonl cannot be written: .*INT32"):
        write_result(con, "SELECT 'x'::INT AS a", path)
    assert [path.read_text(), *tmp_path.iterdir()] == ["before", path]
    assert write_result(con, "SELECT unnest([1, 2]) AS a", path) == 2
    assert path.read_text() == '{"a":1}\n{"a":2}\n'
    assert list(tmp_path.iterdir()) == [path]
    assert write_result(con, "SELECT 1 AS a WHERE false", path) == 0
    assert path.read_text() == ""


def test_what_killed_processes_left_of_a_file_goes_after_a_day(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """What others are at stays, and what belongs to files of other names."""
    path = tmp_path / "o[1].csv"
    old, new = tmp_path / ".o[1].csv.7.part", tmp_path / ".o[1].csv.8.part"
    rows, other = tmp_path / ".o[1].csv.7.rows", tmp_path / ".o1.csv.7.part"
    for left in (old, new, other):
        left.write_text("")
    rows.mkdir()
    (rows / "001.csv").write_text("")
    for left in (old, rows, other):
        os.utime(left, (0.0, time.time() - OLD_S - 60))
    os.utime(new, (0.0, time.time() - OLD_S + 60))
    assert write_result(con, "SELECT 1 AS a", path) == 1
    assert sorted(tmp_path.iterdir()) == sorted([path, new, other])
    assert part_of(path).name == f".o[1].csv.{os.getpid()}.part"
