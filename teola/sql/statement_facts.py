"""What a statement that passed the filter reads: its tables, and the texts that it looks for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from teola.sql.dialects import dialect_named
from teola.sql.dialects.dialect import SqlDialect
from teola.sql.sql_parsing import parsed_statement
from teola.sql.sql_schema import Schema, folded_tables
from teola.sql.with_scopes import part_name, visible_parts

if TYPE_CHECKING:
    from sqlglot import exp

REMEMBERED: Final = 1024
MOST_TEXTS: Final = 8
"""Texts of one statement that are looked up where it finds no rows."""


@dataclass(frozen=True, slots=True)
class StatementFacts:
    """tables: that it reads, spelled as the database spells them, in the statement's order. texts:
    that it compares columns with."""

    tables: tuple[str, ...]
    texts: tuple[str, ...]


@lru_cache(maxsize=REMEMBERED)
def facts_of(sql: str, dialect: str, schema: Schema) -> StatementFacts:
    """The facts of a statement as `select_only` returns it. Raises ToolError."""
    from sqlglot import exp

    sql_dialect = dialect_named(dialect)
    tree = parsed_statement(sql, sql_dialect)
    tables = folded_tables(schema, sql_dialect)
    names: dict[str, None] = {}
    for table in tree.find_all(exp.Table, bfs=False):
        if not isinstance(table.this, exp.Identifier):
            continue
        name, of = _folded(table.this, sql_dialect), _folded(table.args.get("db"), sql_dialect)
        part = not of and any(
            _folded(part_name(p), sql_dialect) == name for p in visible_parts(table)
        )
        if not part and (folded_table := tables.get(f"{of}.{name}".lstrip("."))) is not None:
            names[folded_table.name] = None
    return StatementFacts(tuple(names), tuple(_texts(tree))[:MOST_TEXTS])


def _folded(identifier: exp.Expr | None, dialect: SqlDialect) -> str:
    if identifier is None:
        return ""
    return dialect.folded(identifier.name, bool(identifier.args.get("quoted")))


def _texts(tree: exp.Expr) -> dict[str, None]:
    """Literals beside a comparison, without the wildcards of LIKE."""
    from sqlglot import exp

    compared = (exp.EQ, exp.NEQ, exp.In, exp.Like, exp.ILike)
    texts: dict[str, None] = {}
    for node in tree.find_all(*compared, bfs=False):
        for literal in node.find_all(exp.Literal):
            text = literal.name.strip("%_ ")
            if literal.is_string and text:
                texts[text] = None
    return texts
