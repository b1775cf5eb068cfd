"""Questions with gold SQL, from a folder of defog's set (TEOLA_DATA/text_to_sql).

Gold may hold several statements with `;` between them, and alternatives of columns as `{a, b}`: any
of them is right. A gold statement is right on the data here where it runs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from teola.errors import InputError, ToolError
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.sql_rows import LookupLimits
from teola_apps.asking_sql.choosing import rows_as_set

FILES: Final = {
    "sqlite": ("instruct_basic_sqlite", "instruct_advanced_sqlite", "questions_gen_sqlite"),
    "postgres": ("questions_gen_postgres",),
}
UNANSWERABLE: Final = "unanswerable"
INSTEAD: Final = "restaurants"
"""Asked what no database here can answer, where its own is not in the folder."""
LIMITS: Final = LookupLimits(seconds=20.0)
_COLUMNS: Final = re.compile(r"\{([^{}]*)\}")

Rows = frozenset[tuple[str, ...]]
Find = Callable[[str], str]
"""The address of a database by its name."""


@dataclass(frozen=True, slots=True)
class Question:
    """tag: stands in the question, so that a model knows which one it is asked. gold: statements
    that run, with their rows; none: it cannot be answered."""

    tag: str
    database: str
    dialect: str
    text: str
    gold: tuple[tuple[str, Rows], ...] = ()

    def right(self, rows: Rows) -> bool:
        """Whether these are the rows of a gold statement."""
        return any(rows == known for _, known in self.gold)


def alternatives(gold: str) -> list[str]:
    """Statements of a gold entry, `{a, b}` taken as a, as b, and as both."""
    found: list[str] = []
    for statement in filter(None, map(str.strip, gold.split(";"))):
        listed = next((m[1] for m in _COLUMNS.finditer(statement) if m[1].strip()), "")
        columns = [one.strip() for one in listed.split(",") if one.strip()]
        choices = [*columns, ", ".join(columns)] if len(columns) > 1 else columns or [""]
        found += [_COLUMNS.sub(choice, statement) for choice in choices]
    return list(dict.fromkeys(found))


def rows_of(where: SqlAddress, sql: str) -> Rows:
    """What a statement gives. Raises ToolError."""
    return rows_as_set(look_up(where, sql, LIMITS).result())


def questions(data: Path, dialect: str, addresses: Find) -> list[Question]:
    """Those of a dialect with the gold that runs. Raises InputError."""
    found = []
    for number, (database, text, gold) in enumerate(_entries(data, FILES[dialect])):
        where = SqlAddress(dialect, addresses(database))
        ran: list[tuple[str, Rows]] = []
        for statement in alternatives(gold):
            try:
                ran.append((statement, rows_of(where, statement)))
            except ToolError:
                continue
        if not ran:
            raise InputError(f"no gold statement of this question runs: {text}")
        tag = f"{dialect[0]}{number}"
        found.append(Question(tag, database, dialect, f"{text} [{tag}]", tuple(ran)))
    return found


def unanswerable(data: Path) -> list[Question]:
    """Questions that the databases say nothing of."""
    folder = data / "text_to_sql"
    return [
        Question(
            f"u{n}",
            database if (folder / f"{database}.sqlite").exists() else INSTEAD,
            "sqlite",
            f"{text} [u{n}]",
        )
        for n, (database, text, _) in enumerate(_entries(data, (UNANSWERABLE,)))
    ]


def _entries(data: Path, files: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for name in files:
        path = data / "text_to_sql" / f"{name}.csv"
        try:
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    yield row["db_name"], row["question"], row["query"]
        except OSError as error:
            raise InputError(
                f"cannot read {path.name}: {error.strerror}; give TEOLA_DATA, a folder with "
                "text_to_sql"
            ) from None
