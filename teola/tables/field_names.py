"""Names of a call's fields, as the query was written: before anything of it is cut or renamed.

A column is called by its name, `table.name` where two fields of a call are called alike; an
expression is `field` and its position, a RETRIEVE `contexts`. `*` and `t.*` are written out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from sqlglot import exp

from teola.tables.duckdb_schema import Catalogue, is_star
from teola.tables.marks import Calls, calls_in, fields_of, is_retrieval, order_of
from teola.tables.places import refused
from teola.tables.scope import FromScope, FromSource

_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")


def name_fields(select: exp.Select, catalogue: Catalogue, calls: Calls) -> None:
    """Name the fields of a block's calls, in place. Raises InputError, also for an instruction that
    stands for a column which is no field."""
    written = [call for call in calls_in(select) if not is_retrieval(call)]
    nodes = [call for call in written if len(calls.of(call).names) < len(fields_of(call))]
    placed = [call for call in written if "{" in calls.of(call).instruction]
    if not nodes and not placed:
        return
    scope = FromScope(catalogue, select)
    for node in placed:
        _check_placeholders(node, scope, calls)
    merged = {
        (join.this.alias_or_name.lower(), name.name.lower())
        for join in select.args.get("joins") or ()
        for name in join.args.get("using") or ()
    }
    # The inner ones first: an outer one takes a copy of them.
    for node in reversed(nodes):
        fields: list[exp.Expr] = []
        for field in fields_of(node):
            fields += _starred(field, scope, merged, calls.sql) if is_star(field) else [field]
        call = replace(calls.of(node), names=_names(fields, scope))
        marked = calls.node(call, [key.copy() for key in [*fields, *order_of(node)]])
        node.set("expressions", marked.expressions)


def _check_placeholders(node: exp.Expr, scope: FromScope, calls: Calls) -> None:
    """Refuse `{review}` in an instruction where the column is no field: all rows would be the same
    question, and have the same answer."""
    fields = fields_of(node)
    if any(is_star(field) for field in fields):
        return
    read = {column.name.lower() for field in fields for column in field.find_all(exp.Column)}
    call = calls.of(node)
    read |= {name.lower() for name in call.names}
    for name in _PLACEHOLDER.findall(call.instruction):
        if name.lower() not in read and scope.owners(name):
            raise refused(
                f"the instruction has {{{name}}}, and the column is no field of the call",
                node,
                calls.sql,
                f"give it as a field, as in LLM('...', {name})",
            )


def _names(fields: list[exp.Expr], scope: FromScope) -> tuple[str, ...]:
    plain = [field.name if isinstance(field, exp.Column) else "" for field in fields]
    folded = [name.lower() for name in plain]
    names: list[str] = []
    for at, expression in enumerate(fields):
        name = plain[at] or ("contexts" if is_retrieval(expression) else f"field{at + 1}")
        if isinstance(expression, exp.Column) and folded.count(folded[at]) > 1:
            source = _source(expression, scope)
            name = f"{source.alias}.{expression.name}" if source else name
        names.append(name if name not in names else f"{name} {at + 1}")
    return tuple(names)


def _source(node: exp.Column, scope: FromScope) -> FromSource | None:
    source = scope.resolve(node)
    return scope.source(source.key[0]) if source is not None and source.key[0] else None


def _starred(
    star: exp.Expr, scope: FromScope, merged: set[tuple[str, str]], sql: str
) -> list[exp.Expr]:
    inner = star.this if isinstance(star, exp.Column) else star
    if any(inner.args.values()):
        raise refused(
            "a * among a call's fields takes no EXCLUDE, REPLACE or RENAME",
            star,
            sql,
            "name the columns",
        )
    sources = scope.sources
    if isinstance(star, exp.Column):
        sources = [s for s in sources if s.alias.lower() == star.table.lower()]
        merged = set()
    return [
        exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(s.alias, quoted=True))
        for s in sources
        for name in s.columns
        if (s.alias.lower(), name.lower()) not in merged
    ]
