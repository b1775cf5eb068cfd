"""A database that lives: its tables are read again, and what is known of them stays at hand.

Long because one clock and one set of databases is what all of it uses.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread
from time import monotonic
from typing import Any, NoReturn

import duckdb
import pytest

from teola.engine import QueryContext, Request
from teola.errors import EngineError, EngineUnavailable, QueryCancelled, ToolError
from teola.graph.ops import Op, SqlParams, SqlWork
from teola.sql.duckdb_catalogue import describe_duckdb
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_tables import SqlTable
from teola.sql.sqlite_catalogue import describe_sqlite, plan_sqlite
from teola.sql.stopped import StatementStopped, Wanted
from teola_engines.sql import SqlDatabase, SqlDatabases
from teola_engines.sql.indexed_values import IndexedValues
from teola_engines.sql.sql_database import FRESH_S, READING
from teola_engines.sql.value_index import ValueIndex
from tests.planted import catches, edited

ENDLESS = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n) SELECT max(i) m FROM n"
LONG = "CREATE VIEW a_slow AS SELECT count(*) m FROM range(1000000000) a, range(1000000000) b"
STATEMENTS = (
    "CREATE TABLE boats (id INTEGER, name TEXT)",
    "INSERT INTO boats VALUES (0, 'Kittiwake'), (1, 'Petrel')",
    f"CREATE VIEW a_slow AS {ENDLESS}",
)


def made(path: Path, *statements: str) -> Path:
    connect: Any = duckdb.connect if path.suffix == ".duckdb" else sqlite3.connect
    with closing(connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


@contextmanager
def started(path: Path, **options: Any) -> Iterator[SqlDatabase]:
    database = SqlDatabase("harbour", path=str(path), data_dir=path.parent / "values", **options)
    database.start()
    with closing(database):
        yield database


def asked(engine: SqlDatabase | SqlDatabases, work: SqlWork, **inputs: Any) -> Any:
    request = Request(Op.SQL, SqlParams(100, work), inputs, QueryContext("q"), "k")
    (answer,) = engine.execute([request])
    if isinstance(answer, Exception):
        raise answer
    return answer["result"]


@catches(
    "slow-view",
    "a view that is slow is one that fails",
    edited(
        "teola.sql.sqlite_catalogue:_briefly.__wrapped__",
        'if "interrupted" not in str(error):',
        "if True:",
    ),
    edited(
        "teola.sql.duckdb_catalogue:_briefly.__wrapped__",
        "except (duckdb.InterruptException, duckdb.OutOfMemoryException):",
        "except ZeroDivisionError:",
    ),
)
@pytest.mark.parametrize("name", ["h.db", "h.duckdb"])
def test_a_slow_view_lacks_samples_and_others_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("teola.sql.sql_tables.LOOKS_S", 0.2)
    describe = describe_duckdb if name.endswith("duckdb") else describe_sqlite
    path = str(made(tmp_path / name, *STATEMENTS[:2], LONG if "duck" in name else STATEMENTS[2]))
    tables = {table["name"]: table for table in describe(path, READING, ())}
    assert tables["a_slow"]["columns"][0]["samples"] == []
    assert not tables["a_slow"]["note"], "it can be asked"
    assert tables["boats"]["columns"][1]["samples"] == ["Kittiwake", "Petrel"]
    (boats,) = (t for t in describe(path, READING, (), sampled=False) if not t["view"])
    assert [column["name"] for column in boats["columns"]] == ["id", "name"]


def test_what_kills_the_process_is_not_looked_into_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, looked = SqlDatabase._described, []

    def killed(self: SqlDatabase, *, sampled: bool) -> tuple[SqlTable, ...]:
        looked.append(sampled)
        if sampled:
            raise StatementStopped("it took longer than 20 s", "time")
        return described(self, sampled=False)

    monkeypatch.setattr(SqlDatabase, "_described", killed)
    with started(made(tmp_path / "h.db", *STATEMENTS), values=False) as database:
        database._refresh(-1.0)
        assert asked(database, SqlWork.SCHEMA)["tables"][1]["name"] == "boats"
    assert looked == [True, False, False]


@catches(
    "read-by-each",
    "each of those who ask at the same time reads the tables",
    edited(SqlDatabase._read_again, "self._reading is None or self._reading.done()", "True"),
)
def test_tables_are_read_once_for_all_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, count, slow = SqlDatabase._described, [], Event()

    def counted(self: SqlDatabase, *, sampled: bool) -> tuple[SqlTable, ...]:
        count.append(sampled)
        slow.wait(5.0)
        return described(self, sampled=sampled)

    with started(made(tmp_path / "h.db", *STATEMENTS), values=False) as database:
        monkeypatch.setattr(SqlDatabase, "_described", counted)
        monkeypatch.setattr("teola_engines.sql.sql_database.WAITED_S", 0.05)
        database._read_at = -1e9
        together = Barrier(6)
        answers: list[Any] = []

        def ask() -> None:
            together.wait()
            answers.append(asked(database, SqlWork.LINK, text="boats"))

        threads = [Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 6, "they have the tables that were known"
        slow.set()
        database._refresh(60.0)
        assert len(count) == 1


class Held:
    """Reading the tables of a database, which is held up until `go`, or until somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = Event(), 0
        go = self.go
        self._before = set(threading.enumerate())
        described = SqlDatabase._described

        class Awaited(Future[None]):
            def result(self, timeout: float | None = None) -> None:
                go.set()
                return super().result(timeout)

        def held(database: SqlDatabase, *, sampled: bool) -> tuple[SqlTable, ...]:
            self.begun += 1
            while not self.go.wait(0.01):
                if not database._open():
                    raise QueryCancelled("closed")
            return described(database, sampled=sampled)

        monkeypatch.setattr(SqlDatabase, "_described", held)
        monkeypatch.setattr("teola_engines.sql.sql_database.Future", Awaited)

    def threads(self) -> list[Thread]:
        """Those that read tables now."""
        return [t for t in threading.enumerate() if t.name == "tables" and t not in self._before]


