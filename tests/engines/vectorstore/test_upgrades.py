"""A store that an older version of the schema left is brought up to date, and nothing is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from teola.engine import DocumentKey
from teola_engines.vectorstore import PgVector, schema

from .conftest import DIMENSIONS, Corner, Server, pieces, vectors

SECOND = f"""
CREATE SCHEMA teola;
CREATE TABLE teola.settings (version int NOT NULL, dimensions int NOT NULL);
CREATE TABLE teola.collections (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    name text NOT NULL,
    indexed boolean NOT NULL DEFAULT false,
    UNIQUE (tenant, name)
);
CREATE TABLE teola.documents (
    id text PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    collection bigint NOT NULL REFERENCES teola.collections,
    name text NOT NULL,
    sha256 text NOT NULL,
    pipeline text NOT NULL,
    metadata jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    ready boolean NOT NULL DEFAULT false,
    stored int NOT NULL DEFAULT 0,
    expected int,
    owner text,
    holder bigint,
    CHECK (NOT ready OR stored = expected)
);
CREATE INDEX ON teola.documents (collection);
CREATE INDEX ON teola.documents (collection, holder) WHERE NOT ready;
CREATE TABLE teola.chunks (
    tenant text NOT NULL CHECK (tenant <> ''),
    collection bigint NOT NULL,
    document text NOT NULL REFERENCES teola.documents ON DELETE CASCADE,
    index int NOT NULL CHECK (index >= 0),
    body text NOT NULL,
    embedding public.vector({DIMENSIONS}) NOT NULL,
    PRIMARY KEY (document, index)
);
CREATE INDEX ON teola.chunks (collection);
ALTER TABLE teola.chunks ALTER COLUMN embedding SET STORAGE PLAIN;
INSERT INTO teola.settings VALUES (2, {DIMENSIONS});
CREATE POLICY sweep ON teola.documents
    USING (NOT ready AND (SELECT current_setting('teola.sweep', true)) = 'on') WITH CHECK (false);
"""
TENANT = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON {table}
    USING (tenant = (SELECT current_setting('teola.tenant', true)))
    WITH CHECK (tenant = (SELECT current_setting('teola.tenant', true)));
"""
FIRST = """
ALTER TABLE teola.chunks ADD COLUMN metadata jsonb NOT NULL DEFAULT '{"lang": "en"}';
UPDATE teola.settings SET version = 1;
"""
"""Makes of the second version what the first was: each chunk has a copy of the metadata."""

DOCUMENT = """
INSERT INTO teola.documents
    (id, tenant, collection, name, sha256, pipeline, metadata, ready, stored, expected, created_at)
VALUES (%s, %s, %s, %s, %s, 'v1', '{"lang": "en"}', true, 1, 1, %s)
"""
CHUNK = """
INSERT INTO teola.chunks (tenant, collection, document, index, body, embedding)
VALUES (%s, %s, %s, 0, %s, %s::public.vector)
"""

SHAPE = """
SELECT 'column', table_name, column_name, data_type, is_nullable, column_default,
    generation_expression
FROM information_schema.columns WHERE table_schema = 'teola'
UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '', ''
FROM pg_indexes WHERE schemaname = 'teola'
UNION ALL SELECT 'policy', tablename, policyname, qual, with_check, '', ''
FROM pg_policies WHERE schemaname = 'teola'
UNION ALL SELECT 'table', relname::text, relforcerowsecurity::text, '', '', '', ''
FROM pg_class WHERE relnamespace = 'teola'::regnamespace AND relkind = 'r'
UNION ALL SELECT 'right', table_name, privilege_type, grantee, '', '', ''
FROM information_schema.table_privileges WHERE table_schema = 'teola' AND grantee = 'teola_query'
ORDER BY 1, 2, 3
"""


