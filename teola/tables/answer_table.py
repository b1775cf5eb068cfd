"""The answers table: dedup, checkpoint and cache in one.

    answers     key -> value or error, tokens, time
    operators   what is behind a key: model, instruction
    runs        how long a model took
    samples     how often a query with samples (a temperature above 0) ran to its end
    conditions  rows that a condition with calls was computed for, and those that passed

It is a DuckDB file, or a table that ends with its run. A file has one writer: others are told who
has it. What is written is on the disk when `add` returns. Only its user can read it, and what
DuckDB writes beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from teola.errors import InputError
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb

VERSION: Final = 1
FILE: Final = "answers.duckdb"


class StoredAnswer(NamedTuple):
    """One answer, as it is kept. value None without an error: nothing in the text matched."""

    key: str
    value: str | None
    error: str | None
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class Operator:
    """What the answers of one digest were asked with."""

    digest: str
    model: str
    instruction: str


class AnswersInUse(InputError):
    """Somebody else writes an answers file."""


_open: dict[str, str] = {}
_lock = threading.Lock()
_masking = threading.RLock()


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Files that are made meanwhile can be read by their user only.

    DuckDB makes its log (`.wal`) with the first write, and again after each checkpoint.
    """
    with _masking:  # the mask is the process's
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)


class AnswerTable:
    """The answers that a run reads and writes, on its connection.

    path: of the file; None: nothing outlives the run. name: that it has on the connection. Raises
    InputError where the file is another version's, somebody else's, or none.
    """

    def __init__(
        self, con: duckdb.DuckDBPyConnection, path: Path | None, name: str = "teola_kept"
    ) -> None:
        self.con, self.path = con, path
        self.schema = name if path is not None else _schema_of(con)
        self.answers = f"{self.schema}.{'answers' if path else 'teola_answers'}"
        self.operators = f"{self.schema}.{'operators' if path else 'teola_operators'}"
        self.runs = f"{self.schema}.{'runs' if path else 'teola_runs'}"
        self.samples = f"{self.schema}.{'samples' if path else 'teola_samples'}"
        self.conditions = f"{self.schema}.{'conditions' if path else 'teola_conditions'}"
        self._attached = False
        self._since = datetime.now(UTC).replace(tzinfo=None)
        if path is not None:
            self._attach(path)
        else:
            self._create()
            self._create_more()

    def _attach(self, path: Path) -> None:
        import duckdb

        full = str(path.absolute())
        with _lock:
            if full in _open:
                raise AnswersInUse(
                    f"the answers file {path} is in use by another query of this process: wait "
                    "for it, or give another file"
                )
            _open[full] = full
        new = not path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if new and not os.access(path.parent, os.W_OK):
                raise PermissionError(EACCES, "no permission")
            with private_files():
                self.con.execute(f"ATTACH {literal(full)} AS {self.schema}")
                self._attached = True
                if not new:
                    with contextlib.suppress(PermissionError):  # somebody else's
                        path.chmod(0o600)
                self._check_version(path)
                self._create_more()
        except duckdb.Error as error:
            self.close()
            raise _why_not(path, error, new) from None
        except OSError as error:
            self.close()
            raise InputError(
                f"the answers file {path} cannot be made: {error.strerror or error}"
            ) from None
        except BaseException:
            self.close()
            raise

    def _check_version(self, path: Path) -> None:
        names = {
            row[0]
            for row in self.con.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = ?",
                [self.schema],
            ).fetchall()
        }
        if not names:
            self._create()
            self.con.execute(f"CREATE TABLE {self.schema}.about AS SELECT {VERSION} AS version")
            self.con.execute(f"CHECKPOINT {self.schema}")
            return
        if not {"about", "answers", "operators", "runs"} <= names:
            raise InputError(f"{path} holds other tables: give a file of its own to --answers")
        found = self.con.execute(f"SELECT version FROM {self.schema}.about").fetchall()
        if found != [(VERSION,)]:
            raise InputError(
                f"the answers file {path} is of version {found[0][0] if found else '?'}, this is "
                f"version {VERSION}: give another file, or delete it"
            )

    def _create(self) -> None:
        self.con.execute(
            f"CREATE TABLE {self.answers} (operator VARCHAR NOT NULL, key VARCHAR NOT NULL, "
            "value VARCHAR, error VARCHAR, prompt_tokens INTEGER, cached_tokens INTEGER, "
            "completion_tokens INTEGER, asked_at TIMESTAMP NOT NULL)"
        )
        self.con.execute(
            f"CREATE TABLE {self.operators} (operator VARCHAR NOT NULL, model VARCHAR, "
            "instruction VARCHAR)"
        )
        self.con.execute(
            f"CREATE TABLE {self.runs} (model VARCHAR NOT NULL, asked BIGINT, seconds DOUBLE)"
        )

    def _create_more(self) -> None:
        """Tables that files of this version may be without: they only save something."""
        self.con.execute(
            f"CREATE TABLE IF NOT EXISTS {self.samples} (query VARCHAR NOT NULL, runs BIGINT)"
        )
        self.con.execute(
            f"CREATE TABLE IF NOT EXISTS {self.conditions} (condition VARCHAR NOT NULL, "
            "rows BIGINT, passed BIGINT)"
        )

    def know(self, operator: Operator) -> None:
        """Note what an operator is, before answers of it are added."""
        with private_files():
            self.con.execute(
                f"INSERT INTO {self.operators} SELECT $1, $2, $3 WHERE NOT EXISTS "
                f"(SELECT 1 FROM {self.operators} WHERE operator = $1)",
                [operator.digest, operator.model, operator.instruction],
            )

    def knows(self, model: str) -> bool:
        """Whether there may be answers of a model, by its identity."""
        found = self.con.execute(
            f"SELECT 1 FROM {self.operators} WHERE model = $1 LIMIT 1", [model]
        ).fetchall()
        return bool(found)

    def add(self, operator: str, answers: Sequence[StoredAnswer]) -> None:
        """Write answers; on the disk when it returns."""
        import pyarrow as pa

        columns = list(zip(*answers, strict=True))
        batch = pa.table(
            {
                "key": pa.array(columns[0], pa.string()),
                "value": pa.array(columns[1], pa.string()),
                "error": pa.array(columns[2], pa.string()),
                "prompt_tokens": pa.array(columns[3], pa.int32()),
                "cached_tokens": pa.array(columns[4], pa.int32()),
                "completion_tokens": pa.array(columns[5], pa.int32()),
            }
        )
        now = datetime.now(UTC).replace(tzinfo=None)
        self.con.register("teola_batch", batch)
        with private_files():
            self.con.execute(
                f"INSERT INTO {self.answers} SELECT {literal(operator)}, key, value, error, "
                f"prompt_tokens, cached_tokens, completion_tokens, TIMESTAMP '{now}' "
                "FROM teola_batch"
            )
        self.con.unregister("teola_batch")

    def known(self, operator: str, keys: str, *, failed: bool) -> str:
        """SQL of the answers for the column `key` of table `keys`, one for each, and whether they
        were there before this run. failed: also those that are errors and were kept before."""
        now = f"(a.error IS NULL OR a.asked_at >= TIMESTAMP '{self._since}')"
        only = "" if failed else f" AND {now}"
        return (
            f"SELECT a.key, arg_max(a.value, a.asked_at) FILTER (WHERE a.error IS NULL) AS value, "
            "CASE WHEN bool_and(a.error IS NOT NULL) THEN arg_max(a.error, a.asked_at) END "
            f"AS error, min(a.asked_at) < TIMESTAMP '{self._since}' AS before "
            f"FROM {self.answers} a WHERE a.operator = {literal(operator)}{only} "
            f"AND a.key IN (SELECT key FROM {keys}) GROUP BY a.key"
        )

    def took(self, operators: Sequence[str], since: datetime) -> tuple[int, int, int]:
        """Answers of operators that were kept since then (UTC), errors among them, and tokens of
        their prompts and of the answers."""
        listed = ", ".join(map(literal, operators)) or "NULL"
        ((count, prompt, completion),) = self.con.execute(
            "SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) "
            f"FROM {self.answers} WHERE operator IN ({listed}) AND asked_at >= TIMESTAMP '{since}'"
        ).fetchall()
        return int(count), int(prompt), int(completion)

    def ran(self, model: str, asked: int, seconds: float) -> None:
        """Note how long a model took, for estimates."""
        with private_files():
            self.con.execute(
                f"INSERT INTO {self.runs} VALUES ($1, $2, $3)", [model, asked, seconds]
            )

    def mean_answer(self, operator: str) -> float | None:
        """Tokens of an operator's answers on average; None: there are none, or nobody counted."""
        ((mean,),) = self.con.execute(
            f"SELECT avg(completion_tokens) FROM {self.answers} WHERE operator = $1", [operator]
        ).fetchall()
        return None if mean is None else float(mean)

    def judged(self, condition: str, rows: int, passed: int) -> None:
        """Note what a condition let through. condition: its digest."""
        with private_files():
            self.con.execute(
                f"INSERT INTO {self.conditions} VALUES ($1, $2, $3)", [condition, rows, passed]
            )

    def judged_before(self, condition: str) -> tuple[int, int]:
        """Rows that a condition was computed for in earlier runs, and those that passed."""
        ((rows, passed),) = self.con.execute(
            f"SELECT coalesce(sum(rows), 0), coalesce(sum(passed), 0) FROM {self.conditions} "
            "WHERE condition = $1",
            [condition],
        ).fetchall()
        return int(rows), int(passed)

    def samples_of(self, query: str) -> int:
        """How often a query with samples ran to its end. query: its digest."""
        ((runs,),) = self.con.execute(
            f"SELECT coalesce(max(runs), 0) FROM {self.samples} WHERE query = $1", [query]
        ).fetchall()
        return int(runs)

    def sampled(self, query: str) -> None:
        """A query with samples ran to its end: the next time it takes others."""
        with private_files():
            self.con.execute(
                f"INSERT INTO {self.samples} VALUES ($1, $2)", [query, self.samples_of(query) + 1]
            )

    def seconds_of(self, model: str, rows: int) -> float | None:
        """How long a model would take for rows, by how long it took; None: it never ran."""
        ((found,),) = self.con.execute(
            f"SELECT sum(seconds) / nullif(sum(asked), 0) FROM {self.runs} WHERE model = $1",
            [model],
        ).fetchall()
        return None if found is None else round(float(found) * rows, 3)

    def close(self) -> None:
        """Let go of the file."""
        if self.path is None:
            return
        if self._attached:
            with contextlib.suppress(Exception), private_files():
                self.con.execute(f"DETACH {self.schema}")
            self._attached = False
        with _lock:
            _open.pop(str(self.path.absolute()), None)


def _schema_of(con: duckdb.DuckDBPyConnection) -> str:
    found = con.execute("SELECT current_database() || '.' || current_schema()").fetchall()
    return str(found[0][0])


def _why_not(path: Path, error: Exception, new: bool) -> InputError:
    text = str(error)
    if "could not set lock" in text.lower() or "conflicting lock" in text.lower():
        who = re.search(r"PID (\d+)", text)
        by = f" by process {who.group(1)}" if who else ""
        return AnswersInUse(
            f"the answers file {path} is in use{by}: wait for it, or give another file"
        )
    if new:
        return InputError(f"the answers file {path} cannot be made: {text.splitlines()[0]}")
    return InputError(
        f"{path} is no answers file: give another one, or delete it ({text.splitlines()[0]})"
    )
