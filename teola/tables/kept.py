"""Looking after kept answers, in a file or a database: what is there, and deleting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from teola.errors import InputError, UnknownName
from teola.tables.answers_place import AnswersDsn, answers_place
from teola.tables.kept_in_file import AnswersInFile


class ListedCall(NamedTuple):
    """Answers of one call. bytes: what they take, about. first, last: when they came, in UTC."""

    operator: str
    model: str | None
    instruction: str | None
    answers: int
    errors: int
    bytes: int
    first: datetime
    last: datetime


class ListedAnswer(NamedTuple):
    """One answer. at: when it came, in UTC."""

    key: str
    value: str | None
    error: str | None
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int | None
    at: datetime


class AnswersStore(Protocol):
    """Answers of one place. Operators are whole digests."""

    def calls(self) -> list[tuple[Any, ...]]:
        """A ListedCall's fields for each call, the one that was answered last first."""

    def answers(self, operator: str, limit: int) -> list[tuple[Any, ...]]:
        """A ListedAnswer's fields for each answer of a call, the newest first."""

    def delete(self, operator: str | None, before: datetime | None) -> int:
        """Delete answers of a call, or those before a time in UTC. Returns how many."""

    def close(self) -> None:
        """Close the place."""


@contextmanager
def _opened(path: str | None) -> Iterator[AnswersStore | None]:
    """The answers of a place; None: there are none yet."""
    place = answers_place(path)
    if place is None:
        raise InputError("give the path of an answers file, or postgresql://...")
    if not isinstance(place, AnswersDsn) and not place.exists():
        if path is not None:
            raise InputError(f"there is no answers file {place}")
        yield None
        return
    answers: AnswersStore
    if isinstance(place, AnswersDsn):
        from teola.tables.kept_in_database import AnswersInDatabase

        answers = AnswersInDatabase(place.dsn)
    else:
        answers = AnswersInFile(place)
    try:
        yield answers
    finally:
        answers.close()


def kept_operators(place: str | None) -> list[dict[str, Any]]:
    """One entry for each call, with how many answers there are, and when they came."""
    with _opened(place) as answers:
        calls = [ListedCall(*call) for call in answers.calls()] if answers is not None else []
    return [
        {**call._asdict(), "first": _date(call.first), "last": _date(call.last)} for call in calls
    ]


def _date(value: datetime) -> str:
    return f"{value.isoformat(timespec='seconds')}Z"


def _operator(answers: AnswersStore, beginning: str) -> str:
    operators = [ListedCall(*call).operator for call in answers.calls()]
    matches = [operator for operator in operators if operator.startswith(beginning)]
    if len(matches) > 1:
        raise InputError(f"{beginning!r} is the beginning of several: {', '.join(sorted(matches))}")
    if not matches or not beginning:
        raise UnknownName("operator", beginning, operators)
    return matches[0]


def kept_answers(place: str | None, operator: str, limit: int) -> list[dict[str, Any]]:
    """Answers of one call, the newest first. Raises InputError, UnknownName."""
    with _opened(place) as stored:
        if stored is None:
            raise UnknownName("operator", operator, [])
        rows = [
            ListedAnswer(*answer) for answer in stored.answers(_operator(stored, operator), limit)
        ]
    return [{**row._asdict(), "at": _date(row.at)} for row in rows]


def delete_answers(place: str | None, operator: str | None, before: str | None) -> int:
    """Delete answers of one call, or those before a date; a file becomes smaller. Returns how many.
    Raises InputError, UnknownName."""
    if (operator is None) == (before is None):
        raise InputError("say what to delete: an OPERATOR, or --before DATE")
    until = None
    if before is not None:
        try:
            until = datetime.fromisoformat(before)
        except ValueError:
            raise InputError(f"--before {before!r} is no date such as 2026-01-31") from None
        if until.tzinfo is not None:
            until = until.astimezone(UTC).replace(tzinfo=None)
    with _opened(place) as answers:
        if answers is None:
            return 0
        return answers.delete(_operator(answers, operator) if operator is not None else None, until)
