"""LLM calls as nodes of a query's tree: written by a user, and as the planner handles them.

LLM('Tone of {text}?', r.text, choices := ['good', 'bad'])     as it is written
teola_llm(3, r.text)                                           call 3 of the query's `Calls`
teola_llm_agg(4, r.text, ORDER BY r.day)                       of LLM_AGG, an aggregate
teola_retrieve('collection', 3, false, r.text)                 RETRIEVE(r.text, 'collection', 3)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp

from teola.errors import InputError
from teola.tables.llm_call import GROUP_OPTIONS, OPTIONS, LlmCall, llm_call_of
from teola.tables.places import place, refused
from teola.tables.retrieval_call import USAGE, RetrievalCall, retrieval_of

VALUE: Final = "teola_llm"
ERROR: Final = "teola_llm_error"
GROUP_VALUE: Final = "teola_llm_agg"
GROUP_ERROR: Final = "teola_llm_agg_error"
RETRIEVED: Final = "teola_retrieve"
WRITTEN: Final = {
    "LLM": VALUE,
    "LLM_ERROR": ERROR,
    "LLM_AGG": GROUP_VALUE,
    "LLM_AGG_ERROR": GROUP_ERROR,
    "RETRIEVE": RETRIEVED,
}
GROUPED: Final = (GROUP_VALUE, GROUP_ERROR)
ERRORS: Final = (ERROR, GROUP_ERROR)


@dataclass(slots=True)
class Calls:
    """The calls of one query, each kept once. sql: the query's text, for places in errors."""

    sql: str = ""
    known: list[LlmCall] = field(default_factory=list)

    def add(self, call: LlmCall) -> int:
        """Add a call if it is new. Returns its number."""
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
    """Whether a node is a marked call, or a RETRIEVE, which is planned like one."""
    return isinstance(node, exp.Anonymous) and node.this in (VALUE, ERROR, *GROUPED, RETRIEVED)


def is_retrieval(node: Any) -> bool:
    """Whether a node is a marked RETRIEVE."""
    return isinstance(node, exp.Anonymous) and node.this == RETRIEVED


def retrieval_node(call: RetrievalCall, text: exp.Expr) -> exp.Expr:
    """A marked RETRIEVE."""
    arguments = [exp.Literal.string(call.collection), exp.Literal.number(call.k)]
    keeps = exp.Boolean(this=call.keep_rank)
    return exp.Anonymous(this=RETRIEVED, expressions=[*arguments, keeps, text])


def retrieval_at(node: exp.Expr) -> RetrievalCall:
    """What a marked RETRIEVE is for."""
    collection, k, keep_rank = node.expressions[:3]
    return RetrievalCall(str(collection.this), int(k.this), bool(keep_rank.this))


def is_group_call(node: Any) -> bool:
    """Whether a node is a marked LLM_AGG: an aggregate, which is no call of rows."""
    return isinstance(node, exp.Anonymous) and node.this in GROUPED


def calls_in(root: exp.Expr) -> Iterator[exp.Expr]:
    """All marked calls in a tree, also in its subqueries."""
    return (node for node in root.walk() if is_call(node))


def has_call(node: exp.Expr | None) -> bool:
    """Whether there is a call in a tree."""
    return node is not None and next(calls_in(node), None) is not None


def fields_of(node: exp.Expr) -> list[Any]:
    """The fields of a marked call; of a RETRIEVE its text."""
    if is_retrieval(node):
        return [node.expressions[3]]
    return [
        expression for expression in node.expressions[1:] if not isinstance(expression, exp.Order)
    ]


def order_of(node: exp.Expr) -> list[Any]:
    """The ORDER BY of a marked LLM_AGG, in a list; empty without one."""
    return [expression for expression in node.expressions[1:] if isinstance(expression, exp.Order)]


def mark(tree: exp.Expr, calls: Calls) -> exp.Expr:
    """The tree with each written call marked. Raises InputError, with the place."""
    # The inner ones first, so that what an outer one has as a field is marked already.
    for node in reversed(list(tree.find_all(exp.Anonymous, bfs=False))):
        name = str(node.this).upper()
        if name not in WRITTEN:
            continue
        if name == "RETRIEVE":
            retrieval = _retrieval(node, calls.sql)
            retrieval.meta.update(node.meta)
            if node is tree:
                return retrieval
            node.replace(retrieval)
            continue
        order = _grouped(node, calls.sql) if WRITTEN[name] in GROUPED else []
        call, fields = _read(node, calls.sql)
        marked = calls.node(call, [*fields, *order])
        marked.set("this", WRITTEN[name])
        marked.meta.update(node.meta)
        if node is tree:
            return marked
        node.replace(marked)
    return tree


