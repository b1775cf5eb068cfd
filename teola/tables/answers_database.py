"""Answers in a PostgreSQL database, which several processes share.

    answers     a row a key: who asks it now, until when, and its answer once there is one
    leases      runs that go on: what they have claimed is theirs until their lease is over
    operators, runs, samples, conditions   as in answer_table

A key is claimed by the statement that writes its row, and PostgreSQL lets one of several runs do
that. A claim holds for a lease from when it was made, and then as long as the run renews its own
lease, which is one row however many keys it has. A run that died renews nothing, so its keys come
free. What is written is on the server's disk when a statement returns.

Values and errors are bytes (UTF-8), because PostgreSQL's texts have no NUL. A server that is away
is tried again for a while: all statements may be repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from psycopg import conninfo

from teola.errors import InputError
from teola.tables.answer_table import AnswersLost, Operator, StoredAnswer

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

VERSION: Final = 1
AWAY_S: Final = 30.0
"""Seconds for which a server that does not answer is tried again."""
AGAIN_S: Final = 0.5
DEFAULTS: Final[dict[str, int | str]] = {
    "application_name": "teola-answers",
    "connect_timeout": 5,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""Options that give up a server whose machine is gone (ms, s, s)."""
MAKING: Final = 0x7E01A6
"""The key of the lock under which tables are made."""

