"""From a query to its plan: read, checked, and cut at its calls.

A query comes as text or from relations (`relation.py`), which make the same tree: so both have the
same plan.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from teola.errors import InputError, UnknownName
from teola.tables.cutter import Cutter
from teola.tables.duckdb_schema import Catalogue, written
from teola.tables.llm_call import GROUP_OPTIONS, OPTIONS
from teola.tables.marks import WRITTEN, Calls, calls_in, has_call, is_retrieval, mark
from teola.tables.places import place
from teola.tables.plan_builder import PASSES
from teola.tables.plan_steps import TablePlan
from teola.tables.query_text import read_query

if TYPE_CHECKING:
    import duckdb


_MISSING: Final = re.compile(r'column "(\w+)" not found')


def chosen_passes(passes: Iterable[str] | str | None) -> frozenset[str]:
    """The rewrites that may be made, by name. passes: None or "all", "none", or names. Raises
    UnknownName."""
    if passes is None or passes == "all":
        return frozenset(PASSES)
    if passes == "none":
        return frozenset()
    names = passes.split(",") if isinstance(passes, str) else list(passes)
    for name in names:
        if name not in PASSES:
            raise UnknownName("pass", name, PASSES)
    return frozenset(names)


def plan_text(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    tables: Collection[str],
    passes: frozenset[str] = frozenset(PASSES),
) -> TablePlan:
    """The plan of a query over tables that the connection has. Raises InputError."""
    tree = read_query(sql, tables)
    if not _holds_call(tree):
        # DuckDB reads what was written, and not what sqlglot makes of it.
        text = sql.strip().rstrip(";")
        return TablePlan((), text, Catalogue(con, Calls(sql)).describe(text))
    return plan_tree(con, tree, Calls(sql), passes)


def plan_tree(
    con: duckdb.DuckDBPyConnection,
    tree: exp.Query,
    calls: Calls,
    passes: frozenset[str] = frozenset(PASSES),
) -> TablePlan:
    """The plan of a tree. Raises InputError."""
    catalogue = Catalogue(con, calls)
    catalogue.prepare()
    named = _named(tree.copy())
    marked = mark(named, calls)
    assert isinstance(marked, exp.Query)
    for node in calls_in(marked):
        if is_retrieval(node):
            continue
        try:
            catalogue.check_type(calls.of(node).type)
        except InputError as error:
            raise InputError(f"{error}{place(node, calls.sql)}") from None
    try:
        columns = catalogue.describe(marked)
    except InputError as error:
        raise InputError(f"{error}{_assigned(str(error))}") from None
    if not has_call(marked):
        return TablePlan((), written(tree), columns)
    return Cutter(catalogue, calls, passes).plan(marked, columns)


def _assigned(error: str) -> str:
    """A hint for an error of DuckDB that takes an option for a column: the option was written with
    `=`."""
    column = _MISSING.search(error)
    name = column[1].lower() if column is not None else ""
    if name not in (*OPTIONS, *GROUP_OPTIONS):
        return ""
    return f". If {name} is meant as an option, write {name} := ..."


def _named(tree: exp.Expr) -> exp.Expr:
    """The tree with a name for each column of a SELECT list that holds a call and has none: what
    is written there."""
    for select in tree.find_all(exp.Select):
        for expression in list(select.expressions):
            if isinstance(expression, (exp.Alias, exp.Star)) or not _holds_call(expression):
                continue
            expression.replace(exp.alias_(expression.copy(), written(expression), quoted=True))
    return tree


def _holds_call(node: exp.Expr) -> bool:
    return any(str(function.this).upper() in WRITTEN for function in node.find_all(exp.Anonymous))
