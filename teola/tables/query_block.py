"""Cutting one block, a SELECT with its FROM, at its calls.

    base := row id + the columns that anything later reads, FROM and JOIN, conjuncts without calls
    conjuncts with calls, cheapest first: ask; rows go for which one is not true
    calls of rows become columns of base; so GROUP BY, DISTINCT, ORDER BY and windows work as they
    are
    calls over groups, or over windows' values: those become a base of their own, then as before
    DuckDB runs the block that is left

What is left reads the base's tables only, and so does everything in it that came from outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from teola.errors import InputError
from teola.tables.block_parts import MADE, SERIES, BaseColumns, Item, OrderKey, aggregates
from teola.tables.block_rest import Rest
from teola.tables.duckdb_schema import is_star, written
from teola.tables.guards import AnswerColumns, column
from teola.tables.marks import calls_in, has_call
from teola.tables.places import refused
from teola.tables.plan_builder import PlanBuilder
from teola.tables.plan_steps import ROW, Base, Conjunct, Filter
from teola.tables.scope import FromScope, OwnColumns, from_text, level


class SqlBlock:
    """Cuts one block: a SELECT with its clauses. Use it once."""

    def __init__(self, cutter: PlanBuilder, select: exp.Select) -> None:
        self.cutter, self.select = cutter, select
        self.catalogue, self.calls, self.passes = cutter.catalogue, cutter.calls, cutter.passes
        self.scope = FromScope(self.catalogue, select)
        self.own = OwnColumns(self.catalogue, self.scope)
        self.base = BaseColumns()
        self.table = cutter.new_table()
        self.sql = cutter.calls.sql

    # --- reading --------------------------------------------------------------------------

    def cut(self) -> exp.Expr:
        """The block without calls, over tables of steps. Raises InputError."""
        select = self.select
        self._refuse()
        columns = self.catalogue.describe(select)
        self.items = self._items([column.name for column in columns])
        where = self._conjuncts("where")
        group = self._group()
        having, qualify = self._conjuncts("having"), self._conjuncts("qualify")
        on = self._distinct_on()
        order = self._order()
        windows = [self._plain(window) for window in select.args.get("windows") or ()]
        early = (
            [condition for condition in where if not has_call(condition)]
            if "predicates" in self.passes
            else []
        )
        late = [condition for condition in where if not any(condition is other for other in early)]
        self.asked = AnswerColumns(
            self.table, self.catalogue, self.calls, self.cutter.number, "guards" in self.passes
        )
        # From here on expressions read columns of the base.
        conditions = [self._rebased(condition) for condition in late]
        self.items = [replace(item, node=self._rebased(item.node)) for item in self.items]
        having = [self._rebased(condition) for condition in having]
        qualify = [self._rebased(condition) for condition in qualify]
        order = [replace(key, node=self._rebased(key.node)) for key in order]
        on = [self._rebased(key) for key in on] if on is not None else None
        group = self._rebased(group) if group is not None else None
        windows = [self._rebased(window) for window in windows]
        rest = Rest(
            cutter=self.cutter,
            select=select,
            table=self.table,
            asked=self.asked,
            items=self.items,
            group=group,
            having=having,
            qualify=qualify,
            windows=windows,
            order=order,
            on=on,
        )
        self._make_base(early, rest)
        self._filter(conditions, rest)
        return rest.cut()

    def _refuse(self) -> None:
        for name in ("laterals", "pivots", "match", "connect", "into", "locks", "kind", "prewhere"):
            if self.select.args.get(name):
                raise refused(
                    f"{name} beside a call cannot be planned",
                    self.select,
                    self.sql,
                    "ask the call in a query around this one",
                )
        for node in calls_in(self.select):
            for inner in level(node):
                if isinstance(inner, exp.Anonymous) and str(inner.this).lower() in SERIES:
                    raise refused(
                        f"a call's field has {inner.this}(), which makes rows",
                        node,
                        self.sql,
                        "do that in a subquery and ask the call for its rows",
                    )

    def _items(self, names: list[str]) -> list[Item]:
        """The SELECT list with its stars as columns of the base and its aliases put in."""
        items: list[Item] = []
        self.aliases: dict[str, exp.Expr] = {}
        left = list(names)
        selected = self.select.expressions
        for expression in selected:
            inner = expression.this if isinstance(expression, exp.Alias) else expression
            if self._gives_several(expression):
                count = self._count_of(expression)
                columns = self.base.add(written(expression), count)
                items += [Item(column(name), left.pop(0), False) for name in columns]
                continue
            node = self._put_in(inner)
            items.append(Item(node, left.pop(0), isinstance(expression, exp.Alias)))
            if isinstance(expression, exp.Alias):
                self.aliases.setdefault(expression.alias.lower(), node)
        if left:
            raise InputError("a SELECT list beside a call gives columns that cannot be counted")
        return items

    def _gives_several(self, item: exp.Expr) -> bool:
        stars = [
            inner
            for inner in level(item)
            if is_star(inner)
            or isinstance(inner, exp.Columns)
            or (isinstance(inner, exp.Anonymous) and str(inner.this).lower() == "columns")
        ]
        if not stars or all(self._counts(star) for star in stars):
            return False
        if has_call(item) or any(self.catalogue.is_aggregate(inner) for inner in level(item)):
            raise refused("a * stands in an expression", item, self.sql, "name the columns")
        return True

    def _counts(self, star: exp.Expr) -> bool:
        """Whether a star stands in count(*)."""
        return isinstance(star.parent, exp.Anonymous) and str(star.parent.this).lower() == "count"

    def _count_of(self, item: exp.Expr) -> int:
        return len(self.catalogue.describe(f"SELECT {written(item)} {from_text(self.select)}"))

    def _put_in(self, node: exp.Expr) -> exp.Expr:
        """A copy in which aliases of the SELECT list are replaced by their expressions, unless a
        column has that name."""
        copy = node.copy()
        holder = exp.Paren(this=copy)
        for reference in list(holder.find_all(exp.Column)):
            name = reference.name.lower()
            if len(reference.parts) > 1 or is_star(reference) or name not in self.aliases:
                continue
            if self.scope.resolve(reference) is not None or self._inner(reference, holder):
                continue
            value = self.aliases[name]
            if any(self.catalogue.is_volatile(v) for v in value.walk()):
                raise refused(
                    f"{reference.name} is another value each time it is read",
                    reference,
                    self.sql,
                    "compute it in a subquery",
                )
            reference.replace(exp.Paren(this=value.copy()))
        rewritten: exp.Expr = holder.this
        return rewritten

    def _inner(self, node: exp.Expr, root: exp.Expr) -> bool:
        above = node.parent
        while above is not None and above is not root:
            if isinstance(above, (exp.Query, exp.Lambda, exp.Comprehension)):
                return True
            above = above.parent
        return False

    def _plain(self, node: exp.Expr) -> exp.Expr:
        return self._put_in(node)

    def _conjuncts(self, clause: str) -> list[exp.Expr]:
        node = self.select.args.get(clause)
        if node is None:
            return []
        conjuncts: list[exp.Expr] = []
        todo = [node.this]
        while todo:
            part = todo.pop(0)
            bare = part
            while isinstance(bare, exp.Paren):
                bare = bare.this
            if isinstance(bare, exp.And):
                todo[:0] = [bare.this, bare.expression]
            else:
                conjuncts.append(self._plain(part))
        return conjuncts

    def _group(self) -> exp.Group | None:
        """GROUP BY with positions and ALL written out."""
        group = self.select.args.get("group")
        if group is None:
            return None
        if group.args.get("all"):
            keys = [
                item.node.copy()
                for item in self.items
                if not any(True for _ in aggregates(item.node, self.catalogue))
                and not any(isinstance(n, exp.Window) for n in level(item.node))
            ]
            return exp.Group(expressions=keys)
        copy: exp.Group = group.copy()
        for node in list(level(copy)):
            if node is copy or node.parent is None:
                continue
            top = isinstance(node.parent, (exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets)) or (
                isinstance(node.parent, exp.Tuple) and not isinstance(node.parent.parent, exp.In)
            )
            if top and isinstance(node, exp.Literal) and not node.is_string:
                node.replace(self._positioned(node).node.copy())
        holder = self._plain(copy)
        assert isinstance(holder, exp.Group)
        return holder

    def _positioned(self, node: exp.Expr) -> Item:
        at = int(node.this)
        if not 1 <= at <= len(self.items):
            raise refused(f"there is no column {at}", node, self.sql, "count from 1")
        return self.items[at - 1]

    def _order(self) -> list[OrderKey]:
        order = self.select.args.get("order")
        keys: list[OrderKey] = []
        for expression in order.expressions if order is not None else ():
            node = expression.this
            if isinstance(node, exp.Var) and node.name.upper() == "ALL":
                return [
                    OrderKey(item.node.copy(), expression, at + 1)
                    for at, item in enumerate(self.items)
                ]
            if isinstance(node, exp.Literal) and not node.is_string:
                keys.append(
                    OrderKey(self._positioned(node).node.copy(), expression, int(node.this))
                )
                continue
            at = self._alias_at(node)
            if at is not None:
                keys.append(OrderKey(self.items[at].node.copy(), expression, at + 1))
            else:
                keys.append(OrderKey(self._plain(node), expression, None))
        return keys

    def _alias_at(self, node: exp.Expr) -> int | None:
        """Which item a name in ORDER BY is the alias of: there an alias counts before a column."""
        if not isinstance(node, exp.Column) or len(node.parts) > 1:
            return None
        name = node.name.lower()
        return next(
            (at for at, i in enumerate(self.items) if i.aliased and i.name.lower() == name), None
        )

    def _distinct_on(self) -> list[exp.Expr] | None:
        distinct = self.select.args.get("distinct")
        if distinct is None or distinct.args.get("on") is None:
            return None
        on = distinct.args["on"]
        keys = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
        return [
            self._positioned(key).node.copy()
            if isinstance(key, exp.Literal) and not key.is_string
            else self._plain(key)
            for key in keys
        ]

    # --- making ---------------------------------------------------------------------------

    def _rebased(self, node: Any) -> Any:
        """A copy in which columns of FROM are columns of the base."""
        holder = exp.Paren(this=node.copy())
        for reference, meant in list(self.own.of(holder)):
            value: exp.Expr = column(self.base.of(meant.key, meant.head))
            for name in meant.fields:
                value = exp.Dot(this=value, expression=name.copy())
            reference.replace(value)
        rebased: exp.Expr = holder.this
        return rebased

    def _make_base(self, early: list[exp.Expr], rest: Rest) -> None:
        texts = self.base.texts or ["0"]
        names = [f"{MADE}{at}" for at in range(max(1, self.base.count))]
        sql = f"SELECT {', '.join(texts)} {from_text(self.select)}"
        if early:
            sql += f" WHERE {' AND '.join(f'({written(condition)})' for condition in early)}"
        sample = self.select.args.get("sample")
        if sample is not None:
            sql += f" {written(sample)}"
        self.cutter.step(
            Base(
                self.table,
                f"SELECT row_number() OVER () - 1 AS {ROW}, b.* "
                f"FROM ({sql}) AS b({', '.join(names)})",
            )
        )
        if early and (rest.calls() or self.select.args.get("where")):
            self.cutter.rewrote(
                "predicates",
                " AND ".join(written(condition) for condition in early),
                "it costs nothing, so it goes before the calls",
            )

    def _filter(self, conditions: list[exp.Expr], rest: Rest) -> None:
        most = rest.most()
        order = rest.order_text() if most is not None else ROW
        if not conditions and (most is None or not rest.calls()):
            return
        conjuncts = []
        for unanswered in conditions:
            node = self.asked.rewritten(unanswered)
            conjuncts.append(Conjunct(self.asked.taken(), written(node)))
        if len(conjuncts) > 1 and "predicates" in self.passes:
            self.cutter.rewrote(
                "predicates",
                " AND ".join(written(condition) for condition in conditions),
                "each is a call or more: the one goes first that removes most rows for what it "
                "takes, by earlier runs and the first rows of this one",
            )
        if most is not None:
            self.cutter.rewrote(
                "early_stop",
                f"at most {most:,} rows are taken, in order",
                "LIMIT needs no more, and nothing above it reads others",
            )
        self.cutter.step(Filter(self.table, tuple(conjuncts), order, most))
