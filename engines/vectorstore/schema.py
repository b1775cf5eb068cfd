"""Tables, row-level security and the role for queries.

    settings      one row: version of the schema, dimensions of the vectors
    collections   (tenant, name) -> id; `indexed`: it has its own HNSW index; `version` grows with
                  each transaction that makes documents visible or takes them away; `embedder` and
                  `sentence`: see embedders.py. Without a name it `replaces` the collection of that
                  id as soon as it is whole (reindexing.py), or was replaced
    documents     one row a document, with its metadata; invisible until `ready`, and to versions
                  of its collection before `born` and from `died` on
    chunks        text and vector of each chunk of a document, and where in it the chunk stands
    chunks_<d>    the same, of vectors with another length, d, than the database was made with
    readers       the oldest version of a collection that queries of a process still read

Every table with tenants' rows has row-level security enabled and forced: a session sees and writes
only rows of the tenant in the setting `teola.tenant`, which each transaction sets for itself, and
none without it. The barrier holds for roles without SUPERUSER and BYPASSRLS, so queries run as
such a role. One more policy, for the sweep of what dead processes left (ownership.py), opens
documents that nobody may find, and readers, and only them, under the setting `teola.sweep`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import AsyncConnection, Connection, errors, sql

from teola.errors import EngineUnavailable

VERSION = 4
SCHEMA = "teola"
QUERY_ROLE = "teola_query"
TENANT_TABLES = ("collections", "documents", "chunks", "readers")
MIGRATION_LOCK = 0x7E01A
EXTENSION_LOCK = 0x7E01A4
INLINE_DIMENSIONS = 1500
"""Vectors up to this size fit into a table page beside their chunk, and are kept there."""

CREATE_ROLE: LiteralString = """
DO $$ BEGIN
    CREATE ROLE teola_query;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""

TEXT_FUNCTIONS: tuple[LiteralString, ...] = (
    "pg_catalog.ts_match_vq(tsvector, tsquery)",
    "pg_catalog.to_tsvector(regconfig, text)",
)
"""What they tell of a row, they tell by their result alone, so they may see it before row-level
security has chosen it."""

READERS: LiteralString = """
CREATE TABLE teola.readers (
    tenant text NOT NULL CHECK (tenant <> ''),
    holder bigint NOT NULL,
    collection bigint NOT NULL REFERENCES teola.collections,
    oldest bigint NOT NULL,
    PRIMARY KEY (holder, collection)
);
CREATE INDEX ON teola.readers (collection);
"""
"""holder: token of a process (presence.py)."""

DOCUMENT_INDEXES: LiteralString = """
CREATE UNIQUE INDEX ON teola.documents (key) WHERE died IS NULL;
CREATE INDEX ON teola.documents (collection, born);
CREATE INDEX documents_hidden_idx ON teola.documents (collection)
    WHERE NOT ready OR died IS NOT NULL;
CREATE INDEX ON teola.documents (collection, name_hash) WHERE died IS NULL;
CREATE INDEX ON teola.documents (collection, sha256);
"""
"""A name may be longer than an index takes, so its hash is indexed. It is a column: row-level
security keeps conditions on an expression away from indexes."""

CHUNKS: LiteralString = """
CREATE TABLE {table} (
    tenant text NOT NULL CHECK (tenant <> ''),
    collection bigint NOT NULL,
    document text NOT NULL REFERENCES teola.documents ON DELETE CASCADE,
    index int NOT NULL CHECK (index >= 0),
    body text NOT NULL,
    place jsonb,
    embedding vector({dimensions}) NOT NULL,
    PRIMARY KEY (document, index)
);
CREATE INDEX ON {table} (collection);
ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE {storage};
"""

TABLES: LiteralString = (
    """
CREATE SCHEMA teola;
CREATE TABLE teola.settings (version int NOT NULL, dimensions int NOT NULL);
CREATE TABLE teola.collections (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    name text,
    indexed boolean NOT NULL DEFAULT false,
    version bigint NOT NULL DEFAULT 0,
    embedder jsonb,
    sentence vector,
    replaces bigint,
    UNIQUE (tenant, name)
);
CREATE TABLE teola.documents (
    id text PRIMARY KEY,
    key text NOT NULL,
    tenant text NOT NULL CHECK (tenant <> ''),
    collection bigint NOT NULL REFERENCES teola.collections,
    name text NOT NULL,
    name_hash bigint GENERATED ALWAYS AS (hashtextextended(name, 0)) STORED,
    origin text,
    sha256 text NOT NULL,
    reading text,
    pipeline text NOT NULL,
    metadata jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    asked timestamptz NOT NULL DEFAULT clock_timestamp(),
    born bigint NOT NULL DEFAULT 0,
    died bigint,
    ready boolean NOT NULL DEFAULT false,
    stored int NOT NULL DEFAULT 0,
    expected int,
    owner text,
    holder bigint,
    CHECK (NOT ready OR stored = expected)
);
CREATE INDEX ON teola.documents (collection, holder) WHERE NOT ready;
INSERT INTO teola.settings VALUES ({version}, {dimensions});
"""
    + CHUNKS
    + DOCUMENT_INDEXES
    + READERS
)

