"""A query's DuckDB: where its tables are, and what bounds them."""

from __future__ import annotations

import threading
import time

import duckdb
import pytest

from teola.tables import workspace
from teola.tables.workspace import Workspace, cursor_of
from tests.planted import catches, edited

MANY = "CREATE TABLE t AS SELECT md5(range || '') || md5(range || 'x') AS a FROM range(1000000)"
"""64 MB that cannot be compressed."""


def test_tables_are_in_a_file_of_the_folder() -> None:
    with Workspace({}, memory="32MB") as work:
        work.con.execute(MANY)
        assert work.con.execute("SELECT count(*) FROM t").fetchone() == (1_000_000,)
        (file,) = work.folder.glob("*.duckdb")
        assert file.stat().st_size > 32 << 20
    assert not work.folder.exists()


@catches(
    "always-a-file",
    "tables that are to be in memory are in a file",
    edited(Workspace.__init__, "if in_file and not empty:", "if True:"),
)
def test_what_a_confined_query_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "SPILLED_MOST", "1MB")
    with Workspace({}, memory="32MB", in_file=False) as work:
        work.confine([], [])
        with pytest.raises(duckdb.OutOfMemoryException):
            work.con.execute(MANY)


@catches(
    "cursor-of-busy",
    "a second connection needs the first one, which another thread uses",
    edited(cursor_of, "databases = cursor.execute", "databases = con.execute"),
)
@catches(
    "cursor-elsewhere",
    "a second connection sees other tables",
    edited(cursor_of, "(WORK,) in databases", "False"),
)
def test_a_second_connection_sees_the_tables_while_the_first_one_is_busy() -> None:
    with Workspace({}) as work:
        work.con.execute("CREATE TABLE few AS SELECT 7 AS a")
        many = "SELECT sum(a.range * b.range) FROM range(300000) a, range(300000) b"

        def busy() -> None:
            with pytest.raises(duckdb.InterruptException):
                work.con.execute(many)

        thread = threading.Thread(target=busy)
        thread.start()
        time.sleep(0.2)
        try:
            assert cursor_of(work.con).execute("SELECT a FROM few").fetchall() == [(7,)]
        finally:
            work.con.interrupt()
            thread.join()
