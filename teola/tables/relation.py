"""Relations: tables and what is made of them, without running anything. They never change.

Each operation makes a new relation, whose tree is the SELECT that SQL would have. Operations go
into the same SELECT where that means the same (filters before a select, an order and a limit after
it), and else into one around it. So `plan` is that of the SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from sqlglot import exp

from teola.errors import InputError, UnknownName
from teola.tables.duckdb_schema import Catalogue
from teola.tables.expressions import Expression, held, node_of
from teola.tables.marks import Calls, has_call, numbered
from teola.tables.plan_steps import Column
from teola.tables.table_query import TableQuery
from teola.tables.workspace import Workspace

HOW: Final = {"inner": "", "left": "LEFT", "right": "RIGHT", "full": "FULL"}


class Relation(TableQuery):
    """A table, or a query over tables. columns: with their types. Columns are `t.name` or
    `t["name"]`."""

    def __init__(
        self, tree: exp.Select, tables: Mapping[str, Any], origin: frozenset[int], **defaults: Any
    ) -> None:
        super().__init__(tree, tables, **defaults)
        self._tree, self._origin = tree, origin | {id(self)}
        self._marker = id(self)

    # --- columns --------------------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Names and types, as DuckDB has them. Raises InputError."""
        calls = Calls()
        tree = numbered(self._tree, calls)
        with Workspace(self._tables, empty=True) as workspace:
            catalogue = Catalogue(workspace.con, calls)
            catalogue.prepare()
            return catalogue.describe(tree)

    def __getitem__(self, name: str) -> Expression:
        listed = [column.name for column in self.columns]
        if name not in listed:
            raise UnknownName("column", name, listed)
        node = exp.column(exp.to_identifier(name, quoted=True))
        node.meta["of"] = self._marker
        return Expression(node, name)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except UnknownName as error:
            raise AttributeError(str(error)) from None

    # --- operations -----------------------------------------------------------------------

    def filter(self, *conditions: Any) -> Relation:
        """The rows for which every condition is true."""
        if not conditions:
            return self
        select = self._base(("limit", "offset", "distinct", "group", "order"))
        where = select.args.get("where")
        whole = where.this if where is not None else None
        for condition in conditions:
            node = held(self._own(condition))
            whole = node if whole is None else exp.And(this=whole, expression=node)
        select.set("where", exp.Where(this=whole))
        return self._made(select)

    def select(self, *columns: Any, **named: Any) -> Relation:
        """Columns: names, expressions, and expressions by name."""
        select = self._base(("limit", "offset", "distinct", "group", "order"))
        select.set("expressions", self._listed(columns, named))
        return self._made(select)

    def with_columns(self, **named: Any) -> Relation:
        """All columns, and these further ones. One that is called like a column takes its place."""
        new = {name.lower(): Expression(node_of(value), name) for name, value in named.items()}
        kept = [new.pop(column.name.lower(), column.name) for column in self.columns]
        return self.select(*kept, *new.values())

    def group_by(self, *keys: Any) -> Grouped:
        """Groups of rows that have the same keys: names or expressions."""
        return Grouped(self, keys)

    def join(self, other: Relation, on: Any, how: str = "inner") -> Relation:
        """Pairs of rows. on: names that both have, or a condition. how: inner, left, right, full.

        A column that both have is the left one's, and the right one's is `NAME_right`, with
        `_right` once more where that is a column, too.
        """
        if how not in HOW:
            raise UnknownName("join", how, HOW)
        tables = merged(self._tables, other._tables)
        names = [column.name for column in self.columns]
        theirs = [column.name for column in other.columns]
        left, right = "l", "r"
        if isinstance(on, Expression):
            condition = self._sided(on, other, left, right)
            shared: list[str] = []
        else:
            shared = [on] if isinstance(on, str) else list(on)
            condition = None
            for name in shared:
                for side, listed in (("left", names), ("right", theirs)):
                    if name not in listed:
                        raise UnknownName(f"column of the {side} table", name, listed)
                pair = exp.EQ(this=_of(left, name), expression=_of(right, name))
                condition = pair if condition is None else exp.And(this=condition, expression=pair)
        listed_out: list[exp.Expr] = []
        for name in names:
            value: exp.Expr = _of(left, name)
            if name in shared and how in ("right", "full"):
                value = exp.Anonymous(this="coalesce", expressions=[value, _of(right, name)])
            listed_out.append(exp.alias_(value, name, quoted=True))
        taken = {name.lower() for name in names}
        for name in theirs:
            if name not in shared:
                called = name
                while called.lower() in taken:
                    called = f"{called}_right"
                taken.add(called.lower())
                listed_out.append(exp.alias_(_of(right, name), called, quoted=True))
        select = exp.Select(
            expressions=listed_out,
            from_=exp.From(this=_as_source(self._tree, left)),
            joins=[
                exp.Join(this=_as_source(other._tree, right), side=HOW[how] or None, on=condition)
            ],
        )
        return Relation(select, tables, self._origin | other._origin, **self._defaults)

    def order_by(self, *keys: Any) -> Relation:
        """The rows in an order of names or expressions; `.desc()` reverses a key."""
        ordered: list[exp.Expr] = []
        for key in keys:
            node = self._own(key)
            ordered.append(node if isinstance(node, exp.Ordered) else exp.Ordered(this=node))
        inside = [inner for inner in map(self._inside, ordered) if inner is not None]
        if len(inside) == len(ordered):
            select, ordered = self._tree.copy(), inside
        else:
            select = self._base(("limit", "offset", "order"))
        select.set("order", exp.Order(expressions=ordered))
        return self._made(select)

    def limit(self, rows: int, offset: int = 0) -> Relation:
        """The first rows."""
        for name, value in (("limit", rows), ("offset", offset)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"{name} must be a whole number from 0, not {value!r}")
        select = self._base(("limit", "offset"), listed=True)
        select.set("limit", exp.Limit(expression=exp.Literal.number(rows)))
        if offset:
            select.set("offset", exp.Offset(expression=exp.Literal.number(offset)))
        return self._made(select)

    def distinct(self) -> Relation:
        """Each row once."""
        select = self._base(("limit", "offset", "order"))
        select.set("distinct", exp.Distinct())
        return self._made(select)

    # --- how ------------------------------------------------------------------------------

    def _base(self, taken: tuple[str, ...], *, listed: bool = False) -> exp.Select:
        """A SELECT to which a clause can be added: this one if it has none of the clauses `taken`,
        else one around it. listed: the clause means the same where columns are listed, for it names
        none."""
        lists = not all(isinstance(expression, exp.Star) for expression in self._tree.expressions)
        if any(self._tree.args.get(key) for key in taken) or (lists and not listed):
            return exp.select("*").from_(_as_source(self._tree, "s"))
        return self._tree.copy()

    def _inside(self, key: exp.Expr) -> exp.Expr | None:
        """A key of an order, written within this SELECT over the expressions of its columns; None
        where that is not the same: then the order is that of a SELECT around it."""
        taken = ("limit", "offset", "order", "distinct", "group")
        if any(self._tree.args.get(name) for name in taken):
            return None
        if all(isinstance(expression, exp.Star) for expression in self._tree.expressions):
            return key
        listed = {
            expression.alias: expression.unalias()
            for expression in self._tree.expressions
            if expression.alias
        }
        columns = list(key.find_all(exp.Column))
        if any(column.name not in listed or has_call(listed[column.name]) for column in columns):
            return None

        def said(node: exp.Expr) -> exp.Expr:
            return held(listed[node.name].copy()) if isinstance(node, exp.Column) else node

        return key.transform(said)

    def _made(self, select: exp.Select) -> Relation:
        return Relation(select, self._tables, self._origin, **self._defaults)

    def _own(self, value: Any) -> exp.Expr:
        """The node of an expression over this relation, or of a column by name."""
        if isinstance(value, str):
            return self[value].node.copy()
        node = node_of(value)
        for reference in node.find_all(exp.Column):
            of = reference.meta.get("of")
            if of is not None and of not in self._origin:
                raise InputError(f"column {reference.name!r} is of another table: join it first")
            if reference.name not in (column.name for column in self.columns):
                raise UnknownName(
                    "column", reference.name, [column.name for column in self.columns]
                )
        return node.copy()

    def _sided(self, on: Expression, other: Relation, left: str, right: str) -> exp.Expr:
        node = on.node.copy()
        for column in list(node.find_all(exp.Column)):
            of = column.meta.get("of")
            mine, theirs = of in self._origin, of in other._origin
            if mine == theirs:
                raise InputError(
                    f"column {column.name!r} is of {'both tables' if mine else 'neither table'}: "
                    "take columns of each, as in t.id == u.id"
                )
            column.set("table", exp.to_identifier(left if mine else right))
        return node

    def _listed(self, columns: tuple[Any, ...], named: Mapping[str, Any]) -> list[exp.Expr]:
        nodes: list[exp.Expr] = []
        for column in columns:
            node = self._own(column)
            name = column if isinstance(column, str) else getattr(column, "name", None)
            if name is None and has_call(node):
                name = "llm"
            nodes.append(exp.alias_(node, name, quoted=True) if name else node)
        for name, value in named.items():
            node = self._own(value) if isinstance(value, Expression) else node_of(value)
            nodes.append(exp.alias_(node, name, quoted=True))
        if not nodes:
            raise InputError("select needs a column")
        return nodes


