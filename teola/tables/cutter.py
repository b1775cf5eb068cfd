"""Cutting a query into steps: its blocks one by one, the innermost first.

    query ─▶ parts of WITH ─▶ sides of UNION ─▶ sources in FROM ─▶ subqueries ─▶ joins ─▶ block

Each that holds calls becomes a query without, over tables that steps make. As steps are planned
their tables are declared, empty, on the planner's connection: so every statement of the plan is
checked by DuckDB before anything is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from teola.errors import InputError
from teola.tables.call_rewrites import rewrites_of_calls
from teola.tables.duckdb_schema import quoted, written
from teola.tables.field_names import name_fields
from teola.tables.marks import calls_in, has_call
from teola.tables.outer_joins import settle_joins
from teola.tables.places import refused
from teola.tables.plan_builder import PlanBuilder
from teola.tables.plan_steps import AskCall, Column, Filter, MakeTable, TablePlan
from teola.tables.pushed_conditions import push_conditions
from teola.tables.query_block import SqlBlock
from teola.tables.scope import sources_of
from teola.tables.single_rows import source_that_streams, stands_alone


class Cutter(PlanBuilder):
    """Cuts one query. passes: names of the rewrites that may be made."""

    def plan(self, tree: exp.Query, columns: tuple[Column, ...]) -> TablePlan:
        """The plan of a query whose columns DuckDB gave. Raises InputError."""
        query = self.query(tree.copy())
        final = written(query)
        now = self.catalogue.describe(final)
        if [made.type for made in now] != [column.type for column in columns]:
            raise InputError(
                "this query cannot be planned: its columns would be of other types "
                f"({', '.join(made.type for made in now)} for "
                f"{', '.join(made.type for made in columns)})"
            )
        plain = self.blocks == [True] and stands_alone(query, self.catalogue)
        base, last = source_that_streams(query) if plain else None, self.steps[-1]
        asks = isinstance(last, AskCall) or (isinstance(last, Filter) and last.most is None)
        streams = base if asks and last.table == base else None
        plan = TablePlan(tuple(self.steps), final, columns, (), plain, streams)
        rewrites = (*self.rewrites, *rewrites_of_calls(plan.asks(), self.passes))
        return replace(plan, rewrites=rewrites)

    # --- queries --------------------------------------------------------------------------

    def query(self, node: exp.Query) -> exp.Query:
        """A query without calls that means the same once the steps are run. Raises InputError."""
        if not has_call(node):
            return node
        node = self._parts(node)
        if not has_call(node):
            return node
        if isinstance(node, exp.Subquery):
            return self._bracketed(node)
        if isinstance(node, exp.SetOperation):
            return self._sides(node)
        if isinstance(node, exp.Select):
            return self._select(node)
        raise refused(
            "a call stands in something that is no SELECT",
            node,
            self.calls.sql,
            "write it as a SELECT",
        )

    def _parts(self, node: exp.Query) -> exp.Query:
        """Make a table of each part of WITH that is read, and drop the others."""
        clause = node.args.get("with_")
        if clause is None:
            return node
        recursive = bool(clause.args.get("recursive"))
        node.set("with_", None)
        parts = list(clause.expressions)
        for at, part in enumerate(parts):
            name = part.alias
            itself = recursive and any(True for _ in named(part.this, name))
            if itself and has_call(part.this):
                raise refused(
                    "a recursive part of WITH has a call",
                    part.this,
                    self.calls.sql,
                    "let the recursion make the rows and ask the call for them outside",
                )
            readers = [*parts[at + 1 :], node]
            if not any(True for reading in readers for _ in named(_body(reading), name)):
                continue
            inner = self.query(part.this) if has_call(part.this) else part.this
            columns = [column.name for column in part.args["alias"].args.get("columns") or ()]
            spelled = f"({', '.join(map(quoted, columns))})" if columns else ""
            word = "WITH RECURSIVE" if itself else "WITH"
            table = self.new_table()
            self.step(
                MakeTable(
                    table,
                    f"{word} {quoted(name)}{spelled} AS ({written(inner)}) "
                    f"SELECT * FROM {quoted(name)}",
                )
            )
            for reader in readers:
                for place in list(named(_body(reader), name)):
                    _point(place, table, name)
        return node

    def _bracketed(self, node: exp.Subquery) -> exp.Query:
        """`(SELECT ...) ORDER BY ...`: what follows the brackets has no calls."""
        inner = node.this
        if any(has_call(v) for v in _others(node)):
            raise refused(
                "a call stands after a query in brackets",
                node,
                self.calls.sql,
                "write SELECT * FROM (...) and the call there",
            )
        node.set("this", self.query(inner))
        return node

    def _sides(self, node: exp.SetOperation) -> exp.Query:
        if any(has_call(v) for v in _others(node)):
            raise refused(
                f"a call stands in the ORDER BY of a {type(node).__name__.upper()}",
                node,
                self.calls.sql,
                "write SELECT * FROM (... UNION ...) ORDER BY and the call there",
            )
        for side in ("this", "expression"):
            body = self.query(node.args[side])
            # Its own ORDER BY needs brackets.
            bare = isinstance(body, exp.Select)
            node.set(side, exp.Subquery(this=body) if bare else body)
        return node

    def _select(self, select: exp.Select) -> exp.Query:
        for source in sources_of(select):
            if not source.alias_or_name:
                alias = exp.to_identifier(f"teola_q{self.number()}")
                source.set("alias", exp.TableAlias(this=alias))
        self._sources(select)
        self._subqueries(select)
        if not has_call(select):
            return select
        name_fields(select, self.catalogue, self.calls)
        settle_joins(self, select)
        return self.optional_block(select)

    def optional_block(self, select: exp.Select) -> exp.Query:
        """A block whose FROM has no calls, cut if there are some in it."""
        if not has_call(select):
            return select
        block = SqlBlock(self, select).cut()
        assert isinstance(block, exp.Query)
        return block

    def _sources(self, select: exp.Select) -> None:
        for source in list(sources_of(select)):
            if not has_call(source):
                continue
            inner = source.this if isinstance(source, exp.Lateral) else source
            if not isinstance(inner, exp.Subquery):
                raise refused(
                    "a call stands in a table function",
                    source,
                    self.calls.sql,
                    "ask it in a subquery before",
                )
            if self.catalogue.binds(exp.select("*").from_(inner.copy())):
                self._push_conditions(select, inner)
                inner.set("this", self.query(inner.this))
            else:
                self._same_row(select, source, inner)

    def _push_conditions(self, select: exp.Select, source: exp.Subquery) -> None:
        if "predicates" not in self.passes:
            return
        for condition in push_conditions(select, source, self.catalogue):
            self.rewrote(
                "predicates",
                written(condition),
                "it is about columns below the calls of a subquery, so it goes before them",
            )

    def _same_row(self, select: exp.Select, source: exp.Expr, inner: exp.Subquery) -> None:
        """`FROM t, LATERAL (SELECT LLM('...', t.x) AS k) AS s`: s.k is what it stands for."""
        lateral = inner.this
        simple = isinstance(lateral, exp.Select) and not any(
            lateral.args.get(key)
            for key in ("from_", "where", "group", "having", "qualify", "limit", "distinct")
        )
        join = source.parent
        plain = isinstance(join, exp.Join) and not (join.side or join.args.get("on"))
        if not simple or not plain:
            raise refused(
                "a subquery of FROM has a call and reads the tables beside it",
                source,
                self.calls.sql,
                "join the tables and ask the call there",
            )
        alias = source.alias_or_name
        values = {
            expression.alias_or_name.lower(): expression.unalias()
            for expression in lateral.expressions
        }
        renamed = source.args["alias"].args.get("columns") if source.args.get("alias") else None
        if renamed:
            values = {
                name.name.lower(): expression.unalias()
                for name, expression in zip(renamed, lateral.expressions, strict=True)
            }
        if any(isinstance(expression, exp.Star) for expression in select.expressions):
            raise refused(
                "a * beside a LATERAL subquery with a call",
                source,
                self.calls.sql,
                "name the columns",
            )
        assert join is not None
        join.pop()
        for column in list(select.find_all(exp.Column)):
            qualified = column.table.lower() == alias.lower() if column.table else True
            if qualified and column.name.lower() in values:
                column.replace(exp.Paren(this=values[column.name.lower()].copy()))

    def _subqueries(self, select: exp.Select) -> None:
        """Subqueries in expressions: those with calls become queries over tables."""
        inside = {id(node) for source in sources_of(select) for node in source.walk()}
        outermost = [
            node
            for node in select.find_all(exp.Query)
            if node is not select and id(node) not in inside and not _within_query(node, select)
        ]
        for node in outermost:
            if not has_call(node):
                continue
            body = node.this if isinstance(node, exp.Subquery) else node
            if not self.catalogue.binds(body):
                raise refused(
                    "a correlated subquery has a call",
                    next(calls_in(node)),
                    self.calls.sql,
                    "join its table in FROM and ask the call there",
                )
            query = self.query(body.copy())
            body.replace(query)


def _within_query(node: exp.Expr, root: exp.Expr) -> bool:
    above = node.parent
    while above is not None and above is not root:
        if isinstance(above, exp.Query):
            return True
        above = above.parent
    return False


def _others(node: exp.Expr) -> Iterator[exp.Expr]:
    """Clauses of a set operation or of brackets, besides their queries."""
    for key, value in node.args.items():
        if key in ("this", "expression", "alias"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr):
                yield child


def _body(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.CTE) else node


def named(root: exp.Expr, name: str) -> Iterator[exp.Table]:
    """Tables in a query whose name means a part of WITH around it."""
    for table in root.find_all(exp.Table):
        if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
            continue
        if table.name.lower() == name.lower() and not _hidden(table, root, name):
            yield table


def _hidden(table: exp.Expr, root: exp.Expr, name: str) -> bool:
    """Whether the name means a part of WITH further in, which has the same name."""
    node: exp.Expr | None = table
    below: exp.Expr | None = None
    while node is not None and node is not root.parent:
        clause = node.args.get("with_")
        if clause is not None:
            for part in clause.expressions:
                if part is below and not clause.args.get("recursive"):
                    break
                if part.alias.lower() == name.lower():
                    return True
                if part is below:
                    break
        if isinstance(node, exp.CTE):
            below = node
        node = node.parent
    return False


def _point(table: exp.Table, to: str, name: str) -> None:
    """Let a name in FROM mean another table, under the same alias."""
    if not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    table.set("this", exp.to_identifier(to))
