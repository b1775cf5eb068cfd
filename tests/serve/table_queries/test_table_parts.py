"""What a server's queries over tables are made of, without a server: places, answers, events."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from teola.errors import DeadlineExceeded, InputError, QueryCancelled, QueryFailed, UnknownName
from teola.price import Price
from teola.query.result import Result
from teola.runtime.observe.usage import CallCounts
from teola.serve.table_queries.registered_tables import (
    AnswersByTenant,
    RegisteredTables,
    TableLimits,
    check_characters,
)
from teola.serve.table_queries.sql_request import SqlRequest
from teola.serve.table_queries.table_app import TableApp
from teola.serve.table_queries.table_run import FirstRows, TableAsker, TableRun, _shown, used
from teola.tables.answers_place import AnswersDsn
from teola.tables.call_stage import CallStage
from teola.tables.sources import TableSource, source_of


def sources(folder: Path, *names: str) -> dict[str, TableSource]:
    found = {}
    for name in names:
        (folder / f"{name}.csv").write_text("id\n1\n")
        found[name] = source_of(folder / f"{name}.csv")
    return found


# --- tables and their places ----------------------------------------------------------------------


def test_a_table_is_open_to_all_or_to_those_that_it_names(tmp_path: Path) -> None:
    tenants = {"own": frozenset({"us"}), "nobodys": frozenset[str]()}
    tables = RegisteredTables(sources(tmp_path, "own", "all", "nobodys"), tenants)
    assert list(tables.open_to("us")) == ["own", "all", "nobodys"]
    assert list(tables.open_to("them")) == ["all", "nobodys"]


def test_a_file_that_has_changed_is_a_new_source_and_another_one_is_not(tmp_path: Path) -> None:
    tables = RegisteredTables(sources(tmp_path, "a", "b"))
    before = tables.open_to("us")
    assert tables.open_to("us") == before
    os.utime(tmp_path / "a.csv", ns=(1, 1))
    after = tables.open_to("us")
    assert after["a"] is not before["a"]
    assert after["b"] is before["b"]
    assert tables.open_to("us")["a"] is after["a"], "once"
    (tmp_path / "a.csv").unlink()
    assert tables.open_to("us")["a"] is not after["a"]


def test_messages_name_tables_and_not_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("id\n1\n")
    secret = SimpleNamespace(dsn="postgresql://u:secret@h/x", path=None)
    named: Any = {
        "short": SimpleNamespace(dsn=None, path=Path("/data/r")),
        "long": SimpleNamespace(dsn=None, path=Path("/data/r2")),
        "here": source_of("r.csv"),
        "far": secret,
    }
    told = RegisteredTables(named).told
    assert told("no /data/r2, no /data/r") == "no [long], no [short]"
    assert told(f"no {tmp_path}/r.csv and no r.csv") == "no [here] and no [here]"
    assert told("at postgresql://u:secret@h/x: down") == "at [far]: down"
    assert told("no table") == "no table"


def test_a_query_reads_the_tables_that_it_names(tmp_path: Path) -> None:
    known = sources(tmp_path, "Reviews", "films")
    assert list(used("SELECT * FROM reviews", known)) == ["Reviews"]
    assert list(used("SELECT 1", known)) == []
    inner = "SELECT * FROM films WHERE id IN (SELECT id FROM Reviews)"
    assert list(used(inner, known)) == ["Reviews", "films"]
    for function in ("getenv('HOME')", "GetEnv('HOME')", "duckdb_secrets()", "pg_get_viewdef(1)"):
        with pytest.raises(InputError, match="reads what is the server's"):
            used(f"SELECT {function} FROM films", known)


def test_a_query_has_as_many_characters_as_are_taken() -> None:
    check_characters("x" * 5, TableLimits(characters=5))
    with pytest.raises(InputError, match="has 6 characters, more than the 5 that are taken"):
        check_characters("x" * 6, TableLimits(characters=5))


def test_each_tenant_has_a_folder_for_its_answers(tmp_path: Path) -> None:
    apart = AnswersByTenant(tmp_path)
    us, them = apart.path("us"), apart.path("them")
    assert us is not None
    assert us != them
    assert (us.name, us.parent.parent) == ("answers.duckdb", tmp_path)
    assert (apart.place("us"), apart.owner("us")) == (us, "us")
    assert apart.path("\ud800") is not None
    assert "us" not in us.parent.name, "a name may hold anything"
    shared = AnswersByTenant(tmp_path, shared=True)
    assert shared.path("us") == shared.path("them") == tmp_path / "shared" / "answers.duckdb"
    assert shared.owner("us") == ""
    none = AnswersByTenant()
    assert (none.path("us"), none.place("us"), none.owner("us")) == (None, False, "us")
    dsn = AnswersByTenant(AnswersDsn("postgresql://h/x"))
    assert (dsn.path("us"), dsn.place("us")) == (None, "postgresql://h/x")


# --- requests -------------------------------------------------------------------------------------


def asks(**more: Any) -> SqlRequest:
    return SqlRequest.model_validate({"query": "SELECT 1", **more})


def test_a_request_asks_for_what_it_names_and_no_more() -> None:
    limits = TableLimits(questions=10)
    plain = asks().ask("sync", limits)
    assert plain.inputs == {"query": "SELECT 1", "options": {"on_error": "null"}}
    assert (plain.deadline_s, plain.most_cost, plain.mode) == (3600.0, None, "sync")
    none = asks(max_errors=0, most_calls=0).ask("background", limits)
    assert none.inputs["options"] == {"on_error": "null", "max_errors": 0, "most_calls": 0}
    most = asks(most_calls=10, most_cost=1.5, deadline_s=7 * 86_400)
    asked = most.ask("stream", limits)
    assert (asked.inputs["options"]["most_calls"], asked.most_cost) == (10, 1.5)
    assert asked.deadline_s == 7 * 86_400
    with pytest.raises(InputError, match="most_calls is 11, more than the 10 that are taken"):
        asks(most_calls=11).ask("sync", limits)


# --- how it goes on -------------------------------------------------------------------------------


class Told(list[tuple[str, Any]]):
    """Events."""

    def __call__(self, kind: str, said: Any) -> None:
        self.append((kind, said))


def test_the_first_rows_are_told() -> None:
    told = Told()
    first = FirstRows(told)
    with duckdb.connect() as con:
        first.write(con, "SELECT 1 WHERE false")
        first.write(con, "SELECT range FROM range(15)")
        first.write(con, "SELECT range FROM range(100, 115)")
        first.write(con, "SELECT range FROM range(5)")
    assert [kind for kind, _ in told] == ["rows", "rows"]
    assert [row for _, said in told for (row,) in said["rows"]] == [*range(15), *range(100, 105)]


def test_long_values_of_these_rows_are_cut() -> None:
    text = "x" * 500
    assert (_shown(text), _shown(f"{text}y")) == (text, f"{text}…")
    fits, long = ["x" * 496], ["x" * 497]
    assert (_shown(fits), _shown(long)) == (fits, '["' + "x" * 497 + '"…')
    assert (_shown(None), _shown(7), _shown({"a": 1})) == (None, 7, {"a": 1})


def run_of(told: Told, **more: Any) -> TableRun:
    prices = {"big": Price(1.0, 2.0)}
    runtime: Any = SimpleNamespace(price_of=prices.get)
    tables = RegisteredTables({}, limits=TableLimits(rows=2, bytes=20))
    return TableRun(tables, runtime, "SELECT 1", {}, TableAsker("us"), told, **more)


def test_progress_is_told_at_its_beginning_and_end_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, now = Told(), [100.0]
    monkeypatch.setattr("teola.serve.table_queries.table_run.time.monotonic", lambda: now[0])
    run = run_of(told)
    stage = CallStage("op", "Tone?", "big", prompt_tokens=10**6, completion_tokens=10**6)
    other = CallStage("other", "x" * 501)
    for at, shown, ended in (
        (0.0, stage, 0), (0.0, stage, 0), (0.0, stage, 1), (0.24, stage, 2), (0.25, stage, 3),
        (0.26, other, 1), (0.3, stage, 4), (0.3, stage, 5),
    ):  # fmt: skip
        now[0] = 100.0 + at
        run._progress(shown, 5, ended, 1)
    assert [(said["operator"], said["ended"]) for _, said in told] == [
        ("op", 0), ("op", 0), ("op", 3), ("other", 1), ("op", 5),
    ]  # fmt: skip
    assert (told[0][1]["cost"], told[3][1]["cost"]) == (3.0, None)
    assert len(told[3][1]["instruction"]) == 500
    assert (told[0][1]["to_ask"], told[0][1]["failed"]) == (5, 1)


def test_a_query_costs_what_each_of_its_models_does() -> None:
    """Of a model without a price the calls are counted."""
    run = run_of(Told())
    tokens = {"prompt_tokens": 10**6, "completion_tokens": 10**6}
    for stage in (
        CallStage("op", "Tone?", "big", asked=2, **tokens),
        CallStage("op", "Tone?", "big", asked=1, **tokens),
        CallStage("other", "Tone?", "small", asked=4, **tokens),
    ):
        for ended in (0, 4):
            run._progress(stage, 4, ended, 0)
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "asked")
    run._count(SimpleNamespace(report=dict.fromkeys(names, 7)))  # type: ignore[arg-type]
    assert run.took == CallCounts(7, 7, 7, 7, unpriced=4, cost=6.0)


def done(state: str, reason: str = "why", **more: Any) -> Any:
    report = {"columns": [], "row_count": 1, "state": state}
    return SimpleNamespace(state=state, reason=reason, report=report, row_count=1, **more)


def test_how_a_query_ended_is_told_as_other_queries_are() -> None:
    run = run_of(Told())
    for state, error in (
        ("cancelled", QueryCancelled), ("deadline", DeadlineExceeded), ("failed", QueryFailed),
    ):  # fmt: skip
        with pytest.raises(error, match="why"):
            run._result(done(state, cause=None))
    with pytest.raises(InputError, match="why"):
        run._result(done("failed", cause=duckdb.ConversionException("CAST")))
    ours = UnknownName("column", "a", ["b"])
    with pytest.raises(QueryFailed) as failed:
        run._result(done("failed", cause=ours))
    assert failed.value.__cause__ is ours
    with pytest.raises(QueryFailed) as failed:
        run._result(done("failed", cause=ValueError("/data/r.csv")))
    assert failed.value.__cause__ is None


def test_rows_are_given_within_their_bytes() -> None:
    def rows(*batches: Any) -> Any:
        return run_of(Told())._rows(done("ok", fetched=lambda count: iter(batches)))

    assert rows([("x" * 14,)]) == [["x" * 14]]
    assert rows([(1,)], [(2,), (None,)]) == [[1], [2], [None]]
    for batches in ([[("x" * 17,)]], [[("é" * 9,)]], [[("x" * 9,)], [("x" * 9,)]]):
        with pytest.raises(InputError, match="larger than the 20 bytes"):
            rows(*batches)


def test_a_query_is_what_its_table_says_it_is() -> None:
    judged = TableApp.judged
    partial = Result("a", "q", "ok", {"table": {"state": "partial"}}, 1.0)
    app: Any = None
    assert judged(app, partial).state == "partial"
    failed = Result("a", "q", "failed", {"table": {"state": "ok"}}, 1.0)
    assert judged(app, failed) is failed
    none = Result("a", "q", "ok", {"table": None}, 1.0)
    assert judged(app, none) is none
