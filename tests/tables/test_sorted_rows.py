"""Rows in order, and what a query holds in memory, beside how much there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from teola import tables
from teola.tables import sorted_rows
from teola.tables.sorted_rows import SortedRows
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker

ROWS = "SELECT md5(r::VARCHAR) AS key, concat({text}) AS text, r AS opens FROM range({count}) t(r)"
TEXTS = {
    "distinct": "hash(r)",
    "one beginning": "repeat('a', 500), hash(r)",
    "all equal": "'same'",
    "few": "r % 3",
    "lengths": "r, repeat('x', r::INTEGER % 400)",
}


def made(con: duckdb.DuckDBPyConnection, rows: SortedRows, size: int = 100) -> list[str]:
    return [key for batch in rows.batches(con, size) for key in batch.column(0).to_pylist()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("order", [("text", "key"), ("key",)])
def test_parts_follow_each_other_in_order(
    text: str, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_rows, "PART", 2000)  # several levels of parts
    with duckdb.connect() as con:
        rows = SortedRows(ROWS.format(text=TEXTS[text], count=3000), order)
        wanted = [key for key, *_ in con.execute(rows.sorted_sql).fetchall()]
        assert made(con, rows) == wanted
        assert con.execute("SHOW TABLES").fetchall() == []


def test_without_rows_there_is_nothing() -> None:
    with duckdb.connect() as con:
        assert made(con, SortedRows(ROWS.format(text="r", count=0), ("text", "key"))) == []


@catches(
    "sorted-whole",
    "all rows to ask are sorted at once, in memory",
    edited(
        SortedRows.batches,
        'yield from self._read(con, f"({self.sql})", ROWS, size)',
        "yield from con.sql(self.sorted_sql).to_arrow_reader(size)",
    ),
)
def test_rows_may_be_larger_than_memory(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "t.duckdb")) as con:
        con.execute("SET memory_limit = '64MB'")
        con.execute("SET threads = 1")
        rows = SortedRows(
            ROWS.format(text="hash(r), repeat('a', 1000)", count=150_000), ("text", "key")
        )
        with pytest.raises(duckdb.OutOfMemoryException):
            con.execute(rows.sorted_sql).fetchone()
        keys = made(con, rows, 2048)
        assert len(set(keys)) == 150_000


PEAK = """
import sys
from pathlib import Path
from tests.tables.oracle import FunctionAsker
from teola import tables
file, count = sys.argv[1], int(sys.argv[2])
asker = FunctionAsker(lambda instruction, values: ("Yes", None), 64)
asker.prompts = type("Nothing", (), {"append": lambda self, text: None})()
done = tables.sql("SELECT id, LLM('q', a, b) FROM t", {"t": file}, ask_rows=asker).run(
    answers=Path(file).with_suffix(".duckdb"), memory="96MB"
)
assert done.row_count == count and done.report["stages"][0]["asked"] == count
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
"""


def peak(folder: Path, count: int) -> int:
    """Bytes that a query over rows of 1 KB had at most."""
    file = folder / f"{count}.jsonl"
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT r AS id, repeat(md5((r % 200)::VARCHAR), 30) AS a, 'row ' || r AS b "
            f"FROM range({count}) t(r)) TO '{file}' (FORMAT json)"
        )
    words = [sys.executable, "-c", PEAK, str(file), str(count)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return int(ran.stdout.split()[-1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells its peak on Linux only")
def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    """Beside DuckDB's, which has a limit that both have reached."""
    few, many = 60_000, 120_000
    grown = peak(tmp_path, many) - peak(tmp_path, few)
    assert grown / (many - few) < 1000, "bytes a row: less than one row has"


@pytest.mark.nightly
def test_a_query_over_more_text_than_memory_ends(tmp_path: Path) -> None:
    """300 MB, and 256 MB by default."""
    file, count = tmp_path / "rows.parquet", 300_000
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT r AS id, repeat(md5(r::VARCHAR), 32) AS a "
            f"FROM range({count}) t(r)) TO '{file}' (FORMAT parquet)"
        )
    asker = FunctionAsker(lambda instruction, values: (values[0][:8], None), 64)
    done = tables.sql("SELECT id, LLM('q', a) AS b FROM t", {"t": str(file)}, ask_rows=asker).run(
        check=False, out=tmp_path / "out.parquet"
    )
    assert (done.state, done.row_count) == ("ok", count), done.cause
