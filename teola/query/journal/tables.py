"""Tables of the journal: background queries and their documents, in a schema of their own.

    settings   version of the schema, one row for each that it ever had; `sealed`: that sealing has
               begun, or that and when it was done (sealing.py)
    queries    one row a query, from its acceptance until it is forgotten
    files      documents that were uploaded with it, in pieces, until it ends
    steps      what was done of it and is not to be done again (value NULL: begun), until it ends
    asks       what it asked people, with the answer once there is one, until it ends

A query in the state `waiting` waits for people: nobody takes it before there is an answer, and its
deadline is that of the answer; `left_s` is what it has from then on. `code` is a digest of the
application that accepted it: its steps mean something to no other. `seal` opens with the key that
the row's values are sealed with; it is NULL where they may lie there in plain.

A query without `holder` waits for a server; `holder` is the token of the one that runs it. `deaths`
counts the servers that died while they did, `runs` how often it was begun.

Row-level security is enabled and forced: a session sees the rows of the tenant in the setting
`teola.tenant`, or all of them if it says that it is the server at work (`teola.journal`), and none
without either. Once sealing has begun, a server also has to say that it knows sealed values
(`teola.form`). Older servers, which would write in plain and fail what they cannot read, then see
nothing to run. Sessions take on the role `teola_journal`, which may use these tables and nothing
else, wherever the role that logs in may make and take it. It may not write settings.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString

from psycopg import AsyncConnection, errors

from teola.errors import EngineUnavailable

SCHEMA: Final = "teola_journal"
ROLE: Final = "teola_journal"
MIGRATION_LOCK: Final = 0x7E01A5

_FIRST: Final[LiteralString] = """
CREATE TABLE teola_journal.queries (
    id text PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    key text,
    digest text,
    app text NOT NULL,
    request text,
    created timestamptz NOT NULL DEFAULT now(),
    deadline timestamptz NOT NULL,
    holder bigint,
    runs int NOT NULL DEFAULT 1,
    deaths int NOT NULL DEFAULT 0,
    cancel boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'running',
    ended timestamptz,
    latency_s float8,
    result text,
    problem text,
    UNIQUE (tenant, key),
    CHECK ((state = 'running') = (ended IS NULL)),
    CHECK (ended IS NULL OR holder IS NULL)
);
CREATE INDEX ON teola_journal.queries (tenant, created);
CREATE INDEX ON teola_journal.queries (created) WHERE ended IS NULL;
CREATE INDEX ON teola_journal.queries (ended) WHERE ended IS NOT NULL;
CREATE TABLE teola_journal.files (
    tenant text NOT NULL CHECK (tenant <> ''),
    query text NOT NULL REFERENCES teola_journal.queries ON DELETE CASCADE,
    number int NOT NULL,
    piece int NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (query, number, piece)
);
ALTER TABLE teola_journal.files ALTER COLUMN body SET STORAGE EXTERNAL;
"""

_SECOND: Final[LiteralString] = """
ALTER TABLE teola_journal.queries DROP CONSTRAINT queries_check;
ALTER TABLE teola_journal.queries ADD CONSTRAINT queries_ended
    CHECK ((state IN ('running', 'waiting')) = (ended IS NULL));
ALTER TABLE teola_journal.queries ADD left_s float8;
ALTER TABLE teola_journal.queries ADD code text;
CREATE INDEX ON teola_journal.queries (tenant) WHERE state = 'waiting';
CREATE TABLE teola_journal.steps (
    tenant text NOT NULL CHECK (tenant <> ''),
    query text NOT NULL REFERENCES teola_journal.queries ON DELETE CASCADE,
    key text NOT NULL,
    value text,
    PRIMARY KEY (query, key)
);
CREATE TABLE teola_journal.asks (
    tenant text NOT NULL CHECK (tenant <> ''),
    query text NOT NULL REFERENCES teola_journal.queries ON DELETE CASCADE,
    id text NOT NULL,
    asked timestamptz NOT NULL DEFAULT now(),
    told text NOT NULL,
    answer text,
    PRIMARY KEY (query, id)
);
"""

_THIRD: Final[LiteralString] = """
ALTER TABLE teola_journal.settings ADD sealed text;
ALTER TABLE teola_journal.queries ADD seal text;
"""

MIGRATIONS: Final[tuple[LiteralString, ...]] = (_FIRST, _SECOND, _THIRD)
"""The one at place n - 1 makes version n; what has been released is never changed."""

SECURITY: Final[LiteralString] = """
ALTER TABLE teola_journal.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE teola_journal.{table} FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant ON teola_journal.{table};
CREATE POLICY tenant ON teola_journal.{table}
    USING (tenant = (SELECT current_setting('teola.tenant', true)))
    WITH CHECK (tenant = (SELECT current_setting('teola.tenant', true)));
