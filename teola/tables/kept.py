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
        """Delete answers of a call, or those before a time in UTC. How many."""

    def close(self) -> None:
        """Let go of the place."""


@contextmanager
def _opened(given: str | None) -> Iterator[AnswersStore | None]:
    """The answers of a place; None: there are none yet."""
    place = answers_place(given)
    if place is None:
        raise InputError("give the path of an answers file, or postgresql://...")
    if not isinstance(place, AnswersDsn) and not place.exists():
        if given is not None:
            raise InputError(f"there is no answers file {place}")
        yield None
        return
    kept: AnswersStore
    if isinstance(place, AnswersDsn):
        from teola.tables.kept_in_database import AnswersInDatabase

        kept = AnswersInDatabase(place.dsn)
    else:
        kept = AnswersInFile(place)
    try:
        yield kept
    finally:
        kept.close()


def kept_operators(place: str | None) -> list[dict[str, Any]]:
    """One entry for each call, with how many answers there are, and when they came."""
    with _opened(place) as kept:
        calls = [ListedCall(*one) for one in kept.calls()] if kept is not None else []
    return [{**one._asdict(), "first": _date(one.first), "last": _date(one.last)} for one in calls]


def _date(value: datetime) -> str:
    return f"{value.isoformat(timespec='seconds')}Z"


def _operator(kept: AnswersStore, beginning: str) -> str:
    known = [ListedCall(*one).operator for one in kept.calls()]
    found = [one for one in known if one.startswith(beginning)]
    if len(found) > 1:
        raise InputError(f"{beginning!r} is the beginning of several: {', '.join(sorted(found))}")
    if not found or not beginning:
        raise UnknownName("operator", beginning, known)
    return found[0]


def kept_answers(place: str | None, operator: str, limit: int) -> list[dict[str, Any]]:
    """Answers of one call, the newest first. Raises InputError, UnknownName."""
    with _opened(place) as kept:
        if kept is None:
            raise UnknownName("operator", operator, [])
        rows = [ListedAnswer(*one) for one in kept.answers(_operator(kept, operator), limit)]
    return [{**one._asdict(), "at": _date(one.at)} for one in rows]


def delete_answers(place: str | None, operator: str | None, before: str | None) -> int:
    """Delete answers of one call, or those before a date; a file becomes smaller. How many.
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
    with _opened(place) as kept:
        if kept is None:
            return 0
        return kept.delete(_operator(kept, operator) if operator is not None else None, until)
