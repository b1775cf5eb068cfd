"""Chunks are stored exactly once, in whatever pieces and order they come."""

from __future__ import annotations

import asyncio
import random

from teola.engine import Chunk
from teola.errors import EngineError, InputError
from teola_engines.vectorstore import PgVector

from .conftest import Corner, Server, key, pieces, vectors


async def test_stages_in_any_order_and_repeated_store_each_chunk_once(
    store: PgVector, corner: Corner, server: Server
) -> None:
    (claim,) = await corner.claim(store, key("a", year=2024))
    await store.expect("q1", {claim.document: 20})
    chunks, values = pieces(claim.document, 20), vectors(20)
    stages = [slice(lo, lo + 6) for lo in range(0, 20, 4)] * 2
    random.Random(7).shuffle(stages)
    for stage in stages:
        (result,) = await store.execute([corner.ingestion(chunks[stage], values[stage])])
        assert result == {"stored": [f"{claim.document}:{c.index}" for c in chunks[stage]]}
    (document,) = await store.documents(corner.tenant, corner.collection)
    assert (document["id"], document["name"], document["chunks"]) == (claim.document, "a", 20)
    assert document["metadata"] == {"year": 2024}
    statement = "SELECT index, body FROM teola.chunks WHERE document = %s ORDER BY index"
    assert server.rows(statement, claim.document) == [(c.index, c.text) for c in chunks]


async def test_five_queries_with_one_new_document_index_it_once(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    async def query(target: PgVector, owner: str) -> tuple[bool, int]:
        (claim,) = await corner.claim(target, key("a"), owner=owner)
        if claim.owned:
            await target.expect(owner, {claim.document: 30})
            chunks, values = pieces(claim.document, 30), vectors(30)
            stages = [
                target.execute([corner.ingestion(chunks[lo : lo + 10], values[lo : lo + 10])])
                for lo in (20, 0, 10)
            ]
            await asyncio.gather(*stages)
        (found,) = await target.execute([corner.search(vectors(1), top_k=50)])
        await target.release(owner)
        return claim.owned, len(found["hits"][0])

    outcomes = await asyncio.gather(*(query((store, other)[i % 2], f"q{i}") for i in range(5)))
    assert sorted(outcomes) == [(False, 30)] * 4 + [(True, 30)]
    count = "SELECT count(*) FROM teola.chunks WHERE tenant = %s"
    assert server.rows(count, corner.tenant) == [(30,)]


async def test_a_pending_document_is_invisible_and_released_without_a_trace(
    store: PgVector, corner: Corner, server: Server
) -> None:
    (claim,) = await corner.claim(store, key("a"))
    await store.expect("q1", {claim.document: 3})
    await store.execute([corner.ingestion(pieces(claim.document, 2), vectors(2))])
    (found,) = await store.execute([corner.search(vectors(1))])
    assert found == {"hits": [[]]}
    assert await store.collections(corner.tenant) == []
    assert await store.delete(corner.tenant, corner.collection, None) == 0
    await store.release("q1")
    await store.release("q1")
    for table in ("documents", "chunks"):
        statement = f"SELECT count(*) FROM teola.{table} WHERE tenant = %s"
        assert server.rows(statement, corner.tenant) == [(0,)]
    (late,) = await store.execute([corner.ingestion(pieces(claim.document, 1), vectors(1))])
    assert isinstance(late, EngineError)
    assert "was released or deleted" in str(late)


async def test_a_bad_request_fails_alone(store: PgVector, corner: Corner) -> None:
    claims = await corner.claim(store, *(key(f"d{i}") for i in range(5)))
    ids = [claim.document for claim in claims]
    await store.expect("q1", dict.fromkeys(ids, 1))
    good = [pieces(document, 1) for document in ids]
    wrong = [
        corner.ingestion(good[0], vectors(1, dimensions=3)),
        corner.ingestion(good[1], [vectors(1)[0] * float("nan")]),
        corner.ingestion(good[2], []),
        corner.ingestion([Chunk("nowhere", 0, "x", "d3")], vectors(1)),
        corner.ingestion([Chunk(ids[3], -1, "x", "d3")], vectors(1)),
        corner.ingestion(good[4] + pieces(ids[4], 3)[1:], vectors(3)),
    ]
    right = corner.ingestion(good[0], vectors(1))
    results = await store.execute([*wrong[:3], right, *wrong[3:]])
    failures = [result for result in results if isinstance(result, Exception)]
    assert [type(f) for f in failures] == [InputError] * 3 + [EngineError, InputError, EngineError]
    assert "more chunks than" in str(failures[-1])
    assert all("\n" not in str(failure) for failure in failures)
    assert results[3] == {"stored": [f"{ids[0]}:0"]}
    visible = await store.documents(corner.tenant, corner.collection)
    assert [document["id"] for document in visible] == [ids[0]]


async def test_text_that_postgres_cannot_hold_is_cleaned(store: PgVector, corner: Corner) -> None:
    (claim,) = await corner.claim(store, key("a"))
    await store.expect("q1", {claim.document: 1})
    chunk = Chunk(claim.document, 0, "nul \0 and \ud800 half", "a")
    (result,) = await store.execute([corner.ingestion([chunk], vectors(1))])
    assert not isinstance(result, Exception)
    (found,) = await store.execute([corner.search(vectors(1))])
    assert found["hits"][0][0].text == "nul  and ? half"


async def test_delete(store: PgVector, corner: Corner, server: Server) -> None:
    ids = [await corner.index(store, key(name), vectors(2)) for name in "abc"]
    assert await store.delete(corner.tenant, corner.collection, ids[:1]) == 1
    assert await store.delete(corner.tenant, corner.collection, ids[:1]) == 0
    assert await store.delete(corner.tenant, "other", ids) == 0
    assert await store.collections(corner.tenant) == [
        {"name": corner.collection, "documents": 2, "chunks": 4}
    ]
    assert await store.delete(corner.tenant, corner.collection, None) == 2
    assert await store.collections(corner.tenant) == []
    count = "SELECT count(*) FROM teola.chunks WHERE tenant = %s"
    assert server.rows(count, corner.tenant) == [(0,)]
    again = await corner.index(store, key("a"), vectors(2))
    assert again not in ids
