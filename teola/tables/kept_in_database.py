"""Looking after answers in a PostgreSQL database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from teola.tables.answers_database import AnswersDatabase


class AnswersInDatabase:
    """See AnswersStore. Raises InputError where the database cannot be reached or is not right."""

    def __init__(self, dsn: str) -> None:
        self._database = AnswersDatabase(dsn, writes=False)

    def calls(self) -> list[tuple[Any, ...]]:
        """See AnswersStore."""
        return self._database.execute(
            "SELECT a.operator, min(o.model), min(o.instruction), "
            "count(*) FILTER (WHERE a.error IS NULL), "
            "count(*) FILTER (WHERE a.error IS NOT NULL), "
            "sum(length(a.key) + coalesce(length(a.value), 0) + coalesce(length(a.error), 0) "
            "+ 20)::bigint, min(a.asked_at) AT TIME ZONE 'UTC', max(a.asked_at) AT TIME ZONE 'UTC' "
            "FROM teola_answers.answers a LEFT JOIN teola_answers.operators o USING (operator) "
            "WHERE a.asked_at IS NOT NULL GROUP BY a.operator ORDER BY max(a.asked_at) DESC"
        )

    def answers(self, operator: str, limit: int) -> list[tuple[Any, ...]]:
        """See AnswersStore."""
        rows = self._database.execute(
            "SELECT key, value, error, prompt_tokens, cached_tokens, completion_tokens, "
            "asked_at AT TIME ZONE 'UTC' FROM teola_answers.answers "
            "WHERE operator = %s AND asked_at IS NOT NULL ORDER BY asked_at DESC, key LIMIT %s",
            (operator, limit),
        )
        return [(key, _text(value), _text(error), *times) for key, value, error, *times in rows]

    def delete(self, operator: str | None, before: datetime | None) -> int:
        """See AnswersStore. Keys that dead runs have claimed go, too."""
        rows = self._database.execute(
            "WITH gone AS (DELETE FROM teola_answers.answers a WHERE (operator = %(operator)s "
            "OR coalesce(asked_at, claimed_until) < %(before)s) AND (asked_at IS NOT NULL OR "
            "(claimed_until < clock_timestamp() AND NOT EXISTS (SELECT FROM teola_answers.leases l "
            "WHERE l.run = a.claimed_by AND l.until > clock_timestamp()))) RETURNING asked_at) "
            "SELECT count(asked_at) FROM gone",
            {"operator": operator, "before": before and before.replace(tzinfo=UTC)},
        )
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()
