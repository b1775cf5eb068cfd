"""LLM_AGG in a block: it becomes a call over the list of a group's rows.

    LLM_AGG('Summarise', a ORDER BY x) FILTER (WHERE c)

    texts := row, "a: value" FROM base                          a table beside the base
    teola_llm(n, list(row ORDER BY x, row) FILTER (WHERE c))    a call over an aggregate

So whatever holds of calls over groups (HAVING, ORDER BY, guards) holds of it. The list has rows'
numbers and no texts: a group may be larger than memory. Its order is that of the source where keys
are equal, so that the prompts are the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from teola.tables.block_parts import replaced
from teola.tables.duckdb_schema import written
from teola.tables.guards import AnswerColumns, column
from teola.tables.marks import GROUP_ERROR, fields_of, is_group_call, order_of
from teola.tables.places import refused
from teola.tables.plan_builder import PlanBuilder
from teola.tables.plan_steps import ROW, MakeTable
from teola.tables.prompt_text import canonical, lines_of
from teola.tables.scope import level

LINES, ROW_EMPTY = "teola_text", "teola_empty"
"""Columns of a table of texts: the lines of a row, and whether all of its fields are NULL."""


class GroupLists:
    """Takes LLM_AGG out of the expressions of one block. table: the block's base."""

    def __init__(self, cutter: PlanBuilder, asked: AnswerColumns, table: str) -> None:
        self.cutter, self.asked, self.table = cutter, asked, table
        self.tables: list[str] = []
        """Tables of rows' texts, which the calls read."""
        self._known: dict[str, exp.Expr] = {}

    def refuse(self, window: exp.Expr) -> None:
        """Raise InputError where a named window has an LLM_AGG."""
        for node in level(window):
            if is_group_call(node):
                raise refused(
                    "LLM_AGG stands in a named window",
                    node,
                    self.asked.calls.sql,
                    "group the rows in a subquery and order by its column there",
                )

    def listed(self, root: exp.Expr) -> exp.Expr:
        """An expression with calls over lists in place of LLM_AGG. Raises InputError."""
        by: dict[int, exp.Expr] = {}
        for node in level(root):
            whole = node.parent if isinstance(node.parent, exp.Filter) else node
            if not is_group_call(node):
                continue
            text = f"{node.this} {written(whole)}"
            if text not in self._known:
                self._known[text] = self._over_list(node, whole)
            by[id(whole)] = self._known[text]
        return replaced(root, by) if by else root

    def _over_list(self, node: exp.Expr, whole: exp.Expr) -> exp.Expr:
        """The call over the list of a group's rows. whole: the LLM_AGG, with its FILTER."""
        asked = self.asked
        condition = guard = None
        if isinstance(whole, exp.Filter):
            condition = asked.rewritten(whole.expression.this)
            guard = exp.Is(this=exp.Paren(this=condition.copy()), expression=exp.true())
        fields = [asked.rewritten(field, guard) for field in fields_of(node)]
        for text in fields:
            asked.check_constant(text, "a call's field", node)
        keys = []
        for order in order_of(node):
            for key in order.expressions:
                ordered = key.copy()
                ordered.set("this", asked.rewritten(key.this, guard))
                asked.check_constant(ordered, "the order of a call's rows", node)
                keys.append(ordered)
        for ask in asked.taken():
            self.cutter.step(ask)
        call = asked.calls.of(node)
        assert call.group is not None
        table = self._texts(call.names, fields)
        keys.append(exp.Ordered(this=column(ROW)))
        rows: exp.Expr = exp.Anonymous(
            this="list", expressions=[exp.Order(this=column(ROW), expressions=keys)]
        )
        if condition is not None:
            rows = exp.Filter(this=rows, expression=exp.Where(this=condition))
        self.cutter.rewrote(
            "parts",
            repr(call.prompt[:40]),
            f"rows of a group go into prompts of about {call.group.part_tokens:,} tokens, in the "
            "group's order, and their answers into further ones: equal parts are one question",
        )
        grouped = replace(call, group=replace(call.group, rows=table))
        return asked.calls.node(grouped, [rows], error=node.this == GROUP_ERROR)

    def _texts(self, called: Sequence[str], fields: Sequence[exp.Expr]) -> str:
        """Make a table with the lines of each row. Returns its name. called: names of the
        fields."""
        sql = [written(field) for field in fields]
        names = [f"f{at}" for at in range(len(sql))]
        columns = ", ".join(
            f"{expression} AS {name}" for expression, name in zip(sql, names, strict=True)
        )
        types = self.cutter.catalogue.describe(f"SELECT {columns} FROM {self.table}")
        texts = [canonical(name, type.type) for name, type in zip(names, types, strict=True)]
        empty = " AND ".join(f"{name} IS NULL" for name in names)
        table = self.cutter.new_table()
        self.cutter.step(
            MakeTable(
                table,
                f"SELECT {ROW}, {lines_of(called, texts)} AS {LINES}, {empty} AS {ROW_EMPTY} "
                f"FROM (SELECT {ROW}, {columns} FROM {self.table})",
            )
        )
        self.tables.append(table)
        return table
