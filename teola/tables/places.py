"""Where something stands in a query's text, for errors."""

from __future__ import annotations

from sqlglot import exp

from teola.errors import InputError


def place(node: exp.Expr, sql: str) -> str:
    """` at line 2, column 7`, of a node or the first thing in it that has a place; empty where the
    query was not written as text."""
    starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
    if not starts or not sql:
        return ""
    before = sql[: min(starts)]
    line = before.count("\n") + 1
    return f" at line {line}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"


def refused(what: str, node: exp.Expr, sql: str, instead: str) -> InputError:
    """The error for something that cannot be planned: what, where, and what to write instead."""
    return InputError(f"{what}{place(node, sql)}: {instead}")