_TABLES: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS teola_answers;
CREATE TABLE teola_answers.answers (
    key text PRIMARY KEY,
    operator text NOT NULL,
    value bytea,
    error bytea,
    prompt_tokens int,
    cached_tokens int,
    completion_tokens int,
    asked_at timestamptz,
    claimed_by uuid,
    claimed_until timestamptz
) WITH (fillfactor = 80);
CREATE INDEX ON teola_answers.answers (operator);
CREATE TABLE teola_answers.leases (run uuid PRIMARY KEY, until timestamptz NOT NULL);
CREATE TABLE teola_answers.operators (operator text PRIMARY KEY, model text, instruction text);
CREATE INDEX ON teola_answers.operators (model);
CREATE TABLE teola_answers.runs (model text NOT NULL, asked bigint, seconds float8);
CREATE TABLE teola_answers.samples (query text PRIMARY KEY, runs bigint NOT NULL);
CREATE TABLE teola_answers.conditions (condition text NOT NULL, rows bigint, passed bigint);
CREATE INDEX ON teola_answers.conditions (condition);
CREATE TABLE teola_answers.about (version int NOT NULL);
INSERT INTO teola_answers.about VALUES (1);
"""
_RIGHTS: Final[LiteralString] = """
SELECT bool_and(has_table_privilege(c.oid, 'SELECT')
    AND (%s OR c.relname = 'about' OR (has_table_privilege(c.oid, 'INSERT')
        AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'teola_answers' AND c.relkind = 'r'
"""
_RENEW: Final[LiteralString] = """
INSERT INTO teola_answers.leases VALUES (%s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (run) DO UPDATE SET until = excluded.until RETURNING clock_timestamp()
"""
_CLAIM: Final[LiteralString] = """
INSERT INTO teola_answers.answers AS a (key, operator, claimed_by, claimed_until)
SELECT k, %(operator)s, %(run)s, clock_timestamp() + make_interval(secs => %(lease_s)s)
FROM unnest(%(keys)s::text[]) k ORDER BY k
ON CONFLICT (key) DO UPDATE
SET claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
WHERE (a.asked_at IS NULL OR (a.error IS NOT NULL AND a.asked_at < %(since)s))
    AND (a.claimed_by IS NULL OR a.claimed_by = excluded.claimed_by
        OR (a.claimed_until < clock_timestamp() AND NOT EXISTS (
            SELECT FROM teola_answers.leases l
            WHERE l.run = a.claimed_by AND l.until > clock_timestamp())))
RETURNING key
"""
_HELD: Final[LiteralString] = """
SELECT key FROM teola_answers.answers a
WHERE key = ANY(%(keys)s::text[]) AND claimed_by <> %(run)s AND (claimed_until > clock_timestamp()
    OR EXISTS (SELECT FROM teola_answers.leases l
        WHERE l.run = a.claimed_by AND l.until > clock_timestamp()))
"""
_ANSWERED: Final[LiteralString] = """
SELECT key, value, error, prompt_tokens, cached_tokens, completion_tokens, asked_at >= %(since)s
FROM teola_answers.answers WHERE key = ANY(%(keys)s::text[]) AND asked_at IS NOT NULL
"""
_STORE: Final[LiteralString] = """
INSERT INTO teola_answers.answers AS a
    (operator, key, value, error, prompt_tokens, cached_tokens, completion_tokens, asked_at)
SELECT %s, *, clock_timestamp() FROM unnest(%s::text[], %s::bytea[], %s::bytea[], %s::int[],
    %s::int[], %s::int[]) AS x (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET value = excluded.value, error = excluded.error,
    prompt_tokens = excluded.prompt_tokens, cached_tokens = excluded.cached_tokens,
    completion_tokens = excluded.completion_tokens, asked_at = excluded.asked_at,
    claimed_by = NULL, claimed_until = NULL
WHERE a.asked_at IS NULL OR a.error IS NOT NULL
"""
_RELEASE: Final[LiteralString] = """
DELETE FROM teola_answers.answers
WHERE key = ANY(%(keys)s::text[]) AND claimed_by = %(run)s AND asked_at IS NULL
"""
_RELEASE_ERRORS: Final[LiteralString] = """
UPDATE teola_answers.answers SET claimed_by = NULL, claimed_until = NULL
WHERE key = ANY(%(keys)s::text[]) AND claimed_by = %(run)s
"""


class FoundAnswer(NamedTuple):
    """A stored answer. lately: it came after the run had begun."""

    answer: StoredAnswer
    lately: bool


class AnswersDatabase:
    """dsn: postgresql://... writes: whether tables are made that are not there; else it is as if
    they were empty. check: is called before the server is tried again, and may raise. Raises
    InputError where the server cannot be reached, or is not what it must be."""

    def __init__(self, dsn: str, *, writes: bool, check: Callable[[], None] = lambda: None) -> None:
        self.dsn, self.writes, self.check = completed(dsn), writes, check
        self.name = presentable_dsn(dsn)
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._lost: AnswersLost | None = None
        self.since = datetime.now(UTC)
        try:
            self._connection = self._connect()
            self.there = self._open(self._connection)
        except psycopg.OperationalError as error:
            self.close()
            raise InputError(
                f"the answers at {self.name} cannot be reached: {self._said(error)}; start the "
                "server, or give another place to --answers"
            ) from None
        except psycopg.Error as error:
            self.close()
            raise InputError(
                f"the answers at {self.name} cannot be used: {self._said(error)}; give another "
                "place to --answers"
            ) from None
        except BaseException:
            self.close()
            raise

    # --- opening --------------------------------------------------------------------------

    def _connect(self) -> Connection[Any]:
        # No prepared statements: what pools connections may give each statement another server.
        return psycopg.connect(self.dsn, autocommit=True, prepare_threshold=None)

    def _open(self, connection: Connection[Any]) -> bool:
        """Whether the tables are there; makes them where it may. Raises InputError."""
        ((database, role, encoding, there, now),) = connection.execute(
            "SELECT current_database(), current_user, current_setting('server_encoding'), "
            "EXISTS (SELECT FROM pg_namespace WHERE nspname = 'teola_answers'), clock_timestamp()"
        ).fetchall()
        self.since = now
        if encoding != "UTF8":
            raise InputError(
                f"the database {database} keeps texts in {encoding}: give one in UTF8 to --answers"
            )
        if not there and not self.writes:
            return False
        try:
            if not there:
                self._make(connection)
            self._check_version(connection)
            ((may,),) = connection.execute(_RIGHTS, (not self.writes,)).fetchall()
        except psycopg.errors.InsufficientPrivilege:
            may = False
        if not may and not there:
            raise InputError(
                f"role {role} may not make a schema in the database {database}: its owner says "
                f"GRANT CREATE ON DATABASE {database} TO {role}, or runs a query with these "
                "answers first"
            )
        if not may:
            rights = "SELECT, INSERT, UPDATE, DELETE" if self.writes else "SELECT"
            raise InputError(
                f"role {role} may not use the answers in the database {database}: their owner "
                f"says GRANT USAGE ON SCHEMA teola_answers TO {role}; GRANT {rights} ON ALL "
                f"TABLES IN SCHEMA teola_answers TO {role}"
            )
        return True

    def _make(self, connection: Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
            ((created,),) = connection.execute(
                "SELECT to_regclass('teola_answers.about') IS NOT NULL"
            ).fetchall()
            if not created:
                connection.execute(_TABLES)

    def _check_version(self, connection: Connection[Any]) -> None:
        try:
            rows = connection.execute("SELECT version FROM teola_answers.about").fetchall()
        except psycopg.errors.UndefinedTable:
            raise InputError(
                f"the schema teola_answers at {self.name} holds other tables: give a database of "
                "their own to answers"
            ) from None
        if rows != [(VERSION,)]:
            raise InputError(
                f"the answers at {self.name} are of version {rows[0][0] if rows else '?'}, this is "
                f"version {VERSION}: give another database, or drop the schema teola_answers"
            )

    # --- keys -----------------------------------------------------------------------------

    def renew(self, run: UUID, lease_s: float) -> None:
        """Prolong the claims of a run by so many seconds from now on."""
        self.execute(_RENEW, (run, lease_s))

    def claim(self, run: UUID, operator: str, keys: Sequence[str], lease_s: float) -> set[str]:
        """Claim keys for a run. Returns those that are its own now: nobody had answered or claimed
        them."""
        parameters = {
            "run": run,
            "operator": operator,
            "keys": list(keys),
            "lease_s": lease_s,
            "since": self.since,
        }
        return {key for (key,) in self.execute(_CLAIM, parameters)}

    def held(self, run: UUID, keys: Sequence[str]) -> set[str]:
        """The keys among these that other runs have claimed."""
        return {key for (key,) in self.execute(_HELD, {"run": run, "keys": list(keys)})}

    def answered(self, keys: Sequence[str]) -> list[FoundAnswer]:
        """The stored answers to these keys."""
        rows = self.execute(_ANSWERED, {"keys": list(keys), "since": self.since})
        return [
            FoundAnswer(StoredAnswer(key, _text(value), _text(error), *tokens), lately)
            for key, value, error, *tokens, lately in rows
        ]

    def store(self, operator: str, answers: Sequence[StoredAnswer]) -> None:
        """Write answers; an answer that somebody else gave meanwhile stays."""
        keys, values, errors, *tokens = map(list, zip(*answers, strict=True))
        parameters = (operator, keys, list(map(_bytes, values)), list(map(_bytes, errors)), *tokens)
        self.execute(_STORE, parameters)

    def release(self, run: UUID, keys: Sequence[str]) -> None:
        """Let go of keys that the run has not answered."""
        parameters = {"run": run, "keys": list(keys)}
        self.execute(_RELEASE, parameters, patient=False)
        self.execute(_RELEASE_ERRORS, parameters, patient=False)

    def end(self, run: UUID) -> None:
        """End a run. Leases of dead runs are deleted with it."""
        self.execute(
            "DELETE FROM teola_answers.leases WHERE run = %s "
            "OR until < clock_timestamp() - interval '1 day'",
            (run,),
            patient=False,
        )

    # --- what is known of calls -----------------------------------------------------------

    def know(self, operator: Operator) -> None:
        """Note what an operator is."""
        self.execute(
            "INSERT INTO teola_answers.operators VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (operator.digest, _shown(operator.model), _shown(operator.instruction)),
        )

    def value(self, statement: LiteralString, parameters: Sequence[Any]) -> Any:
        """The one value that a statement gives; None where there is none."""
        rows = self.execute(statement, tuple(parameters))
        return rows[0][0] if rows else None

    # --- statements -----------------------------------------------------------------------

    def execute(
        self, statement: LiteralString, parameters: Any = (), *, patient: bool = True
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement; none where the tables are not there. patient: whether a server
        that is away is waited for. Raises AnswersLost."""
        if not self.there:
            return []

        def work(connection: Connection[Any]) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description is not None else []

        return self._again(work) if patient else self._at_once(work)

    def _again(self, work: Callable[[Connection[Any]], T]) -> T:
        until = time.monotonic() + AWAY_S
        while True:
            if self._lost is not None:
                raise self._lost
            try:
                return self._once(work)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if time.monotonic() > until:
                    self._lost = self._away(error)
                    continue
            except psycopg.Error as error:
                self._lost = AnswersLost(f"the answers at {self.name}: {self._said(error)}")
                continue
            self.check()
            time.sleep(AGAIN_S)

    def _at_once(self, work: Callable[[Connection[Any]], T]) -> T:
        for last in (False, True):  # the first time the connection may have been ended
            try:
                return self._once(work)
            except psycopg.Error as error:
                if last:
                    raise self._away(error) from None
        raise AssertionError

    def _once(self, work: Callable[[Connection[Any]], T]) -> T:
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            return work(self._connection)

    def _away(self, error: psycopg.Error) -> AnswersLost:
        return AnswersLost(
            f"the answers at {self.name} are away: {self._said(error)}; what was written is kept, "
            "and the same query goes on from there"
        )

    def _said(self, error: psycopg.Error) -> str:
        """The first line of an error, in which no password stands."""
        message = next(iter(str(error).splitlines()), "") or type(error).__name__
        password = conninfo.conninfo_to_dict(self.dsn).get("password")
        return message.replace(str(password), "***") if password else message

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


def completed(dsn: str) -> str:
    """A DSN with our defaults for options that it does not give. Raises InputError."""
    try:
        settings = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise InputError(
            "the place of the answers is no address of a database: write "
            "postgresql://user@host:5432/database"
        ) from None
    return conninfo.make_conninfo("", **{**DEFAULTS, **settings})


def presentable_dsn(dsn: str) -> str:
    """Where a database is, without user and password."""
    settings = conninfo.conninfo_to_dict(dsn)
    host, database = settings.get("host") or "localhost", settings.get("dbname") or ""
    port = f":{settings['port']}" if settings.get("port") else ""
    return f"{host}{port}/{database}" if not str(host).startswith("/") else f"{host}, {database}"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


def _shown(text: str) -> str:
    """A text for people that PostgreSQL can hold: it has no NUL."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")
