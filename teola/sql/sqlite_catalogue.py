"""What an SQLite file has, and how it would run a statement."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from math import prod
from time import monotonic
from typing import Any, Final

from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_tables import (
    SAMPLED_ROWS,
    LookTime,
    SqlColumn,
    SqlTable,
    samples,
    tables_as_json,
)
from teola.sql.sqlite_reader import CLOCK_STEPS, opened_sqlite, quoted_name

LISTED: Final = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
COLUMNS: Final = "SELECT name, type, pk FROM pragma_table_xinfo(?)"
MOST_COST: Final = 10**18
"""More rows than anybody reads; their product has no end."""
KEYS: Final = 'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)'


def describe_sqlite(
    path: str, limits: LookupLimits, private: Collection[str], *, sampled: bool = True
) -> list[dict[str, Any]]:
    """Its tables and views, see SqlTable. sampled: whether these are looked into, for samples and
    counts of rows. Raises ToolError."""
    time = LookTime(limits.seconds, sampled=sampled)
    with opened_sqlite(path, limits) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
        listed = connection.execute(LISTED).fetchall()
        tables = [
            _table(connection, name, kind == "view", private, time)
            for name, kind in listed
            if not name.lower().startswith("sqlite_")
        ]
    return tables_as_json(tables)


def _table(
    connection: sqlite3.Connection,
    name: str,
    view: bool,
    private: Collection[str],
    time: LookTime,
) -> SqlTable:
    try:
        described = connection.execute(COLUMNS, (name,)).fetchall()
        points = {
            column: f"{table}.{to}" if to else table
            for column, table, to in connection.execute(KEYS, (name,))
        }
    except sqlite3.Error as error:
        return SqlTable(name, (), view=view, note=str(error))
    seen: dict[str, list[Any]] = defaultdict(list)
    rows = None
    shown = [column for column, _, _ in described if f"{name}.{column}" not in private]
    note = ""
    try:
        if shown:
            listed = ", ".join(map(quoted_name, shown))
            with _briefly(connection, time) as there_is_time:
                sql = f"SELECT {listed} FROM {quoted_name(name)} LIMIT {SAMPLED_ROWS}"
                for row in connection.execute(sql) if there_is_time else ():
                    for column, value in zip(shown, row, strict=True):
                        seen[column].append(f"({len(value)} bytes)" if _is_blob(value) else value)
        if not view:
            with _briefly(connection, time) as there_is_time:
                sql = f"SELECT count(*) FROM {quoted_name(name)}"
                rows = connection.execute(sql).fetchone()[0] if there_is_time else None
    except sqlite3.Error as error:
        note = str(error)
    columns = tuple(
        SqlColumn(column, kind, "", bool(key), points.get(column, ""), samples(seen[column]))
        for column, kind, key in described
    )
    return SqlTable(name, columns, rows, view=view, note=note)


@contextmanager
def _briefly(connection: sqlite3.Connection, time: LookTime) -> Iterator[bool]:
    """Skip a table that takes more time than there is for one. Yields whether there is any
    time."""
    left_s = time.left_s()
    until = monotonic() + left_s
    connection.set_progress_handler(lambda: monotonic() > until, CLOCK_STEPS)
    try:
        yield left_s > 0
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
    finally:
        connection.set_progress_handler(lambda: monotonic() > time.ends, CLOCK_STEPS)


def _is_blob(value: Any) -> bool:
    return isinstance(value, bytes)


def plan_sqlite(path: str, sql: str, limits: LookupLimits) -> dict[str, Any]:
    """`cost`: rows that are looked at where whole tables are read, multiplied where one is read
    inside of another; `scans`: these tables; `rows`: None, since SQLite does not tell. Raises
    ToolError."""
    with opened_sqlite(path, limits) as connection:
        names = {name.lower(): name for name, kind in connection.execute(LISTED) if kind == "table"}
        steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
        nests: dict[int, list[int]] = defaultdict(list)
        scans: list[str] = []
        for _, parent, _, detail in steps:
            words = detail.split()
            if words[0] != "SCAN" or len(words) < 2:
                continue
            # The plan names the alias, so the table is looked for in the statement's names.
            table = names.get(words[1].lower()) or _aliased(sql, words[1], names)
            count = 1
            if table is not None:
                with suppress(sqlite3.Error):
                    counting = f"SELECT count(*) FROM {quoted_name(table)}"
                    count = connection.execute(counting).fetchone()[0]
                scans.append(table)
            nests[parent].append(max(1, count))
    cost = float(min(MOST_COST, sum(prod(counts) for counts in nests.values())))
    return {"rows": None, "cost": cost, "scans": sorted(set(scans))}


def _aliased(sql: str, alias: str, names: dict[str, str]) -> str | None:
    """The table that an alias stands for: the word before it, or before AS."""
    words = (
        sql.replace('"', " ").replace(",", " , ").replace("(", " ( ").replace(")", " ) ").split()
    )
    for at, word in enumerate(words):
        if word.lower() != alias.lower() or not at:
            continue
        before = words[at - 2] if words[at - 1].upper() == "AS" and at > 1 else words[at - 1]
        if before.lower() in names:
            return names[before.lower()]
    return None
