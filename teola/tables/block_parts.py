"""Parts of a block that is being cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from teola.tables.duckdb_schema import Catalogue, written
from teola.tables.scope import ColumnKey

MADE: Final = "teola_c"
SERIES: Final = ("unnest", "generate_series", "range", "generate_subscripts")
WRAPS: Final = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the SELECT list. name: the name of the result's column."""

    node: exp.Expr
    name: str
    aliased: bool = True


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A key of ORDER BY. ordered: with its direction. item: the position in the SELECT list that it
    names, if it does."""

    node: exp.Expr
    ordered: exp.Expr
    item: int | None

    def over(self, node: exp.Expr) -> exp.Expr:
        """The same direction for another expression."""
        copy = self.ordered.copy()
        copy.set("this", node.copy())
        return copy


@dataclass(slots=True)
class BaseColumns:
    """The columns of a base, each with its SQL over the block's FROM."""

    texts: list[str] = field(default_factory=list)
    by_key: dict[ColumnKey, str] = field(default_factory=dict)
    count: int = 0

    def add(self, text: str, columns: int = 1) -> list[str]:
        """Names of the columns that SQL gives."""
        self.texts.append(text)
        names = [f"{MADE}{self.count + at}" for at in range(columns)]
        self.count += columns
        return names

    def of(self, key: ColumnKey, head: exp.Expr) -> str:
        """The column for a column of FROM, made when it is first read."""
        if key not in self.by_key:
            (self.by_key[key],) = self.add(written(head))
        return self.by_key[key]


def aggregates(node: exp.Expr, catalogue: Catalogue) -> Iterator[exp.Expr]:
    """Calls of aggregate functions in an expression, with FILTER and the like around them; but not
    a window's function, and nothing in subqueries."""
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Window):
        function = node.this
        while isinstance(function, WRAPS):
            function = function.this
        for child in function.iter_expressions():
            yield from aggregates(child, catalogue)
        for key, value in node.args.items():
            for child in value if isinstance(value, list) else [value]:
                if key != "this" and isinstance(child, exp.Expr):
                    yield from aggregates(child, catalogue)
        return
    inner = node
    while isinstance(inner, WRAPS):
        inner = inner.this
    if catalogue.is_aggregate(inner):
        yield node
        return
    for child in node.iter_expressions():
        yield from aggregates(child, catalogue)


def windows_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Window functions in an expression, and nothing in subqueries."""
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Window):
        yield node
        return
    for child in node.iter_expressions():
        yield from windows_in(child)


def replaced(node: exp.Expr, by: dict[int, exp.Expr]) -> exp.Expr:
    """A copy of a tree in which some nodes, by their id(), are replaced."""
    if id(node) in by:
        return by[id(node)].copy()
    copy = node.copy()
    for key, value in node.args.items():
        if isinstance(value, exp.Expr):
            copy.set(key, replaced(value, by))
        elif isinstance(value, list):
            copy.set(key, [replaced(v, by) if isinstance(v, exp.Expr) else v for v in value])
    return copy
