"""Calls in the ON of joins: they go to WHERE, or make the matching pairs first.

a JOIN b ON p AND LLM(..)         a JOIN b ON p WHERE LLM(..)
a LEFT JOIN b ON p AND LLM(..)    l     := a with a number for each row
                                  pairs := l JOIN b ON p WHERE LLM(..)
                                  l LEFT JOIN pairs by that number
RIGHT JOIN                        the same with the sides changed
"""

from __future__ import annotations

from sqlglot import exp

from teola.tables.duckdb_schema import is_star, written
from teola.tables.marks import calls_in, has_call
from teola.tables.places import refused
from teola.tables.plan_builder import PlanBuilder
from teola.tables.plan_steps import MakeTable
from teola.tables.scope import FromScope, OwnColumns, from_text, level

NUMBER = "teola_n"


def settle_joins(cutter: PlanBuilder, select: exp.Select) -> None:
    """Change a block so that no ON has a call. Raises InputError."""
    while True:
        joins = list(select.args.get("joins") or ())
        at = next((i for i, join in enumerate(joins) if has_call(join)), None)
        if at is None:
            return
        _settle(cutter, select, joins, at)


def _settle(cutter: PlanBuilder, select: exp.Select, joins: list[exp.Join], at: int) -> None:
    join, sql = joins[at], cutter.calls.sql
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    method = (join.args.get("method") or "").upper()
    if side == "FULL" or kind in ("SEMI", "ANTI") or method:
        raise refused(
            f"a call stands in the ON of a {side or kind or method} join",
            next(calls_in(join)),
            sql,
            "ask it in a subquery before the join",
        )
    if not side:
        later = {(join.side or "").upper() for join in joins[at + 1 :]}
        if later & {"RIGHT", "FULL"}:
            raise refused(
                "a call stands in an ON before a RIGHT or FULL join",
                join,
                sql,
                "put the joins before it in a subquery",
            )
        condition = join.args["on"]
        join.set("on", None)
        join.set("kind", "CROSS")
        where = select.args.get("where")
        parts = [exp.Paren(this=where.this), exp.Paren(this=condition)] if where else [condition]
        whole = parts[0] if len(parts) == 1 else exp.And(this=parts[0], expression=parts[1])
        select.set("where", exp.Where(this=whole))
        return
    _pairs(cutter, select, joins, at, right=side == "RIGHT")


def _pairs(
    cutter: PlanBuilder, select: exp.Select, joins: list[exp.Join], at: int, *, right: bool
) -> None:
    join, sql = joins[at], cutter.calls.sql
    if any(
        is_star(inner)
        for root in select.expressions
        for inner in level(root)
        if not _counted(inner)
    ):
        raise refused(
            "a * beside a call in the ON of an outer join",
            next(calls_in(join)),
            sql,
            "name the columns",
        )
    sides = {(join.side or "").upper() for join in joins[:at]}
    if right and sides & {"RIGHT", "FULL"}:
        raise refused(
            "a call stands in the ON of a RIGHT join after another one",
            next(calls_in(join)),
            sql,
            "put the joins before it in a subquery",
        )
    before = exp.Select(
        expressions=[exp.Star()],
        from_=select.args["from_"].copy(),
        joins=[join.copy() for join in joins[:at]],
    )
    after = exp.Select(expressions=[exp.Star()], from_=exp.From(this=join.this.copy()))
    outer, other = (after, before) if right else (before, after)
    names = {
        side: _names(cutter, select, part, f"teola_{side}")
        for side, part in (("k", outer), ("o", other))
    }
    numbered = cutter.new_table()
    columns = ", ".join(f"{text} AS {name}" for text, name in names["k"].values()) or "0 AS teola_k"
    cutter.step(
        MakeTable(
            numbered,
            f"SELECT row_number() OVER () AS {NUMBER}, {columns} {from_text(outer)}",
        )
    )
    condition = _renamed(cutter, join.args["on"], outer, names["k"], numbered)
    listed = [f"{text} AS {name}" for text, name in names["o"].values()]
    pairs: exp.Expr = exp.maybe_parse(
        f"SELECT {numbered}.{NUMBER} AS {NUMBER}{''.join(', ' + value for value in listed)} FROM x",
        dialect="duckdb",
    )
    assert isinstance(pairs, exp.Select)
    pairs.set("from_", exp.From(this=exp.to_table(numbered)))
    if right:
        source: exp.Expr = other.args["from_"].this.copy()
        more = [join.copy() for join in other.args.get("joins") or ()]
        pairs.set("joins", [exp.Join(this=source, kind="CROSS"), *more])
    else:
        pairs.set("joins", [exp.Join(this=join.this.copy(), kind="CROSS")])
    pairs.set("where", exp.Where(this=condition))
    table = cutter.new_table()
    assert isinstance(pairs, exp.Select)
    query = cutter.optional_block(pairs)
    cutter.step(MakeTable(table, written(query)))
    for part, side, to in ((outer, "k", numbered), (other, "o", table)):
        _rename_all(cutter, select, part, names[side], to)
    select.set("from_", exp.From(this=exp.to_table(numbered)))
    on = f"{numbered}.{NUMBER} = {table}.{NUMBER}"
    new = exp.Join(this=exp.to_table(table), side="LEFT", on=exp.maybe_parse(on, dialect="duckdb"))
    select.set("joins", [new, *joins[at + 1 :]])
    cutter.rewrote(
        "pairs",
        f"{'RIGHT' if right else 'LEFT'} JOIN {join.this.alias_or_name}",
        "a call in its ON is asked for the pairs that the rest of it joins",
    )


def _counted(star: exp.Expr) -> bool:
    return isinstance(star.parent, exp.Anonymous) and str(star.parent.this).lower() == "count"


RenamedColumns = dict[tuple[str, str], tuple[str, str]]
"""Column of a source -> its SQL there, and the name that it gets."""


def _names(
    cutter: PlanBuilder, select: exp.Select, part: exp.Select, prefix: str
) -> RenamedColumns:
    """The columns of a part of FROM that the block reads."""
    own = OwnColumns(cutter.catalogue, FromScope(cutter.catalogue, part))
    names: RenamedColumns = {}
    for _, column_of in own.of(select):
        if column_of.key not in names:
            names[column_of.key] = (written(column_of.head), f"{prefix}{len(names)}")
    return names


def _renamed(
    cutter: PlanBuilder, node: exp.Expr, part: exp.Select, names: RenamedColumns, table: str
) -> exp.Expr:
    holder = exp.Paren(this=node.copy())
    _rename_all(cutter, holder, part, names, table)
    renamed: exp.Expr = holder.this
    return renamed


def _rename_all(
    cutter: PlanBuilder, root: exp.Expr, part: exp.Select, names: RenamedColumns, table: str
) -> None:
    own = OwnColumns(cutter.catalogue, FromScope(cutter.catalogue, part))
    for node, column in list(own.of(root)):
        name = names[column.key][1]
        value: exp.Expr = exp.column(name, table=table)
        for field in column.fields:
            value = exp.Dot(this=value, expression=field.copy())
        node.replace(value)
