"""A store as Teola wrote it before documents had versions: schema 2, by its own SQL.

Its rows are those that were then: real chunks with MiniLM's vectors, two documents of one name,
one that another embedding model of the same length made, one that nobody finished, and one that
came without a collection.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString, NamedTuple

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

DIMENSIONS: Final = 384
TENANT: Final = "default"
SPLIT: Final = "files-3 llama-index-core-0.14.25 nltk-3.9.2 pypdf-6.4.0/254/30"
SERVED: Final = "text-embedding@0f1e2d3c:384"
"""Identity of an embedder by URL."""

TABLES: LiteralString = """
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
    embedding public.vector({dimensions}) NOT NULL,
    PRIMARY KEY (document, index)
);
CREATE INDEX ON teola.chunks (collection);
ALTER TABLE teola.chunks ALTER COLUMN embedding SET STORAGE PLAIN;
INSERT INTO teola.settings VALUES (2, {dimensions});
CREATE POLICY sweep ON teola.documents
    USING (NOT ready AND (SELECT current_setting('teola.sweep', true)) = 'on') WITH CHECK (false);
"""
TENANT_POLICY: LiteralString = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON {table}
    USING (tenant = (SELECT current_setting('teola.tenant', true)))
    WITH CHECK (tenant = (SELECT current_setting('teola.tenant', true)));
"""
RIGHTS: LiteralString = """
GRANT USAGE ON SCHEMA teola TO teola_query;
GRANT SELECT ON teola.settings TO teola_query;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON teola.collections, teola.documents, teola.chunks TO teola_query;
"""


class Old(NamedTuple):
    """A document. chunks: their texts. served: embedded by the model behind a URL. ready: all of
    it was stored."""

    collection: str
    name: str
    chunks: tuple[str, ...]
    served: bool = False
    ready: bool = True


STORED: Final = (
    Old("harbour", "keepers.txt", ("The keeper of the lamp is Carl.", "He has a grey cat.")),
    Old("harbour", "keepers.txt", ("The keeper of the lamp is Cora now.", "She has a dog.")),
    Old("harbour", "boats.txt", ("Twelve boats are moored in the harbour.",)),
    Old("harbour", "boats.txt", ("Fourteen boats are moored in the harbour.",)),
    Old("harbour", "lost.txt", ("Nobody has stored the rest of this.",), ready=False),
    Old("two", "market.txt", ("Herring is sold by the cran.",)),
    Old("two", "tides.txt", ("High water comes twice a day.",), served=True),
    Old("documents", "loose.txt", ("A lamp burns oil.",)),
)

Embed = Callable[[Sequence[str]], Any]


def create(connection: psycopg.Connection[Any], dimensions: int) -> None:
    """The tables, as their owner would make them in a database that has pgvector."""
    connection.execute(TABLES.replace("{dimensions}", str(dimensions)))
    for table in ("collections", "documents", "chunks"):
        connection.execute(TENANT_POLICY.replace("{table}", f"teola.{table}"))


def write(admin: str, embed: Embed, identity: str) -> None:
    """Store all of `STORED`. admin: DSN of the superuser of an embedded server that has no store.
    identity: of the embedder that `embed` is."""
    chance = np.random.default_rng(0)
    with psycopg.connect(admin) as connection:
        connection.execute("CREATE EXTENSION vector")
        create(connection, DIMENSIONS)
        connection.execute(RIGHTS)
        register_vector(connection)
        for number, one in enumerate(STORED):
            vectors = embed(one.chunks)
            if one.served:
                drawn = chance.normal(size=vectors.shape)
                vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
            made = f"{SPLIT}/{SERVED if one.served else identity}"
            _store(connection, one, made, number, vectors)


def _store(
    connection: psycopg.Connection[Any], one: Old, pipeline: str, number: int, vectors: Any
) -> None:
    sha256 = hashlib.sha256("\n\n".join(one.chunks).encode()).hexdigest()
    identity = json.dumps([TENANT, one.collection, sha256, pipeline])
    document = hashlib.sha256(identity.encode()).hexdigest()[:32]
    connection.execute(
        "INSERT INTO teola.collections (tenant, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (TENANT, one.collection),
    )
    connection.execute(
        "INSERT INTO teola.documents (id, tenant, collection, name, sha256, pipeline, metadata,"
        " created_at, ready, stored, expected, owner, holder)"
        " SELECT %s, %s, id, %s, %s, %s, '{}', now() - interval '1 day' + %s * interval '1 s',"
        " %s, %s, %s, %s, %s"
        " FROM teola.collections WHERE tenant = %s AND name = %s",
        (
            *(document, TENANT, one.name, sha256, pipeline, number, one.ready, len(one.chunks)),
            len(one.chunks) + (not one.ready),
            *((None, None) if one.ready else ("a query of then", 4711)),
            *(TENANT, one.collection),
        ),
    )
    for index, (body, vector) in enumerate(zip(one.chunks, vectors, strict=True)):
        connection.execute(
            "INSERT INTO teola.chunks (tenant, collection, document, index, body, embedding)"
            " SELECT %s, collection, id, %s, %s, %s FROM teola.documents WHERE id = %s",
            (TENANT, index, body, np.asarray(vector, dtype=np.float32), document),
        )