def age(database: SqlDatabase, seconds: float) -> None:
    """Let the tables be as old as that."""
    database._read_at = database._begun_at = monotonic() - seconds


def names_of(database: SqlDatabase) -> list[str]:
    return [one["name"] for one in asked(database, SqlWork.SCHEMA)["tables"]]


@catches(
    "waits-beside",
    "a question waits for tables that will soon be too old",
    edited(SqlDatabase._keep_fresh, "self._read_again(AHEAD_S)", "self._refresh(AHEAD_S, 5.0)"),
)
@catches(
    "never-ahead",
    "tables are not read again before they are too old",
    edited(SqlDatabase._keep_fresh, "self._read_again(AHEAD_S)", "None"),
)
@catches(
    "always-ahead",
    "tables are read again with each question",
    edited(SqlDatabase._keep_fresh, "self._read_again(AHEAD_S)", "self._read_again(-1.0)"),
)
def test_tables_are_read_again_beside_a_question_before_they_are_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "h.db", *STATEMENTS[:2])
    with started(path, values=False) as database:
        held = Held(monkeypatch)
        made(path, "CREATE TABLE ports (id INTEGER)")
        age(database, FRESH_S / 2 - 5)
        assert names_of(database) == ["boats"]
        assert held.begun == 0, "they are fresh"
        age(database, FRESH_S / 2 + 5)
        assert [names_of(database) for _ in range(3)] == [["boats"]] * 3
        (reading,) = held.threads()
        assert held.begun == 1, "once for all of them"
        held.go.set()
        reading.join()
        assert names_of(database) == ["boats", "ports"]
        assert held.begun == 1


@catches(
    "stale-for-ever",
    "a question takes tables of any age while they are read again",
    edited(SqlDatabase._keep_fresh, "now - self._read_at > FRESH_S", "False"),
)
def test_no_question_takes_tables_that_are_too_old(tmp_path: Path) -> None:
    path = made(tmp_path / "h.db", *STATEMENTS[:2])
    with started(path, values=False) as database:
        made(path, "CREATE TABLE ports (id INTEGER)")
        age(database, FRESH_S + 1)
        assert names_of(database) == ["boats", "ports"]


