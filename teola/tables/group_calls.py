"""LLM_AGG in a block: it becomes a call over the list of a group's rows.

    LLM_AGG('Summarise', a ORDER BY x) FILTER (WHERE c)

    texts := row, "a: value" FROM base                          a table beside the base
    teola_llm(n, list(row ORDER BY x, row) FILTER (WHERE c))    a call over an aggregate

So whatever holds of calls over groups (HAVING, ORDER BY, guards) holds of it. The list has rows'
numbers and no texts: a group may be larger than memory. Its order is that of the source where keys
are equal, so that the prompts are the same each time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from teola.tables.block_parts import replaced
from teola.tables.duckdb_schema import written
from teola.tables.guards import column
from teola.tables.marks import GROUP_ERROR, fields_of, is_group_call, order_of
from teola.tables.places import refused
from teola.tables.plan_steps import ROW, MakeTable
from teola.tables.prompt_text import canonical, lines_of
from teola.tables.scope import level

if TYPE_CHECKING:
    from teola.tables.block_rest import Rest

TEXT, EMPTY = "teola_text", "teola_empty"
"""Columns of a table of texts: the lines of a row, and whether all of its fields are NULL."""


def list_groups(rest: Rest) -> tuple[Rest, list[str]]:
    """A block without LLM_AGG, and the tables of rows' texts that its calls read then.

    Raises InputError.
    """
    for one in rest.windows:
        for node in level(one):
            if is_group_call(node):
                raise refused(
                    "LLM_AGG stands in a named window",
                    node,
                    rest.asked.calls.sql,
                    "group the rows in a subquery and order by its column there",
                )
    known: dict[str, exp.Expr] = {}
    tables: list[str] = []

    def listed(root: exp.Expr) -> exp.Expr:
        by: dict[int, exp.Expr] = {}
        for node in level(root):
            whole = node.parent if isinstance(node.parent, exp.Filter) else node
            if not is_group_call(node):
                continue
            text = f"{node.this} {written(whole)}"
            if text not in known:
                known[text] = _over_list(rest, node, whole, tables)
            by[id(whole)] = known[text]
        return replaced(root, by) if by else root

    return rest.mapped(listed), tables


def _over_list(rest: Rest, node: exp.Expr, whole: exp.Expr, tables: list[str]) -> exp.Expr:
    """The call over the list of a group's rows. whole: the LLM_AGG, with its FILTER."""
    asked, cutter = rest.asked, rest.cutter
    condition = guard = None
    if isinstance(whole, exp.Filter):
        condition = asked.rewritten(whole.expression.this)
        guard = exp.Is(this=exp.Paren(this=condition.copy()), expression=exp.true())
    fields = [asked.rewritten(one, guard) for one in fields_of(node)]
    for one in fields:
        asked.check_constant(one, "a call's field", node)
    keys = []
    for order in order_of(node):
        for key in order.expressions:
            ordered = key.copy()
            ordered.set("this", asked.rewritten(key.this, guard))
            asked.check_constant(ordered, "the order of a call's rows", node)
            keys.append(ordered)
    rest.step()
    call = asked.calls.of(node)
    sql = [written(one) for one in fields]
    names = [f"f{at}" for at in range(len(sql))]
    columns = ", ".join(f"{one} AS {name}" for one, name in zip(sql, names, strict=True))
    types = cutter.catalogue.describe(f"SELECT {columns} FROM {rest.table}")
    texts = [canonical(one, type.type) for one, type in zip(names, types, strict=True)]
    empty = " AND ".join(f"{one} IS NULL" for one in names)
    table = cutter.new_table()
    cutter.step(
        MakeTable(
            table,
            f"SELECT {ROW}, {lines_of(call.names, texts)} AS {TEXT}, {empty} AS {EMPTY} "
            f"FROM (SELECT {ROW}, {columns} FROM {rest.table})",
        )
    )
    tables.append(table)
    keys.append(exp.Ordered(this=column(ROW)))
    rows: exp.Expr = exp.Anonymous(
        this="list", expressions=[exp.Order(this=column(ROW), expressions=keys)]
    )
    if condition is not None:
        rows = exp.Filter(this=rows, expression=exp.Where(this=condition))
    assert call.group is not None
    cutter.rewrote(
        "parts",
        repr(call.prompt[:40]),
        f"rows of a group go into prompts of about {call.group.part_tokens:,} tokens, in the "
        "group's order, and their answers into further ones: equal parts are one question",
    )
    grouped = replace(call, group=replace(call.group, rows=table))
    return asked.calls.node(grouped, [rows], error=node.this == GROUP_ERROR)
