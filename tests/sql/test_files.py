"""Reading files: what SQLite and DuckDB refuse without the filter, what the process stops alone.

Long because each layer is tried here with the others switched off.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from time import monotonic

import duckdb
import pytest

from teola.errors import QueryCancelled, ToolError
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.sql_child import GRACE_S
from teola.sql.sql_children import KILL_S, START_S, SqlChildren, _Child, children, mentioned
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.sql_schema import Schema
from teola.sql.sqlite_reader import read_sqlite
from teola.sql.stopped import StatementStopped, Wanted
from tests.planted import catches, edited
from tests.sql.sql_statements import ALLOWED, ASKED_OF_SQLITE, CANARY, SQLITE, TABLES

LIMITS = LookupLimits(seconds=0.5)
PATIENT = LookupLimits(seconds=10.0)
"""Where no limit is what is tested."""
LATE_S = 1.0
SLUGGISH_S = 2.0
"""After its time, when a statement must have ended."""
MANY = "berths a, berths b, berths c, berths d, berths e, berths f, berths g, berths h, berths i"


def made(path: Path, rows: int = 30) -> Path:
    """The harbour in a file, of the kind that its name tells."""
    if path.suffix == ".duckdb":
        with closing(duckdb.connect(str(path))) as connection:
            connection.execute("CREATE TABLE berths (id INTEGER, boat TEXT, depth REAL)")
            connection.execute(
                f"INSERT INTO berths SELECT n, 'boat ' || n, n / 2 FROM range({rows}) t(n)"
            )
        return path
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE berths (id INTEGER, boat TEXT, depth REAL)")
        connection.executemany(
            "INSERT INTO berths VALUES (?, ?, ?)", [(n, f"boat {n}", n / 2) for n in range(rows)]
        )
    return path


@pytest.fixture(params=["harbour.db", "harbour.duckdb"])
def harbour(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(tmp_path / request.param)


def unfiltered(path: Path, sql: str, limits: LookupLimits = LIMITS) -> Rows:
    """What the process gives for a statement that no filter has seen."""
    return children.read(SqlAddress.of(str(path)).dialect, str(path), sql, limits)


# --- the database alone ---------------------------------------------------------------------------

TELLING = (
    "SELECT count(*) FROM salaries",
    f"SELECT {CANARY} IN secrets",
    "SELECT EXISTS (SELECT 1 FROM secrets)",
    "SELECT 1 FROM sqlite_master",
    "SELECT count(*) FROM pragma_table_info('salaries')",
    "SELECT pay FROM berths, (WITH berths AS (SELECT * FROM salaries) SELECT * FROM berths)",
    "SELECT sqlite_version()",
    "PRAGMA user_version",
    "CREATE TEMP TABLE x (y)",
    "ATTACH ':memory:' AS z",
)


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    path = tmp_path / "guarded.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in TABLES:
            connection.execute(statement)
    return path


def refused(path: Path, sql: str, schema: Schema | None) -> bool:
    try:
        found = read_sqlite(str(path), sql, LookupLimits(), schema)
    except ToolError:
        return True
    return CANARY not in str(found.rows)


@catches(
    "one-wall",
    "an SQLite file is read by whatever statement comes",
    edited(read_sqlite, "if schema is not None", "if False"),
)
def test_an_sqlite_file_is_guarded_by_sqlite_too(guarded: Path) -> None:
    """Also where a part of WITH has the name of a view that may read what it reads."""
    schema = Schema.of(ALLOWED)
    for sql in SQLITE:
        assert refused(guarded, sql, schema), sql
    for sql in TELLING:
        with pytest.raises(ToolError):
            read_sqlite(str(guarded), sql, LookupLimits(), schema)
    capitals = Schema.of([name.upper() for name in ALLOWED])
    for sql in ASKED_OF_SQLITE:
        assert read_sqlite(str(guarded), sql, LookupLimits(), capitals).rows, sql
    count = "WITH a AS (SELECT 1) SELECT count(*) FROM a"
    assert read_sqlite(str(guarded), count, LookupLimits(), Schema.of([])).rows == [[1]]


@catches(
    "own-tables",
    "SQLite's own tables are read where all others may be",
    edited("teola.sql.sqlite_reader:_reading", 'SQLITE.is_system(table or "")', "False"),
)
def test_not_even_all_tables_are_sqlites_own(guarded: Path) -> None:
    found = read_sqlite(str(guarded), "SELECT pay FROM salaries", LookupLimits(), None)
    assert found.rows == [[int(CANARY)]]
    with pytest.raises(ToolError):
        read_sqlite(str(guarded), "SELECT sql FROM sqlite_master", LookupLimits(), None)


@catches(
    "private-in-file",
    "SQLite is not told which columns are private",
    edited("teola.sql.sqlite_reader:_check_names", "not in table.private", "is not None"),
)
def test_a_private_column_is_not_there_for_sqlite(guarded: Path) -> None:
    schema = Schema.of({"salaries": ["name", "pay"]}, ["salaries.pay"])
    for sql in ("SELECT pay FROM salaries", "SELECT name FROM salaries ORDER BY pay"):
        with pytest.raises(ToolError, match="no such column"):
            read_sqlite(str(guarded), sql, LookupLimits(), schema)
    found = read_sqlite(str(guarded), "SELECT name FROM salaries", LookupLimits(), schema)
    assert found.rows == [["mara"]]


@catches(
    "private-star-in-file",
    "SQLite reads private columns by *",
    edited("teola.sql.sqlite_reader:_reading", "in folded_table.private", "== 1"),
)
@catches(
    "private-rowid",
    "a private key is read by its other name",
    edited("teola.sql.sqlite_reader:_check_names", "if table.private else", "if False else"),
    edited("teola.sql.sqlite_reader:_reading", "in folded_table.private", "== 1"),
)
def test_nor_by_other_names_of_it(tmp_path: Path) -> None:
    path = tmp_path / "crew.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE crew (badge INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE VIEW badges AS SELECT badge FROM crew")
        connection.execute(f"INSERT INTO crew VALUES ({CANARY}, 'mara')")
    schema = Schema.of({"crew": ["badge", "name"], "badges": ["badge"]}, ["crew.badge"])
    for sql in (
        "SELECT rowid FROM crew",
        "SELECT name FROM crew ORDER BY _rowid_",
        "SELECT * FROM crew",
        "SELECT count(*) FROM (SELECT DISTINCT * FROM crew)",
    ):
        with pytest.raises(ToolError):
            read_sqlite(str(path), sql, LookupLimits(), schema)
    for sql, rows in {
        "SELECT name FROM crew": [["mara"]],
        "SELECT count(*) FROM crew": [[1]],
        "SELECT badge FROM badges": [[int(CANARY)]],
    }.items():
        assert read_sqlite(str(path), sql, LookupLimits(), schema).rows == rows


def test_no_file_is_changed_or_made_without_the_filter(harbour: Path, tmp_path: Path) -> None:
    before, mark = harbour.read_bytes(), tmp_path / "made"
    for sql in (
        "DELETE FROM berths",
        "INSERT INTO berths VALUES (99, 'x', 1) RETURNING id",
        "SELECT 1; DELETE FROM berths",
        "CREATE TABLE x (y INTEGER)",
        f"ATTACH '{mark}' AS m",
        f"VACUUM INTO '{mark}'",
        f"COPY berths TO '{mark}'",
        f"COPY (SELECT 1) TO '{mark}'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SET memory_limit='100GB'",
    ):
        with pytest.raises(ToolError):
            unfiltered(harbour, sql)
    assert harbour.read_bytes() == before
    assert os.listdir(tmp_path) == [harbour.name]
    assert unfiltered(harbour, "SELECT count(*) FROM berths").rows == [[30]]


# --- the process alone ----------------------------------------------------------------------------


def stopped(path: Path, sql: str, limits: LookupLimits = LIMITS) -> StatementStopped:
    begun = monotonic()
    with pytest.raises(StatementStopped) as caught:
        unfiltered(path, sql, limits)
    assert monotonic() - begun < limits.seconds + LATE_S
    assert caught.value.peak_bytes < limits.memory_bytes
    return caught.value


def test_what_does_not_end_is_stopped(harbour: Path) -> None:
    unfiltered(harbour, "SELECT 1")  # so that no process has to start
    endless = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) "
    for sql in (endless + "SELECT count(*) FROM n", f"SELECT count(*) FROM {MANY}"):
        assert stopped(harbour, sql).limit == "time"
        assert unfiltered(harbour, "SELECT count(*) FROM berths").rows == [[30]]


def test_what_takes_memory_is_stopped(tmp_path: Path) -> None:
    duck, lite = made(tmp_path / "harbour.duckdb"), made(tmp_path / "harbour.db", 3_000)
    small = LookupLimits(seconds=5, memory_bytes=192 * 2**20)
    for path in (duck, lite):
        unfiltered(path, "SELECT 1", small)
    assert stopped(duck, "SELECT repeat('x', 2000000000)", small).limit == "memory"
    wide = "SELECT a.id, randomblob(20000) FROM berths a, berths b ORDER BY 2"
    assert stopped(lite, wide, small).limit == "memory"
    for path in (duck, lite):
        assert unfiltered(path, "SELECT min(id) FROM berths", small).rows == [[0]]


@catches(
    "alarm-lost",
    "the parent waits for a child as long as it likes",
    edited("teola.sql.sql_children:_Child._message", "monotonic() > until", "False"),
)
def test_a_child_that_hangs_is_killed(harbour: Path) -> None:
    """Here it is stopped from outside, so that its own alarm cannot ring."""
    kind = SqlAddress.of(str(harbour)).dialect
    with closing(SqlChildren()) as own:
        own.read(kind, str(harbour), "SELECT 1", LIMITS)
        process = own._idle[0]._process
        os.kill(process.pid, signal.SIGSTOP)
        ended: list[ToolError] = []

        def ask() -> None:
            try:
                own.read(kind, str(harbour), "SELECT 1", LIMITS)
            except ToolError as error:
                ended.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(LIMITS.seconds + GRACE_S + KILL_S + LATE_S)
        in_time = bool(ended)
        if process.returncode is None:
            os.kill(process.pid, signal.SIGCONT)
        asking.join()
        assert in_time
        assert own.read(kind, str(harbour), "SELECT 1", LIMITS).rows == [[1]]


class Sluggish(_Child):
    """A process that starts slowly, as on a busy machine."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(memory_bytes)
        os.kill(self._process.pid, signal.SIGSTOP)
        resume = threading.Timer(SLUGGISH_S, self._process.send_signal, [signal.SIGCONT])
        resume.daemon = True
        resume.start()


