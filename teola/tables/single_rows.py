"""Whether each row of a query stands for itself: it is right without the rows that are missing."""

from __future__ import annotations

from sqlglot import exp

from teola.tables.duckdb_schema import Catalogue
from teola.tables.plan_steps import ROW
from teola.tables.pushed_conditions import is_inner, is_plain
from teola.tables.scope import sources_of

MADE = "teola_t"


def stands_alone(query: exp.Expr, catalogue: Catalogue) -> bool:
    """Whether rows of the query are rows of the tables that a plan made, joined with others."""
    if not isinstance(query, exp.Select) or not is_plain(query, catalogue):
        return False
    start = query.args.get("from_")
    joins = [
        *(query.args.get("joins") or ()),
        *(start.this.args.get("joins") or () if start else ()),
    ]
    if not all(is_inner(join) for join in joins):
        return False
    inside = set()
    for source in sources_of(query):
        if _reads_made(source):
            if isinstance(source, exp.Subquery) and not stands_alone(source.this, catalogue):
                return False
            if not isinstance(source, (exp.Subquery, exp.Table)):
                return False
        inside |= {id(node) for node in source.walk()}
    # A subquery of an expression sees the rows that are missing, as those of NOT IN.
    return not any(
        _reads_made(subquery)
        for subquery in query.find_all(exp.Query)
        if subquery is not query and id(subquery) not in inside
    )


def source_that_streams(query: exp.Expr) -> str | None:
    """The one table of a plan that a query reads in no order but that of its rows."""
    order = query.args.get("order")
    keys = [expression.this for expression in order.expressions] if order is not None else []
    if any(not isinstance(key, exp.Column) or key.name != ROW for key in keys):
        return None
    made = {table.name for table in query.find_all(exp.Table) if table.name.startswith(MADE)}
    return made.pop() if len(made) == 1 else None


def _reads_made(node: exp.Expr) -> bool:
    return any(table.name.startswith(MADE) for table in node.find_all(exp.Table))
