"""Which part of WITH a name of a table means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


def visible_parts(table: exp.Expr) -> Iterator[exp.CTE]:
    """Parts of WITH that this table's name means in every database, the innermost first.

    Those of every statement around it; within a part itself only the parts before it, and the part
    itself where WITH is RECURSIVE. (SQLite lets a part read itself and later ones without that
    word, PostgreSQL later ones with it: a name that means either is taken for a table's.)
    """
    from sqlglot import exp

    node: exp.Expr = table
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With):
            yield from parent.expressions[: (node.index or 0) + bool(parent.recursive)]
        elif (own := parent.args.get("with_")) is not None and own is not node:
            yield from own.expressions
        node = parent


def parts_around(table: exp.Expr) -> Iterator[exp.CTE]:
    """Parts of WITH that the table stands in."""
    from sqlglot import exp

    node: exp.Expr | None = table
    while node is not None:
        if isinstance(node, exp.CTE):
            yield node
        node = node.parent


def part_name(part: exp.CTE) -> exp.Expr | None:
    """The identifier of a part of WITH."""
    named: exp.Expr | None = part.args["alias"].this
    return named