class Grouped:
    """Groups of a relation's rows; `agg` makes a relation of them."""

    def __init__(self, relation: Relation, keys: tuple[Any, ...]) -> None:
        self._relation, self._keys = relation, keys

    def agg(self, **named: Any) -> Relation:
        """One row for each group: its keys, and these aggregates."""
        relation = self._relation
        select = relation._base(("limit", "offset", "distinct", "group", "order"))
        keys = relation._listed(self._keys, {}) if self._keys else []
        values = relation._listed((), named) if named else []
        if not keys and not values:
            raise InputError("agg needs a value, such as n=tables.count()")
        select.set("expressions", [*keys, *values])
        if keys:
            select.set("group", exp.Group(expressions=[key.unalias().copy() for key in keys]))
        return relation._made(select)


def _as_source(tree: exp.Select, alias: str) -> exp.Expr:
    """A tree in FROM: a plain table as such, else in brackets."""
    bare = isinstance(tree.args["from_"].this, exp.Table) and all(
        not value or key in ("expressions", "from_") for key, value in tree.args.items()
    )
    if bare and len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star):
        table: exp.Expr = tree.args["from_"].this.copy()
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        return table
    return exp.Subquery(this=tree.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _of(table: str, name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def merged(columns: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of two relations. Raises InputError where two have one name."""
    by_name = {name.lower(): value for name, value in columns.items()}
    for name, value in more.items():
        if by_name.get(name.lower(), value) is not value:
            raise InputError(f"two tables are called {name!r}: give one of them another name")
    return {**columns, **more}