@catches(
    "late-by-its-start",
    "a statement is said to have taken as long as its process did to start",
    edited(SqlChildren._asked, "begun = monotonic()  # a start", "pass  # a start"),
)
def test_a_start_is_no_statements_time(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teola.sql.sql_children._Child", Sluggish)
    kind = SqlAddress.of(str(harbour)).dialect
    with closing(SqlChildren()) as own:
        with pytest.raises(StatementStopped) as caught:
            own.read(kind, str(harbour), f"SELECT count(*) FROM {MANY}", LIMITS)
        assert caught.value.limit == "time"
        assert caught.value.seconds < LIMITS.seconds + LATE_S < SLUGGISH_S


@catches(
    "patient-with-new-ones",
    "a new child may take as long as its start for its first statement, too",
    edited("teola.sql.sql_children:_Child.ask", "GRACE_S + KILL_S", "GRACE_S + KILL_S + 20.0"),
)
def test_a_new_child_that_hangs_is_killed_as_soon_as_any(
    harbour: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, waits = SqlAddress.of(str(harbour)).dialect, list[float]()
    message = _Child._message

    def noted(child: _Child, seconds: float, wanted: Wanted | None) -> bytes | None:
        waits.append(seconds)
        return message(child, seconds, wanted)

    monkeypatch.setattr(_Child, "_message", noted)
    with closing(SqlChildren()) as own:
        for _ in range(2):
            own.read(kind, str(harbour), "SELECT 1", LIMITS)
    statement = LIMITS.seconds + GRACE_S + KILL_S
    assert waits == [START_S, statement, statement]


def test_a_statement_that_nobody_waits_for_ends(harbour: Path) -> None:
    begun = monotonic()
    kind = SqlAddress.of(str(harbour)).dialect
    with pytest.raises(QueryCancelled):
        children.read(
            kind,
            str(harbour),
            f"SELECT count(*) FROM {MANY}",
            LookupLimits(seconds=30),
            wanted=lambda: monotonic() - begun < 0.3,
        )
    assert monotonic() - begun < 5


def test_children_are_few_and_used_again(harbour: Path) -> None:
    kind, results = SqlAddress.of(str(harbour)).dialect, []
    with closing(SqlChildren(most=2)) as own:

        def ask() -> None:
            sql = "SELECT count(*) FROM berths"
            results.append(own.read(kind, str(harbour), sql, LookupLimits()).rows)

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [[[30]]] * 12
        assert 1 <= len(own._idle) <= 2
        kept = own._idle[-1]._process.pid
        ask()
        assert own._idle[-1]._process.pid == kept


def test_children_of_another_limit_make_room(tmp_path: Path) -> None:
    path = made(tmp_path / "harbour.db")
    with closing(SqlChildren(most=1)) as own:
        processes = []
        for mebibytes in (256, 320, 256):
            limits = LookupLimits(memory_bytes=mebibytes * 2**20)
            own.read("sqlite", str(path), "SELECT 1", limits)
            (child,) = own._idle
            assert child.memory_bytes == limits.memory_bytes
            processes.append(child._process)
        assert [process.poll() is None for process in processes] == [False, False, True]


def test_only_what_a_statement_names_travels_to_a_child() -> None:
    schema = Schema.of({"berths": ["id"], 'odd"name': ["x"], "crew": ["name"]}, ["crew.name"])
    assert mentioned(schema, "SELECT * FROM Berths").names == ("berths", 'odd"name')  # type: ignore[union-attr]
    assert mentioned(schema, "SELECT * FROM crew").private == {"crew.name"}  # type: ignore[union-attr]


# --- bad files ------------------------------------------------------------------------------------


def test_what_is_no_database_is_told(tmp_path: Path, harbour: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\x91" * 5_000)
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    for where, told in {
        str(tmp_path / "none"): "there is no file",
        str(tmp_path): "is a folder",
        str(tmp_path / "broken"): "neither an SQLite nor a DuckDB file",
        "x\0y": "cannot be read",
        str(tmp_path / "pipe"): "is a pipe or a socket",
    }.items():
        with pytest.raises(ToolError, match=told):
            SqlAddress.of(where)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ToolError, match="no such table"):
        look_up(SqlAddress.of(str(tmp_path / "empty")), "SELECT * FROM t", PATIENT)
    cut = tmp_path / f"cut{harbour.suffix}"
    cut.write_bytes(harbour.read_bytes()[:3_000])
    with pytest.raises(ToolError, match="the database says"):
        look_up(SqlAddress.of(str(cut)), "SELECT * FROM berths", PATIENT)


@catches(
    "path-of-child",
    "a path is taken from the folder in which the process that reads files was started",
    edited(SqlAddress.of, "str(Path(where).expanduser().absolute())", "where"),
)
def test_a_path_begins_in_the_folder_that_is_current(
    harbour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other statements have started the process that reads it, in another folder."""
    SqlAddress.of(str(harbour))
    other = tmp_path / "other"
    other.mkdir()
    name = f"there{harbour.suffix}"
    made(other / name, rows=3)
    monkeypatch.chdir(other)
    address = SqlAddress.of(name)
    monkeypatch.chdir(tmp_path)
    assert look_up(address, "SELECT count(*) FROM berths", PATIENT).rows == [[3]]
    with pytest.raises(ToolError, match=f"^there is no file {name}$"):
        SqlAddress.of(name)


def test_a_file_that_another_process_writes_is_told(tmp_path: Path) -> None:
    path = made(tmp_path / "harbour.duckdb")
    with closing(duckdb.connect(str(path))), pytest.raises(ToolError, match="another process"):
        unfiltered(path, "SELECT 1")


def test_odd_names_and_values_come_through(tmp_path: Path) -> None:
    names = ['a"b', "a b", "a.b", "select", "🛥", "x" * 1_000, "Ünï"]
    path = tmp_path / "odd.db"
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in quoted:
            connection.execute(f"CREATE TABLE {name} ({name} TEXT)")
            connection.execute(f"INSERT INTO {name} VALUES ('here')")
    schema = Schema.of({name: [name] for name in names})
    for name in quoted:
        found = look_up(SqlAddress.of(str(path)), f"SELECT {name} FROM {name}", PATIENT, schema)
        assert found.rows == [["here"]]
    sql = "SELECT x'00ff', 1e999, -1e999, NULL, 9007199254740993, CAST(x'ff41' AS TEXT)"
    odd = ["(2 bytes)", "inf", "-inf", None, 9007199254740993, "�A"]
    assert look_up(SqlAddress.of(str(path)), sql, PATIENT).rows == [odd]
    duck = made(tmp_path / "harbour.duckdb")
    sql = (
        "SELECT 'nan'::DOUBLE, DATE '5877000-01-01', {'a': [1.5]}, 'ab'::BLOB, "
        "INTERVAL '1 year 2 days', 'infinity'::TIMESTAMP, TIMESTAMP '2026-01-02 03:04:05', "
        "'-infinity'::DATE AS \"a b\""
    )
    found = look_up(SqlAddress.of(str(duck)), sql, PATIENT)
    odd = ["nan", "5877000-01-01", {"a": [1.5]}, "(2 bytes)", "1 year 2 days", "infinity"]
    assert found.rows == [[*odd, "2026-01-02 03:04:05", "-infinity"]]
    assert found.columns[-1] == "a b"


def test_rows_end_with_a_word_and_never_silently(harbour: Path) -> None:
    few = LookupLimits(rows=5)
    for count, truncated in ((5, False), (6, True)):
        found = look_up(
            SqlAddress.of(str(harbour)), f"SELECT id FROM berths WHERE id < {count}", few
        )
        assert (len(found.rows), found.truncated) == (5, truncated)
        assert ("only the first 5 rows" in found.notes) == truncated
