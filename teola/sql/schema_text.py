"""Tables as a prompt has them: one line a column, in the same words for every question.

    table berths (3 rows) "where boats lie"
      id INTEGER key
      boat_id INTEGER -> boats.id
      depth REAL "metres at low tide" such as "2.5", "4.5"

Names of tables and columns, comments and samples come from the database, so they are untrusted:
comments and samples are quoted and cut, and line breaks cannot begin a line of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from teola.sql.dialects.dialect import SqlDialect
from teola.sql.sql_tables import LONGEST_SAMPLE, SqlColumn, SqlTable, rounded
from teola.sql.written_names import column_name_text, name_text, table_name_text

SHORT_SAMPLE: Final = 60
"""Characters of a sample in a schema; more of them say little."""
CHARACTERS_A_TOKEN: Final = 4


def quoted_text(text: str, most: int = LONGEST_SAMPLE) -> str:
    """A text of the database in quotes, in one line, cut."""
    return json.dumps(text if len(text) <= most else f"{text[: most - 1]}…", ensure_ascii=False)


def schema_text(
    tables: Iterable[SqlTable],
    abouts: Mapping[str, str] | None = None,
    dialect: SqlDialect | None = None,
) -> str:
    """The text of all tables. abouts: what hints say of a table or of table.column. dialect: for
    which names are in quotes where they have to be."""
    return "\n".join(table_text(table, abouts or {}, dialect) for table in tables)


def table_text(
    table: SqlTable, abouts: Mapping[str, str], dialect: SqlDialect | None = None
) -> str:
    """One table, a line for itself and one for each column."""
    rows = _rows(table.rows)
    kind = "view" if table.view else "table"
    about = _about(abouts.get(table.name, ""), table.comment)
    lines = [f"{kind} {table_name_text(table.name, dialect)}{rows}{about}"]
    lines += [_column(table.name, column, abouts, dialect) for column in table.columns]
    return "\n".join(lines)


def _rows(rows: int | None) -> str:
    """A number of rows by its first digit: a prompt's prefix is to stay the same while a table
    grows."""
    if rows is None:
        return ""
    return f" ({rows} rows)" if rows < 10 else f" (about {rounded(rows):,} rows)"


def _column(
    table: str, column: SqlColumn, abouts: Mapping[str, str], dialect: SqlDialect | None
) -> str:
    key = " key" if column.key else ""
    points = f" -> {column_name_text(column.references, dialect)}" if column.references else ""
    about = _about(abouts.get(f"{table}.{column.name}", ""), column.comment)
    shown = ", ".join(quoted_text(sample, SHORT_SAMPLE) for sample in column.samples)
    such = f" such as {shown}" if shown else ""
    kind = " ".join(column.type.split())[:SHORT_SAMPLE]
    return f"  {name_text(column.name, dialect)} {kind}{key}{points}{about}{such}".rstrip()


def _about(hint: str, comment: str) -> str:
    text = " ".join((hint or comment).split())
    return f" {quoted_text(text)}" if text else ""


def tokens_about(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // CHARACTERS_A_TOKEN + 1
