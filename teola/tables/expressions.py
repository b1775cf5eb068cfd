"""Expressions over columns of relations, as the API writes them: nodes of a query's tree.

t.price * 2 > 10        (t.a == "x") & ~t.b.is_null()        llm("Tone?", t.text) == "good"
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from sqlglot import exp

from teola.errors import InputError
from teola.tables.llm_call import LlmCall, llm_call_of
from teola.tables.marks import ERROR, GROUP_ERROR, GROUP_VALUE, VALUE, retrieval_node
from teola.tables.retrieval_call import retrieval_of


class Expression:
    """A value for each row. node: of the tree; calls in it carry what they ask in their `meta`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: exp.Expr, name: str | None = None) -> None:
        self.node, self.name = node, name

    def named(self, name: str) -> Expression:
        """The same expression under a name."""
        return Expression(self.node, name)

    def _two(self, kind: type[exp.Expr], other: Any, turned: bool = False) -> Expression:
        left, right = held(self.node), held(node_of(other))
        if turned:
            left, right = right, left
        return Expression(kind(this=left, expression=right))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        if other is None:
            raise InputError("== None is never true in SQL: write .is_null()")
        return self._two(exp.EQ, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        if other is None:
            raise InputError("!= None is never true in SQL: write ~column.is_null()")
        return self._two(exp.NEQ, other)

    def __lt__(self, other: Any) -> Expression:
        return self._two(exp.LT, other)

    def __le__(self, other: Any) -> Expression:
        return self._two(exp.LTE, other)

    def __gt__(self, other: Any) -> Expression:
        return self._two(exp.GT, other)

    def __ge__(self, other: Any) -> Expression:
        return self._two(exp.GTE, other)

    def __and__(self, other: Any) -> Expression:
        return self._two(exp.And, other)

    def __or__(self, other: Any) -> Expression:
        return self._two(exp.Or, other)

    def __invert__(self) -> Expression:
        return Expression(exp.Not(this=held(self.node)))

    def __add__(self, other: Any) -> Expression:
        return self._two(exp.Add, other)

    def __radd__(self, other: Any) -> Expression:
        return self._two(exp.Add, other, turned=True)

    def __sub__(self, other: Any) -> Expression:
        return self._two(exp.Sub, other)

    def __rsub__(self, other: Any) -> Expression:
        return self._two(exp.Sub, other, turned=True)

    def __mul__(self, other: Any) -> Expression:
        return self._two(exp.Mul, other)

    def __rmul__(self, other: Any) -> Expression:
        return self._two(exp.Mul, other, turned=True)

    def __truediv__(self, other: Any) -> Expression:
        return self._two(exp.Div, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._two(exp.Div, other, turned=True)

    def __bool__(self) -> bool:
        raise InputError(
            "an expression is no truth value: write & for and, | for or, ~ for not, with brackets "
            "around comparisons"
        )

    def is_null(self) -> Expression:
        """Whether the value is NULL."""
        return Expression(exp.Is(this=held(self.node), expression=exp.Null()))

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of these."""
        listed = [node_of(value) for value in values]
        if not listed:
            return Expression(exp.false())
        return Expression(exp.In(this=held(self.node), expressions=listed))

    def cast(self, type: str) -> Expression:
        """The value in a type of DuckDB's, such as INTEGER."""
        try:
            to = exp.DataType.build(type, dialect="duckdb")
        except Exception:  # noqa: BLE001 - the parser fails in many ways
            raise InputError(f"there is no type {type!r}: write one of DuckDB's") from None
        return Expression(exp.Cast(this=held(self.node), to=to))

    def desc(self) -> Expression:
        """A key of order_by that puts the largest first."""
        return Expression(exp.Ordered(this=self.node, desc=True, nulls_first=False))

    def _function(self, name: str) -> Expression:
        return Expression(exp.Anonymous(this=name, expressions=[self.node]))

    def sum(self) -> Expression:
        """The sum over a group."""
        return self._function("sum")

    def mean(self) -> Expression:
        """The mean over a group."""
        return self._function("avg")

    def min(self) -> Expression:
        """The smallest of a group."""
        return self._function("min")

    def max(self) -> Expression:
        """The largest of a group."""
        return self._function("max")

    def count(self) -> Expression:
        """How many of a group are not NULL."""
        return self._function("count")


def held(node: exp.Expr) -> exp.Expr:
    """A node in brackets, unless it needs none."""
    plain = (exp.Column, exp.Literal, exp.Anonymous, exp.Paren, exp.Boolean, exp.Null)
    return node if isinstance(node, plain) else exp.Paren(this=node)


def node_of(value: Any) -> exp.Expr:
    """The node of an expression, or of a Python value. Raises InputError."""
    if isinstance(value, Expression):
        return value.node
    if isinstance(value, float) and not isfinite(value):
        return exp.cast(exp.Literal.string(str(value)), "DOUBLE", dialect="duckdb")
    if value is None or isinstance(value, (bool, int, float, str)):
        return exp.convert(value)
    raise InputError(
        f"{value!r} cannot stand in an expression: give a column, a text, a number or a boolean"
    )


def count() -> Expression:
    """How many rows a group has."""
    return Expression(exp.Anonymous(this="count", expressions=[exp.Star()]))


def llm(instruction: str, *fields: Any, error: bool = False, **options: Any) -> Expression:
    """A call of a language model for each row: `LLM(...)` of SQL.

    fields: columns, expressions or values. error: its error instead of its value (`LLM_ERROR`).
    options: choices, pattern, schema, type, model, max_tokens, temperature, fixed_order. Raises
    InputError.
    """
    if not isinstance(instruction, str):
        raise InputError(f"the instruction must be a text, not {instruction!r}")
    call = llm_call_of(instruction, options)
    return Expression(call_node(call, [node_of(field) for field in fields], error=error))


def llm_agg(
    instruction: str, *fields: Any, order_by: Any = (), error: bool = False, **options: Any
) -> Expression:
    """A call of a language model for the rows of each group: `LLM_AGG(...)` of SQL.

    fields: columns, expressions or values. order_by: a key of the group's order or several;
    `.desc()` turns one. error: its error instead of its value. options: those of `llm` but
    fixed_order, and part_tokens and combine. Raises InputError.
    """
    if not isinstance(instruction, str):
        raise InputError(f"the instruction must be a text, not {instruction!r}")
    if not fields:
        raise InputError("llm_agg needs a column: llm_agg('instruction', t.column)")
    call = llm_call_of(instruction, options, grouped=True)
    listed = order_by if isinstance(order_by, (list, tuple)) else [order_by]
    keys = [node_of(value) for value in listed]
    order = [key if isinstance(key, exp.Ordered) else exp.Ordered(this=key) for key in keys]
    node = call_node(call, [node_of(field) for field in fields])
    if order:
        node.append("expressions", exp.Order(expressions=order))
    node.set("this", GROUP_ERROR if error else GROUP_VALUE)
    return Expression(node)


def retrieve(text: Any, collection: str, k: int, *, keep_rank: bool = False) -> Expression:
    """The `k` texts of a collection that are nearest to a text, for each row: `RETRIEVE(...)` of
    SQL. keep_rank: prompts have them in this order, too. Raises InputError."""
    call = retrieval_of(collection, k, {"keep_rank": keep_rank})
    return Expression(retrieval_node(call, node_of(text)), "contexts")


def call_node(call: LlmCall, fields: list[exp.Expr], *, error: bool = False) -> exp.Expr:
    """A call's node before it is part of a query: it carries the call itself."""
    node = exp.Anonymous(this=ERROR if error else VALUE, expressions=[exp.Null(), *fields])
    node.meta["call"] = call
    return node