SECURITY: LiteralString = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON {table}
    USING (tenant = (SELECT current_setting('teola.tenant', true)))
    WITH CHECK (tenant = (SELECT current_setting('teola.tenant', true)));
"""

SWEEP_POLICIES: LiteralString = """
CREATE POLICY sweep ON teola.documents
    USING ((NOT ready OR died IS NOT NULL)
        AND (SELECT current_setting('teola.sweep', true)) = 'on') WITH CHECK (false);
CREATE POLICY sweep ON teola.readers
    USING ((SELECT current_setting('teola.sweep', true)) = 'on') WITH CHECK (false);
"""

UPGRADES: dict[int, LiteralString] = {
    1: """
ALTER TABLE teola.chunks DROP COLUMN metadata;
UPDATE teola.settings SET version = 2;
""",
    2: """
ALTER TABLE teola.collections ADD COLUMN version bigint NOT NULL DEFAULT 0;
ALTER TABLE teola.chunks ADD COLUMN place jsonb;
ALTER TABLE teola.documents
    ADD COLUMN key text,
    ADD COLUMN name_hash bigint GENERATED ALWAYS AS (hashtextextended(name, 0)) STORED,
    ADD COLUMN origin text,
    ADD COLUMN reading text,
    ADD COLUMN asked timestamptz DEFAULT clock_timestamp(),
    ADD COLUMN born bigint NOT NULL DEFAULT 0,
    ADD COLUMN died bigint;
ALTER TABLE teola.documents
    ALTER COLUMN key TYPE text USING id,
    ALTER COLUMN asked TYPE timestamptz USING created_at;
ALTER TABLE teola.documents ALTER COLUMN key SET NOT NULL, ALTER COLUMN asked SET NOT NULL;
DROP INDEX IF EXISTS teola.documents_collection_idx;
DROP POLICY sweep ON teola.documents;
"""
    + DOCUMENT_INDEXES
    + READERS
    + SECURITY.replace("{table}", "teola.readers")
    + SWEEP_POLICIES
    + "UPDATE teola.settings SET version = 3;",
    3: """
ALTER TABLE teola.collections
    ALTER COLUMN name DROP NOT NULL,
    ADD COLUMN embedder jsonb,
    ADD COLUMN sentence vector,
    ADD COLUMN replaces bigint;
UPDATE teola.settings SET version = 4;
""",
}
"""By the version that a schema has: what makes the next one of it. In version 1 each chunk held a
copy of its document's metadata. In version 2 a document's id was its key, and documents of one name
stood beside each other. Rows are changed by a change of type: row-level security would hide them
from an UPDATE. In version 3 no collection knew its embedder; it learns it when somebody first
looks (embedders.py). A later step that changes chunks has to change each table of them."""

STAGING: LiteralString = """
CREATE TEMP TABLE staging (
    request int, document text, index int, body text, place jsonb, embedding vector
) ON COMMIT DELETE ROWS
"""
"""Where COPY writes: it is refused on tables with row-level security."""

GRANTS: LiteralString = """
GRANT USAGE ON SCHEMA teola TO teola_query;
GRANT SELECT ON teola.settings TO teola_query;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON teola.collections, teola.documents, teola.chunks, teola.readers TO teola_query;
"""
GRANT_CHUNKS: LiteralString = "GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO teola_query"


@dataclass(frozen=True, slots=True)
class ChunkTables:
    """Where chunks lie. main: dimensions of those in the table `chunks`; width: of the store's."""

    main: int
    width: int

    @property
    def own(self) -> sql.Identifier:
        """The table that the store writes and searches."""
        return self.of(self.width)

    def of(self, dimensions: int) -> sql.Identifier:
        """The table for vectors of this length."""
        return sql.Identifier(
            SCHEMA, "chunks" if dimensions == self.main else f"chunks_{dimensions}"
        )


def ensure_query_role(connection: Connection[Any]) -> None:
    """Embedded server: the role that queries log in as, without any right beyond its tables, and
    that row-level security lets searches by words use an index (indexing.py)."""
    connection.execute(CREATE_ROLE)
    connection.execute(
        "ALTER ROLE teola_query LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION"
    )
    for function in TEXT_FUNCTIONS:
        cursor = connection.execute(
            "SELECT proleakproof FROM pg_proc WHERE oid = %s::regprocedure", (function,)
        )
        if cursor.fetchone() == (False,):
            connection.execute(sql.SQL("ALTER FUNCTION {} LEAKPROOF").format(sql.SQL(function)))


