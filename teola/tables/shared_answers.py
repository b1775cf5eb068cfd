"""Answers in a database that several runs share; a run has a copy of those it needs in DuckDB.

    before asking   answers to the run's keys are copied            `fetch`
    while asking    a window of keys is claimed, and what others have claimed is left to them
                                                                    `claim`
    after asking    answers of others are copied as they come; keys that a run let go of, or that
                    a dead one had, are asked here                  `settle`

So runs over one table, which ask in the same order, take turns by windows, and each key is asked
once. A thread renews the run's lease, whatever the others are at.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, LiteralString
from uuid import UUID, uuid4

from teola.errors import InputError
from teola.tables.answer_table import (
    FREE_KEYS,
    LEASE_S,
    AnswersLost,
    AnswerTable,
    Operator,
    OthersAnswers,
    StoredAnswer,
)
from teola.tables.answers_database import AnswersDatabase, FoundAnswer
from teola.tables.prompt_text import literal
from teola.tables.workspace import cursor_of

if TYPE_CHECKING:
    import duckdb

RENEWALS: Final = 3
"""How often a lease is renewed before it is over."""
FETCHED: Final = 8192
"""Keys that are looked up at a time."""
CLOSE_S: Final = 5.0
AWAITED: Final = "teola_awaited"
"""Keys that other runs have claimed."""


class SharedAnswers(AnswerTable):
    """dsn: of the database. writes: whether the run may ask. lease_s: how long its claims hold
    without being renewed. check: raises where the run shall end; it is called while the database
    is away. Raises InputError where it cannot be used."""

    kept = True

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        dsn: str,
        *,
        writes: bool = True,
        lease_s: float = LEASE_S,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if not lease_s > 0:
            raise InputError(f"answers_lease_s must be seconds above 0, not {lease_s!r}")
        self.database = AnswersDatabase(dsn, writes=writes, check=check)
        super().__init__(con)
        con.execute(f"CREATE OR REPLACE TABLE {AWAITED} (key VARCHAR)")
        self.since = self.database.since.astimezone(UTC).replace(tzinfo=None)
        self.run: UUID = uuid4()
        self.lease_s = lease_s
        self._held: set[str] = set()
        self._came = OthersAnswers()
        """Answers that `claim` has seen and `settle` has not returned yet."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None
        self._means: dict[str, float | None] = {}

    # --- answers --------------------------------------------------------------------------

    def add(self, operator: str, answers: Sequence[StoredAnswer]) -> None:
        """Write answers. They are on the server's disk when it returns. Raises AnswersLost."""
        self.database.store(operator, answers)
        with self._lock:
            self._held.difference_update(answer.key for answer in answers)
        self.insert(self.con, operator, answers, self.since)

    def fetch(self, operator: str, keys: str) -> None:
        """See AnswerTable."""
        sql: LiteralString = "SELECT 1 FROM teola_answers.operators WHERE operator = %s"
        if self.database.value(sql, [operator]) is None:
            return
        for batch in self._unanswered(operator, keys):
            self._copy(operator, self.database.answered(batch))

    def took(self, operators: Sequence[str], since: datetime) -> tuple[int, int, int]:
        """See AnswerTable; what others asked meanwhile counts, too."""
        sql: LiteralString = (
            "SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) "
            "FROM teola_answers.answers WHERE operator = ANY(%s) AND asked_at >= %s"
        )
        at = since.replace(tzinfo=UTC)
        for count, prompt, completion in self.database.execute(sql, (list(operators), at)):
            return int(count), int(prompt), int(completion)
        return 0, 0, 0

    def _unanswered(self, operator: str, keys: str) -> Iterator[list[str]]:
        """Keys of a table that have no answer in DuckDB."""
        answered = (
            f"SELECT key FROM {self.answers} WHERE operator = {literal(operator)} AND "
            f"(error IS NULL OR asked_at >= TIMESTAMP '{self.since}')"
        )
        sql = f"SELECT DISTINCT key FROM {keys} WHERE key NOT IN ({answered})"
        with cursor_of(self.con) as cursor:
            for batch in cursor.sql(sql).to_arrow_reader(FETCHED):
                yield batch.column(0).to_pylist()

    def _copy(self, operator: str, answers: Sequence[FoundAnswer]) -> None:
        """Copy answers into DuckDB, as older than this run. Only errors that came since it began
        are dated later: this run does not ask them again."""
        lately = [
            found.answer for found in answers if found.lately and found.answer.error is not None
        ]
        before = [
            found.answer for found in answers if not found.lately or found.answer.error is None
        ]
        with cursor_of(self.con) as cursor:
            for batch, at in ((before, self.since - timedelta(seconds=1)), (lately, self.since)):
                if batch:
                    self.insert(cursor, operator, batch, at)

    # --- other runs -----------------------------------------------------------------------

    def claim(self, operator: str, keys: Sequence[str]) -> Collection[str]:
        """See AnswerTable."""
        self._renew()
        own = self.database.claim(self.run, operator, keys, self.lease_s)
        with self._lock:
            self._held |= own
        if len(own) < len(keys):
            left = self._look(operator, [key for key in keys if key not in own])
            if left:
                with cursor_of(self.con) as cursor:
                    cursor.execute(f"INSERT INTO {AWAITED} SELECT unnest(?)", [left])
        return own

    def settle(self, operator: str) -> OthersAnswers:
        """See AnswerTable."""
        free: list[str] = []
        held: list[str] = []
        for batch in self._unanswered(operator, AWAITED):
            left = self._look(operator, batch)
            with_others = self.database.held(self.run, left) if left else set()
            for key in left:
                (held if key in with_others else free).append(key)
        for table, keys in ((AWAITED, held), (FREE_KEYS, free)):
            self.con.execute(
                f"CREATE OR REPLACE TABLE {table} AS SELECT unnest(?::VARCHAR[]) AS key", [keys]
            )
        with self._lock:
            came, self._came = self._came, OthersAnswers()
        return came._replace(free=len(free), left=len(held))

    def _look(self, operator: str, keys: Sequence[str]) -> list[str]:
        """Copy the answers of others to these keys. Returns the keys without an answer."""
        usable = [
            found
            for found in self.database.answered(keys)
            if found.answer.error is None or found.lately
        ]
        self._copy(operator, usable)
        errors = [found.answer.error for found in usable if found.answer.error is not None]
        with self._lock:
            came = self._came
            self._came = OthersAnswers(
                came.answered + len(usable),
                came.errors + len(errors),
                came.error or next(iter(errors), None),
            )
        answered = {found.answer.key for found in usable}
        return [key for key in keys if key not in answered]

    def release(self) -> None:
        """See AnswerTable."""
        with self._lock:
            held, self._held = sorted(self._held), set()
        with contextlib.suppress(AnswersLost):  # then they come free with the lease
            for at in range(0, len(held), FETCHED):
                self.database.release(self.run, held[at : at + FETCHED])

    def _renew(self) -> None:
        """Begin to renew the lease, before the first key is claimed."""
        if self._renewing is not None:
            return
        self.database.renew(self.run, self.lease_s)
        self._renewing = threading.Thread(target=self._renewals, name="teola-lease", daemon=True)
        self._renewing.start()

    def _renewals(self) -> None:
        """Renew the lease in a thread and on a connection of its own, so that no long statement
        delays it."""
        own: AnswersDatabase | None = None
        while not self._over.wait(self.lease_s / RENEWALS):
            # Where the database is away, the statements of the run itself will tell.
            with contextlib.suppress(InputError, AnswersLost):
                if own is None:
                    own = AnswersDatabase(self.database.dsn, writes=False, check=self._check_over)
                own.renew(self.run, self.lease_s)
        if own is not None:
            own.close()

    def _check_over(self) -> None:
        if self._over.is_set():
            raise AnswersLost("the run is over")

    # --- what is known of calls -----------------------------------------------------------

    def know(self, operator: Operator) -> None:
        """Note what an operator is, before answers of it are added."""
        self.database.know(operator)

    def knows(self, model: str) -> bool:
        """Whether there may be answers of a model, by its identity."""
        sql: LiteralString = "SELECT 1 FROM teola_answers.operators WHERE model = %s LIMIT 1"
        return self.database.value(sql, [model]) is not None

    def mean_answer(self, operator: str) -> float | None:
        """Tokens of an operator's answers on average, as it was when it was asked for first."""
        if operator not in self._means:
            mean = self.database.value(
                "SELECT avg(completion_tokens) FROM teola_answers.answers WHERE operator = %s",
                [operator],
            )
            self._means[operator] = None if mean is None else float(mean)
        return self._means[operator]

    def ran(self, model: str, asked: int, seconds: float) -> None:
        """Note how long a model took, for estimates."""
        self._note("INSERT INTO teola_answers.runs VALUES (%s, %s, %s)", [model, asked, seconds])

    def seconds_of(self, model: str, rows: int) -> float | None:
        """How long a model would take for rows, by how long it took; None: it never ran."""
        row_s = self.database.value(
            "SELECT sum(seconds) / nullif(sum(asked), 0) FROM teola_answers.runs WHERE model = %s",
            [model],
        )
        return None if row_s is None else round(float(row_s) * rows, 3)

    def judged(self, condition: str, rows: int, passed: int) -> None:
        """Note what a condition let through. condition: its digest."""
        self._note(
            "INSERT INTO teola_answers.conditions VALUES (%s, %s, %s)", [condition, rows, passed]
        )

    def judged_before(self, condition: str) -> tuple[int, int]:
        """Rows that a condition was computed for in earlier runs, and those that passed."""
        rows = self.database.execute(
            "SELECT coalesce(sum(rows), 0), coalesce(sum(passed), 0) FROM teola_answers.conditions "
            "WHERE condition = %s",
            (condition,),
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def samples_of(self, query: str) -> int:
        """How often a query with samples ran to its end. query: its digest."""
        sql: LiteralString = "SELECT runs FROM teola_answers.samples WHERE query = %s"
        return int(self.database.value(sql, [query]) or 0)

    def sampled(self, query: str) -> None:
        """A query with samples ran to its end: the next time it takes others."""
        self._note(
            "INSERT INTO teola_answers.samples AS s VALUES (%s, 1) "
            "ON CONFLICT (query) DO UPDATE SET runs = s.runs + 1",
            [query],
        )

    def _note(self, statement: LiteralString, parameters: Sequence[Any]) -> None:
        """Write something that only saves time later: if it fails, the query goes on."""
        with contextlib.suppress(AnswersLost):
            self.database.execute(statement, tuple(parameters), patient=False)

    def close(self) -> None:
        """Release all claimed keys, and close the connection."""
        self._over.set()
        if self._renewing is not None:
            with contextlib.suppress(AnswersLost):
                self.release()
                self.database.end(self.run)
            self._renewing.join(CLOSE_S)
        self.database.close()
