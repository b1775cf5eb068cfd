"""Conditions of a block that a subquery with calls can check before it asks them.

    SELECT ... FROM (SELECT a, LLM('...', b) AS k FROM t) AS s WHERE s.a > 1 AND s.k = 'x'
    SELECT ... FROM (SELECT a, LLM('...', b) AS k FROM t WHERE a > 1) AS s WHERE s.a > 1 AND ...

Such a condition stands at both places: the inner one removes only rows that the outer one would, so
the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from teola.tables.block_parts import SERIES, aggregates
from teola.tables.duckdb_schema import Catalogue, is_star
from teola.tables.marks import has_call

OTHER_ROWS: Final = (
    "group",
    "having",
    "qualify",
    "distinct",
    "limit",
    "offset",
    "windows",
    "sample",
    "laterals",
    "pivots",
)
"""Clauses with which the rows of a subquery are not those of its FROM."""
INNER: Final = ("", "INNER", "CROSS")


def push_conditions(
    select: exp.Select, source: exp.Subquery, catalogue: Catalogue
) -> list[exp.Expr]:
    """Move conditions of a block into one of its sources, where they mean the same. Returns
    them."""
    inner, where = source.this, select.args.get("where")
    if where is None or not isinstance(inner, exp.Select) or not is_plain(inner, catalogue):
        return []
    alias = source.args.get("alias")
    start = select.args.get("from_")
    joins = list(select.args.get("joins") or [])
    joins += (start.this.args.get("joins") or []) if start is not None else []
    if not all(is_inner(join) for join in joins):
        return []
    if alias is None or alias.args.get("columns") or select.args.get("laterals"):
        return []
    pushed: list[exp.Expr] = []
    before = inner.args.get("where")
    for condition in conjuncts(where.this):
        meant = _within(condition, inner, source.alias_or_name, alone=not joins)
        if meant is None or not _may_move(meant, catalogue):
            continue
        held = exp.Paren(this=meant)
        now = inner.args.get("where")
        whole = held if now is None else exp.And(this=exp.Paren(this=now.this), expression=held)
        inner.set("where", exp.Where(this=whole.copy()))
        if catalogue.binds(inner):
            pushed.append(condition)
            before = inner.args.get("where")
        else:  # it meant something else there
            inner.set("where", before)
    return pushed


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of ANDs, in order."""
    bare = node
    while isinstance(bare, exp.Paren):
        bare = bare.this
    if isinstance(bare, exp.And):
        yield from conjuncts(bare.this)
        yield from conjuncts(bare.expression)
    else:
        yield node


def is_inner(join: exp.Join) -> bool:
    """Whether a join is an inner or a cross join: no side's rows stay without a partner."""
    kind, method = (str(join.args.get(key) or "").upper() for key in ("kind", "method"))
    return not join.side and kind in INNER and method in ("", "NATURAL")


def is_plain(inner: exp.Select, catalogue: Catalogue) -> bool:
    """Whether each row of a subquery is one row of its FROM."""
    if any(inner.args.get(key) for key in OTHER_ROWS):
        return False
    return all(_may_stay(expression, catalogue) for expression in inner.expressions)


def _may_stay(item: exp.Expr, catalogue: Catalogue) -> bool:
    if next(aggregates(item, catalogue), None) is not None:
        return False
    return not any(
        isinstance(node, (exp.Window, exp.Unnest, exp.Explode))
        or (isinstance(node, exp.Anonymous) and str(node.this).lower() in SERIES)
        for node in item.walk()
    )


def _may_move(condition: exp.Expr, catalogue: Catalogue) -> bool:
    """Whether a condition has the same value wherever it is computed."""
    if has_call(condition) or next(aggregates(condition, catalogue), None) is not None:
        return False
    return not any(
        isinstance(node, (exp.Query, exp.Window, exp.Lambda)) or catalogue.is_volatile(node)
        for node in condition.walk()
    )


def _within(condition: exp.Expr, inner: exp.Select, alias: str, *, alone: bool) -> exp.Expr | None:
    """A condition over a subquery's columns as one over what they stand for; None: it is over
    others as well. alone: there is no other source."""
    items = [expression for expression in inner.expressions if not isinstance(expression, exp.Star)]
    stars = len(items) < len(inner.expressions)
    values = {item.alias_or_name.lower(): item.unalias() for item in items}
    if len(values) < len(items) or any(is_star(item) for item in items):
        return None
    if any(
        any(expression.args.values())
        for expression in inner.expressions
        if isinstance(expression, exp.Star)
    ):
        return None  # * EXCLUDE, REPLACE, RENAME
    holder = exp.Paren(this=condition.copy())
    columns = list(holder.find_all(exp.Column))
    if not columns:
        return None
    for column in columns:
        if is_star(column) or len(column.parts) > 2 or not (column.table or alone):
            return None
        if column.table and column.table.lower() != alias.lower():
            return None
        name = column.name.lower()
        if stars:
            if name in values:  # the star may have a column of this name, too
                return None
            value: exp.Expr = exp.Column(this=column.this.copy())
        elif name in values:
            value = values[name]
        else:
            return None
        column.replace(exp.Paren(this=value.copy()))
    rewritten: exp.Expr = holder.this
    return rewritten