async def migrate(connection: AsyncConnection[Any], dimensions: int) -> None:
    """Make the schema, or check that the existing one is ours and fits, and bring it up to date.

    `connection` has autocommit on. Raises EngineUnavailable with what to do.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        cursor = await connection.execute("SELECT to_regclass('teola.settings')")
        row = await cursor.fetchone()
        if row is not None and row[0] is not None:
            await _check(connection)
            return
        await ensure_extension(connection)
        await _create(connection, dimensions)


async def chunk_tables(connection: AsyncConnection[Any], dimensions: int) -> ChunkTables:
    """Where a store of so many dimensions keeps its chunks in this database."""
    cursor = await connection.execute("SELECT dimensions FROM teola.settings")
    row = await cursor.fetchone()
    return ChunkTables(row[0] if row is not None else dimensions, dimensions)


async def _check(connection: AsyncConnection[Any]) -> None:
    cursor = await connection.execute("SELECT version FROM teola.settings")
    (version,) = await cursor.fetchone() or (None,)
    if version in UPGRADES:
        await _see_vectors(connection)
        while version in UPGRADES:
            await connection.execute(UPGRADES[version])
            version += 1
        await grant(connection, GRANTS)
    if version != VERSION:
        raise EngineUnavailable(
            f"the schema 'teola' has version {version}, this Teola needs {VERSION}: "
            "use another database or data_dir, or update Teola",
            retryable=False,
        )


async def ensure_chunks(connection: AsyncConnection[Any], tables: ChunkTables) -> None:
    """Make a store's own table of chunks, with its barrier and its rights, if it is not there.

    `connection` has autocommit on. Raises EngineUnavailable with what to do.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        name = tables.own.as_string(connection)
        cursor = await connection.execute("SELECT to_regclass(%s)", (name,))
        if await cursor.fetchone() == (None,):
            await _make_chunks(connection, tables)


async def _make_chunks(connection: AsyncConnection[Any], tables: ChunkTables) -> None:
    try:
        async with connection.transaction():
            await _see_vectors(connection)
            await connection.execute(sql.SQL(CHUNKS + SECURITY).format(**_form(tables)))
    except errors.InsufficientPrivilege as error:
        raise EngineUnavailable(
            f"this role may not make the table {tables.own.as_string(connection)} for vectors of "
            f"{tables.width} dimensions: log in as the role that owns the schema 'teola'",
            retryable=False,
        ) from error
    await grant(connection, sql.SQL(GRANT_CHUNKS).format(table=tables.own))


def _form(tables: ChunkTables) -> dict[str, sql.Composable]:
    """Values for the places that the statement of the store's own table of chunks leaves open."""
    inline = tables.width <= INLINE_DIMENSIONS
    return {
        "table": tables.own,
        "dimensions": sql.Literal(tables.width),
        "storage": sql.SQL("PLAIN" if inline else "EXTERNAL"),
    }


async def _see_vectors(connection: AsyncConnection[Any]) -> None:
    """Find pgvector's types without their schema, until the transaction ends."""
    path = sql.SQL("SET LOCAL search_path TO public, {}")
    await connection.execute(path.format(await extension_schema(connection)))


async def ensure_extension(connection: AsyncConnection[Any]) -> None:
    try:
        async with connection.transaction():
            # IF NOT EXISTS looks first and creates then: two at once would both create.
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (EXTENSION_LOCK,))
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except (errors.FeatureNotSupported, errors.UndefinedFile) as error:
        raise EngineUnavailable(
            "this PostgreSQL server lacks pgvector: install it there "
            "(https://github.com/pgvector/pgvector), or leave out the dsn for the embedded server",
            retryable=False,
        ) from error
    except errors.InsufficientPrivilege as error:
        raise EngineUnavailable(
            "this role may not install pgvector: have an administrator run "
            "CREATE EXTENSION vector in the database",
            retryable=False,
        ) from error


async def _create(connection: AsyncConnection[Any], dimensions: int) -> None:
    try:
        async with connection.transaction():
            await _see_vectors(connection)
            tables = ChunkTables(dimensions, dimensions)
            create = sql.SQL(TABLES).format(version=sql.Literal(VERSION), **_form(tables))
            await connection.execute(create)
            for table in TENANT_TABLES:
                name = sql.Identifier(SCHEMA, table)
                await connection.execute(sql.SQL(SECURITY).format(table=name))
            await connection.execute(SWEEP_POLICIES)
    except errors.InsufficientPrivilege as error:
        raise EngineUnavailable(
            "this role may not create the schema 'teola': grant it CREATE on the database",
            retryable=False,
        ) from error
    await grant(connection, GRANTS)


async def grant(connection: AsyncConnection[Any], rights: LiteralString | sql.Composed) -> None:
    """Make the role for queries where we may; else queries run as the login role itself."""
    try:
        async with connection.transaction():
            await connection.execute(CREATE_ROLE)
            await connection.execute("GRANT teola_query TO CURRENT_USER")
            await connection.execute(rights)
    except errors.InsufficientPrivilege:
        async with connection.transaction():
            cursor = await connection.execute("SELECT to_regrole('teola_query') IS NOT NULL")
            row = await cursor.fetchone()
            if row is not None and row[0]:
                await connection.execute(rights)


async def extension_schema(connection: AsyncConnection[Any]) -> sql.Identifier:
    """The schema that pgvector was installed into."""
    cursor = await connection.execute(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
        " WHERE e.extname = 'vector'"
    )
    row = await cursor.fetchone()
    if row is None:
        raise EngineUnavailable("the extension 'vector' was dropped: create it again")
    return sql.Identifier(row[0])
