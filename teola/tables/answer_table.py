"""The answers table: dedup, checkpoint and cache in one.

    answers     key -> value or error, tokens, time
    operators   what is behind a key: model, instruction
    runs        how long a model took
    samples     how often a query with samples (a temperature above 0) ran to its end
    conditions  rows that a condition with calls was computed for, and those that passed

This one ends with its run: its tables are in the run's own DuckDB. AnswersFile has them in a file,
SharedAnswers has a copy of those in a PostgreSQL database that the run needs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from teola.errors import EngineUnavailable
from teola.tables.arrow_columns import int_column, text_column
from teola.tables.prompt_text import literal

if TYPE_CHECKING:
    import duckdb

    from teola.tables.arrival_log import ArrivalLog


LEASE_S: Final = 60.0
"""Seconds for which a dead run keeps the keys that it has claimed."""


class AnswersLost(EngineUnavailable):
    """The database of answers was lost while a query ran, or does not let it write."""


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
    """The model and the instruction that the answers of one digest were asked with."""

    digest: str
    model: str
    instruction: str


class OthersAnswers(NamedTuple):
    """What has become of keys that other runs had claimed. answered: keys that they answered.
    errors: how many of these are errors, and `error` one of them. free: keys that they let go of:
    they can be asked. left: keys that they are still at."""

    answered: int = 0
    errors: int = 0
    error: str | None = None
    free: int = 0
    left: int = 0


NO_OTHERS: Final = OthersAnswers()
FREE_KEYS: Final = "teola_free"
"""Keys that can be asked again, see `AnswerTable.settle`."""


class AnswerTable:
    """The answers that a run reads and writes, on its connection; nothing outlives the run."""

    kept = False
    """Whether answers outlive the run."""
    arrivals: ArrivalLog | None = None
    """Where answers are noted until `add` writes them, for a process that is killed before."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.place(_schema_of(con), "teola_")
        self.create()
        self.create_more()

    def place(self, schema: str, prefix: str) -> None:
        """Use tables of this schema whose names begin with a prefix."""
        self.schema = schema
        self.answers = f"{schema}.{prefix}answers"
        self.operators = f"{schema}.{prefix}operators"
        self.runs = f"{schema}.{prefix}runs"
        self.samples = f"{schema}.{prefix}samples"
        self.conditions = f"{schema}.{prefix}conditions"
        self.since = datetime.now(UTC).replace(tzinfo=None)

    def writing(self) -> AbstractContextManager[None]:
        """A context that is entered around each write."""
        return nullcontext()

    def create(self) -> None:
        """The tables that all files have."""
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

    def create_more(self) -> None:
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
        with self.writing():
            self.con.execute(
                f"INSERT INTO {self.operators} SELECT $1, $2, $3 WHERE NOT EXISTS "
                f"(SELECT 1 FROM {self.operators} WHERE operator = $1)",
                [operator.digest, operator.model, operator.instruction],
            )

    def knows(self, model: str) -> bool:
        """Whether there may be answers of a model, by its identity."""
        rows = self.con.execute(
            f"SELECT 1 FROM {self.operators} WHERE model = $1 LIMIT 1", [model]
        ).fetchall()
        return bool(rows)

    def add(self, operator: str, answers: Sequence[StoredAnswer]) -> None:
        """Write answers. They are stored when it returns."""
        now = datetime.now(UTC).replace(tzinfo=None)
        with self.writing():
            self.insert(self.con, operator, answers, now)

    def insert(
        self,
        con: duckdb.DuckDBPyConnection,
        operator: str,
        answers: Sequence[StoredAnswer],
        at: datetime,
    ) -> None:
        """Write answers into DuckDB, by a connection of the thread. at: when they came, in UTC."""
        import pyarrow as pa

        keys, values, errors, prompt, cached, completion = zip(*answers, strict=True)
        batch = pa.table(
            {
                "key": text_column(keys),
                "value": text_column(values),
                "error": text_column(errors),
                "prompt_tokens": int_column(prompt),
                "cached_tokens": int_column(cached),
                "completion_tokens": int_column(completion),
            }
        )
        con.register("teola_batch", batch)
        con.execute(
            f"INSERT INTO {self.answers} SELECT {literal(operator)}, key, value, error, "
            f"prompt_tokens, cached_tokens, completion_tokens, TIMESTAMP '{at}' FROM teola_batch"
        )
        con.unregister("teola_batch")

    def known(self, operator: str, keys: str, *, failed: bool) -> str:
        """SQL of the answers for the column `key` of table `keys`, one for each, and whether they
        were there before this run. failed: also those that are errors and were kept before."""
        now = f"(a.error IS NULL OR a.asked_at >= TIMESTAMP '{self.since}')"
        only = "" if failed else f" AND {now}"
        return (
            f"SELECT a.key, arg_max(a.value, a.asked_at) FILTER (WHERE a.error IS NULL) AS value, "
            "CASE WHEN bool_and(a.error IS NOT NULL) THEN arg_max(a.error, a.asked_at) END "
            f"AS error, min(a.asked_at) < TIMESTAMP '{self.since}' AS before "
            f"FROM {self.answers} a WHERE a.operator = {literal(operator)}{only} "
            f"AND a.key IN (SELECT key FROM {keys}) GROUP BY a.key"
        )

    def took(self, operators: Sequence[str], since: datetime) -> tuple[int, int, int]:
        """Answers that operators have got since a time (UTC), errors among them, with the tokens of
        prompts and of answers."""
        listed = ", ".join(map(literal, operators)) or "NULL"
        ((count, prompt, completion),) = self.con.execute(
            "SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) "
            f"FROM {self.answers} WHERE operator IN ({listed}) AND asked_at >= TIMESTAMP '{since}'"
        ).fetchall()
        return int(count), int(prompt), int(completion)

    def ran(self, model: str, asked: int, seconds: float) -> None:
        """Note how long a model took, for estimates."""
        with self.writing():
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
        with self.writing():
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
        with self.writing():
            self.con.execute(
                f"INSERT INTO {self.samples} VALUES ($1, $2)", [query, self.samples_of(query) + 1]
            )

    def seconds_of(self, model: str, rows: int) -> float | None:
        """How long a model would take for rows, by how long it took; None: it never ran."""
        ((row_s,),) = self.con.execute(
            f"SELECT sum(seconds) / nullif(sum(asked), 0) FROM {self.runs} WHERE model = $1",
            [model],
        ).fetchall()
        return None if row_s is None else round(float(row_s) * rows, 3)

    # --- other runs -----------------------------------------------------------------------

    def fetch(self, operator: str, keys: str) -> None:
        """Copy what others stored for the column `key` of table `keys`. Raises AnswersLost."""

    def claim(self, operator: str, keys: Sequence[str]) -> Collection[str]:
        """Claim keys. Returns those that this run asks; `settle` gives the answers to the others.
        Call it in the thread that reads rows. Raises AnswersLost."""
        return keys

    def settle(self, operator: str) -> OthersAnswers:
        """Copy the answers that others gave, since it was called last, to keys that `claim` left to
        them. Keys that can be asked are in the table `FREE_KEYS` then. Raises AnswersLost."""
        return NO_OTHERS

    def release(self) -> None:
        """Let go of claimed keys that have no answer: they will not be asked."""

    def close(self) -> None:
        """Close what it has open."""


def _schema_of(con: duckdb.DuckDBPyConnection) -> str:
    found = con.execute("SELECT current_database() || '.' || current_schema()").fetchall()
    return str(found[0][0])
