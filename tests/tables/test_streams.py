"""Rows of a result come while others are asked, each once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from teola import tables
from teola.errors import QueryFailed
from teola.tables.result_stream import ResultStream
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker

T = pa.table({"a": [at % 60 for at in range(100)], "b": [f"b{at % 7}" for at in range(100)]})


class Halfway:
    """A function that answers so many rows at once, and the others when it is let go on."""

    def __init__(self, at_once: int = 30) -> None:
        self.left, self.go_on = at_once, threading.Event()

    def __call__(self, instruction: str, values: list[str]) -> tuple[str | None, str | None]:
        self.left -= 1
        if self.left < 0:
            assert self.go_on.wait(30)
        return ("yes" if int(values[0]) % 3 else "no"), None


def plain(instruction: str, values: list[str]) -> tuple[str, None]:
    return ("yes" if int(values[0]) % 3 else "no"), None


def counted(rows: Any) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in rows)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, LLM('q', a) AS k, b FROM t",
        "SELECT a, upper(b) AS u FROM t WHERE b <> 'b0' AND LLM('q', a) = 'yes'",
        "SELECT s.k, CASE WHEN s.a > 50 THEN 'big' ELSE s.k END AS j, s.a FROM "
        "(SELECT a, LLM('q', a) AS k FROM t) AS s",
    ],
)
@catches(
    "rows-come-again",
    "rows that have come are given once more at the end",
    edited(ResultStream.look, "INSERT INTO {OUT} SELECT {ROW} FROM {FRESH}", "SELECT 1"),
)
def test_batches_come_while_others_are_asked(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teola.tables.result_stream.LEAST_S", 0.0)
    slow = Halfway()
    made = tables.sql(sql, {"t": T}, answers=False)
    run = made.run(wait=False, ask_rows=FunctionAsker(slow, 5), passes="dedup,sort,predicates")
    reader = run.reader(8)
    first = reader.read_next_batch()
    assert run.running
    assert 0 < first.num_rows <= 8
    slow.go_on.set()
    rows = [*first.to_pylist(), *(row for batch in reader for row in batch.to_pylist())]
    done = run.wait()
    whole = made.run(ask_rows=FunctionAsker(plain))
    assert counted(rows) == counted(whole.arrow().to_pylist())
    assert done.rows == whole.rows  # in the order of the source


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM (SELECT LLM('q', a) AS k FROM t) AS s WHERE k = 'no'",
        "SELECT a, LLM('q', a) AS k FROM t ORDER BY a DESC",
        "SELECT a, LLM('q', a) AS k FROM t LIMIT 5",
        "SELECT a FROM t WHERE a NOT IN (SELECT a FROM t WHERE LLM('q', a) = 'no')",
        "SELECT a, b FROM t WHERE a < 3",
    ],
)
def test_what_does_not_stand_for_itself_comes_at_the_end(sql: str) -> None:
    made = tables.sql(sql, {"t": T}, answers=False, ask_rows=FunctionAsker(plain))
    run = made.run(wait=False)
    read = run.reader().read_all()
    assert read.to_pylist() == made.run().arrow().to_pylist()
    assert run.wait().row_count == read.num_rows


def test_columns_of_one_name_are_told_apart_in_batches() -> None:
    made = tables.sql(
        "SELECT a, b AS a, LLM('q', a) AS a FROM t",
        {"t": T.slice(0, 3)},
        ask_rows=FunctionAsker(plain),
        answers=False,
    )
    running = made.run(wait=False)
    whole = running.reader().read_all()
    assert whole.column_names == running.wait().arrow().column_names == ["a", "a_1", "a_2"]
    assert list(zip(*whole.to_pydict().values(), strict=True)) == running.wait().rows
    assert [column.name for column in running.wait().columns] == ["a", "a", "a"]


def test_half_of_a_count_over_a_subquery_is_none() -> None:
    sql = "SELECT count(*) AS n FROM (SELECT LLM('q', a) AS k FROM t) AS s"
    made = tables.sql(sql, {"t": T}, answers=False, ask_rows=FunctionAsker(plain))
    done = made.run(most_calls=7)
    assert (done.state, done.rows) == ("partial", [])


def test_a_reader_gives_what_came_and_then_the_error() -> None:
    made = tables.sql(
        "SELECT CAST(LLM('q', a) AS INTEGER) AS k FROM t",
        {"t": T},
        answers=False,
        ask_rows=FunctionAsker(lambda i, v: ("7" if int(v[0]) < 40 else "x", None)),
    )
    run = made.run(wait=False)
    with pytest.raises(QueryFailed, match="Could not convert string 'x'"):
        run.reader().read_all()
    with pytest.raises(QueryFailed):
        run.wait()
    made = tables.sql("SELECT a, LLM('q', a) AS k FROM t", {"t": T}, answers=False)
    stopped = made.run(wait=False, most_calls=9, check=False, ask_rows=FunctionAsker(plain))
    assert stopped.reader().read_all().num_rows == stopped.wait().row_count > 8
    assert stopped.wait().state == "partial"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_rows_of_a_file_stand_beside_it_until_it_is_whole(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teola.tables.result_stream.LEAST_S", 0.0)
    slow = Halfway()
    out = tmp_path / f"o{suffix}"
    made = tables.sql("SELECT a, LLM('q', a) AS k FROM t", {"t": T}, answers=False)
    run = made.run(wait=False, out=out, ask_rows=FunctionAsker(slow, 5))
    run.reader().read_next_batch()
    (folder,) = tmp_path.iterdir()
    parts = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    assert folder.name.startswith(f".{out.name}.")
    came = [row for one in parts for row in tables.read(one).run().arrow().to_pylist()]
    assert 0 < len(came) < 100
    assert all(row["k"] == plain("q", [row["a"]])[0] for row in came)
    slow.go_on.set()
    assert run.wait().row_count == 100
    assert list(tmp_path.iterdir()) == [out]
