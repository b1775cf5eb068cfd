"""A store that an older version of the schema left is brought up to date, and nothing is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from teola.engine import DocumentKey, EmbedderIdentity
from teola.errors import InputError
from teola_engines.vectorstore import PgVector, schema

from .conftest import DIMENSIONS, Corner, Server, pieces, vectors
from .old_store import create

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
        create(connection, DIMENSIONS)
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


@pytest.mark.parametrize("embedders", [("org/mine@1",), ("org/mine@1", "http://x/v1:16")])
async def test_an_older_collection_takes_the_embedders_of_its_documents_and_is_embedded_anew(
    embedders: tuple[str, ...], owner: str, corner: Corner
) -> None:
    """Of a document that two embedders indexed, one is left."""
    fill(owner, corner, 2, [("a.txt", "red"), ("a.txt", "green"), ("b.txt", "blue")])
    with psycopg.connect(owner) as connection:
        connection.execute("SELECT set_config('teola.tenant', %s, true)", (corner.tenant,))
        named = "UPDATE teola.documents SET pipeline = 'files-1 pypdf-6/254/30/' || %s"
        connection.execute(named, embedders[:1])
        if len(embedders) > 1:
            again = "UPDATE teola.documents SET sha256 = %s, pipeline = 'files-1 pypdf-6/254/30/'"
            values = (sha("red"), embedders[1], sha("green"))
            connection.execute(f"{again} || %s WHERE sha256 = %s", values)
    (sentence,) = vectors(1)
    mine = EmbedderIdentity(embedders[0], DIMENSIONS, sentence=sentence)
    new = replace(mine, identity="new@1", sentence=-sentence)
    store = PgVector(dsn=owner, dimensions=DIMENSIONS)
    await store.start()
    try:
        told = (await store.admit(corner.tenant, corner.collection, mine)).notice
        assert all(repr(one) in told for one in embedders) == (len(embedders) > 1)
        with pytest.raises(InputError, match=r"not with 'new@1'"):
            await store.admit(corner.tenant, corner.collection, new)
        work, _ = await store.reindexing(corner.tenant, corner.collection, new)
        for batch in await work.batches():
            texts = await work.texts(batch)
            await work.store(batch, texts, vectors(len(texts)))
        assert await work.finish()
        await work.close()
        assert not (await store.admit(corner.tenant, corner.collection, new)).notice
        assert len(await found(store, corner)) == 4 - len(embedders)
        listed = await store.documents(corner.tenant, corner.collection)
        assert [d["name"] for d in listed] == ["a.txt", "a.txt", "b.txt"][len(embedders) - 1 :]
    finally:
        await store.close()
