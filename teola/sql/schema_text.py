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

from teola.sql.sql_tables import LONGEST_SAMPLE, SqlColumn, SqlTable

SHORT_SAMPLE: Final = 60
"""Characters of a sample in a schema; more of them say little."""
CHARACTERS_A_TOKEN: Final = 4


def quoted_text(text: str, most: int = LONGEST_SAMPLE) -> str:
    """A text of the database in quotes, in one line, cut."""
    return json.dumps(text if len(text) <= most else f"{text[: most - 1]}…", ensure_ascii=False)


def name_text(name: str) -> str:
    """A name as a schema shows it: bare where it is a plain word, else as a statement writes it."""
    parts = name.split(".")
    if all(part.isidentifier() for part in parts):
        return name
    return '"' + " ".join(name.split())[:LONGEST_SAMPLE].replace('"', '""') + '"'


def schema_text(tables: Iterable[SqlTable], abouts: Mapping[str, str] | None = None) -> str:
    """All of them. abouts: what hints say of a table or of table.column."""
    return "\n".join(table_text(table, abouts or {}) for table in tables)


def table_text(table: SqlTable, abouts: Mapping[str, str]) -> str:
    """One table, a line for itself and one for each column."""
    rows = "" if table.rows is None else f" ({table.rows} rows)"
    kind = "view" if table.view else "table"
    about = _about(abouts.get(table.name, ""), table.comment)
    lines = [f"{kind} {name_text(table.name)}{rows}{about}"]
    lines += [_column(table.name, column, abouts) for column in table.columns]
    return "\n".join(lines)


def _column(table: str, column: SqlColumn, abouts: Mapping[str, str]) -> str:
    key = " key" if column.key else ""
    points = f" -> {name_text(column.references)}" if column.references else ""
    about = _about(abouts.get(f"{table}.{column.name}", ""), column.comment)
    shown = ", ".join(quoted_text(sample, SHORT_SAMPLE) for sample in column.samples)
    such = f" such as {shown}" if shown else ""
    kind = " ".join(column.type.split())[:SHORT_SAMPLE]
    return f"  {name_text(column.name)} {kind}{key}{points}{about}{such}".rstrip()


def _about(hint: str, comment: str) -> str:
    text = " ".join((hint or comment).split())
    return f" {quoted_text(text)}" if text else ""


def tokens_about(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // CHARACTERS_A_TOKEN + 1
