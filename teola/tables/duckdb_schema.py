"""What DuckDB knows: columns and types of queries, and what kind of function a name is.

A query with calls is described with a value of the call's type in place of each, which still names
its fields. So DuckDB itself says what is wrong with it, before anything is asked.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from teola.errors import InputError
from teola.tables.marks import (
    ERRORS,
    GROUPED,
    Calls,
    calls_in,
    fields_of,
    is_retrieval,
    order_of,
)
from teola.tables.plan_steps import Column
from teola.tables.retrieval_call import CONTEXTS

if TYPE_CHECKING:
    import duckdb
TYPE: Final = re.compile(r"""[A-Za-z_][A-Za-z0-9_ ,()\[\]"]*""")
_KIND: Final = re.compile(r"^(Binder|Catalog|Parser) Error: ")
_CSV_LINE: Final = re.compile(r"CSV Error on Line: (\d+)")
_CONVERSION: Final = "Error when converting "
NOT_CALLED: Final = frozenset({"grouping", "grouping_id"})


def quoted(name: str) -> str:
    """A name as SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def written(tree: exp.Expr) -> str:
    """The SQL of a tree, in DuckDB's dialect. Raises InputError."""
    from sqlglot.errors import ErrorLevel

    try:
        return tree.sql(
            dialect="duckdb",
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,
        )
    except Exception as error:  # noqa: BLE001 - the writer fails in many ways
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"this query cannot be written for DuckDB: {lines[0]}") from None


@cache
def _functions() -> tuple[frozenset[str], frozenset[str]]:
    """Names of DuckDB's aggregate functions, and of those that give another value each time."""
    import duckdb

    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT lower(function_name), function_type, coalesce(stability, '') "
            "FROM duckdb_functions()"
        ).fetchall()
    aggregates = {name for name, kind, _ in rows if kind == "aggregate"} | NOT_CALLED
    aggregates |= frozenset(GROUPED)
    volatile = {name for name, _, how in rows if how and how != "CONSISTENT"}
    return frozenset(aggregates), frozenset(volatile)


class Catalogue:
    """Asks a DuckDB connection about columns and functions. calls: the calls of the query that is
    planned."""

    def __init__(self, con: duckdb.DuckDBPyConnection, calls: Calls) -> None:
        self.con, self.calls = con, calls
        self._stars: dict[str, tuple[str, ...]] = {}

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Whether a node is a call of an aggregate function, such as count(*)."""
        if isinstance(node, exp.Anonymous):
            return str(node.this).lower() in _functions()[0]
        return isinstance(node, (exp.AggFunc, exp.WithinGroup))

    def is_volatile(self, node: exp.Expr) -> bool:
        """Whether a node gives another value each time, or each query."""
        if isinstance(node, exp.Anonymous):
            return str(node.this).lower() in _functions()[1]
        return isinstance(
            node, (exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentDatetime)
        )

    def bindable(self, tree: exp.Expr) -> exp.Expr:
        """A copy in which each call is a NULL of its type that depends on its fields."""
        copy = tree.copy()
        for node in reversed(list(calls_in(copy))):
            type = self._type(node)
            value = exp.Anonymous(
                this="teola_null_of", expressions=[_without_stars(fields_of(node))]
            )
            whole: exp.Expr = exp.Cast(
                this=value, to=exp.DataType.build(type, dialect="duckdb", udt=True)
            )
            if node.this in GROUPED:
                keys = [
                    expression.copy()
                    for order in order_of(node)
                    for expression in order.expressions
                ]
                ordered = exp.Order(this=whole, expressions=keys) if keys else whole
                whole = exp.Anonymous(this="any_value", expressions=[ordered])
            if node is copy:
                copy = whole
            else:
                node.replace(whole)
        return copy

    def _type(self, node: exp.Expr) -> str:
        if is_retrieval(node):
            return CONTEXTS
        return "VARCHAR" if node.this in ERRORS else self.calls.of(node).type

    def describe(self, tree: exp.Expr | str) -> tuple[Column, ...]:
        """Columns of a query. Raises InputError where DuckDB refuses it."""
        sql = tree if isinstance(tree, str) else written(self.bindable(tree))
        import duckdb

        try:
            rows = self.con.execute(f"DESCRIBE {sql}").fetchall()
        except duckdb.Error as error:
            raise InputError(said(error)) from None
        return tuple(Column(name, type) for name, type, *_ in rows)

    def columns_of(self, alias: str, text: str) -> tuple[str, ...]:
        """Columns of a source of a FROM. text: the FROM. Raises InputError."""
        sql = f"SELECT {quoted(alias)}.* {text}"
        if sql not in self._stars:
            self._stars[sql] = tuple(column.name for column in self.describe(sql))
        return self._stars[sql]

    def binds(self, tree: exp.Expr) -> bool:
        """Whether DuckDB can bind a query as it stands, with nothing around it."""
        try:
            self.describe(tree)
        except InputError:
            return False
        return True

    def check_type(self, type: str) -> None:
        """Raises InputError if DuckDB knows no such type."""
        import duckdb

        valid = TYPE.fullmatch(type) is not None
        if valid:
            try:
                self.con.execute(f"DESCRIBE SELECT CAST(NULL AS {type})")
            except duckdb.Error:
                valid = False
        if not valid:
            raise InputError(f"there is no type {type!r}: write one of DuckDB's, such as INTEGER")

    def prepare(self) -> None:
        """Define on the connection the functions that `bindable` writes."""
        self.con.execute(
            "CREATE OR REPLACE MACRO teola_null_of(x) AS CASE WHEN x IS NULL THEN NULL END"
        )


def _without_stars(fields: list[Any]) -> exp.Expr:
    plain = [field.copy() for field in fields if not is_star(field)]
    return exp.Anonymous(this="row", expressions=plain) if plain else exp.Null()


def is_star(node: exp.Expr) -> bool:
    """Whether a node is `*` or `t.*`."""
    return isinstance(node, exp.Star) or (
        isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
    )


def said(error: Exception) -> str:
    """What DuckDB says of a wrong query or file, in one line."""
    if (line := _CSV_LINE.search(str(error))) is not None:
        # Behind it stand the line, as long as it may be, and options that nobody here can set.
        lines = str(error).partition("\nPossible ")[0].strip().splitlines()
        what = next((line for line in lines if line.startswith(_CONVERSION)), lines[-1])
        return f"line {line[1]}: {what}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message_lines = [line for line in lines if not line.startswith(("LINE ", "^"))]
    text = _KIND.sub("", " ".join(message_lines)) or type(error).__name__
    if "No function matches" in text and "VARCHAR" in text:
        # Candidates are a long list, and none of them is what helps.
        text = text.partition(" You might need")[0]
        text += " (an LLM's answer is a text: give it a type, as in LLM(..., type := 'INTEGER'))"
    text = text.replace("any_value(CAST(teola_null_of", "LLM_AGG((teola_null_of")
    return text.replace("teola_null_of", "LLM")
