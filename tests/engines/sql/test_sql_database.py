"""A database as an engine: what it has, what it answers, and what it keeps to itself."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from teola import App, EngineConfig, Runtime, Sql
from teola.engine import QueryContext, Request
from teola.errors import EngineError, EngineUnavailable, InputError
from teola.graph.ops import Op, SqlParams, SqlWork
from teola.testing import check_engine
from teola_engines.sql import SqlDatabase
from teola_engines.sql.value_index import ValueIndex
from tests.planted import catches, edited

STATEMENTS = (
    "CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT, email TEXT)",
    "CREATE TABLE berths (id INTEGER, boat_id INTEGER REFERENCES boats (id), depth REAL)",
    "INSERT INTO boats VALUES (0, 'Kittiwake', 'k@x.org'), (1, 'Petrel', 'p@x.org')",
    "INSERT INTO berths VALUES (0, 0, 2.5), (1, 1, 4.5), (2, 1, 6.5)",
    "CREATE VIEW deep AS SELECT * FROM berths WHERE depth > 4",
)
DEEPEST = "SELECT max(depth) AS deepest FROM berths"


@pytest.fixture(params=["harbour.db", "harbour.duckdb"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    connect: Any = duckdb.connect if path.suffix == ".duckdb" else sqlite3.connect
    with closing(connect(str(path))) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
        connection.commit()
    return path


@pytest.fixture
def lite(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "lite.db")) as connection, connection:
        for statement in STATEMENTS:
            connection.execute(statement)
    return tmp_path / "lite.db"


class Asked:
    """An engine that has started."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.engine = SqlDatabase(
            "harbour", path=str(path), data_dir=path.parent / "values", **options
        )
        self.engine.start()

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def indexed(self) -> None:
        """Wait for the index of values."""
        assert self.engine._index is not None
        self.engine._index.wait(20.0)

    def __call__(
        self, work: SqlWork = SqlWork.QUERY, tenant: str = "default", **inputs: str
    ) -> dict[str, Any]:
        params = SqlParams(100, work, tell_errors=True)
        request = Request(Op.SQL, params, inputs, QueryContext("q", tenant), "k")
        (answer,) = self.engine.execute([request])
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Any] = answer["result"]
        return result


def test_it_tells_what_it_has(path: Path) -> None:
    with Asked(path, private=["boats.email"], values=False) as ask:
        found = ask(SqlWork.SCHEMA)
        tables = {table["name"]: table for table in found["tables"]}
        assert tables.keys() == {"berths", "boats", "deep"}
        assert (tables["berths"]["rows"], tables["deep"]["view"]) == (3, True)
        name, email = tables["boats"]["columns"][1:]
        assert name["samples"] == ["Kittiwake", "Petrel"]
        assert email["samples"] == []
        assert tables["boats"]["columns"][0]["key"]
        assert tables["berths"]["columns"][1]["references"] == "boats.id"


@catches(
    "cost-ignored",
    "a statement runs whatever it costs",
    edited(SqlDatabase._too_dear, "<= most:", "<= most + 1e99:"),
)
def test_it_answers_and_refuses(path: Path) -> None:
    with Asked(path, private=["boats.email"], values=False, max_plan_cost=5_000) as ask:
        found = ask(sql=DEEPEST)
        assert (found["columns"], found["rows"], found["truncated"]) == (
            ["deepest"],
            [[6.5]],
            False,
        )
        assert ask(SqlWork.EXPLAIN, sql="SELECT id FROM berths")["scans"] == ["berths"]
        wrong = ask(sql="SELECT dept FROM berths")["error"]
        assert "no column 'dept' in berths; did you mean 'depth'" in wrong
        assert "private" in ask(sql="SELECT email FROM boats")["error"]
        many = ", ".join(f"berths {letter}" for letter in "abcdefghijkl")
        dear = ask(sql=f"SELECT count(*) FROM {many}")["error"]
        assert "5,000 may be spent (max_plan_cost): narrow" in dear
        assert "berths" in dear


