"""Looking after an answers file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from teola.tables.answers_file import AnswersFile, private_files
from teola.tables.prompt_text import literal


class AnswersInFile:
    """See AnswersStore. Raises InputError where the file is none, or in use."""

    def __init__(self, path: Path) -> None:
        self._con = duckdb.connect()
        try:
            self._table = AnswersFile(self._con, path)
        except BaseException:
            self._con.close()
            raise

    def calls(self) -> list[tuple[Any, ...]]:
        """See AnswersStore."""
        table = self._table
        rows: list[tuple[Any, ...]] = self._con.execute(
            "SELECT a.operator, any_value(o.model), any_value(o.instruction), "
            "count(*) FILTER (WHERE a.error IS NULL), "
            "count(*) FILTER (WHERE a.error IS NOT NULL), "
            "sum(length(a.key) + coalesce(strlen(a.value), 0) + coalesce(strlen(a.error), 0) "
            "+ 20)::BIGINT, "
            f"min(a.asked_at), max(a.asked_at) FROM {table.answers} a "
            f"LEFT JOIN {table.operators} o USING (operator) "
            "GROUP BY a.operator ORDER BY max(a.asked_at) DESC"
        ).fetchall()
        return rows

    def answers(self, operator: str, limit: int) -> list[tuple[Any, ...]]:
        """See AnswersStore."""
        rows: list[tuple[Any, ...]] = self._con.execute(
            "SELECT key, value, error, prompt_tokens, cached_tokens, completion_tokens, asked_at "
            f"FROM {self._table.answers} WHERE operator = {literal(operator)} "
            f"ORDER BY asked_at DESC, key LIMIT {limit}"
        ).fetchall()
        return rows

    def delete(self, operator: str | None, before: datetime | None) -> int:
        """See AnswersStore; the file becomes smaller."""
        if operator is not None:
            where = f"operator = {literal(operator)}"
        else:
            where = f"asked_at < TIMESTAMP '{before}'"
        ((count,),) = self._con.execute(
            f"SELECT count(*) FROM {self._table.answers} WHERE {where}"
        ).fetchall()
        _rewrite(self._table, where)
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._table.close()
        self._con.close()


def _rewrite(table: AnswersFile, where: str) -> None:
    """Write a new file without the deleted rows in place of the old one: DuckDB does not give space
    back."""
    path = table.path
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    con = table.con
    made = AnswersFile(con, part, name="teola_part")
    try:
        with private_files():
            con.execute(
                f"INSERT INTO {made.answers} SELECT * FROM {table.answers} WHERE NOT ({where})"
            )
            con.execute(
                f"INSERT INTO {made.operators} SELECT * FROM {table.operators} WHERE operator IN "
                f"(SELECT operator FROM {made.answers})"
            )
            for name in ("runs", "samples", "conditions"):
                to, of = getattr(made, name), getattr(table, name)
                con.execute(f"INSERT INTO {to} SELECT * FROM {of}")
    finally:
        made.close()
    # The old file is let go of only when the new one has its name: until then others are told that
    # it is in use, and afterwards they open the new one. So the old one writes nothing any more.
    con.execute(f"CHECKPOINT {table.schema}")
    con.execute("PRAGMA disable_checkpoint_on_shutdown")
    part.replace(path)
    con.execute(f"DETACH {table.schema}")
