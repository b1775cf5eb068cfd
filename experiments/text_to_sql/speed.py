"""Speed lines of text-to-sql, each by the processor time that it takes here.

    python -m experiments.text_to_sql.speed [--json]

A statement in the filter, a child process, 1,000 tables, 100,000 texts, and fifty
questions at once. Processor time, since machines are busy; a busy one changes it, too, by its
caches, so each line is the least of several. Exit status 1: a line is not met.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time
from typing import Any, Final

from experiments.common.pages import terminal
from teola.sql.dialects.sqlite import SQLITE
from teola.sql.linking import Linker
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.select_only import _filtered, select_only
from teola.sql.sql_children import SqlChildren, children
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_tables import schema_of, tables_from_json
from teola.sql.sqlite_reader import read_sqlite
from teola_engines.sql.value_index import ValueIndex

TABLES, COLUMNS, TEXTS, QUESTIONS = 1_000, 20, 100_000, 50
LIMITS: Final = LookupLimits(seconds=60.0)
"""Generous: what is measured is not to be stopped by what else the machine does."""
HEAD: Final = ("line", "measured", "goal", "unit", "met")
Measured = tuple[str, float, float, str]


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser("experiments.text_to_sql.speed", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="teola-speed-") as name:
        rows: list[dict[str, Any]] = []
        for line, measured, goal, unit in measures(Path(name)):
            rows.append(dict(zip(HEAD, (line, round(measured, 2), goal, unit), strict=False)))
            rows[-1]["met"] = measured <= goal
    if options.json:
        print(json.dumps({"rows": rows}, indent=1))
    else:
        from rich.console import Console

        listed = [[str(row[key]) for key in HEAD] for row in rows]
        Console().print(terminal("Speed of text-to-sql", HEAD, listed))
    return 0 if all(row["met"] for row in rows) else 1


def measures(folder: Path) -> Iterator[Measured]:
    """Lines with what was measured and what may be."""
    sql = statement(2_000)
    yield "filter, 2,000 characters", 1e3 * least(lambda: _filter(sql)), 15.0, "ms"
    select_only(sql, "sqlite")
    yield "the same, seen before", 1e3 * least(lambda: select_only(sql, "sqlite")), 0.1, "ms"
    small = folder / "small.db"
    with closing(sqlite3.connect(small)) as connection, connection:
        connection.execute("CREATE TABLE berths (id INTEGER, boat TEXT)")
        connection.executemany("INSERT INTO berths VALUES (?, ?)", [(n, "x") for n in range(100)])
    yield "child, more than in process", 1e3 * _child_s(small), 5.0, "ms"
    yield from _large(folder / "large.db")
    yield from _values(folder)
    count, peak = _together(small)
    yield f"children for {QUESTIONS} questions at once", count, 8, "processes"
    yield "most memory of a child that counts a million", peak / 2**20, 512, "MiB"


def statement(characters: int) -> str:
    """A statement about so long."""
    parts = "SELECT kind, count(*) AS n, sum(depth) AS total FROM berths WHERE 1 = 1"
    number = 0
    while len(parts) < characters - 60:
        number += 1
        parts += f" AND (depth > {number} OR lower(boat) LIKE '%{number}%')"
    return f"{parts} GROUP BY kind ORDER BY n DESC LIMIT 10"


def least(work: Callable[[], object], times: int = 15) -> float:
    """Seconds of the processor that it takes, the least of several."""
    took = []
    for _ in range(times):
        began = process_time()
        work()
        took.append(process_time() - began)
    return min(took)


def _filter(sql: str) -> None:
    _filtered.cache_clear()
    select_only(sql, "sqlite")


def _child_s(path: Path) -> float:
    """What a statement in a child takes more than in this process, here and there together."""
    count, sql = 40, "SELECT boat FROM berths"
    before = _children_s()
    alone = SqlChildren()
    alone.read("sqlite", str(path), sql, LIMITS)
    alone.close()
    start = _children_s() - before  # of a child that reads once
    before = _children_s()
    own = SqlChildren()
    own.read("sqlite", str(path), sql, LIMITS)
    began = process_time()
    for _ in range(count):
        own.read("sqlite", str(path), sql, LIMITS)
    here = process_time() - began
    own.close()
    there = _children_s() - before
    began = process_time()
    for _ in range(count):
        read_sqlite(str(path), sql, LIMITS, None)
    return (here + max(0.0, there - start) - (process_time() - began)) / count


def _large(path: Path) -> Iterator[Measured]:
    with closing(sqlite3.connect(path)) as connection, connection:
        for n in range(TABLES):
            columns = ", ".join(f"field_{n}_{i} TEXT" for i in range(COLUMNS - 1))
            connection.execute(f"CREATE TABLE archive_{n} (id INTEGER, {columns})")
    answer: dict[str, Any] = {}

    def read() -> None:
        ask = {"dialect": "sqlite", "path": str(path), "private": [], "sampled": True}
        answer.update(children.ask("tables", LIMITS, **ask))

    before = _children_s()
    here = least(read, 1)
    children.close()
    total = here + _children_s() - before
    yield f"schema of {TABLES:,} tables and {TABLES * COLUMNS:,} columns", total, 5.0, "s"
    tables = tables_from_json(answer["result"])
    schema_of(tables, ())
    linker, question = Linker(tables, dialect=SQLITE), "What is field_17_3 of archive 17?"
    linker.link(question)
    yield "linked", 1e3 * least(lambda: linker.link(question)), 50.0, "ms"


def _children_s() -> float:
    """Seconds that children have taken which have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _values(folder: Path) -> Iterator[Measured]:
    chance = random.Random(7)
    syllables = [first + last for first in "bcdfghjklmnprstvwz" for last in "aeiou"]
    texts = sorted({"".join(chance.choices(syllables, k=6)) + f" {n:05}" for n in range(TEXTS)})
    index = ValueIndex(folder / "values.db")
    built = least(lambda: index.build([("t", "c", texts)]), 1)
    yield f"index of {TEXTS:,} texts", built, 3.0, "s"
    asked = iter(chance.sample(texts, 20))
    yield "lookup", 1e3 * least(lambda: index.find(next(asked).upper()[:-1], 3), 20), 10.0, "ms"
    yield "bytes of a text", index.path.stat().st_size / TEXTS, 200, "bytes"


def _together(path: Path) -> tuple[int, int]:
    """How many children ran for many questions at once, and the most memory of one."""
    address, most = SqlAddress("sqlite", str(path)), 0
    started: list[Any] = []
    stop = threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.wait(0.01):
            most = max(most, _alive())

    heavy = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) "
        "SELECT count(*) FROM n"
    )
    watcher = threading.Thread(target=watch)
    watcher.start()
    peaks: list[int] = []

    def ask(n: int) -> None:
        sql = heavy if n % 10 == 0 else f"SELECT count(*) + {n} FROM berths"
        peaks.append(look_up(address, sql, LIMITS).peak_bytes)

    for n in range(QUESTIONS):
        thread = threading.Thread(target=ask, args=(n,))
        thread.start()
        started.append(thread)
    for thread in started:
        thread.join()
    stop.set()
    watcher.join()
    children.close()
    return most, max(peaks)


def _alive() -> int:
    """Child processes of this one that read databases."""
    found = set[str]()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            for pid in (task / "children").read_text().split():
                if b"sql_child.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(pid)
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
