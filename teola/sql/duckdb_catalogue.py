"""What a DuckDB file has, and how it would run a statement."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import prod
from threading import Event, Thread
from typing import Any, Final

from teola.sql.duckdb_reader import opened_duckdb
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_tables import (
    LONGEST_SAMPLE,
    SAMPLED_ROWS,
    LookTime,
    SqlColumn,
    SqlTable,
    samples,
    tables_as_json,
)

AGAIN_S: Final = 0.1
"""Seconds between interrupts of a statement that does not stop."""
TABLES: Final = """
SELECT schema_name, table_name, estimated_size, comment, false FROM duckdb_tables()
WHERE NOT internal AND database_name = current_database()
UNION ALL
SELECT schema_name, view_name, NULL, comment, true FROM duckdb_views()
WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2
"""
COLUMNS: Final = """
SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns()
WHERE NOT internal AND database_name = current_database() ORDER BY column_index
"""
KEYS: Final = """
SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table,
       referenced_column_names
FROM duckdb_constraints() WHERE constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
"""


def describe_duckdb(
    path: str, limits: LookupLimits, private: Collection[str], *, sampled: bool = True
) -> list[dict[str, Any]]:
    """Its tables and views, see SqlTable. sampled: whether these are looked into for samples.
    Raises ToolError."""
    import duckdb

    time = LookTime(limits.seconds, sampled=sampled)
    with opened_duckdb(path, limits) as connection:
        keys: set[tuple[str, str, str]] = set()
        points: dict[tuple[str, str, str], str] = {}
        for schema, table, kind, columns, other, others in connection.execute(KEYS).fetchall():
            for at, column in enumerate(columns):
                if kind == "PRIMARY KEY":
                    keys.add((schema, table, column))
                else:
                    points[schema, table, column] = f"{other}.{others[at]}"
        of_table: dict[tuple[str, str], list[tuple[str, str, str | None]]] = {}
        for schema, table, *column in connection.execute(COLUMNS).fetchall():
            of_table.setdefault((schema, table), []).append(tuple(column))
        tables = []
        for schema, table, rows, comment, view in connection.execute(TABLES).fetchall():
            name = table if schema == "main" else f"{schema}.{table}"
            listed = of_table.get((schema, table), [])
            shown = [c for c, _, _ in listed if f"{name}.{c}" not in private]
            note = ""
            seen: dict[str, tuple[str, ...]] = {}
            try:
                with _briefly(connection, time) as there_is_time:
                    if there_is_time:
                        seen = dict(_sampled(connection, schema, table, shown))
            except duckdb.Error as error:  # a view that fails
                note = str(error).splitlines()[0]
            columns_ = tuple(
                SqlColumn(
                    column,
                    kind,
                    (about or "")[:200],
                    (schema, table, column) in keys,
                    points.get((schema, table, column), ""),
                    seen.get(column, ()),
                )
                for column, kind, about in listed
            )
            tables.append(SqlTable(name, columns_, rows, (comment or "")[:200], view, note))
    return tables_as_json(tables)


@contextmanager
def _briefly(connection: Any, time: LookTime) -> Iterator[bool]:
    """Skip a table that takes more time or memory than there is for one. Yields whether there is
    any time."""
    import duckdb

    left_s, done = time.left_s(), Event()

    def interrupt() -> None:
        done.wait(left_s)
        while not done.is_set():
            connection.interrupt()  # which is lost while a statement is only being read
            done.wait(AGAIN_S)

    if left_s:
        Thread(target=interrupt, name="sql-look", daemon=True).start()
    try:
        yield left_s > 0
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        pass
    finally:
        done.set()


def _sampled(
    connection: Any, schema: str, table: str, columns: list[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not columns:
        return
    # As DuckDB writes them: Python has no infinite date, and its months have 30 days.
    listed = ", ".join(f"left(CAST({_quoted(c)} AS VARCHAR), {LONGEST_SAMPLE})" for c in columns)
    sql = f"SELECT {listed} FROM {_quoted(schema)}.{_quoted(table)} LIMIT {SAMPLED_ROWS}"
    rows = connection.execute(sql).fetchall()
    for column, values in zip(columns, zip(*rows, strict=True), strict=False):
        yield column, samples(values)


def plan_duckdb(path: str, sql: str, limits: LookupLimits) -> dict[str, Any]:
    """`rows` of its result, `cost`: rows that all of its steps are expected to give, `scans`:
    tables that are read. Raises ToolError."""
    with opened_duckdb(path, limits) as connection:
        explained = connection.execute(f"EXPLAIN (FORMAT JSON) SELECT * FROM ({sql}\n)").fetchall()
    steps = list(_steps(json.loads(explained[0][-1])))
    scans = {str(_about(step, "Table")).rpartition(".")[2] for step in steps}
    return {
        "rows": _expected(steps[0]),
        "cost": float(sum(map(_expected, steps))),
        "scans": sorted(scans - {"", "None"}),
    }


def _expected(step: dict[str, Any]) -> int:
    """Rows that a step gives. DuckDB does not tell those of a cross product."""
    digits = "".join(filter(str.isdigit, str(_about(step, "Estimated Cardinality"))))
    inner = [_expected(child) for child in step.get("children", ())]
    if step.get("name") == "CROSS_PRODUCT":
        return max(prod(inner), int(digits or 0))
    return int(digits) if digits else max(inner, default=1)


def _steps(plan: Any) -> Iterator[dict[str, Any]]:
    for step in plan if isinstance(plan, list) else [plan]:
        yield step
        yield from _steps(step.get("children", []))


def _about(step: dict[str, Any], name: str) -> Any:
    about = step.get("extra_info")
    return about.get(name) if isinstance(about, dict) else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