def _retrieval(node: exp.Anonymous, sql: str) -> exp.Expr:
    plain = [
        expression
        for expression in node.expressions
        if not isinstance(expression, (exp.PropertyEQ, exp.Kwarg))
    ]
    named = [expression for expression in node.expressions if expression not in plain]
    if len(plain) != 3 or node.expressions[: len(plain)] != plain:
        raise refused("RETRIEVE needs a text, a collection and a number", node, sql, USAGE)
    text, collection, k = plain
    options: dict[str, Any] = {}
    for option in named:
        name = option.this.name.lower()
        options[name] = _constant(option.expression, name, sql)
    try:
        call = retrieval_of(
            _constant(collection, "collection", sql), _constant(k, "k", sql), options
        )
    except InputError as error:
        at = place(node, sql)
        raise InputError(str(error) if str(error).endswith(at) else f"{error}{at}") from None
    return retrieval_node(call, text)


def _grouped(node: exp.Anonymous, sql: str) -> list[exp.Order]:
    """Check where an LLM_AGG stands, and take its ORDER BY out."""
    above: exp.Expr | None = node.parent
    if isinstance(above, exp.WithinGroup):
        raise refused(
            f"{node.this} takes no WITHIN GROUP",
            node,
            sql,
            "write the order in its brackets: LLM_AGG('instruction', column ORDER BY key)",
        )
    if isinstance(above, exp.Filter):
        above = above.parent
    if isinstance(above, exp.Window):
        raise refused(
            f"{node.this} stands over a window",
            node,
            sql,
            "group the rows in a subquery and join it",
        )
    last = node.expressions[-1] if node.expressions else None
    bare = last.this if isinstance(last, exp.Order) else last
    if isinstance(bare, exp.Distinct) or any(
        isinstance(expression, exp.Distinct) for expression in node.expressions
    ):
        raise refused(
            f"{node.this} takes no DISTINCT", node, sql, "write SELECT DISTINCT in a subquery"
        )
    if not isinstance(last, exp.Order):
        return []
    if any(isinstance(expression.this, exp.Var) for expression in last.expressions):
        raise refused(f"{node.this} takes no ORDER BY ALL", node, sql, "name the keys of its order")
    node.set("expressions", [*node.expressions[:-1], bare])
    return [exp.Order(expressions=list(last.expressions))]


def _read(node: exp.Anonymous, sql: str) -> tuple[LlmCall, list[exp.Expr]]:
    arguments = list(node.expressions)
    grouped = str(node.this).upper() in ("LLM_AGG", "LLM_AGG_ERROR")
    valid = GROUP_OPTIONS if grouped else OPTIONS
    if not arguments or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        name = (
            arguments
            and isinstance(arguments[0], exp.Column)
            and arguments[0].this.args.get("quoted")
        )
        raise refused(
            f"{node.this} needs its instruction first, as a text that stands there",
            node,
            sql,
            'a text stands in single quotes, and "..." is a column'
            if name
            else "LLM('instruction', column, ...); what differs by row is a field",
        )
    options: dict[str, Any] = {}
    fields: list[exp.Expr] = []
    for argument in arguments[1:]:
        if isinstance(argument, (exp.PropertyEQ, exp.Kwarg)):
            name = argument.this.name.lower()
            if name in options:
                raise refused(f"option {name} is given twice", argument, sql, "give it once")
            if name not in valid:
                options[name] = None
                break
            options[name] = _constant(argument.expression, name, sql)
        elif options:
            raise refused("a field stands after an option", argument, sql, "give the fields first")
        else:
            fields.append(argument)
    try:
        call = llm_call_of(str(arguments[0].this), options, grouped=grouped)
    except InputError as error:
        raise InputError(f"{error}{place(node, sql)}") from None
    if grouped and not fields:
        raise refused(
            f"{node.this} needs a column", node, sql, "write LLM_AGG('instruction', column, ...)"
        )
    return call, fields


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
        return [_constant(expression, name, sql) for expression in node.expressions]
    raise refused(f"option {name} is no constant", node, sql, "write a value, not an expression")


def numbered(tree: exp.Expr, calls: Calls) -> exp.Expr:
    """A copy in which calls that carry what they ask are those of `calls`."""
    copy = tree.copy()
    for node in calls_in(copy):
        carried = node.meta.get("call")
        if carried is not None:
            node.expressions[0].replace(exp.Literal.number(calls.add(carried)))
    return copy
