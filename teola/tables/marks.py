"""LLM calls as nodes of a query's tree: written by a user, and as the planner handles them.

LLM('Tone of {text}?', r.text, choices := ['good', 'bad'])     as it is written
teola_llm(3, r.text)                                           call 3 of the query's `Calls`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp

from teola.errors import InputError
from teola.tables.llm_call import OPTIONS, LlmCall, call_of
from teola.tables.places import place, refused

VALUE: Final = "teola_llm"
ERROR: Final = "teola_llm_error"
WRITTEN: Final = {"LLM": VALUE, "LLM_ERROR": ERROR}


@dataclass(slots=True)
class Calls:
    """The calls of one query, each kept once. sql: the query's text, for places in errors."""

    sql: str = ""
    known: list[LlmCall] = field(default_factory=list)

    def add(self, call: LlmCall) -> int:
        """Its number."""
        if call not in self.known:
            self.known.append(call)
        return self.known.index(call)

    def of(self, node: exp.Expr) -> LlmCall:
        """The call that a marked node is for."""
        return self.known[int(node.expressions[0].this)]

    def node(self, call: LlmCall, fields: list[Any], *, error: bool = False) -> exp.Expr:
        """A marked node."""
        number = exp.Literal.number(self.add(call))
        return exp.Anonymous(this=ERROR if error else VALUE, expressions=[number, *fields])


def is_call(node: Any) -> bool:
    """Whether a node is a marked call."""
    return isinstance(node, exp.Anonymous) and node.this in (VALUE, ERROR)


def calls_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """All marked calls in a tree, also in its subqueries."""
    return (one for one in node.walk() if is_call(one))


def has_call(node: exp.Expr | None) -> bool:
    """Whether there is a call in a tree."""
    return node is not None and next(calls_in(node), None) is not None


def fields_of(node: exp.Expr) -> list[Any]:
    """The fields of a marked call."""
    return list(node.expressions[1:])


def mark(tree: exp.Expr, calls: Calls) -> exp.Expr:
    """The tree with each written call marked. Raises InputError, with the place."""
    # The inner ones first, so that what an outer one has as a field is marked already.
    for node in reversed(list(tree.find_all(exp.Anonymous, bfs=False))):
        name = str(node.this).upper()
        if name not in WRITTEN:
            continue
        call, fields = _read(node, calls.sql)
        marked = calls.node(call, fields, error=WRITTEN[name] == ERROR)
        marked.meta.update(node.meta)
        if node is tree:
            return marked
        node.replace(marked)
    return tree


def _read(node: exp.Anonymous, sql: str) -> tuple[LlmCall, list[exp.Expr]]:
    given = list(node.expressions)
    if not given or not (isinstance(given[0], exp.Literal) and given[0].is_string):
        raise refused(
            f"{node.this} needs its instruction first, as a text that stands there",
            node,
            sql,
            "LLM('instruction', column, ...); what differs by row is a field",
        )
    options: dict[str, Any] = {}
    fields: list[exp.Expr] = []
    for one in given[1:]:
        if isinstance(one, (exp.PropertyEQ, exp.Kwarg)):
            name = one.this.name.lower()
            if name in options:
                raise refused(f"option {name} is given twice", one, sql, "give it once")
            if name not in OPTIONS:
                options[name] = None
                break
            options[name] = _constant(one.expression, name, sql)
        elif options:
            raise refused("a field stands after an option", one, sql, "give the fields first")
        else:
            fields.append(one)
    try:
        return call_of(str(given[0].this), options), fields
    except InputError as error:
        raise InputError(f"{error}{place(node, sql)}") from None


def _constant(node: exp.Expr, name: str, sql: str) -> Any:
    """The value of an option, which has to be a constant."""
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return float(node.this) if any(c in str(node.this) for c in ".eE") else int(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Neg):
        value = _constant(node.this, name, sql)
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, exp.Paren):
        return _constant(node.this, name, sql)
    if isinstance(node, exp.Array):
        return [_constant(one, name, sql) for one in node.expressions]
    raise refused(f"option {name} is no constant", node, sql, "write a value, not an expression")


def numbered(tree: exp.Expr, calls: Calls) -> exp.Expr:
    """A copy in which calls that carry what they ask are those of `calls`."""
    copy = tree.copy()
    for node in calls_in(copy):
        carried = node.meta.get("call")
        if carried is not None:
            node.expressions[0].replace(exp.Literal.number(calls.add(carried)))
    return copy
