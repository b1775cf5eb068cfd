"""Tables of the corpora, and how they are made.

    corpora     a source (a folder, or what is packaged) read in one way; sizes of its index
    documents   one row a document, known by the digest of its bytes
    passages    text and vector of each passage of a document
    terms       how often each word stands in each passage, for BM25

They hold nothing that cannot be read again from the source, and nothing of tenants: a corpus is
as public to those who use an engine as the web is. The version is in the schema's name, so that
another one makes tables of its own.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString

from psycopg import AsyncConnection, sql

from ..vectorstore import schema as vectors
from ..vectorstore.database import Tables

CORPUS_SCHEMA: Final = "teola_corpus_1"
MIGRATION_LOCK: Final = 0x7E01A2
INDEXING_LOCK: Final = 0x7E01A3

TABLES: LiteralString = """
CREATE SCHEMA teola_corpus_1;
SET LOCAL search_path TO teola_corpus_1, {vector};
CREATE TABLE corpora (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL,
    pipeline text NOT NULL,
    passages bigint NOT NULL DEFAULT 0,
    words bigint NOT NULL DEFAULT 0,
    UNIQUE (source, pipeline)
);
CREATE TABLE documents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    corpus int NOT NULL REFERENCES corpora ON DELETE CASCADE,
    sha256 text NOT NULL,
    url text NOT NULL,
    title text NOT NULL,
    UNIQUE (corpus, sha256)
);
CREATE TABLE passages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    corpus int NOT NULL,
    document bigint NOT NULL REFERENCES documents ON DELETE CASCADE,
    index int NOT NULL,
    body text NOT NULL,
    embedding vector NOT NULL,
    UNIQUE (document, index)
);
CREATE INDEX ON passages (corpus);
CREATE TABLE terms (
    corpus int NOT NULL,
    term text NOT NULL,
    passage bigint NOT NULL REFERENCES passages ON DELETE CASCADE,
    count int NOT NULL,
    length int NOT NULL,
    PRIMARY KEY (corpus, term, passage) INCLUDE (count, length)
);
CREATE INDEX ON terms (passage);
"""

GRANTS: LiteralString = """
GRANT USAGE ON SCHEMA teola_corpus_1 TO teola_query;
GRANT SELECT ON ALL TABLES IN SCHEMA teola_corpus_1 TO teola_query;
"""


async def migrate(connection: AsyncConnection[Any]) -> None:
    """Make the tables unless they are there. Raises EngineUnavailable."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        cursor = await connection.execute(
            "SELECT to_regnamespace(%s) IS NOT NULL", (CORPUS_SCHEMA,)
        )
        row = await cursor.fetchone()
        if row is not None and row[0]:
            return
        await vectors.ensure_extension(connection)
        where = await vectors.extension_schema(connection)
        await connection.execute(sql.SQL(TABLES).format(vector=where))
        await vectors.grant(connection, GRANTS)


CORPORA: Final = Tables("corpus", CORPUS_SCHEMA, migrate, "SET statement_timeout = '30s'")