def test_what_does_not_end_is_the_statements_error(path: Path) -> None:
    with Asked(path, values=False, seconds=0.3) as ask:
        endless = (
            "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        )
        assert ask(sql=endless) == {
            "error": "it took longer than 0.3 s: ask for less",
            "limit": "time",
        }
        assert ask(sql=DEEPEST)["rows"] == [[6.5]]


@catches(
    "any-tenant",
    "every tenant may ask",
    edited(SqlDatabase._executed, "not self.open_to(request.context.tenant)", "False"),
)
def test_a_database_is_its_tenants_own(lite: Path) -> None:
    with Asked(lite, tenants=["a"], values=False) as ask:
        assert ask(sql=DEEPEST, tenant="a")["rows"] == [[6.5]]
        with pytest.raises(EngineError, match="no database 'harbour' for this tenant"):
            ask(sql=DEEPEST, tenant="b")


def test_values_are_found_whatever_their_case(path: Path) -> None:
    with Asked(path, private=["boats.email"]) as ask:
        ask.indexed()
        found = ask(SqlWork.VALUES, text="KITIWAKE")["values"]
        assert [(one["table"], one["column"], one["value"]) for one in found] == [
            ("boats", "name", "Kittiwake")
        ]
        assert ask(SqlWork.VALUES, text="k@x.org")["values"] == []
        (file,) = (path.parent / "values").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_table_that_is_new_is_found(lite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teola_engines.sql.sql_database.AGAIN_S", 0.0)
    with Asked(lite) as ask:
        ask.indexed()
        with closing(sqlite3.connect(lite)) as connection, connection:
            connection.execute("CREATE TABLE crew (name TEXT)")
            connection.execute("INSERT INTO crew VALUES ('Mara Quist')")
        assert ask(sql="SELECT name FROM crew")["rows"] == [["Mara Quist"]]
        ask.indexed()
        assert ask(SqlWork.VALUES, text="mara")["values"][0]["value"] == "Mara Quist"
        assert len(list((lite.parent / "values").iterdir())) == 1
        with closing(sqlite3.connect(lite)) as connection, connection:
            connection.execute("ALTER TABLE crew ADD COLUMN rank TEXT")
        assert ask(sql="SELECT rank FROM crew")["rows"] == [[None]]


def test_whoever_asks_gets_no_more_rows_than_the_database_gives(lite: Path) -> None:
    with Asked(lite, values=False, rows=2) as ask:
        found = ask(sql="SELECT id FROM berths ORDER BY id")
        assert (found["rows"], found["truncated"]) == ([[0], [1]], True)


def test_short_and_odd_texts_are_looked_for(tmp_path: Path) -> None:
    index = ValueIndex(tmp_path / "v.db")
    assert index.find("x", 3) == []
    index.build([("t", "c", ["UK", "100%", "a_b", 'say "hi"', "Zürich", " "])])
    for asked, found in {
        "uk": "UK",
        "10": "100%",
        "a_": "a_b",
        '"HI"': 'say "hi"',
        "zürich": "Zürich",
    }.items():
        assert [one.value for one in index.find(asked, 1)] == [found]
    assert index.find("%%", 3) == []
    assert index.find("", 3) == []


def test_what_cannot_be_is_told_at_the_start(lite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="a path or a secret"):
        SqlDatabase()
    with pytest.raises(InputError, match=r"no column 'boats\.mail' to be private"):
        SqlDatabase(path=str(lite), private=["boats.mail"]).start()
    with pytest.raises(EngineUnavailable, match="there is no file"):
        SqlDatabase(path=str(lite) + "x").start()
    with pytest.raises(EngineUnavailable, match="set its address as HARBOUR_PLACE"):
        SqlDatabase(secret="HARBOUR_PLACE").start()
    monkeypatch.setenv("HARBOUR_PLACE", str(lite))
    database = SqlDatabase(secret="HARBOUR_PLACE", values=False)
    database.start()
    database.close()
    (lite.parent / "empty.db").touch()
    with Asked(lite.parent / "empty.db") as ask:
        assert "has no tables that can be read" in ask(SqlWork.LINK, text="boats")["error"]


def test_it_keeps_what_engines_promise(lite: Path) -> None:
    samples = [
        (SqlParams(), {"sql": DEEPEST}),
        (SqlParams(), {"sql": "SELECT count(*) FROM boats"}),
    ]
    check_engine(lambda: SqlDatabase(path=str(lite), values=False), samples={Op.SQL: samples})


def test_an_application_asks_it(lite: Path) -> None:
    harbour = EngineConfig(SqlDatabase, {"path": str(lite), "values": False})
    with Runtime({"harbour": harbour}) as runtime:
        for tell in (False, True):
            app = App(
                "deepest",
                template=Sql(engine="harbour", max_rows=2, tell_errors=tell),
                inputs={"sql": "text"},
                outputs={"result": "result"},
                runtime=runtime,
            )
            found = app.run(sql="SELECT id FROM berths")["result"]
            assert (found["rows"], found["truncated"]) == ([[0], [1]], True)
            if tell:
                assert "no table 'crew'" in app.run(sql="SELECT * FROM crew")["result"]["error"]
            else:
                with pytest.raises(Exception, match="no table 'crew'"):
                    app.run(sql="SELECT * FROM crew")
