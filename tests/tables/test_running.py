"""What ends a query, and what is left of it then."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teola import tables
from teola.errors import DeadlineExceeded, InputError, QueryCancelled, QueryFailed, UnknownName
from teola.price import Price
from teola.tables import question_run
from teola.tables.answer_table import AnswerTable
from teola.tables.question_run import QuestionRun
from teola.tables.run_limits import RunLimits, Spent
from teola.testing import ScriptedModel
from tests.planted import catches, edited
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


@catches(
    "end-slept-through",
    "a run of rows that is over is noticed by looking",
    edited(QuestionRun._follow, "handle.when_over(self._woken.set)", "pass"),
)
def test_it_ends_with_its_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_run, "LOOK_S", 5.0)
    _, made = query()
    began = time.monotonic()
    assert made.run().row_count == 20
    assert time.monotonic() < began + 5.0


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
        ({"most_tokens": 1000}, 900, 1000),
        ({"most_cost": 0.001, "price": Price(prompt=1, cached=0.1, answer=1)}, 900, 1000),
        ({"most_tokens": 0}, 0, 0),
    ],
)
def test_budgets_are_used_and_never_passed(limits: dict[str, Any], least: int, most: int) -> None:
    """A row takes 9 tokens, and reserves about three times as many."""
    model = ScriptedModel(lambda call: "yes")
    made = tables.sql(
        "SELECT a, LLM('is it so or not?', a, max_tokens := 8) AS k FROM t",
        {"t": pa.table({"a": list(range(400))})},
        llm=model,
        answers=False,
    )
    done = made.run(**limits)
    assert done.state == "partial"
    assert least <= done.report["prompt_tokens"] + done.report["completion_tokens"] <= most
    assert done.row_count == done.report["asked"] == len(model.calls)
    assert next(iter(limits)) in done.reason


def test_what_an_interrupted_run_took_counts_when_it_goes_on(tmp_path: Path) -> None:
    made = tables.sql(
        "SELECT LLM('q', a, max_tokens := 8) AS k FROM t",
        {"t": pa.table({"a": list(range(40))})},
        llm=ScriptedModel(lambda call: "yes"),
        answers=tmp_path / "a.duckdb",
    )
    assert made.run(most_calls=3).report["asked"] == 3
    began = datetime.now(UTC).replace(tzinfo=None)
    assert made.run(most_calls=10).report["asked"] == 10
    assert made.run(most_calls=15, since=began).report["asked"] == 5
    done = made.run(most_tokens=400, since=began)
    taken = made.run(most_tokens=400, since=began)
    assert done.report["asked"] > 0 == taken.report["asked"]


@pytest.mark.parametrize("most", [0, 7])
def test_calls_are_counted_and_each_call_is_one_stage(most: int) -> None:
    asker, made = query(200)
    done = made.run(most_calls=most)
    assert (done.state, done.row_count, len(asker.prompts)) == ("partial", most, most)
    assert "most_calls" in done.reason
    report = done.report
    assert (report["asked"], report["answered_before"], len(report["stages"])) == (most, 0, 1)


def test_windows_of_an_early_stop_are_one_stage() -> None:
    asker = FunctionAsker(lambda i, v: ("x" if int(v[0]) % 8 == 7 else "y", None))
    sql = "SELECT a FROM t WHERE LLM('q', a) = 'x' LIMIT 12"
    made = tables.sql(sql, {"t": pa.table({"a": list(range(500))})}, ask_rows=asker, answers=False)
    done = made.run()
    assert done.rows == [(8 * at + 7,) for at in range(12)]
    (stage,) = done.report["stages"]
    asked = len(asker.prompts)
    assert stage["asked"] == stage["distinct"] == stage["rows"] == asked
    assert asked < 110  # 96 are needed; windows that double would take 24 + 48 + 96
    assert done.report["answered_before"] == 0
    for most in (0, 3):
        again = FunctionAsker(lambda i, v: ("y", None))
        made.run(ask_rows=again, most_calls=most)
        assert len(again.prompts) == most
    assert made.run(passes="none").report["asked"] == 500
    none = tables.sql(
        "SELECT a FROM t WHERE LLM('q', a) = 'x' LIMIT 0",
        {"t": pa.table({"a": [1, 2]})},
        ask_rows=FunctionAsker(),
        answers=False,
    )
    assert none.run().report["asked"] == 0


def test_what_may_fail_is_a_share_of_the_whole_query() -> None:
    """4 of 44 distinct questions, all of the first call; the second one has 2."""
    sql = "SELECT LLM('p', a) AS k, LLM('q', a % 2) AS l FROM t"
    fails = FunctionAsker(lambda i, v: (None, "no") if i == "p" and int(v[0]) < 4 else ("x", None))
    made = tables.sql(sql, {"t": pa.table({"a": list(range(42))})}, ask_rows=fails, answers=False)
    assert made.run(max_errors=0.1).state == "partial"
    with pytest.raises(QueryFailed, match="max_errors allows 3"):
        made.run(max_errors=0.09)
    # Of the first window of 16 rows 5 % are none; in the end 1 of at least 20 is.
    early = tables.sql(
        "SELECT a FROM t WHERE LLM('q', a) = 'x' LIMIT 3",
        {"t": pa.table({"a": list(range(100))})},
        answers=False,
    )

    def late(instruction: str, values: list[str]) -> tuple[str | None, str | None]:
        return (None, "no") if values == ["3"] else ("x" if int(values[0]) > 60 else "y", None)

    assert early.run(ask_rows=FunctionAsker(late), max_errors=0.05).row_count == 3
    assert RunLimits(max_errors=0.29).errors_allowed(100) == 29


def test_conditions_go_by_what_they_remove_for_what_they_take(tmp_path: Path) -> None:
    """The first condition keeps nearly all rows, the second one in ten."""

    def keeps(instruction: str, values: list[str]) -> tuple[str, None]:
        number = int(values[0])
        return ("x" if (number % 50 if instruction == "most" else number % 10 == 0) else "y"), None

    sql = "SELECT a FROM t WHERE LLM('most', a) = 'x' AND LLM('few!', a) = 'x'"
    t = pa.table({"a": list(range(1000))})
    right = [(a,) for a in range(1000) if a % 10 == 0 and a % 50]

    def asked(**options: Any) -> tuple[int, list[Any]]:
        asker = FunctionAsker(keeps)
        done = tables.sql(sql, {"t": t}, ask_rows=asker, **options).run()
        assert sorted(done.rows) == right
        first = [prompt.partition("\n")[0] for prompt in asker.prompts]
        return len(first), [first.count("most"), first.count("few!")]

    count, each = asked(answers=False, passes="none")
    assert each == [1000, 980]
    count, each = asked(answers=tmp_path / "a.duckdb")
    assert each[1] > 990
    assert count < 1250  # a sample of 64 in the wrong order, and then 936 * 1.1
    # Another model has to be asked anew; what conditions let through is known by then.
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        con.execute("DELETE FROM answers")
    assert asked(answers=tmp_path / "a.duckdb")[0] <= 1100


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), "cancelled"), (duckdb.IOException("the disk is full"), "failed")],
)
def test_what_came_is_kept_where_writing_is_interrupted(
    error: BaseException, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, errors = AnswerTable.add, [error]

    def interrupted(table: AnswerTable, *args: Any) -> None:
        if errors:
            raise errors.pop()
        add(table, *args)

    monkeypatch.setattr(AnswerTable, "add", interrupted)
    first, made = query(50, "SELECT LLM('q', a) AS k FROM t", lambda i, v: ("x", None))
    done = made.run(check=False, answers=tmp_path / "a.duckdb")
    assert done.state == state
    assert state == "cancelled" or "the disk is full" in done.reason
    second, made = query(50, "SELECT LLM('q', a) AS k FROM t", lambda i, v: ("x", None))
    assert made.run(answers=tmp_path / "a.duckdb").state == "ok"
    assert (len(first.prompts), len(second.prompts)) == (50, 0)


def test_an_answer_that_a_cast_does_not_stand_is_the_end_of_a_query() -> None:
    _, made = query(3, "SELECT CAST(LLM('q', a) AS INTEGER) AS k FROM t", lambda i, v: ("x", None))
    with pytest.raises(QueryFailed, match="Could not convert string 'x'"):
        made.run()


def test_values_longer_than_the_window_are_cut(tmp_path: Path) -> None:
    """The window has 60 tokens of 4 characters; 32 are the template's, and 4 the answer's."""
    model = ScriptedModel(lambda call: call.prompt.splitlines()[1])
    long = " ".join(f"w{at}" for at in range(300))
    t = pa.table({"id": [1, 2, 3], "a": ["short", long, f"{long} and more"], "b": ["x", "y", "y"]})
    sql = "SELECT LLM('say it', b, a, max_tokens := 4, fixed_order := true) AS k FROM t"
    done = tables.sql(sql, {"t": t}, llm=_small(model), answers=False).run()
    assert done.rows == [("b: x",), ("b: y",), ("b: y",)]
    assert (done.report["truncated"], done.report["asked"]) == (1, 2)
    prompts = sorted(call.prompt for call in model.calls)
    assert prompts[0] == "say it\nb: x\na: short"
    assert 80 <= len(prompts[1]) <= 4 * (60 - 32 - 4)
    assert prompts[1].startswith("say it\nb: y\na: w0 w1 w2")
    before = len(model.calls)
    with pytest.raises(InputError, match="over the window"):
        tables.sql(
            f"SELECT LLM('ok', b) AS j, LLM('{long}', b) AS k FROM t",
            {"t": t},
            llm=_small(model),
            answers=tmp_path / "a.duckdb",
        ).run()
    assert len(model.calls) == before
    assert list(tmp_path.iterdir()) == []


def _small(model: ScriptedModel) -> Any:
    def made(name: str = "llm") -> Any:
        engine = model(name)
        engine.spec = replace(engine.spec, window=60)
        return engine

    return made


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
    assert list(tmp_path.iterdir()) == [tmp_path / "o.partial.parquet"] == [done.file]
    with pytest.raises(InputError, match=r"are in its file .*o\.partial\.parquet"):
        _ = done.rows


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
        {"price": "1"},
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
