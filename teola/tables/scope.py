"""Which columns of a block's FROM its expressions read.

DuckDB itself says which columns each source has. A name that is no column of any source may be an
alias of the SELECT list, a variable of a lambda, or a column of a query around the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from teola.errors import InputError
from teola.tables.duckdb_schema import Catalogue, is_star, written
from teola.tables.marks import has_call

ColumnKey = tuple[str, str]
"""Source and column, folded; an empty source: the column that a join by USING makes of two."""


@dataclass(frozen=True, slots=True)
class FromSource:
    """A table of a FROM. columns: as they are spelled there."""

    alias: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """What a name in an expression means: a column of FROM, and perhaps fields of its value."""

    key: ColumnKey
    head: exp.Expr
    fields: tuple[exp.Expr, ...]


def sources_of(select: exp.Select) -> Iterator[exp.Expr]:
    """The sources in FROM and its joins, in the order in which they are written."""
    start = select.args.get("from_")
    if start is not None:
        yield start.this
    for first in (start.this,) if start is not None else ():
        for join in first.args.get("joins") or ():
            yield join.this
    for join in select.args.get("joins") or ():
        yield join.this


def from_text(select: exp.Select) -> str:
    """FROM and the joins of a block, as SQL; empty without them."""
    if select.args.get("from_") is None:
        return ""
    parts = [written(select.args["from_"])]
    for join in select.args.get("joins") or ():
        text = written(join).strip()
        parts.append(text)
    return " ".join(parts)


class FromScope:
    """The sources of one block. Raises InputError where DuckDB cannot say what they have."""

    def __init__(self, catalogue: Catalogue, select: exp.Select) -> None:
        self.sources: list[FromSource] = []
        # DuckDB knows no calls, and one may stand in the ON of a join.
        called = any(has_call(join) for join in select.args.get("joins") or ())
        bindable = catalogue.bindable(select) if called else select
        assert isinstance(bindable, exp.Select)
        text = from_text(bindable)
        for node in sources_of(select):
            alias = node.alias_or_name
            if not alias:
                continue
            try:
                columns = catalogue.columns_of(alias, text)
            except InputError:
                continue  # the right side of a semi join, which nothing else can read
            self.sources.append(FromSource(alias, columns))

    def owners(self, name: str) -> list[FromSource]:
        """The sources that have a column."""
        folded = name.lower()
        return [s for s in self.sources if folded in (c.lower() for c in s.columns)]

    def source(self, alias: str) -> FromSource | None:
        """The source with an alias."""
        return next((s for s in self.sources if s.alias.lower() == alias.lower()), None)

    def resolve(self, column: exp.Column) -> ColumnReference | None:
        """What a name means, or None if it is no column of these sources."""
        if is_star(column):
            return None
        parts = tuple(column.parts)
        first = parts[0].name.lower()
        source = self.source(first)
        if source is not None and len(parts) > 1:
            second = parts[1].name.lower()
            if second in (c.lower() for c in source.columns):
                return ColumnReference(
                    (source.alias.lower(), second), _column(parts[:2]), parts[2:]
                )
        owners = self.owners(first)
        if owners:
            key = (owners[0].alias.lower() if len(owners) == 1 else "", first)
            return ColumnReference(key, _column(parts[:1]), parts[1:])
        if source is not None and len(parts) == 1:
            return ColumnReference((source.alias.lower(), ""), _column(parts), ())
        return None


def _column(parts: tuple[exp.Expr, ...]) -> exp.Expr:
    names = [part.copy() for part in parts]
    return exp.Column(this=names[-1], table=names[0] if len(names) > 1 else None)


def level(node: exp.Expr) -> Iterator[exp.Expr]:
    """Nodes of an expression. A subquery is given as a node, but not the nodes in it."""
    yield node
    if isinstance(node, exp.Query):
        return
    for child in node.iter_expressions():
        yield from level(child)


class OwnColumns:
    """Finds the columns of a block's FROM that an expression reads, also within subqueries."""

    def __init__(self, catalogue: Catalogue, scope: FromScope) -> None:
        self.catalogue, self.scope = catalogue, scope

    def of(self, root: exp.Expr) -> Iterator[tuple[exp.Column, ColumnReference]]:
        """The nodes that read columns of the block's FROM, each with its reference."""
        for node in list(root.find_all(exp.Column)):
            if self._bound(node, root):
                continue
            column = self.scope.resolve(node)
            if column is not None:
                yield node, column

    def _bound(self, column: exp.Column, root: exp.Expr) -> bool:
        """Whether something between the name and the root gives it its meaning."""
        node: exp.Expr | None = column
        first = column.parts[0].name.lower()
        while node is not None and node is not root:
            if isinstance(node, exp.Comprehension) and node.expression.name.lower() == first:
                return True
            if isinstance(node, exp.Lambda) and first in (v.name.lower() for v in node.expressions):
                return True
            if isinstance(node, exp.Select) and node.args.get("from_") is not None:
                inner = FromScope(self.catalogue, node)
                if inner.resolve(column) is not None:
                    return True
            node = node.parent
        return False
