"""Runs a list of statements and says what became of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from teola.errors import InputError, ToolError
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.select_only import select_only
from teola.sql.sql_rows import LookupLimits
from teola.sql.sql_schema import Schema
from teola.sql.stopped import StatementStopped

MIB = 2**20


class Statement(NamedTuple):
    """where: a path or a DSN; None: it is only filtered. schema: what it may read; None: all but
    the database's own."""

    dialect: str
    sql: str
    where: str | None = None
    schema: Schema | None = None


@dataclass(slots=True)
class Outcome:
    """answered: statements that ran, or were let through where they are only filtered."""

    answered: list[Statement] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    slow: list[dict[str, Any]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "run": len(self.answered),
            "refused": self.refused,
            "stopped": self.stopped,
            "failed": self.failed,
        }


def run(statements: Iterable[Statement], limits: LookupLimits, late_s: float = 1.0) -> Outcome:
    """Filter each statement and, where there is a database, run it. slow: those that took longer
    than their time and `late_s`."""
    outcome = Outcome()
    for statement in statements:
        begun = monotonic()
        _run(statement, limits, outcome)
        seconds = monotonic() - begun
        if seconds > limits.seconds + late_s:
            outcome.slow.append({"sql": statement.sql, "seconds": round(seconds, 2)})
    return outcome


def _run(statement: Statement, limits: LookupLimits, outcome: Outcome) -> None:
    sql, dialect = statement.sql, statement.dialect
    try:
        select_only(sql, dialect, statement.schema)
    except (ToolError, InputError) as error:
        outcome.refused.append({"sql": sql, "dialect": dialect, "why": str(error)})
        return
    if statement.where is None:
        outcome.answered.append(statement)
        return
    begun = monotonic()
    try:
        look_up(SqlAddress(dialect, statement.where), sql, limits, statement.schema)
    except StatementStopped as error:
        outcome.stopped.append(
            {
                "sql": sql,
                "limit": error.limit,
                "seconds": round(monotonic() - begun, 3),
                "peak_mb": round(error.peak_bytes / MIB, 1),
            }
        )
    except (ToolError, InputError) as error:
        outcome.failed.append({"sql": sql, "error": str(error)})
    else:
        outcome.answered.append(statement)