DROP POLICY IF EXISTS server ON teola_journal.{table};
CREATE POLICY server ON teola_journal.{table}
    USING ((SELECT current_setting('teola.journal', true)) = 'server'
        AND ((SELECT current_setting('teola.form', true)) = '2'
            OR (SELECT max(sealed) FROM teola_journal.settings) IS NULL));
"""

TABLES: Final[tuple[LiteralString, ...]] = ("queries", "files", "steps", "asks")

_MAKE_ROLE: Final[LiteralString] = """
DO $$ BEGIN
    CREATE ROLE teola_journal NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""
_GRANT: Final[LiteralString] = """
GRANT teola_journal TO CURRENT_USER;
GRANT USAGE ON SCHEMA teola_journal TO teola_journal;
GRANT SELECT ON teola_journal.settings TO teola_journal;
GRANT SELECT, INSERT, UPDATE, DELETE ON teola_journal.queries, teola_journal.files,
    teola_journal.steps, teola_journal.asks TO teola_journal;
"""

TAKE_ROLE: Final[LiteralString] = """
SELECT set_config('role', 'teola_journal', false)
WHERE coalesce(pg_has_role(current_user, to_regrole('teola_journal'), 'MEMBER'), false)
"""
"""Run on each new connection."""


async def migrate(connection: AsyncConnection[Any]) -> None:
    """Bring the schema up to date; may be repeated, and by many at once. `connection` has
    autocommit on.

    Raises EngineUnavailable for a schema of a newer version or where rights are missing.
    """
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            await _migrate(connection)
    except errors.InsufficientPrivilege as error:
        raise EngineUnavailable(
            "the role that logs in may not create the schema 'teola_journal': grant it CREATE on "
            "the database, or set server.journal to false",
            retryable=False,
        ) from error


async def _migrate(connection: AsyncConnection[Any]) -> None:
    cursor = await connection.execute("SELECT to_regclass('teola_journal.settings') IS NULL")
    if await cursor.fetchone() == (True,):
        await connection.execute("CREATE SCHEMA IF NOT EXISTS teola_journal")
        await connection.execute("CREATE TABLE teola_journal.settings (version int PRIMARY KEY)")
    cursor = await connection.execute(
        "SELECT coalesce(max(version), 0), to_regrole('teola_journal') IS NULL"
        " FROM teola_journal.settings"
    )
    version, alone = await cursor.fetchone() or (0, True)
    if version > len(MIGRATIONS):
        raise EngineUnavailable(
            f"the schema 'teola_journal' has version {version}, this Teola knows "
            f"{len(MIGRATIONS)}: update Teola, or set server.journal to another database",
            retryable=False,
        )
    if version == len(MIGRATIONS):
        if alone:  # restored into another server, to which roles do not come along
            await _grant(connection)
        return
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        await connection.execute(statements)
        await connection.execute("INSERT INTO teola_journal.settings VALUES (%s)", (number,))
    for table in TABLES:
        await connection.execute(SECURITY.replace("{table}", table))
    await _grant(connection)


async def _grant(connection: AsyncConnection[Any]) -> None:
    """Make the role where we may; else sessions work as the role that logs in."""
    try:
        async with connection.transaction():
            await connection.execute(_MAKE_ROLE)
            await connection.execute(_GRANT)
    except errors.InsufficientPrivilege:
        pass