@pytest.fixture
def owner(server: Server) -> Iterator[str]:
    """DSN of a login that row-level security binds, and which owns an empty database."""
    server.rows("CREATE ROLE upgrader LOGIN NOSUPERUSER IN ROLE teola_query")
    server.rows("CREATE DATABASE older OWNER upgrader")
    admin = make_conninfo(server.admin, dbname="older")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield make_conninfo(admin, user="upgrader")
    server.rows("DROP DATABASE older WITH (FORCE)")
    server.rows("DROP ROLE upgrader")


def sha(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def fill(dsn: str, corner: Corner, version: int, contents: list[tuple[str, str]]) -> None:
    """Make the tables of a version, with documents of one chunk each: name, content."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SECOND)
        for table in ("collections", "documents", "chunks"):
            connection.execute(TENANT.format(table=f"teola.{table}"))
        if version == 1:
            connection.execute(FIRST)
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT set_config('teola.tenant', %s, true)", (corner.tenant,))
        home = connection.execute(
            "INSERT INTO teola.collections (tenant, name) VALUES (%s, %s) RETURNING id",
            (corner.tenant, corner.collection),
        ).fetchone()
        assert home is not None
        for day, (name, content) in enumerate(contents, start=1):
            id = sha(name + content)[:32]
            head = (id, corner.tenant, home[0], name, sha(content), f"2026-01-{day:02}")
            connection.execute(DOCUMENT, head)
            vector = str([float(v) for v in vectors(1, seed=day)[0]])
            connection.execute(CHUNK, (corner.tenant, home[0], id, content, vector))


def keyed(name: str, content: str, **more: str) -> DocumentKey:
    return DocumentKey(sha(content), "v1", name, {"lang": "en"}, **{"reading": "text", **more})


async def found(store: PgVector, corner: Corner) -> list[str]:
    (result,) = await store.execute([corner.search(vectors(1), top_k=9)])
    return sorted(hit.text for hit in result["hits"][0])


@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_store_becomes_what_a_new_one_is(
    version: int, owner: str, corner: Corner, server: Server, store: PgVector
) -> None:
    fill(owner, corner, version, [("a.txt", "red"), ("b.txt", "blue")])
    upgraded = PgVector(dsn=owner, dimensions=DIMENSIONS)
    await upgraded.start()
    try:
        assert await found(upgraded, corner) == ["blue", "red"]
        with psycopg.connect(owner) as connection:
            shape = connection.execute(SHAPE).fetchall()
    finally:
        await upgraded.close()
    assert [row for row in shape if "chunks_" not in row[2]] == [
        row for row in server.rows(SHAPE) if "chunks_" not in row[2]
    ]
    with psycopg.connect(owner) as connection:
        told = connection.execute("SELECT version FROM teola.settings").fetchone()
    assert told == (schema.VERSION,)


async def test_two_documents_of_one_name_stay_until_it_is_indexed_again(
    owner: str, corner: Corner
) -> None:
    fill(owner, corner, 2, [("a.txt", "red"), ("a.txt", "green"), ("b.html", "<b>blue")])
    store = PgVector(dsn=owner, dimensions=DIMENSIONS)
    await store.start()
    try:
        listed = await store.documents(corner.tenant, corner.collection)
        assert [d["name"] for d in listed] == ["a.txt", "a.txt", "b.html"]
        assert await found(store, corner) == ["<b>blue", "green", "red"]

        (claim,) = await corner.claim(store, keyed("b.html", "<b>blue", reading="html"))
        assert (claim.owned, claim.taken) == (False, True), "what it has is not embedded again"
        assert claim.document not in {d["id"] for d in listed}

        (claim,) = await corner.claim(store, keyed("b.txt", "<b>blue"))
        assert claim.owned, "it was read as HTML, and is a text now"
        await store.release("q1")

        (claim,) = await corner.claim(store, keyed("a.txt", "yellow"))
        assert (claim.owned, claim.replaces) == (True, True)
        await store.expect("q1", {claim.document: 1})
        assert await found(store, corner) == ["<b>blue", "green", "red"]
        await store.execute([corner.ingestion(pieces(claim.document, 1, "yellow"), vectors(1))])
        assert await found(store, corner) == ["<b>blue", "yellow 0"]
    finally:
        await store.close()
