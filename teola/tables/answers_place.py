"""Where answers are kept: a file, a database, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from teola.data_folder import named_folder, xdg_folder
from teola.tables.answer_table import LEASE_S, AnswerTable
from teola.tables.answers_file import FILE, AnswersFile

if TYPE_CHECKING:
    import duckdb

AnswersPlace = str | Path | Literal[False] | None
"""A file, or postgresql://...; None: `answers.duckdb` in the data folder; False: nowhere."""
OFF: Final = "off"
SCHEMES: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class AnswersDsn:
    """A PostgreSQL database. Its text may hold a password."""

    dsn: str = field(repr=False)


def answers_place(place: AnswersPlace) -> Path | AnswersDsn | None:
    """The place where answers are kept; None: none are kept."""
    if place is False or place == OFF:
        return None
    if isinstance(place, str) and place.startswith(SCHEMES):
        return AnswersDsn(place)
    if place is None:
        import platformdirs

        return (named_folder() or xdg_folder() or platformdirs.user_data_path("teola")) / FILE
    return Path(place).expanduser()


def opened_answers(
    con: duckdb.DuckDBPyConnection,
    place: Path | AnswersDsn | None,
    *,
    writes: bool = True,
    lease_s: float = LEASE_S,
    check: Callable[[], None] = lambda: None,
) -> AnswerTable:
    """The answers of a place, for a run on this connection. writes: False makes no file and no
    tables. lease_s, check: see SharedAnswers. Raises InputError."""
    if isinstance(place, AnswersDsn):
        from teola.tables.shared_answers import SharedAnswers

        return SharedAnswers(con, place.dsn, writes=writes, lease_s=lease_s, check=check)
    if place is None or not (writes or place.exists()):
        return AnswerTable(con)
    return AnswersFile(con, place)