@catches(
    "tried-by-each",
    "each question begins to read tables that cannot be read",
    edited(SqlDatabase._keep_fresh, "now - self._begun_at > AGAIN_S", "True"),
)
def test_a_database_that_has_gone_is_known_until_its_tables_are_too_old(tmp_path: Path) -> None:
    path = made(tmp_path / "h.db", *STATEMENTS[:2])
    with started(path, values=False) as database:
        path.unlink()
        age(database, FRESH_S / 2 + 5)
        assert names_of(database) == ["boats"]
        first = database._reading
        assert first is not None
        assert isinstance(first.exception(5.0), ToolError)
        assert names_of(database) == ["boats"]
        assert database._reading is first, "that it failed is known for a while"
        age(database, FRESH_S + 1)
        for _ in range(2):
            with pytest.raises(EngineError, match="unable to open"):
                names_of(database)
        made(path, "CREATE TABLE ports (id INTEGER)")
        assert names_of(database) == ["ports"]


def test_nothing_is_read_any_more_when_a_database_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(made(tmp_path / "h.db", *STATEMENTS[:2]), values=False) as database:
        held = Held(monkeypatch)
        age(database, FRESH_S / 2 + 5)
        assert names_of(database) == ["boats"]
        assert len(held.threads()) == 1
    for thread in held.threads():
        thread.join(5.0)
    assert held.threads() == []
    assert (held.begun, held.go.is_set()) == (1, False)
    assert names_of(database) == ["boats"]
    assert held.threads() == [], "a closed database begins nothing"


@catches(
    "new-for-each-row",
    "all that is known of the tables is thrown away with each row",
    edited("teola_engines.sql.sql_database:_lasting", "rounded(table.rows)", "table.rows"),
)
@catches(
    "new-schema",
    "checked statements are forgotten with other samples",
    edited(SqlDatabase._read_tables, "not schema.alike(self._schema)", "True"),
)
def test_what_is_known_of_tables_lasts_while_they_live(tmp_path: Path) -> None:
    rows = [f"INSERT INTO boats VALUES ({k}, 'boat {k}')" for k in range(30)]
    path = made(tmp_path / "h.db", STATEMENTS[0], *rows)
    with started(path) as database:
        before = database._linker(None), database._schema
        text = asked(database, SqlWork.LINK, text="boats")["schema"]
        assert "table boats (about 30 rows)" in text
        made(path, "INSERT INTO boats VALUES (30, 'one more')")
        database._refresh(-1.0)
        assert (database._linker(None), database._schema) == before
        assert asked(database, SqlWork.SCHEMA)["tables"][0]["rows"] == 31
        made(path, "UPDATE boats SET name = 'Fulmar' WHERE id = 0")
        database._refresh(-1.0)
        assert database._schema is before[1]
        assert '"Fulmar"' in asked(database, SqlWork.LINK, text="boats")["schema"]


@catches(
    "starts-for-each",
    "each question waits for a database that is not there",
    edited("teola_engines.sql.sql_databases:_Opened.check", "< self.again_at", "< 0"),
)
def test_a_database_that_is_not_there_is_not_waited_for_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, begun = tmp_path / "h.db", []
    begin = SqlDatabase.start

    def start(self: SqlDatabase) -> None:
        begun.append(monotonic())
        begin(self)

    monkeypatch.setattr(SqlDatabase, "start", start)
    databases = SqlDatabases(named={"harbour": {"path": str(path), "values": False}})
    databases.start()
    for _ in range(3):
        with pytest.raises(EngineUnavailable, match="there is no file"):
            asked(databases, SqlWork.SCHEMA, database="harbour")
    assert len(begun) == 1
    made(path, *STATEMENTS[:2])
    databases._named["harbour"].again_at = 0.0
    assert asked(databases, SqlWork.SCHEMA, database="harbour")["tables"]
    assert len(begun) == 2
    databases.close()


def test_a_secrets_path_is_not_told_when_the_file_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOUR", str(made(tmp_path / "h.db", *STATEMENTS[:2])))
    database = SqlDatabase("harbour", secret="HARBOUR", values=False)
    database.start()
    error = ToolError(f'IO Error: Cannot open file "{tmp_path / "h.db"}": No such file')
    monkeypatch.setattr(SqlDatabase, "_filtered", lambda *_: throw(error))
    with pytest.raises(EngineError, match='file "what HARBOUR says": No such file'):
        asked(database, SqlWork.QUERY, sql="SELECT id FROM boats")
    database.close()


def throw(error: Exception) -> NoReturn:
    raise error


# --- the index of values --------------------------------------------------------------------------


