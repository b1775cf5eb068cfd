"""What the scripted model says: gold, and planted errors at the same questions for everybody.

Of twenty questions two begin with a wrong name, two with a value that is written otherwise, one
with two errors, two have candidates that differ, one a candidate without rows, one a statement that
never ends, and one is never right. The others are right at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from experiments.text_to_sql.questions import Question, rows_of
from teola.errors import ToolError
from teola.sql.lookup import SqlAddress
from teola.sql.sql_tables import SqlTable

KINDS: Final = {
    1: "name", 3: "value", 5: "twice", 7: "differ", 9: "endless", 11: "name", 13: "value",
    15: "differ", 17: "empty", 19: "never",
}  # fmt: skip
CYCLE: Final = 20
ENDLESS: Final = (
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS most FROM n"
)
TESTS: Final = "It answers what was asked.\nIt reads the right tables."
ANSWER: Final = "That is what the rows say."
CANNOT: Final = "Unanswerable: the tables do not say it\nInstead: How many rows are there?"
TAG: Final = re.compile(r"\[([spu]\d+)\]")


@dataclass(frozen=True, slots=True)
class Play:
    """What is said to one question. first, second: what each candidate writes, turn by turn; none:
    it cannot be answered. gold: the right statement. tables: that a model which has to ask for a
    schema asks for."""

    tag: str
    kind: str
    gold: str = ""
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    @property
    def one(self) -> tuple[str, ...]:
        """What a system with one candidate is told: it errs where both do."""
        return self.first if self.first and self.first[-1] == self.gold else self.second

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plays(
    asked: Sequence[Question],
    addresses: Mapping[str, SqlAddress],
    schemas: Mapping[str, Sequence[SqlTable]],
) -> list[Play]:
    """One for each question. addresses, schemas: by database."""
    found = []
    for number, question in enumerate(asked):
        tables = schemas[question.database]
        names = tuple(table.name for table in tables)
        if not question.gold:
            found.append(Play(question.tag, "cannot", tables=names))
            continue
        where, kind = addresses[question.database], KINDS.get(number % CYCLE, "plain")
        found.append(_play(question, kind, where, tables, names))
    return found


def _play(
    question: Question,
    kind: str,
    where: SqlAddress,
    tables: Sequence[SqlTable],
    names: tuple[str, ...],
) -> Play:
    gold = question.gold[0][0]
    table = next((t for t in tables if t.rows), tables[0])
    name = f"SELECT never_there FROM {table.name}"
    other = f"SELECT {table.columns[0].name} FROM nowhere_at_all"
    count = f"SELECT count(*) + 1000003 AS n FROM {table.name}"
    nothing = f"SELECT {table.columns[0].name} FROM {table.name} WHERE 1 = 0"
    value = _value(where, tables)
    first = second = (gold,)
    if kind == "name":
        first = second = (name, gold)
    elif kind == "value":
        first = second = (value or name, gold)
    elif kind == "twice":
        first = second = (name, other, gold)
    elif kind == "endless":
        first = second = (ENDLESS, gold)
    elif kind == "differ":
        first = (count,)
    elif kind == "empty":
        # Where gold has no rows either there is nothing to tell apart.
        first = (nothing,) if question.gold[0][1] else (gold,)
    elif kind == "never":
        first = second = (count,)
    return Play(question.tag, kind, gold, first, second, names)


def _value(where: SqlAddress, tables: Sequence[SqlTable]) -> str:
    """A statement that finds nothing, because it writes a value in capitals."""
    for table in tables:
        for column in table.columns:
            for sample in column.samples:
                if len(sample) < 6 or not sample.isascii() or sample.upper() == sample:
                    continue
                if not sample.replace(" ", "").isalpha():
                    continue
                sql = f"SELECT * FROM {table.name} WHERE {column.name} = '{sample.upper()}'"
                try:
                    if not rows_of(where, sql):
                        return sql
                except ToolError:
                    continue
    return ""


# --- what is said to whom -------------------------------------------------------------------------


def reply(sql: str) -> str:
    """As prompts of text-to-sql want it."""
    return f"Explanation: what was asked for.\n```sql\n{sql}\n```"


def next_of(steps: Sequence[str], seen: str) -> str:
    """The statement after the last one that stands in a text; the last one again and again."""
    text = " ".join(seen.split())
    at = max((i + 1 for i, sql in enumerate(steps) if " ".join(sql.split()) in text), default=0)
    return steps[min(at, len(steps) - 1)]
