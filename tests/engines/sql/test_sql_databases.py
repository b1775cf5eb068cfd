"""Which database a request means, when it is opened, and which ones are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from teola.engine import EngineResult, QueryContext, Request
from teola.errors import EngineError, EngineUnavailable, InputError
from teola.graph.ops import Op, SqlParams
from teola_engines.sql import SqlDatabases, sql_databases
from teola_engines.sql.sql_databases import AGAIN_S, MOST_OPENED


class Noted:
    """Stands in for a SqlDatabase. events: what was done with all of them, in order."""

    events: list[tuple[str, str]] = []
    away: set[str] = set()
    wrong: set[str] = set()

    def __init__(self, name: str, *, tenants: Sequence[str] = (), **options: Any) -> None:
        self.name, self.tenants, self.options = name, tenants, options
        self.collection, self.hints_file = f"text-to-sql {name}", options.get("hints")

    def note(self, what: str) -> None:
        self.events.append((what, self.name))

    def open_to(self, tenant: str) -> bool:
        return not self.tenants or tenant in self.tenants

    def find_by_meaning(self, vectors: Any) -> None:
        self.note("vectors")

    def start(self) -> None:
        self.note("start")
        if self.name in self.away:
            raise EngineUnavailable(f"{self.name} is away", retryable=False)
        if self.name in self.wrong:
            raise InputError(f"{self.name} is configured wrongly")

    def close(self) -> None:
        self.note("close")

    def note_kept(self, tenant: str) -> None:
        self.note(f"kept of {tenant}")

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        (request,) = requests
        if request.inputs.get("sql") == "fail":
            return [EngineError("it failed")]
        error = {"error": "no"} if request.inputs.get("sql") == "wrong" else {}
        return [{"result": {"name": self.name, "inputs": dict(request.inputs), **error}}]


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    monkeypatch.setattr(sql_databases, "SqlDatabase", Noted)
    for name, value in (("events", []), ("away", set()), ("wrong", set())):
        monkeypatch.setattr(Noted, name, value)
    return Noted.events


def ask(databases: SqlDatabases, tenant: str = "me", **inputs: Any) -> Any:
    request = Request(Op.SQL, SqlParams(10), inputs, QueryContext("q", tenant), "k")
    (answer,) = databases.execute([request])
    if isinstance(answer, Exception):
        raise answer
    return answer["result"]


def test_the_only_database_that_one_may_ask_need_not_be_named() -> None:
    databases = SqlDatabases(named={"a": {"tenants": ["me"]}, "b": {"tenants": ["you"]}})
    for nothing in ({}, {"database": None}, {"database": "  "}):
        assert ask(databases, **nothing)["name"] == "a"
    assert ask(databases, "you", database="b")["name"] == "b"
    both = SqlDatabases(named={"b": {}, "a": {}})
    with pytest.raises(EngineError, match=r"say which database is meant: a, b$"):
        ask(both)
    with pytest.raises(EngineError, match="there is no database: give one as `database`"):
        ask(SqlDatabases())
    with pytest.raises(EngineError, match="no database is configured for you"):
        ask(SqlDatabases(paths=False))


def test_a_name_of_somebody_elses_is_no_file(tmp_path: Path) -> None:
    named = {"harbour": {"tenants": ["you"]}, "yards": {"tenants": ["me"]}}
    for paths in (True, False):
        databases = SqlDatabases(named=named, paths=paths)
        with pytest.raises(EngineError, match=r"'harbour' for you \(there are: yards\)"):
            ask(databases, database="harbour")
    with pytest.raises(EngineError, match=r"'yard' for you; did you mean 'yards'\?"):
        ask(databases, database="yard")
    with pytest.raises(EngineError, match="no database of that address for you"):
        ask(databases, database="postgresql://me:secret@h/db")
    opened = SqlDatabases(named=named)
    assert ask(opened, database=str(tmp_path / "yard"))["name"].startswith("yard ")
    with pytest.raises(EngineError, match="a DSN may hold a password"):
        ask(opened, database="postgres:secret")


def test_a_file_is_one_database_whatever_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, str]]
) -> None:
    (tmp_path / "sub").mkdir()
    databases = SqlDatabases(options={"rows": 7}, data_dir=tmp_path)
    monkeypatch.chdir(tmp_path)
    first = ask(databases, database="h.db")["name"]
    assert ask(databases, database=str(tmp_path / "h.db"))["name"] == first
    assert [what for what, _ in events] == ["start"]
    monkeypatch.chdir(tmp_path / "sub")
    assert ask(databases, database="h.db")["name"] != first
    database: Any = databases._others[str(tmp_path / "h.db")].database
    assert database.options == {
        "rows": 7, "data_dir": tmp_path, "path": str(tmp_path / "h.db"),
    }  # fmt: skip


def test_a_secret_that_is_set_anew_is_another_database(monkeypatch: pytest.MonkeyPatch) -> None:
    databases = SqlDatabases()
    for value, count in (("one", 1), ("one", 1), ("two", 2)):
        monkeypatch.setenv("HARBOUR", value)
        assert ask(databases, database="secret:HARBOUR")["name"] == "secret HARBOUR"
        assert len(databases._others) == count


def test_the_database_that_was_asked_longest_ago_is_forgotten(
    tmp_path: Path, events: list[tuple[str, str]]
) -> None:
    databases = SqlDatabases(named={"kept": {}})
    names = [ask(databases, database=str(tmp_path / f"{n}.db"))["name"] for n in range(MOST_OPENED)]
    ask(databases, database=str(tmp_path / "0.db"))
    assert ("close", names[0]) not in events
    ask(databases, database=str(tmp_path / "more.db"))
    assert [one for one in events if one[0] == "close"] == [("close", names[1])]
    events.clear()
    ask(databases, database=str(tmp_path / "1.db"))
    assert events == [("close", names[2]), ("start", names[1])]
    ask(databases, database="kept")
    events.clear()
    databases.close()
    closed = [name for what, name in events if what == "close"]
    assert (len(closed), closed[0]) == (MOST_OPENED + 1, "kept")
    assert ask(databases, database="kept")["name"] == "kept"
    assert events[-1] == ("start", "kept")


def test_a_database_that_is_away_is_tried_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, events: list[tuple[str, str]]
) -> None:
    now = [100.0]
    monkeypatch.setattr(sql_databases, "monotonic", lambda: now[0])
    Noted.away = {"a"}
    databases = SqlDatabases(named={"a": {}, "b": {}})
    databases.start()
    assert events == [("start", "a"), ("start", "b")]
    for later, starts in ((AGAIN_S - 0.1, 1), (AGAIN_S, 2)):
        now[0] = 100.0 + later
        with pytest.raises(EngineUnavailable, match="a is away"):
            ask(databases, database="a")
        assert events.count(("start", "a")) == starts
    Noted.away = set()
    now[0] += AGAIN_S
    for _ in range(2):
        assert ask(databases, database="a")["name"] == "a"
    assert events.count(("start", "a")) == 3
    assert events.count(("start", "b")) == 1
    Noted.wrong = {"a"}
    databases.close()
    with pytest.raises(InputError, match="a is configured wrongly"):
        databases.start()
    with pytest.raises(EngineError, match="a is configured wrongly"):
        ask(databases, database="a")


def test_hints_are_a_databases_own_or_a_file() -> None:
    named = {"a": {"hints": "a.yaml"}, "b": {}, "c": {"hints": "c", "tenants": ["you"]}}
    databases = SqlDatabases(named=named)
    assert "hints" not in ask(databases, database="b", hints=" ")["inputs"]
    assert ask(databases, database="b", hints="a")["inputs"] == {"hints": "a.yaml"}
    assert ask(databases, database="b", hints="x.yaml")["inputs"] == {"hints": "x.yaml"}
    for hints, why in ("b", "has no hints"), ("c", "no hints 'c' for you"):
        with pytest.raises(EngineError, match=why):
            ask(databases, database="b", hints=hints)
    closed = SqlDatabases(named=named, paths=False)
    assert ask(closed, database="b", hints="a")["inputs"] == {"hints": "a.yaml"}
    with pytest.raises(EngineError, match=r"no hints .x\.yaml. for you"):
        ask(closed, database="b", hints="x.yaml")


def test_a_question_is_kept_where_its_statement_ran(events: list[tuple[str, str]]) -> None:
    databases = SqlDatabases(named={"a": {}})
    kept = ask(databases, sql="SELECT 1", keep=True)
    assert kept["collection"] == "text-to-sql a"
    assert kept["inputs"] == {"sql": "SELECT 1"}
    assert ("kept of me", "a") in events
    events.clear()
    for inputs in ({"sql": "wrong", "keep": True}, {"sql": "SELECT 1", "keep": "yes"}, {}):
        assert "collection" not in ask(databases, **inputs)
    with pytest.raises(EngineError, match="it failed"):
        ask(databases, sql="fail", keep=True)
    assert events == []


def test_all_databases_find_by_meaning_also_those_that_come_later(
    tmp_path: Path, events: list[tuple[str, str]]
) -> None:
    databases = SqlDatabases(named={"a": {}, "b": {}})
    databases.find_by_meaning(object())  # type: ignore[arg-type]
    assert events == [("vectors", "a"), ("vectors", "b")]
    name = ask(databases, database=str(tmp_path / "c.db"))["name"]
    assert events[2:] == [("vectors", name), ("start", name)]
