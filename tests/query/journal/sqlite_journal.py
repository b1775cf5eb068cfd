"""A journal's database in memory: SQLite, which is told each statement in its own words.

It has neither roles nor rows that only a tenant sees, and one connection. All else that statements
say is done: conditions, order, what is counted, written, deleted and told. The tests on a
PostgreSQL server say that it takes the same statements.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from teola.query.journal.journal import Given, Journal
from teola.query.journal.sealing import Seal

TABLES: Final = """
CREATE TABLE settings (version int PRIMARY KEY, sealed text);
CREATE TABLE queries (
    id text PRIMARY KEY, tenant text NOT NULL, key text, digest text, app text NOT NULL,
    request text, created real DEFAULT (now()), deadline real NOT NULL, holder int,
    runs int NOT NULL DEFAULT 1, deaths int NOT NULL DEFAULT 0, cancel int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'running', ended real, latency_s real, result text, problem text,
    left_s real, code text, seal text, UNIQUE (tenant, key),
    CHECK ((state IN ('running', 'waiting')) = (ended IS NULL)),
    CHECK (ended IS NULL OR holder IS NULL)
);
CREATE TABLE files (
    tenant text, query text REFERENCES queries ON DELETE CASCADE, number int, piece int, body blob,
    PRIMARY KEY (query, number, piece)
);
CREATE TABLE steps (
    tenant text, query text REFERENCES queries ON DELETE CASCADE, key text, value text,
    PRIMARY KEY (query, key)
);
CREATE TABLE asks (
    tenant text, query text REFERENCES queries ON DELETE CASCADE, id text,
    asked real DEFAULT (now()), told text, answer text, PRIMARY KEY (query, id)
);
INSERT INTO settings VALUES (3, NULL);
"""
_WORDS: Final = (
    (r"teola_journal\.", ""),
    (r"%\((\w+)\)s", r":\1"),
    (r"%[sb]", "?"),
    (r"\s+FOR (?:UPDATE|SHARE)(?: SKIP LOCKED)?", ""),
    (r"extract\(epoch FROM (.+?)\)::float8", r"(\1)"),
    (r"FROM mine\nON CONFLICT", "FROM mine WHERE true ON CONFLICT"),
    (r"make_interval\(secs => ([^)]+)\)", r"(\1)"),
    (r"= ANY\(coalesce\(:gone::bigint\[\], ARRAY\[holder\]\)\)",
     "IN (SELECT value FROM json_each(coalesce(:gone, json_array(holder))))"),
    (r"unnest\(:gone::bigint\[\]\) AS known \(holder\)",
     "(SELECT value AS holder FROM json_each(:gone))"),
    (r"= ANY\((\?|:\w+)\)", r"IN (SELECT value FROM json_each(\1))"),
    (r"<> ALL\((\?|:\w+)\)", r"NOT IN (SELECT value FROM json_each(\1))"),
    (r"::\w+(?:\[\])?", ""),
    (r"greatest\(", "max("),
    (r"RETURNING q\.", "RETURNING "),
    (r"SELECT FROM", "SELECT 1 FROM"),
    (r"UPDATE (\w+) (q)\b", r"UPDATE \1 AS \2"),
)  # fmt: skip
"""PostgreSQL's words and SQLite's."""


class Rows:
    """What a statement gave. rowcount: rows that it met or gave."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], names: Sequence[str], met: int) -> None:
        self._rows, self.names = list(rows), names
        self.rowcount = len(rows) if names else met

    async def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._rows:
            yield row

    def of(self, kind: type) -> Rows:
        """With rows of this kind."""
        named = [kind(**dict(zip(self.names, row, strict=True))) for row in self._rows]
        return Rows(named, self.names, self.rowcount)


