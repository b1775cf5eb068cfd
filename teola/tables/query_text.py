"""From a query's text to its tree, and what is refused of it: all that is no plain query.

Tables are given by name beside the text. So a text can read nothing else: no files, no other
databases, no settings.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlglot import exp

from teola.errors import InputError, ToolError, UnknownName
from teola.sql.dialects import dialect_named
from teola.sql.sql_parsing import parsed_statement
from teola.tables.places import place, refused

GIVE: Final = (
    "give files as tables (--table NAME=FILE, tables={'name': ...}, or [tables.NAME] of a server)"
)
SERIES: Final = frozenset({"range", "generate_series", "unnest", "generate_subscripts"})
"""Functions of FROM that read no files."""
OTHERS: Final = (
    exp.DML,
    exp.DDL,
    exp.Command,
    exp.Into,
    exp.Copy,
    exp.Attach,
    exp.Detach,
    exp.Set,
    exp.Pragma,
    exp.Lock,
)


def read_query(sql: str, tables: Collection[str]) -> exp.Query:
    """The tree of one query over `tables`. Raises InputError, UnknownName."""
    if not sql.strip():
        raise InputError("the query is empty: write a SELECT")
    try:
        tree = parsed_statement(sql, dialect_named("duckdb"))
    except ToolError as error:
        raise InputError(str(error)) from None
    if not isinstance(tree, exp.Query):
        word = sql.split(None, 1)[0].upper()
        raise InputError(f"{word} is no query: write a SELECT")
    for node in tree.walk():
        if isinstance(node, OTHERS) and not isinstance(node, exp.Query):
            raise refused(f"{type(node).__name__.upper()} is no query", node, sql, "write a SELECT")
    for node in tree.find_all(exp.Anonymous):
        if str(node.this).lower().startswith("teola_"):
            raise refused(f"there is no function {node.this}", node, sql, "write LLM(...)")
    folded = {name.lower() for name in tables}
    for table in list(tree.find_all(exp.Table)):
        _check_table(table, folded, tables, sql)
    return tree


def _check_table(table: exp.Table, folded: set[str], tables: Collection[str], sql: str) -> None:
    if not isinstance(table.this, exp.Identifier):
        name = str(getattr(table.this, "this", "")) or type(table.this).__name__
        if name.lower() not in SERIES:
            raise refused(
                f"{name}() reads what was not given to the query",
                table,
                sql,
                GIVE,
            )
        return
    if table.args.get("db") is None and (table.name.lower() in folded or _is_part(table)):
        return
    if any(mark in table.name for mark in "./\\*"):
        raise refused(
            f"{table.name!r} is a file",
            table,
            sql,
            GIVE,
        )
    full = ".".join(part.name for part in table.parts)
    if not tables:
        raise refused(
            f"table {full!r} was not given",
            table,
            sql,
            "give it (--table NAME=FILE, or tables={'name': ...})",
        )
    raise UnknownName("table", full, tables, place(table, sql).removeprefix(" at ") or "the query")


def _is_part(table: exp.Table) -> bool:
    """Whether the name means a part of WITH around it."""
    above: exp.Expr | None = table
    while above is not None:
        clause = above.args.get("with_")
        if clause is not None and any(
            part.alias.lower() == table.name.lower() for part in clause.expressions
        ):
            return True
        above = above.parent
    return False
