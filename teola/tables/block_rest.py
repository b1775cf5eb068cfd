"""What is left of a block over its base: calls of rows, then groups, windows, order and limit.

Long because the clauses of one SELECT are one thing: each split hands all of them on.

no calls above groups or windows:  answers become columns, and DuckDB runs the rest as it stands
calls over groups:    SELECT keys, aggregates FROM base GROUP BY ...     is a base of its own
calls over windows:   SELECT *, window functions FROM base QUALIFY ...   is one as well
LLM_AGG:              a call over the list of a group's rows, see group_calls
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from teola.tables.block_parts import (
    SERIES,
    Item,
    OrderKey,
    aggregates,
    replaced,
    windows_in,
)
from teola.tables.duckdb_schema import written
from teola.tables.group_calls import GroupLists
from teola.tables.guards import AnswerColumns, column
from teola.tables.marks import calls_in, has_call
from teola.tables.plan_builder import PlanBuilder
from teola.tables.plan_steps import ROW, MakeTable
from teola.tables.scope import level


@dataclass(slots=True)
class Rest:
    """The clauses of a block after FROM and WHERE, over the columns of its base.

    on: keys of DISTINCT ON. windows: named ones.
    """

    cutter: PlanBuilder
    select: exp.Select
    table: str
    asked: AnswerColumns
    items: list[Item]
    group: exp.Expr | None = None
    having: list[exp.Expr] = field(default_factory=list)
    qualify: list[exp.Expr] = field(default_factory=list)
    windows: list[exp.Expr] = field(default_factory=list)
    order: list[OrderKey] = field(default_factory=list)
    on: list[exp.Expr] | None = None

    def roots(self) -> list[exp.Expr]:
        """All expressions above the rows' own conditions, but for GROUP BY and named windows."""
        return [
            *(item.node for item in self.items),
            *self.having,
            *self.qualify,
            *(key.node for key in self.order),
            *(self.on or ()),
        ]

    def calls(self) -> bool:
        """Whether it has a call."""
        return any(has_call(window) for window in [*self.roots(), *self.windows]) or has_call(
            self.group
        )

    @property
    def grouped(self) -> bool:
        """Whether its rows are groups."""
        if self.group is not None or self.having:
            return True
        roots = [*self.roots(), *self.windows]
        return any(next(self._aggregates(root), None) is not None for root in roots)

    @property
    def windowed(self) -> bool:
        """Whether window functions are computed over its rows."""
        return bool(self.qualify) or any(
            next(windows_in(root), None) is not None for root in self.roots()
        )

    def most(self) -> int | None:
        """How many rows of the base it needs at most, in its order; None: all."""
        if "early_stop" not in self.cutter.passes:
            return None
        limit, offset = self._number("limit"), self._number("offset")
        if limit is None or offset is None or self.select.args.get("limit") is None:
            return None
        if self.select.args.get("distinct") is not None or self.grouped or self.windowed:
            return None
        if any(has_call(key.node) for key in self.order):
            return None
        if any(self._makes_rows(item.node) for item in self.items):
            return None
        return limit + offset

    def _number(self, clause: str) -> int | None:
        """A constant of LIMIT or OFFSET, 0 without one; None where it is no constant."""
        node = self.select.args.get(clause)
        if node is None:
            return 0
        options = node.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            return None
        value = node.args.get("expression") or node.args.get("count")
        if not isinstance(node, (exp.Limit, exp.Offset)) or not isinstance(value, exp.Literal):
            return None
        return int(value.this) if not value.is_string and str(value.this).isdigit() else None

    def _makes_rows(self, node: exp.Expr) -> bool:
        return any(
            isinstance(inner, (exp.Unnest, exp.Explode))
            or (isinstance(inner, exp.Anonymous) and str(inner.this).lower() in SERIES)
            for inner in level(node)
        )

    def order_text(self) -> str:
        """SQL of the keys of its order; the last one is the row's position."""
        return ", ".join([*(written(key.over(key.node)) for key in self.order), ROW])

    def _aggregates(self, node: exp.Expr) -> Iterator[exp.Expr]:
        return aggregates(node, self.cutter.catalogue)

    # --- cutting --------------------------------------------------------------------------

    def cut(self) -> exp.Expr:
        """The block without calls."""
        own = any(self.select.args.get(key) for key in ("distinct", "limit", "offset"))
        makes_rows = any(self._makes_rows(item.node) for item in self.items)
        self.cutter.blocks.append(not (self.grouped or self.windowed or own or makes_rows))
        if self.grouped:
            lists = GroupLists(self.cutter, self.asked, self.table)
            for window in self.windows:
                lists.refuse(window)
            grouped = self._mapped(lists.listed)._grouped()
            for table in lists.tables:
                self.cutter.drop(table)
            return grouped
        if self.windowed:
            return self._windowed()
        self._first_of_each()
        items = [replace(item, node=self._ask(item.node)) for item in self.items]
        order = [replace(key, node=self._ask(key.node)) for key in self.order]
        on = [self._ask(key) for key in self.on] if self.on is not None else None
        return self._final(items, order=order, on=on)

    def _ask(self, node: exp.Expr) -> exp.Expr:
        """An expression over rows with its answers as columns."""
        rewritten = self.asked.rewritten(node)
        self._step()
        return rewritten

    def _step(self) -> None:
        for ask in self.asked.taken():
            self.cutter.step(ask)

    def _first_of_each(self) -> None:
        """DISTINCT ON by keys without calls: the other rows need no answers."""
        if self.on is None or "early_stop" not in self.cutter.passes:
            return
        if any(has_call(key) for key in self.on) or any(has_call(k.node) for k in self.order):
            return
        if not self.calls() or any(self._makes_rows(item.node) for item in self.items):
            return
        keys = ", ".join(written(key) for key in self.on)
        self.cutter.step(
            MakeTable(
                self.table,
                f"SELECT DISTINCT ON ({keys}) * FROM {self.table} ORDER BY {self.order_text()}",
            )
        )
        self.cutter.rewrote(
            "early_stop", f"the first row of each {keys}", "DISTINCT ON drops the others"
        )

    # --- groups ---------------------------------------------------------------------------

    def _grouped(self) -> exp.Expr:
        keys: dict[str, exp.Expr] = {}
        for key in self._keys():
            keys.setdefault(written(key), key)
        roots = [*self.roots(), *self.windows]
        above = [call for root in roots for call in self._above(root, keys)]
        if not above:
            self.asked.taken()
            group = self.asked.rewritten(self.group) if self.group is not None else None

            def rewritten(root: exp.Expr) -> exp.Expr:
                units = self._units(root, keys)
                return replaced(root, {id(u): self.asked.rewritten(u) for u in units})

            parts = self._mapped(rewritten)
            self._step()
            return parts._final(parts.items, group=group, grouped=True)
        return self._over_groups(keys)

    def _keys(self) -> list[exp.Expr]:
        """The expressions that GROUP BY groups by."""
        keys: list[exp.Expr] = []

        def walk(node: exp.Expr) -> None:
            if isinstance(node, (exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)):
                for child in node.iter_expressions():
                    walk(child)
            elif isinstance(node, exp.Paren):
                walk(node.this)
            else:
                keys.append(node)

        if self.group is not None:
            walk(self.group)
        return keys

    def _units(self, root: exp.Expr, keys: dict[str, exp.Expr]) -> list[exp.Expr]:
        """The outermost parts of an expression that are one value for a group: keys, aggregates."""
        aggregated = {id(aggregate) for aggregate in self._aggregates(root)}
        units: list[exp.Expr] = []

        def walk(node: exp.Expr) -> None:
            if id(node) in aggregated or (
                not isinstance(node, exp.Query) and written(node) in keys
            ):
                units.append(node)
                return
            for child in node.iter_expressions():
                if isinstance(child, exp.Expr):
                    walk(child)

        walk(root)
        return units

    def _above(self, root: exp.Expr, keys: dict[str, exp.Expr]) -> list[exp.Expr]:
        """Calls that stand above groups."""
        if not has_call(root):
            return []
        within = {id(call) for unit in self._units(root, keys) for call in calls_in(unit)}
        return [call for call in calls_in(root) if id(call) not in within]

    def _over_groups(self, keys: dict[str, exp.Expr]) -> exp.Expr:
        names = {text: f"teola_g{at}" for at, text in enumerate(keys)}
        nodes = {names[text]: self.asked.rewritten(key) for text, key in keys.items()}
        group = self.asked.rewritten(self.group) if self.group is not None else None

        def outside(root: exp.Expr) -> exp.Expr:
            by: dict[int, exp.Expr] = {}
            for unit in self._units(root, keys):
                text = written(unit)
                if text not in names:
                    names[text] = f"teola_a{len(names)}"
                    nodes[names[text]] = self.asked.rewritten(unit)
                by[id(unit)] = column(names[text])
            return replaced(root, by)

        parts = self._mapped(outside)
        inside, asked = [], []
        for before, after in zip(self.having, parts.having, strict=True):
            if has_call(after):
                asked.append(after)
            else:
                units = self._units(before, keys)
                inside.append(replaced(before, {id(u): nodes[names[written(u)]] for u in units}))
        self._step()
        inner = exp.Select(
            expressions=[exp.alias_(node.copy(), name) for name, node in nodes.items()]
            or [exp.Literal.number(1)],
            from_=exp.From(this=exp.to_table(self.table)),
            group=group,
            having=exp.Having(this=_all(inside)) if inside else None,
        )
        table = self.cutter.new_table()
        self.cutter.step(MakeTable(table, written(inner)))
        self.cutter.drop(self.table)
        return self.cutter.query(parts._outer(table, asked))

    # --- windows --------------------------------------------------------------------------

    def _windowed(self) -> exp.Expr:
        units: list[exp.Expr] = [window for root in self.roots() for window in windows_in(root)]
        within = {id(call) for unit in units for call in calls_in(unit)}
        within |= {id(call) for window in self.windows for call in calls_in(window)}
        above = [c for root in self.roots() for c in calls_in(root) if id(c) not in within]
        named = [self.asked.rewritten(window) for window in self.windows]
        if not above:

            def rewritten(root: exp.Expr) -> exp.Expr:
                return replaced(root, {id(u): self.asked.rewritten(u) for u in windows_in(root)})

            parts = replace(replace(self, windows=[])._mapped(rewritten), windows=named)
            self._step()
            return parts._final(parts.items)
        names: dict[str, str] = {}
        nodes: dict[str, exp.Expr] = {}

        def outside(root: exp.Expr) -> exp.Expr:
            by: dict[int, exp.Expr] = {}
            for unit in windows_in(root):
                text = written(unit)
                if text not in names:
                    names[text] = f"teola_w{len(names)}"
                    nodes[names[text]] = self.asked.rewritten(unit)
                by[id(unit)] = column(names[text])
            return self.asked.known_put_in(replaced(root, by))

        parts = replace(self, windows=[])._mapped(outside)
        inside, asked = [], []
        for before, after in zip(self.qualify, parts.qualify, strict=True):
            if has_call(after):
                asked.append(after)
            else:
                inside.append(
                    replaced(before, {id(u): nodes[names[written(u)]] for u in windows_in(before)})
                )
        self._step()
        inner = exp.Select(
            expressions=[
                exp.Star(),
                *(exp.alias_(node.copy(), name) for name, node in nodes.items()),
            ],
            from_=exp.From(this=exp.to_table(self.table)),
            qualify=exp.Qualify(this=_all(inside)) if inside else None,
            windows=named or None,
            order=exp.Order(expressions=[exp.Ordered(this=column(ROW))]),
        )
        table = self.cutter.new_table()
        self.cutter.step(MakeTable(table, written(inner)))
        self.cutter.drop(self.table)
        return self.cutter.query(replace(parts, qualify=[])._outer(table, asked))

    # --- writing --------------------------------------------------------------------------

    def _mapped(self, change: Callable[[exp.Expr], exp.Expr]) -> Rest:
        """A copy in which each expression is changed, but for GROUP BY and named windows."""
        return replace(
            self,
            items=[replace(item, node=change(item.node)) for item in self.items],
            having=[change(condition) for condition in self.having],
            qualify=[change(condition) for condition in self.qualify],
            windows=[change(window) for window in self.windows],
            order=[replace(key, node=change(key.node)) for key in self.order],
            on=[change(key) for key in self.on] if self.on is not None else None,
        )

    def _outer(self, table: str, conditions: list[exp.Expr]) -> exp.Select:
        """The block over another base, with calls."""
        return self._written(table, self.items, self.order, self.on, tie=False, where=conditions)

    def _final(
        self,
        items: list[Item],
        *,
        order: list[OrderKey] | None = None,
        on: list[exp.Expr] | None = None,
        group: exp.Expr | None = None,
        grouped: bool = False,
    ) -> exp.Select:
        query = self._written(
            self.table,
            items,
            self.order if order is None else order,
            self.on if on is None else on,
            tie=not grouped,
        )
        if group is not None:
            query.set("group", group)
        if self.having:
            query.set("having", exp.Having(this=_all(self.having)))
        return query

    def _written(
        self,
        table: str,
        items: list[Item],
        order: list[OrderKey],
        on: list[exp.Expr] | None,
        *,
        tie: bool,
        where: list[exp.Expr] | None = None,
    ) -> exp.Select:
        distinct = self.select.args.get("distinct")
        keys = [
            key.over(exp.Literal.number(key.item) if key.item is not None else key.node)
            for key in order
        ]
        if tie and (distinct is None or on is not None):
            # Rows that ORDER BY does not tell apart keep the order of their source.
            keys.append(exp.Ordered(this=column(ROW)))
        query = exp.Select(
            expressions=[exp.alias_(item.node.copy(), item.name, quoted=True) for item in items],
            from_=exp.From(this=exp.to_table(table)),
            order=exp.Order(expressions=keys) if keys else None,
        )
        if where:
            query.set("where", exp.Where(this=_all(where)))
        if on is not None:
            keys_on = exp.Tuple(expressions=[key.copy() for key in on])
            query.set("distinct", exp.Distinct(on=keys_on))
        elif distinct is not None:
            query.set("distinct", exp.Distinct())
        if self.qualify:
            query.set("qualify", exp.Qualify(this=_all(self.qualify)))
        if self.windows:
            query.set("windows", [window.copy() for window in self.windows])
        for clause in ("limit", "offset"):
            if self.select.args.get(clause) is not None:
                query.set(clause, self.select.args[clause].copy())
        return query


def _all(conditions: list[exp.Expr]) -> exp.Expr:
    conjunction: exp.Expr = exp.Paren(this=conditions[0].copy())
    for condition in conditions[1:]:
        conjunction = exp.And(this=conjunction, expression=exp.Paren(this=condition.copy()))
    return conjunction
