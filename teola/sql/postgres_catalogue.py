"""What a PostgreSQL shows to a role, and how it would run a statement."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from teola.errors import ToolError
from teola.sql.postgres_reader import opened_postgres
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_tables import (
    LONGEST_SAMPLE,
    SAMPLED_ROWS,
    LookTime,
    SqlColumn,
    SqlTable,
    samples,
)
from teola.sql.stopped import Wanted

TABLES: Final = """
SELECT c.oid, n.nspname, c.relname, c.reltuples::bigint, c.relkind IN ('v', 'm'),
       left(obj_description(c.oid, 'pg_class'), 200), pg_table_is_visible(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
ORDER BY 2, 3
"""
COLUMNS: Final = """
SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod),
       left(col_description(a.attrelid, a.attnum), 200),
       EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'p'
               AND a.attnum = ANY (k.conkey))
FROM pg_attribute a
WHERE a.attrelid = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attrelid, a.attnum
"""
KEYS: Final = """
SELECT k.conrelid, a.attname, o.relname || '.' || b.attname
FROM pg_constraint k
JOIN unnest(k.conkey, k.confkey) AS u (here, there) ON true
JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.here
JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = u.there
JOIN pg_class o ON o.oid = k.confrelid
WHERE k.contype = 'f' AND k.conrelid = ANY (%s)
"""


def describe_postgres(
    dsn: str,
    limits: LookupLimits,
    private: Collection[str],
    *,
    trust_role: bool = False,
    sampled: bool = True,
    wanted: Wanted | None = None,
) -> tuple[SqlTable, ...]:
    """The tables and views that the role may read. sampled: whether a few rows of each table are
    looked at. wanted: see `read_postgres`. Raises ToolError, and QueryCancelled where nobody
    waits."""
    time = LookTime(limits.seconds, sampled=sampled)
    with opened_postgres(dsn, limits, trust_role=trust_role, wanted=wanted) as reading:
        listed = reading.execute(TABLES).fetchall()
        ids = [row[0] for row in listed]
        columns: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for table, *column in reading.execute(COLUMNS, (ids,)):
            columns[table].append(tuple(column))
        points: dict[tuple[int, str], str] = {}
        for table, column, other in reading.execute(KEYS, (ids,)):
            points[table, column] = other
        tables = []
        for id, schema, table, count, view, comment, visible in listed:
            name = table if visible else f"{schema}.{table}"
            shown = [c for c, *_ in columns[id] if f"{name}.{c}" not in private]
            seen: dict[str, tuple[str, ...]] = {}
            note = ""
            if shown and (left_s := time.left_s()):
                try:
                    seen = _sampled(reading, schema, table, shown, left_s)
                except _errors() as error:  # a view that fails
                    note = str(error).splitlines()[0]
            tables.append(
                SqlTable(
                    name,
                    tuple(
                        SqlColumn(
                            c, kind, about or "", key, points.get((id, c), ""), seen.get(c, ())
                        )
                        for c, kind, about, key in columns[id]
                    ),
                    count if count >= 0 else None,
                    comment or "",
                    view,
                    note,
                )
            )
        reading.rollback()
    return tuple(tables)


def _errors() -> tuple[type[Exception], ...]:
    import psycopg

    return (psycopg.DataError, psycopg.ProgrammingError, psycopg.InternalError)


def _sampled(
    reading: Any, schema: str, table: str, columns: list[str], seconds: float
) -> dict[str, tuple[str, ...]]:
    """Samples of each column, none of a view that takes longer."""
    import psycopg

    short = ", ".join(f"left({_quoted(column)}::text, {LONGEST_SAMPLE})" for column in columns)
    sql = f"SELECT {short} FROM {_quoted(schema)}.{_quoted(table)} LIMIT {SAMPLED_ROWS}"
    rows: list[tuple[Any, ...]] = []
    with (
        contextlib.suppress(psycopg.errors.QueryCanceled),
        reading.transaction(force_rollback=True),
    ):
        reading.execute(f"SET LOCAL statement_timeout = {max(1, round(1000 * seconds))}")
        rows = reading.execute(sql.encode()).fetchall()
    by_column = zip(columns, zip(*rows, strict=True), strict=False)
    return {column: samples(values) for column, values in by_column}


def plan_postgres(
    dsn: str,
    sql: str,
    limits: LookupLimits,
    *,
    trust_role: bool = False,
    set_local: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`rows` and `cost` that the server expects, and `scans`: tables that it reads as a whole.
    Raises ToolError."""
    with opened_postgres(dsn, limits, trust_role=trust_role, set_local=set_local) as reading:
        with reading.cursor(binary=True) as cursor:  # one statement
            row = cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}".encode()).fetchone()
        reading.rollback()
    if row is None:
        raise ToolError("the database gives no plan")
    plan = row[0][0]["Plan"]
    scans = {step["Relation Name"] for step in _steps(plan) if step.get("Node Type") == "Seq Scan"}
    return {"rows": plan["Plan Rows"], "cost": plan["Total Cost"], "scans": sorted(scans)}


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for step in plan.get("Plans", ()):
        yield from _steps(step)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
