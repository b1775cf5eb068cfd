"""What SQL a model may have run: one statement that reads, over tables and by functions that are
known.

A statement is parsed and written anew; what was written is parsed again, checked, and runs. Where
writing has kept every token, the parser would only repeat itself, and the first tree is what is
checked. This is the first of three layers: the connection that it runs on can only read
(`sqlite_reader.py`, ...), and files are read in a process with limits (`sql_children.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from teola.errors import ToolError
from teola.sql.dialects import dialect_named
from teola.sql.dialects.dialect import SqlDialect
from teola.sql.sql_parsing import ParsedStatement, read_statement, statement_text
from teola.sql.sql_schema import Schema
from teola.sql.statement_checks import check_statement

REMEMBERED: Final = 1024
"""Statements that were checked before and cost nothing."""


def select_only(sql: str, dialect: str, tables: Collection[str] | Schema | None = None) -> str:
    """The statement as it may run: a SELECT, VALUES, or a PIVOT of DuckDB.

    dialect: sqlite, postgres or duckdb. tables: that it may read, spelled as the database spells
    them; with a Schema also its columns are known, and wrong ones are told with the nearest; None:
    all but the database's own. Raises ToolError for anything else, with what to do about it, and
    UnknownName for another dialect.
    """
    schema = tables if tables is None or isinstance(tables, Schema) else _schema(tuple(tables))
    return _filtered(sql, dialect_named(dialect), schema)


@lru_cache(maxsize=64)
def _schema(tables: tuple[str, ...]) -> Schema:
    return Schema.of(tables)


@lru_cache(maxsize=REMEMBERED)
def _filtered(sql: str, dialect: SqlDialect, schema: Schema | None) -> str:
    first = _reading(sql, dialect)
    # Now, since a tree is of no use once it was written; why it is not taken is said of the text
    # that would run.
    taken = _is_taken(first, dialect, schema)
    result = statement_text(first.tree, dialect)
    # The text that runs is the text that is checked, whatever was lost while it was written.
    again = _reading(result, dialect, first if taken else None)
    if again is not first:
        check_statement(again.tree, dialect, schema)
    return result


def _is_taken(reading: ParsedStatement, dialect: SqlDialect, schema: Schema | None) -> bool:
    try:
        check_statement(reading.tree, dialect, schema)
    except Exception:  # noqa: BLE001 - checks know trees as writing leaves them, not `a, ..b`
        return False
    return True


def _reading(
    sql: str, dialect: SqlDialect, known: ParsedStatement | None = None
) -> ParsedStatement:
    from sqlglot import exp

    reading = read_statement(sql, dialect, known)
    roots: tuple[type[exp.Expr], ...] = (exp.Query, exp.Values)
    if "Pivot" in dialect.nodes:
        roots = (*roots, exp.Pivot)
    if not isinstance(reading.tree, roots):
        raise ToolError("give one SELECT and nothing else")
    return reading