def table(name: str, rows: int = 1) -> SqlTable:
    return SqlTable(name, (), rows)


def names(tables: Sequence[SqlTable], wanted: Wanted) -> Iterator[tuple[str, str, list[str]]]:
    """Each table has its own name as its only text."""
    for one in tables:
        if not wanted():
            raise QueryCancelled("closed")
        yield one.name, "c", [one.name]


def found(values: IndexedValues, text: str) -> list[str]:
    return [one.value for one in values.find(text, 1)]


@catches(
    "other-tables-by-now",
    "tables that change while the index is built are never indexed",
    edited(IndexedValues._next, "if self._tables is done or", "if done is not None or"),
)
def test_what_changes_while_it_is_indexed_is_indexed_then(tmp_path: Path) -> None:
    begun, go = Event(), Event()

    def slowly(tables: Sequence[SqlTable], wanted: Wanted) -> Iterator[tuple[str, str, list[str]]]:
        begun.set()
        go.wait(5.0)
        yield from names(tables, wanted)

    values = IndexedValues(tmp_path, "here", slowly)
    values.of([table("kittiwake")])
    begun.wait(5.0)
    values.of([table("petrel")])
    assert found(values, "petrel") == []
    go.set()
    values.wait(5.0)
    assert found(values, "petrel") == ["petrel"]
    assert len(list(tmp_path.iterdir())) == 1
    values.close()
    begun.clear()
    values.of([table("fulmar")])
    values.wait(5.0)
    assert found(values, "fulmar") == ["fulmar"], "it was closed, and is open again"


def test_two_index_one_place_and_either_may_close(tmp_path: Path) -> None:
    both = [IndexedValues(tmp_path, "here", names) for _ in range(2)]
    for values in both:
        values.of([table("kittiwake")])
    for values in both:
        values.wait(5.0)
    both[0].close()
    assert found(both[1], "kittiwake") == ["kittiwake"]
    (file,) = tmp_path.iterdir()
    file.unlink()
    assert found(both[1], "kittiwake") == []
    both[1].wait(5.0)
    assert found(both[1], "kittiwake") == ["kittiwake"], "it is indexed again"


@catches(
    "waits-for-each",
    "each question waits for an index that takes long",
    edited(IndexedValues.wait, "self._patient_until - monotonic()", "1.0"),
)
def test_questions_do_not_wait_for_an_index_that_takes_long(tmp_path: Path) -> None:
    def endless(tables: object, wanted: Wanted) -> Iterator[tuple[str, str, list[str]]]:
        while wanted():
            closing_.wait(0.01)
        raise QueryCancelled("closed")
        yield ("", "", [])

    closing_ = threading.Event()
    values = IndexedValues(tmp_path, "here", endless)
    values.of([table("boats")])
    values._patient_until = 0.0
    began = monotonic()
    values.wait()
    assert monotonic() - began < 0.5
    values.close()
    assert list(tmp_path.iterdir()) == [], "half an index is none"


def test_an_index_that_cannot_be_made_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    values = IndexedValues(tmp_path / "file", "here", names)
    with caplog.at_level(logging.WARNING):
        values.of([table("boats")])
        values.wait(5.0)
    assert "indexing failed" in caplog.text
    assert found(values, "boats") == []


@catches(
    "odd-texts",
    "a text that no database has fails the question",
    edited(ValueIndex.find, "except (sqlite3.Error, UnicodeError)", "except ZeroDivisionError"),
)
def test_texts_that_no_database_has_find_nothing(tmp_path: Path) -> None:
    index = ValueIndex(tmp_path / "v #?%.db")
    index.build([("t", "c", ["Kittiwake"])])
    assert [one.value for one in index.find("kitti\0wake", 3)] == ["Kittiwake"]
    assert index.find("\ud800 wake", 3) == []


def test_a_join_of_many_large_tables_has_a_cost(tmp_path: Path) -> None:
    many = ["CREATE TABLE t (x)", "INSERT INTO t VALUES " + ", ".join(["(1)"] * 1000)]
    aliases = ", ".join(f"t AS t{k}" for k in range(60))
    path = made(tmp_path / "h.db", *many)
    plan = plan_sqlite(str(path), f"SELECT count(*) FROM {aliases} WHERE random()", LookupLimits())
    assert plan["cost"] == 1e18
