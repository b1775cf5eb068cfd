"""Looking after an answers file: what is in it, and deleting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from teola.errors import InputError, UnknownName
from teola.tables.answer_table import AnswerTable, private_files
from teola.tables.plan_runs import answers_path
from teola.tables.prompt_text import literal


@contextmanager
def _opened(path: str | None) -> Iterator[AnswerTable | None]:
    """The file; None where there is none yet."""
    found = answers_path(path)
    if found is None:
        raise InputError("give the path of an answers file")
    if not found.exists():
        if path is not None:
            raise InputError(f"there is no answers file {found}")
        yield None
        return
    with duckdb.connect() as con:
        table = AnswerTable(con, found)
        try:
            yield table
        finally:
            table.close()


def kept_operators(path: str | None) -> list[dict[str, Any]]:
    """One entry for each call, with how many answers there are, and when they came."""
    with _opened(path) as table:
        if table is None:
            return []
        rows = table.con.execute(
            "SELECT a.operator, any_value(o.model), any_value(o.instruction), "
            "count(*) FILTER (WHERE a.error IS NULL), "
            "count(*) FILTER (WHERE a.error IS NOT NULL), "
            "sum(length(a.key) + coalesce(strlen(a.value), 0) + coalesce(strlen(a.error), 0) "
            "+ 20), "
            f"min(a.asked_at), max(a.asked_at) FROM {table.answers} a "
            f"LEFT JOIN {table.operators} o USING (operator) "
            "GROUP BY a.operator ORDER BY max(a.asked_at) DESC"
        ).fetchall()
    names = ("operator", "model", "instruction", "answers", "errors", "bytes", "first", "last")
    return [
        {**dict(zip(names, row, strict=True)), "first": _date(row[6]), "last": _date(row[7])}
        for row in rows
    ]


def _date(value: datetime) -> str:
    return f"{value.isoformat(timespec='seconds')}Z"


def _operator(table: AnswerTable, beginning: str) -> str:
    known = [
        str(row[0])
        for row in table.con.execute(f"SELECT DISTINCT operator FROM {table.answers}").fetchall()
    ]
    found = [one for one in known if one.startswith(beginning)]
    if len(found) > 1:
        raise InputError(f"{beginning!r} is the beginning of several: {', '.join(sorted(found))}")
    if not found or not beginning:
        raise UnknownName("operator", beginning, known)
    return found[0]


def kept_answers(path: str | None, operator: str, limit: int) -> list[dict[str, Any]]:
    """Answers of one call, the newest first. Raises InputError, UnknownName."""
    with _opened(path) as table:
        if table is None:
            raise UnknownName("operator", operator, [])
        names = ("key", "value", "error", "prompt_tokens", "cached_tokens", "completion_tokens")
        rows = table.con.execute(
            f"SELECT {', '.join(names)}, asked_at FROM {table.answers} WHERE operator = "
            f"{literal(_operator(table, operator))} ORDER BY asked_at DESC, key LIMIT {limit}"
        ).fetchall()
    return [{**dict(zip(names, row[:-1], strict=True)), "at": _date(row[-1])} for row in rows]


def delete_answers(path: str | None, operator: str | None, before: str | None) -> int:
    """Delete answers of one call, or those before a date, and make the file smaller. How many.
    Raises InputError, UnknownName."""
    if (operator is None) == (before is None):
        raise InputError("say what to delete: an OPERATOR, or --before DATE")
    until = None
    if before is not None:
        try:
            until = datetime.fromisoformat(before)
        except ValueError:
            raise InputError(f"--before {before!r} is no date such as 2026-01-31") from None
    with _opened(path) as table:
        if table is None:
            return 0
        where = (
            f"operator = {literal(_operator(table, operator))}"
            if operator is not None
            else f"asked_at < TIMESTAMP '{until}'"
        )
        ((count,),) = table.con.execute(
            f"SELECT count(*) FROM {table.answers} WHERE {where}"
        ).fetchall()
        assert table.path is not None
        _rewrite(table, where, table.path)
    return int(count)


def _rewrite(table: AnswerTable, where: str, path: Path) -> None:
    """A file without the rows, in the place of the old one: DuckDB does not give space back."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    con = table.con
    made = AnswerTable(con, part, name="teola_part")
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
