"""A query's DuckDB: where its tables are, and what bounds them."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

from teola.tables import workspace
from teola.tables.workspace import GROUP_ROWS, Workspace, cursor_of, give_back
from tests.planted import catches, edited

MANY = "CREATE TABLE t AS SELECT md5(range || '') || md5(range || 'x') AS a FROM range(1000000)"
"""64 MB that cannot be compressed."""


def test_rows_leave_memory_in_small_groups() -> None:
    """DuckDB keeps a group in memory until it is full, and rows may be wide."""
    with Workspace({}) as work:
        work.con.execute(f"CREATE TABLE t AS SELECT range AS a FROM range({3 * GROUP_ROWS})")
        groups = "SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('t')"
        assert work.con.execute(groups).fetchone() == (3,)


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


def anonymous_mb() -> float:
    """What this process holds beside files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read as on Linux")
@catches(
    "freed-and-kept",
    "DuckDB keeps what statements have freed",
    edited(give_back, 'con.execute(f"SET memory_limit', 'str(f"SET memory_limit'),
)
def test_what_a_statement_has_freed_goes_back_to_the_system() -> None:
    with Workspace({}) as work:
        given_mb = 0.0
        for k in range(5):
            work.con.execute(
                f"CREATE TABLE t{k} AS SELECT repeat(md5(range || ''), 30) AS a FROM range(40000)"
            )
            held_mb = anonymous_mb()
            give_back(work.con)
            given_mb += held_mb - anonymous_mb()
        assert given_mb > 20


@catches(
    "limit-rounded",
    "the limit is set to what DuckDB says that it is",
    edited(give_back, '"SELECT {LIMIT}()"', "\"SELECT current_setting('memory_limit')\""),
)
def test_giving_memory_back_leaves_the_limit_as_it_is() -> None:
    with Workspace({}, memory="2.96GiB") as work:
        told = "SELECT current_setting('memory_limit')"
        limit = work.con.execute(told).fetchone()
        for _ in range(5):
            give_back(cursor_of(work.con))
        assert work.con.execute(told).fetchone() == limit


def test_who_has_no_workspace_has_no_limit_that_could_be_set() -> None:
    with duckdb.connect() as con:
        give_back(con)
        assert con.execute("SELECT 1").fetchone() == (1,)
