"""Reading statements: where a written statement need not be read again."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from experiments.sql_safety.attacks import attacks
from experiments.sql_safety.harbour import SCHEMA
from experiments.sql_safety.honest import honest
from teola.errors import ToolError
from teola.sql import column_names, sql_parsing, statement_checks
from teola.sql.dialects import dialect_named
from teola.sql.select_only import _filtered, select_only
from teola.sql.sql_parsing import MOST_CHARACTERS, ParsedStatement, read_statement, statement_text
from tests.planted import catches, edited

DIALECTS = ("sqlite", "postgres", "duckdb")
TWO_THREADS = """
import threading
from importlib import import_module
from sqlglot.dialects import dialect
from teola.sql.select_only import select_only

paused, goes_on, make = threading.Event(), threading.Event(), dialect.new_trie

def pausing(mapping):
    if threading.current_thread() is importing and not paused.is_set():
        paused.set()
        goes_on.wait(60)
    return make(mapping)

dialect.new_trie = pausing
importing = threading.Thread(target=import_module, args=("sqlglot.dialects.sqlite",))
importing.start()
assert paused.wait(60) and "sqlite" in dialect.Dialect.__class__._classes
timer = threading.Timer(0.5, goes_on.set)
timer.start()
for sql in ("SELECT current_timestamp", "SELECT a ->> '$.b' FROM t"):
    assert select_only(sql, "sqlite", ["t"]) == sql.replace("current", "CURRENT").replace(
        "timestamp", "TIMESTAMP"
    )
"""
"""A first statement is filtered while another thread is in the middle of importing its dialect."""


def _again(sql: str, written: str, dialect: str) -> bool:
    """Whether the second text is read although the first one was."""
    first = read_statement(sql, dialect_named(dialect))
    return read_statement(written, dialect_named(dialect), first) is not first


def _folded(reading: ParsedStatement) -> str:
    return repr(reading.tree).lower()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_not_read_again_would_be_read_the_same(dialect: str) -> None:
    sql_dialect, asked = dialect_named(dialect), honest(dialect)
    kept = 0
    for sql in [*asked, *attacks(dialect, "/tmp/teola-nowhere")]:
        try:
            before = _folded(read_statement(sql, sql_dialect))
            first = read_statement(sql, sql_dialect)
            text = statement_text(first.tree, sql_dialect)
            same = read_statement(text, sql_dialect, first) is first
            anew = read_statement(text, sql_dialect)
        except ToolError:
            continue
        if same:
            kept += 1
            assert _folded(anew) == before, sql
    assert kept > len(asked) / 2


@catches(
    "case-of-quoted-names",
    "a quoted name that was written in another case counts as the same",
    edited(sql_parsing._alike, "kind.name in _QUOTED", "False"),
)
@catches(
    "blanks-anywhere",
    "blanks inside a name or between two texts count for nothing",
    edited(sql_parsing._alike, "touches is not touches_too", "False"),
)
@catches(
    "comments-anywhere",
    "a comment counts for nothing",
    edited(sql_parsing._statements, "not any(token.comments for token in tokens)", "True"),
)
def test_other_tokens_are_read_again() -> None:
    assert not _again(
        "select boat ,depth from berths ;", "SELECT boat, depth FROM berths", "sqlite"
    )
    assert not _again("SELECT Boat FROM berths", "SELECT boat FROM berths", "sqlite")
    for sql, written in (
        ('SELECT "Boat" FROM berths', 'SELECT "boat" FROM berths'),
        ("SELECT 'a' FROM berths", "SELECT 'A' FROM berths"),
        ("SELECT boat FROM berths b", "SELECT boat FROM berths AS b"),
        ("SELECT boat FROM berths", "SELECT depth FROM berths"),
        ("SELECT b. boat FROM berths AS b", "SELECT b.boat FROM berths AS b"),
        ("SELECT boat /* all */ FROM berths", "SELECT boat FROM berths"),
        ("SELECT x'ff' FROM berths", "SELECT 0xff FROM berths"),
    ):
        assert _again(sql, written, "sqlite"), sql
    assert _again("SELECT 'a' 'b'", "SELECT 'a''b'", "postgres")


def test_a_limit_in_brackets_is_read_again() -> None:
    sql = "SELECT boat FROM berths LIMIT 4 - 3 % 2 OFFSET 1"
    assert read_statement(sql, dialect_named("sqlite")).tokens is None
    assert select_only(sql, "sqlite", SCHEMA) == (
        "SELECT boat FROM berths LIMIT (4 - 3 % 2) OFFSET 1"
    )


def test_what_is_written_has_the_limits_of_what_is_read() -> None:
    sql = "SELECT 1" + ",1" * ((MOST_CHARACTERS - 8) // 2)
    assert len(sql) <= MOST_CHARACTERS
    with pytest.raises(ToolError, match="characters; 10,000 are taken"):
        select_only(sql, "sqlite")


def test_a_tree_that_nobody_writes_is_checked_as_it_is_written() -> None:
    _filtered.cache_clear()
    with pytest.raises(ToolError, match="there is no table 'salaries' to read"):
        select_only("SELECT * FROM berths, /*c*/ ..salaries", "sqlite", SCHEMA)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_kind_that_a_check_names_is_taken_unseen(dialect: str) -> None:
    plain = {kind.__name__ for kind in statement_checks._plain_kinds(dialect_named(dialect))}
    assert {"And", "Paren", "Literal", "Identifier"} <= plain
    for check in (statement_checks._Checks.check, column_names.ColumnNames.check):
        source = inspect.getsource(check)
        named = set(re.findall(r"isinstance\(node, \(?((?:exp\.\w+(?:, )?)+)", source))
        kinds = {kind for listed in named for kind in re.findall(r"exp\.(\w+)", listed)}
        assert len(kinds) >= 6
        assert plain.isdisjoint(kinds)


@pytest.mark.parametrize("waits", [True, False])
def test_a_dialect_that_is_being_imported_is_waited_for(waits: bool) -> None:
    """Without that, half of it would be taken, and kept."""
    script = TWO_THREADS
    if not waits:
        script = "import teola.sql.sql_parsing as p\np.import_module = str\n" + script
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.returncode == 0) is waits, ran.stderr
    assert waits or "is not taken here" in ran.stderr
