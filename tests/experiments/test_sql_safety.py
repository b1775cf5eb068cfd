"""The statements of `experiments.sql_safety`, and its command."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from experiments.sql_safety import __main__ as main
from experiments.sql_safety.attacks import HEAVY, LONG, attacks
from experiments.sql_safety.canaries import differences, of_folder
from experiments.sql_safety.harbour import SCHEMA, make_file
from experiments.sql_safety.honest import honest
from experiments.sql_safety.running import Statement, run
from teola.sql.sql_rows import LookupLimits
from teola.sql.sqlite_reader import read_sqlite
from tests.planted import catches, edited

QUICK = LookupLimits(seconds=0.3)


@catches(
    "widths-anything",
    "a padding may be as wide as it likes",
    edited("teola.sql.constant_bounds:check_width", "abs(width) > WIDEST", "False"),
)
@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "duckdb"])
def test_the_filter_refuses_all_that_is_not_only_long(dialect: str) -> None:
    asked = attacks(dialect, "/tmp/teola-nowhere")
    assert len(asked) > 100
    outcome = run([Statement(dialect, sql, None, SCHEMA) for sql in asked], QUICK)
    assert len(outcome.answered) <= len(LONG) + len(HEAVY[dialect])
    let_through = [one.sql for one in outcome.answered if one.sql not in HEAVY[dialect]]
    assert all("FROM berths a" in sql or "RECURSIVE" in sql for sql in let_through)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "duckdb"])
def test_the_filter_takes_what_is_honest(dialect: str) -> None:
    asked = honest(dialect)
    assert len(asked) > 100
    assert run([Statement(dialect, sql, None, SCHEMA) for sql in asked], QUICK).refused == []


def test_sqlite_answers_what_is_honest_and_changes_nothing(tmp_path: Path) -> None:
    path = make_file(tmp_path / "harbour.sqlite", "sqlite")
    before = of_folder(tmp_path)
    for sql in honest("sqlite"):
        assert read_sqlite(str(path), sql.rstrip(";\n"), LookupLimits(), SCHEMA).columns, sql
    assert differences(before, of_folder(tmp_path)) == []
    (tmp_path / "made").touch()
    assert differences(before, of_folder(tmp_path)) == ["made"]


def test_statements_of_a_file_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE berths (id INTEGER)")
    endless = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    )
    here = {"database": "a.db", "dialect": "sqlite"}
    listed = [
        {**here, "sql": "SELECT count(*) FROM berths"},
        {**here, "sql": "SELECT dept FROM berths"},
        {**here, "sql": endless},
        {**here, "sql": "SELECT abs(-9223372036854775807 - 1)"},
        {
            "schema": {"berths": [["id", "int"]]},
            "dialect": "postgres",
            "sql": "SELECT id FROM berths",
        },
        {"schema": None, "dialect": "duckdb", "sql": "SELECT * FROM 'x.csv'"},
        {"schema": None, "dialect": "mysql", "sql": "SELECT 1"},
    ]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    status = main.main(["--queries", str(tmp_path / "list.json"), "--json", "--seconds", "0.3"])
    told = json.loads(capsys.readouterr().out)
    assert status == 0
    assert told["run"] == 2
    assert [one["dialect"] for one in told["refused"]] == ["sqlite", "duckdb", "mysql"]
    assert [(one["sql"], one["limit"]) for one in told["stopped"]] == [(endless, "time")]
    assert ["overflow" in one["error"] for one in told["failed"]] == [True]


def test_json_tells_of_attacks_alone_and_the_rest_stands_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "attacks", lambda *_: ["DELETE FROM berths"])
    monkeypatch.setattr(main, "honest", lambda *_: ["SELECT 1", "SELECT nothing FROM berths"])
    status = main.main(["--json", "--dialect", "sqlite"])
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert status == 1  # of the honest ones, one was refused
    assert told.keys() == {"run", "refused", "stopped", "failed"}
    assert (told["run"], len(told["refused"])) == (0, 1)
    assert "attacks: 0 run, 1 refused" in err
    assert "honest: 1 run, 1 refused" in err
