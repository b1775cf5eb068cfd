"""Names of tables and columns as a statement has to write them.

boats       bare, since the database compares it as it stands
"userId"    in quotes: PostgreSQL takes userId for userid
"order"     in quotes: it is a word of SQL
yard."a b"  each part by itself
"""

from __future__ import annotations

from typing import Final

from teola.sql.dialects.dialect import SqlDialect, names

LONGEST_SHOWN: Final = 200
"""Characters of a name: it comes from the database, and stands in prompts."""
RESERVED: Final = names(
    """
    add all alter analyse analyze and anti any array as asc asof asymmetric authorization
    autoincrement between binary both case cast check collate collation column commit concurrently
    constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable delete desc describe distinct do drop else end
    escape except exists false fetch for foreign freeze from full glob grant group having ilike in
    index initially inner insert intersect into is isnull join lambda lateral leading left like
    limit localtime localtimestamp match natural not notnull null offset on only or order outer
    overlaps pivot placing positional primary qualify references regexp returning right select semi
    session_user set show similar some summarize symmetric system_user table tablesample then to
    trailing transaction true union unique unpivot update user using values variadic verbose when
    where window with
    """
)
"""Words that one of the dialects takes for its own."""


def name_text(name: str, dialect: SqlDialect | None = None) -> str:
    """A name as text. dialect: of the database that reads it; None: none does, as with a metric's
    name."""
    folds = dialect is not None and dialect.folded(name) != dialect.folded(name, quoted=True)
    reserved = dialect is not None and name.lower() in RESERVED
    if name.isidentifier() and not folds and not reserved:
        return name
    return '"' + " ".join(name.split())[:LONGEST_SHOWN].replace('"', '""') + '"'


def table_name_text(name: str, dialect: SqlDialect | None = None) -> str:
    """A table's name as text, with its schema where it has one. SQLite has no schemas."""
    parts = [name] if dialect is None or dialect.name == "sqlite" else name.split(".", 1)
    return ".".join(name_text(part, dialect) for part in parts)


def column_name_text(name: str, dialect: SqlDialect | None = None) -> str:
    """A column's name with its table, or a table's name alone."""
    table, dot, column = name.rpartition(".")
    if not dot:
        return name_text(name, dialect)
    return f"{table_name_text(table, dialect)}.{name_text(column, dialect)}"
