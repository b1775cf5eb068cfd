"""What ends a query, and what is left of it then."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teola import tables
from teola.errors import DeadlineExceeded, InputError, QueryCancelled, QueryFailed, UnknownName
from teola.tables.run_limits import RunLimits, Spent
from tests.tables.oracle import FunctionAsker

SQL = "SELECT a, LLM('q', a) AS k, LLM_ERROR('q', a) AS e FROM t"


def bad(instruction: str, values: list[str]) -> tuple[str | None, str | None]:
    return (None, "it fails always") if int(values[0]) % 10 == 3 else (f"v{values[0]}", None)


def query(count: int = 20, sql: str = SQL, function: Any = bad, batch: int = 3) -> Any:
    asker = FunctionAsker(function, batch)
    made = tables.sql(
        sql, {"t": pa.table({"a": list(range(count))})}, ask_rows=asker, answers=False
    )
    return asker, made


def test_a_failed_row_is_a_row_with_an_error() -> None:
    _, made = query()
    done = made.run()
    assert done.state == "partial"
    assert [row for row in done.rows if row[1] is None] == [
        (3, None, "it fails always"),
        (13, None, "it fails always"),
    ]
    assert (done.report["failed"], done.row_count) == (2, 20)
    (error,) = done.report["errors"]
    assert (error["error"], error["rows"], error["example"]) == ("it fails always", 2, "a: 13")


def test_errors_end_it_where_they_are_to() -> None:
    _, made = query()
    with pytest.raises(QueryFailed, match="a row failed: it fails always"):
        made.run(on_error="fail")
    with pytest.raises(QueryFailed, match="max_errors allows 1") as raised:
        made.run(max_errors=1)
    assert raised.value.result.state == "failed"
    assert made.run(max_errors=0.1).state == "partial"
    assert made.run(max_errors=2).state == "partial"


@pytest.mark.parametrize(
    ("limits", "least", "most"),
    [
        ({"most_calls": 7}, 7, 7),
        ({"most_calls": 0}, 0, 0),
        ({"most_tokens": 600}, 1, 3),
        ({"most_cost": 0.001, "price": "1,0.1,2"}, 1, 3),
    ],
)
def test_budgets_are_never_passed(limits: dict[str, Any], least: int, most: int) -> None:
    asker, made = query(200)
    done = made.run(**limits)
    assert done.state == "partial"
    assert least <= len(asker.prompts) <= most
    assert done.row_count == len(asker.prompts)
    assert next(iter(limits)) in done.reason


def test_half_an_aggregate_is_none() -> None:
    _, made = query(50, "SELECT count(*) FROM t WHERE LLM('q', a) <> 'x'")
    done = made.run(most_calls=7)
    assert (done.state, done.rows) == ("partial", [])


def test_a_deadline() -> None:
    def slow(instruction: str, values: list[str]) -> tuple[str, None]:
        time.sleep(0.01)
        return "x", None

    asker, made = query(500, function=slow)
    with pytest.raises(DeadlineExceeded, match=r"0\.4 s") as raised:
        made.run(deadline_s=0.4)
    assert len(asker.prompts) < 500
    assert raised.value.result.row_count <= len(asker.prompts)


def test_cancel() -> None:
    begun = threading.Event()

    def slow(instruction: str, values: list[str]) -> tuple[str, None]:
        begun.set()
        time.sleep(0.01)
        return "x", None

    _, made = query(500, function=slow)
    spent = Spent(RunLimits())
    timer = threading.Thread(target=lambda: (begun.wait(), spent.cancelled.set()))
    timer.start()
    with pytest.raises(QueryCancelled):
        made.run(cancel=spent)
    timer.join()


def test_results_in_files(tmp_path: Path) -> None:
    for name in ("o.parquet", "o.csv", "o.jsonl"):
        _, made = query()
        done = made.run(out=tmp_path / name)
        assert done.row_count == 20
        with pytest.raises(InputError, match="in its file"):
            _ = done.rows
    assert pq.read_table(tmp_path / "o.parquet").num_rows == 20
    assert (tmp_path / "o.csv").read_text().splitlines()[0] == "a,k,e"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "o.jsonl", "o.parquet"]


def test_half_a_result_has_another_name(tmp_path: Path) -> None:
    _, made = query(50)
    done = made.run(out=tmp_path / "o.parquet", most_calls=7)
    assert done.row_count == 7
    assert [path.name for path in tmp_path.iterdir()] == ["o.partial.parquet"]


def test_a_full_disk(tmp_path: Path) -> None:
    folder = Path("/dev/full")
    with pytest.raises(InputError, match=r"must end in one of"):
        query()[1].run(out=folder)
    with pytest.raises(InputError, match="no folder"):
        query()[1].run(out=tmp_path / "none" / "o.parquet")


def test_a_source_that_fails_in_its_middle() -> None:
    schema = pa.schema({"a": pa.int64()})

    def batches() -> Any:
        yield pa.record_batch({"a": pa.array([1, 2])}, schema=schema)
        raise RuntimeError("the disk is gone")

    asker = FunctionAsker()
    made = tables.sql(
        SQL,
        {"t": pa.RecordBatchReader.from_batches(schema, batches())},
        ask_rows=asker,
        answers=False,
    )
    with pytest.raises(Exception, match="the disk is gone"):
        made.run()
    assert asker.prompts == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_error": "ignore"},
        {"max_errors": -1},
        {"most_calls": 1.5},
        {"most_cost": 1},
        {"price": "1,2"},
        {"deadline_s": 0},
        {"passes": "sorted"},
        {"memory": "much"},
        {"nonsense": 1},
        {"out": "x.xlsx"},
    ],
)
def test_wrong_options_cost_nothing(wrong: dict[str, Any]) -> None:
    asker, made = query()
    with pytest.raises(InputError):
        made.run(**wrong)
    assert asker.prompts == []


def test_a_model_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEOLA_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(InputError, match="no language model is configured"):
        tables.sql(SQL, {"t": pa.table({"a": [1]})}).run()
    assert not (tmp_path / "data").exists()


def test_tables_are_checked() -> None:
    with pytest.raises(InputError, match="names do not differ by case"):
        tables.sql(SQL, {"t": pa.table({"a": [1]}), "T": pa.table({"a": [1]})})
    with pytest.raises(InputError, match="must be a file's path"):
        tables.sql(SQL, {"t": 3})
    with pytest.raises(UnknownName):
        tables.sql("SELECT * FROM s", {"t": pa.table({"a": [1]})}).run()
