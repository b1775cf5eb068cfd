"""Publishing: a document whose chunks are all there becomes the one document of its name.

    pending --publish--> current --replaced or deleted--> died --purge (pins.py)--> gone
       |
       +-- a current one of its name was asked for later --> gone, and nobody has seen it

A transaction locks pending documents first, then rows of collections, then current documents, and
each in the order of keys or ids: so transactions never wait for each other in a circle. The row of
the collection, locked, puts in line who changes what is visible there, and its version counts them.

Where documents came without a collection, names are nothing, and each is seen by those who name its
id: there it is visible at once, and no version is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, sql

from teola.engine import UNNAMED

from .presence import CHANNEL

LOCK_COLLECTIONS = """
SELECT id FROM teola.collections
WHERE id IN (SELECT collection FROM teola.documents WHERE id = ANY(%s)) AND name <> %s
ORDER BY id FOR NO KEY UPDATE
"""
LOCK_CURRENT = """
SELECT FROM teola.documents
WHERE ready AND died IS NULL AND (collection, name_hash) IN (
    SELECT collection, name_hash FROM teola.documents
    WHERE id = ANY(%s) AND collection = ANY(%s))
ORDER BY key FOR NO KEY UPDATE
"""
PUBLISH = """
WITH new AS (
    SELECT id, key, collection, name_hash, name, asked, collection = ANY(%(named)s) AS named
    FROM teola.documents WHERE id = ANY(%(ids)s)
), rivals AS (
    SELECT id, collection, name, asked, true AS new FROM new WHERE named
    UNION ALL
    SELECT d.id, d.collection, d.name, d.asked, false FROM teola.documents d
    WHERE d.ready AND d.died IS NULL AND EXISTS (
        SELECT FROM new n WHERE n.named AND n.collection = d.collection
            AND n.name_hash = d.name_hash AND n.name = d.name)
), newest AS (
    SELECT DISTINCT ON (collection, name) id, new FROM rivals
    ORDER BY collection, name, asked DESC, new DESC, id
), winners AS (
    SELECT new.* FROM new JOIN newest USING (id)
), grown AS (
    UPDATE teola.collections SET version = version + 1
    WHERE id IN (SELECT collection FROM winners) RETURNING id, version
), replaced AS (
    UPDATE teola.documents d SET died = g.version
    FROM winners w JOIN grown g ON g.id = w.collection
    WHERE d.collection = w.collection AND d.name_hash = w.name_hash AND d.name = w.name
        AND d.ready AND d.died IS NULL
    RETURNING d.collection
), visible AS (
    UPDATE teola.documents d
    SET ready = true, born = coalesce(g.version, 0), owner = NULL, holder = NULL
    FROM new n LEFT JOIN grown g ON g.id = n.collection
    WHERE d.id = n.id AND (NOT n.named OR n.id IN (SELECT id FROM winners))
    RETURNING d.id
), superseded AS (
    DELETE FROM teola.documents
    WHERE id IN (SELECT id FROM new WHERE named EXCEPT SELECT id FROM winners)
)
SELECT n.id, n.key, n.collection, v.id IS NOT NULL,
    n.collection IN (SELECT collection FROM replaced)
FROM new n LEFT JOIN visible v USING (id)
"""
"""Of equal times of asking, the one that is stored last wins."""

DONORS = """
SELECT new.id, d.id FROM teola.documents new JOIN teola.documents d
    ON d.collection = new.collection AND d.sha256 = new.sha256 AND d.pipeline = new.pipeline
WHERE new.id = ANY(%s) AND d.ready AND (d.reading = new.reading OR d.reading IS NULL
    AND substring(lower(d.name), '[.][^./]+$') IS NOT DISTINCT FROM
        substring(lower(new.name), '[.][^./]+$'))
ORDER BY new.id, d.reading IS NULL, d.id
"""
"""Of rows that an older version of the schema left, the name's suffix tells how they were read."""

LOCK_DONORS = (
    "SELECT id FROM teola.documents WHERE id = ANY(%s) AND ready ORDER BY id FOR KEY SHARE"
)
COPY_CHUNKS = """
WITH pairs AS (
    SELECT * FROM unnest(%s::text[], %s::text[]) AS pair (id, donor)
), copied AS (
    INSERT INTO {chunks} (tenant, collection, document, index, body, place, embedding)
    SELECT c.tenant, c.collection, p.id, c.index, c.body, c.place, c.embedding
    FROM pairs p JOIN {chunks} c ON c.document = p.donor
    RETURNING document
), counted AS (SELECT document, count(*)::int AS chunks FROM copied GROUP BY document)
UPDATE teola.documents d SET stored = c.chunks, expected = c.chunks
FROM counted c WHERE d.id = c.document
RETURNING d.id
"""


@dataclass(frozen=True, slots=True)
class Published:
    """What a transaction made visible: ids, and their collections. replaced: the collections in
    which something went for it."""

    visible: frozenset[str] = frozenset()
    grown: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()


async def publish(connection: AsyncConnection[Any], documents: Sequence[str]) -> Published:
    """Make pending documents visible that have all their chunks; this transaction has locked them.
    It deletes what they replace, and those that are too late. It tells whoever waits."""
    if not documents:
        return Published()
    ids = list(documents)
    cursor = await connection.execute(LOCK_COLLECTIONS, (ids, UNNAMED))
    named = [collection async for (collection,) in cursor]
    if named:  # in a statement of its own, it sees what those before it in line have done
        await connection.execute(LOCK_CURRENT, (ids, named))
    cursor = await connection.execute(PUBLISH, {"ids": ids, "named": named})
    rows = await cursor.fetchall()
    await announce(connection, [key for _, key, *_ in rows])
    seen = [(id, home, replaces) for id, _, home, visible, replaces in rows if visible]
    return Published(
        frozenset(id for id, _, _ in seen),
        frozenset(home for _, home, _ in seen),
        frozenset(home for _, home, replaces in seen if replaces),
    )


async def take_chunks(
    connection: AsyncConnection[Any], chunks: sql.Identifier, documents: Sequence[str]
) -> list[str]:
    """Give pending documents the chunks of others in their collections that have their content and
    were read in the same way, in the table `chunks`; ids of those that have all of theirs now."""
    if not documents:
        return []
    cursor = await connection.execute(DONORS, (list(documents),))
    donors: dict[str, list[str]] = {}
    async for id, donor in cursor:
        donors.setdefault(id, []).append(donor)
    if not donors:
        return []
    # Whoever deletes them skips what is locked.
    all_donors = sorted({donor for donor_ids in donors.values() for donor in donor_ids})
    cursor = await connection.execute(LOCK_DONORS, (all_donors,))
    there = {id async for (id,) in cursor}
    pairs = [
        (id, donor)
        for id, donor_ids in donors.items()
        for donor in [next((candidate for candidate in donor_ids if candidate in there), None)]
        if donor is not None
    ]
    copy = sql.SQL(COPY_CHUNKS).format(chunks=chunks)
    cursor = await connection.execute(copy, ([i for i, _ in pairs], [d for _, d in pairs]))
    return [id async for (id,) in cursor]


async def announce(connection: AsyncConnection[Any], keys: Iterable[str]) -> None:
    """Tell those who wait for them, once the transaction commits."""
    document_keys = list(keys)
    if document_keys:
        await connection.execute(
            "SELECT pg_notify(%s, key) FROM unnest(%s::text[]) AS key", (CHANNEL, document_keys)
        )