class Cursor:
    """Of rows of a kind."""

    def __init__(self, database: Database, kind: type) -> None:
        self._database, self._kind = database, kind
        self._rows = Rows((), (), 0)

    async def execute(self, statement: str, values: Any = ()) -> Rows:
        self._rows = self._database.run(statement, values).of(self._kind)
        return self._rows

    async def fetchall(self) -> list[Any]:
        return await self._rows.fetchall()

    async def __aenter__(self) -> Cursor:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class Database:
    """A JournalDatabase, and its connections. now: seconds since 1970. started: when PostgreSQL
    was. alive: holders that show that they live. told: what was notified, by channel. ran: the
    statements, with their values and the tenant whose transaction it was."""

    def __init__(self) -> None:
        self.now, self.started = 1000.0, 0.0
        self.alive: set[int] = set()
        self.told: list[tuple[str, str]] = []
        self.ran: list[tuple[str | None, str]] = []
        self._tenant: str | None = None
        self._sqlite = made = sqlite3.connect(":memory:", isolation_level=None)
        made.create_function("now", 0, lambda: self.now)
        made.create_function("to_timestamp", 1, lambda seconds: seconds)
        made.create_function("pg_postmaster_start_time", 0, lambda: self.started)
        made.create_function("pg_notify", 2, lambda *told: self.told.append(told))
        free = "pg_try_advisory_xact_lock_shared"
        made.create_function(free, 1, lambda holder: holder not in self.alive)
        made.executescript(f"PRAGMA foreign_keys = ON; {TABLES}")

    def run(self, statement: str, values: Any = ()) -> Rows:
        """What a statement gives."""
        self.ran.append((self._tenant, statement))
        for theirs, ours in _WORDS:
            statement = re.sub(theirs, ours, statement)
        named = isinstance(values, Mapping)
        given: Any = {k: _plain(v) for k, v in values.items()} if named else [*map(_plain, values)]
        parts = list(_parts(statement))
        found, made = Rows((), (), 0), list[str]()
        for name, part in parts:
            count = part.count("?")
            own = given if named else given[:count]
            given = given if named else given[count:]
            cursor = self._sqlite.execute(part, own)
            rows = cursor.fetchall()
            names = [column[0] for column in cursor.description or ()]
            found = Rows(rows, names, cursor.rowcount)
            if name and names:  # else nobody reads it
                made.append(name)
                self._sqlite.execute(f"CREATE TEMP TABLE {name} ({', '.join(names)})")
                places = ", ".join("?" * len(names))
                self._sqlite.executemany(f"INSERT INTO {name} VALUES ({places})", rows)
        for name in made:
            self._sqlite.execute(f"DROP TABLE temp.{name}")
        assert named or not given, "there are more values than places"
        return found

    # --- as a connection ----------------------------------------------------------------------

    async def execute(self, statement: str, values: Any = ()) -> Rows:
        return self.run(statement, values)

    @asynccontextmanager
    async def transaction(
        self, tenant: str | None = None, patience: object = None
    ) -> AsyncIterator[Any]:
        around, self._tenant = self._tenant, tenant
        try:
            yield self
        finally:
            self._tenant = around

    def cursor(self, connection: Any, kind: type) -> Cursor:
        return Cursor(self, kind)

    async def hurried(self, session: Any, limit_s: float, statement: str, values: Any) -> int:
        return self.run(statement, values).rowcount

    async def note(self, statement: str, note: str) -> None:
        self.run(statement, (note,))

    async def close(self) -> None: ...


def _plain(value: Any) -> Any:
    """A value as SQLite has it."""
    return json.dumps(value) if isinstance(value, list) else value


def _parts(statement: str) -> Iterator[tuple[str, str]]:
    """The named parts of a WITH and what follows them, one after another."""
    rest = statement.strip()
    if not rest.startswith("WITH "):
        yield "", rest
        return
    rest = rest.removeprefix("WITH ")
    while found := re.match(r"\s*(\w+) AS (?:MATERIALIZED )?\(", rest):
        depth, at = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(rest[at], 0)
            at += 1
        yield found[1], rest[found.end() : at - 1]
        rest = rest[at:].lstrip().removeprefix(",")
    yield "", rest


def journal_beside(database: Database, keep_s: float = 100.0, key: str | None = None) -> Journal:
    """A server's journal in it."""
    journal = Journal(Given(""), keep_s, Seal(key))
    journal._opened, journal.away = database, False  # type: ignore[assignment]
    database.alive.add(journal.token)
    return journal
