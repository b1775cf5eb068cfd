"""What SQL a model may have run: one statement that reads, over tables and by functions that are
known.

A statement is parsed and written anew; what was written is parsed again, checked, and runs. This is
the first of three layers: the connection that it runs on can only read (`sqlite_reader.py`, ...),
and files are read in a process with limits (`sql_children.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from teola.errors import ToolError
from teola.sql.dialects import dialect_named
from teola.sql.dialects.dialect import SqlDialect
from teola.sql.sql_parsing import parsed_statement, statement_text
from teola.sql.sql_schema import Schema
from teola.sql.statement_checks import check_statement

if TYPE_CHECKING:
    from sqlglot import exp

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
    result = statement_text(_reading(sql, dialect), dialect)
    # The text that runs is the text that is checked, whatever was lost while it was written.
    check_statement(_reading(result, dialect), dialect, schema)
    return result


def _reading(sql: str, dialect: SqlDialect) -> exp.Expr:
    from sqlglot import exp

    tree = parsed_statement(sql, dialect)
    roots: tuple[type[exp.Expr], ...] = (exp.Query, exp.Values)
    if "Pivot" in dialect.nodes:
        roots = (*roots, exp.Pivot)
    if not isinstance(tree, roots):
        raise ToolError("give one SELECT and nothing else")
    return tree
