"""Search finds what a plain computation finds, with filters and through the index too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest

from teola.errors import InputError
from teola_engines.vectorstore import PgVector
from teola_engines.vectorstore.schema import ChunkTables
from teola_engines.vectorstore.searching import SearchedVersion, SearchRequest, _plan, read
from tests.planted import catches, edited

from .conftest import DIMENSIONS, Corner, Server, key, vectors


def nearest(query: np.ndarray, values: list[np.ndarray], top_k: int) -> list[int]:
    matrix = np.stack(values)
    scores = matrix @ query / np.linalg.norm(matrix, axis=1) / np.linalg.norm(query)
    return [int(i) for i in np.argsort(-scores, kind="stable")[:top_k]]


async def ask(store: PgVector, corner: Corner, query: np.ndarray, **options: Any) -> list[Any]:
    request = corner.search([query], **options)
    (result,) = await store.execute([request])
    await store.release(request.context.query_id)
    assert not isinstance(result, Exception), result
    (hits,) = result["hits"]
    return hits


async def test_hits_are_the_nearest_chunks_with_all_their_fields(
    store: PgVector, corner: Corner
) -> None:
    values = vectors(50)
    document = await corner.index(store, key("a", lang="en", page=7), values)
    query = vectors(1, seed=1)[0]
    hits = await ask(store, corner, query, top_k=5)
    best = nearest(query, values, 5)
    assert [hit.id for hit in hits] == [f"{document}:{i}" for i in best]
    first = values[best[0]]
    cosine = first @ query / np.linalg.norm(first) / np.linalg.norm(query)
    assert hits[0].score == pytest.approx(float(cosine), abs=1e-5)
    assert (hits[0].document, hits[0].text) == ("a", f"a {best[0]}")
    assert hits[0].metadata == {"lang": "en", "page": 7}


async def test_equal_scores_are_ordered_by_document_and_index(
    store: PgVector, corner: Corner
) -> None:
    same = vectors(1) * 4
    ids = [await corner.index(store, key(name), same) for name in "cab"]
    hits = await ask(store, corner, same[0], top_k=7)
    assert [hit.id for hit in hits] == [f"{d}:{i}" for d in sorted(ids) for i in range(4)][:7]


async def test_scopes_and_filters(store: PgVector, corner: Corner) -> None:
    ids = {}
    for name, lang in (("a", "en"), ("b", "de"), ("c", "en")):
        document = key(name, lang=lang, tags=[name, "all"], page=1)
        ids[name] = await corner.index(store, document, vectors(3, seed=ord(name)))
    query = vectors(1)[0]

    async def found(**scope: Any) -> set[str]:
        return {hit.document for hit in await ask(store, corner, query, top_k=20, **scope)}

    assert await found() == {"a", "b", "c"}
    assert await found(documents=(ids["a"], ids["b"])) == {"a", "b"}
    assert await found(documents=()) == set()
    assert await found(filters={"lang": "en"}) == {"a", "c"}
    assert await found(filters={"lang": "en", "name": "c"}) == {"c"}
    assert await found(filters={"name": "b"}, documents=(ids["a"],)) == set()
    assert await found(filters={"lang": "en", "page": 1}, documents=(ids["c"],)) == {"c"}
    assert await found(filters={"page": "1"}) == set()
    assert await found(filters={"tags": "b"}) == {"b"}


async def test_a_batch_of_many_scopes_and_vectors_is_answered_in_order(
    store: PgVector, corner: Corner
) -> None:
    values = vectors(30)
    document = await corner.index(store, key("a"), values)
    empty = Corner(corner.tenant, "empty")
    batch = [
        corner.search(values[:3], top_k=1),
        empty.search(values[:2], top_k=1),
        corner.search([], top_k=1),
        corner.search(values[3:4], top_k=2),
        corner.search(values[4:6], top_k=1),
        corner.search(values[:1], top_k=0),
        corner.search(vectors(1, dimensions=3)),
    ]
    results = await store.execute(batch)
    ids = [[[hit.id for hit in hits] for hits in result["hits"]] for result in results[:5]]
    assert ids[0] == [[f"{document}:{i}"] for i in range(3)]
    assert ids[1] == [[], []]
    assert ids[2] == []
    assert [len(hits) for hits in ids[3]] == [2]
    assert ids[4] == [[f"{document}:4"], [f"{document}:5"]]
    assert isinstance(results[5], InputError)
    assert isinstance(results[6], InputError)
    assert "the store, which holds 16 dimensions" in str(results[6])


MIXED = edited(SearchRequest.group, "repr(sorted(scope.filters.items()))", "None")


@catches("filters-mixed", "a batch's questions get the hits of the first one's filters", MIXED)
async def test_a_batch_may_mix_filters_on_one_collection(store: PgVector, corner: Corner) -> None:
    found = {}
    for name, lang in (("a", "en"), ("b", "de"), ("c", "en")):
        found[name] = await corner.index(store, key(name, lang=lang), vectors(2, seed=ord(name)))
    query = vectors(1, seed=1)
    scopes: list[dict[str, Any]] = [
        {"filters": {"lang": "en"}},
        {"filters": {"lang": "de"}},
        {},
        {"filters": {"name": "c"}},
        {"filters": {"lang": "en"}, "documents": (found["a"],)},
        {"filters": {"lang": "fr"}},
    ]
    batch = [corner.search(query, top_k=10, **scope) for scope in scopes]
    results = await store.execute(batch)
    names = [{hit.document for hits in result["hits"] for hit in hits} for result in results]
    assert names == [{"a", "c"}, {"b"}, {"a", "b", "c"}, {"c"}, {"a"}, set()]


@catches("filters-in-one-group", "questions with other filters share a statement", MIXED)
@catches(
    "amounts-in-one-group",
    "questions for other numbers of hits share a statement",
    edited(SearchRequest.group, "self.top_k", "0"),
)
def test_questions_share_a_statement_only_if_nothing_but_their_vectors_differs() -> None:
    corner, query = Corner("t"), vectors(1)
    home = SearchedVersion(1, 7, False, DIMENSIONS, ChunkTables(DIMENSIONS, DIMENSIONS))

    def group(top_k: int = 3, home: SearchedVersion = home, **scope: Any) -> Any:
        return read(0, corner.search(query, top_k, **scope), DIMENSIONS).group(home)

    one = group(filters={"lang": "en", "page": 3})
    assert one == group(filters={"page": 3, "lang": "en"})
    others = [
        group(),
        group(top_k=4),
        group(filters={"lang": "en"}),
        group(filters={"lang": "en", "page": "3"}),
        group(filters={"lang": "de", "page": 3}),
        group(documents=("d",)),
        group(home=replace(home, id=2)),
        group(home=replace(home, version=8)),
    ]
    assert len({one, *others}) == 1 + len(others)


@pytest.fixture
async def indexing(server: Server) -> AsyncIterator[PgVector]:
    """A store for which a thousand chunks are many."""
    store = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS, exact_below=1000)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def test_a_large_collection_is_searched_through_its_own_index(
    indexing: PgVector, corner: Corner, server: Server
) -> None:
    """Recall with and without filters, some passing few chunks, some one in a hundred."""
    parts, size = 30, 100
    everything: list[np.ndarray] = []
    tags: list[dict[str, Any]] = []
    for part in range(parts):
        values = vectors(size, seed=part)
        metadata = {"parity": part % 2, "rare": part == 3}
        await corner.index(indexing, key(f"p{part}", **metadata), values)
        everything += values
        tags += [{**metadata, "name": f"p{part}"}] * size
        if part == 15:
            await indexing.settle()  # half is indexed, half grows the index
    await indexing.settle()
    collection = server.rows(
        "SELECT id, indexed FROM teola.collections WHERE tenant = %s", corner.tenant
    )
    assert [indexed for _, indexed in collection] == [True]
    index = f"chunks_hnsw_{collection[0][0]}"
    scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s"
    assert server.rows(scans, index) == [(0,)]
    recalls = []
    for filters in ({}, {"parity": 1}, {"rare": True}, {"name": "p5"}, {"parity": 0, "rare": True}):
        positions = [i for i, t in enumerate(tags) if filters.items() <= t.items()]
        hits, wanted = 0, 0
        for query in vectors(20, seed=1000):
            chosen = [everything[i] for i in positions]
            best = {positions[i] for i in nearest(query, chosen, 10)} if chosen else set()
            found = await ask(indexing, corner, query, top_k=10, filters=filters)
            scores = [hit.score for hit in found]
            assert scores == sorted(scores, reverse=True)
            names = {(tags[i]["name"], i % size) for i in best}
            hits += len(names & {(hit.document, int(hit.id.split(":")[1])) for hit in found})
            wanted += len(best)
        recalls.append(hits / wanted if wanted else 1.0)
    assert min(recalls) >= 0.95, recalls
    for _ in range(200):  # idle sessions hand in their statistics within ten seconds
        if server.rows(scans, index)[0][0] >= 40:
            break
        await asyncio.sleep(0.1)
    assert server.rows(scans, index)[0][0] >= 40, "the index was not used"

    assert await indexing.delete(corner.tenant, corner.collection, None) == parts
    assert server.rows("SELECT 1 FROM pg_indexes WHERE indexname = %s", index) == []


async def test_an_index_looks_at_more_candidates_than_are_asked_for(
    server: Server,
) -> None:
    """Who asks for one hit gets it from among as many candidates as who asks for a hundred."""
    shown = "SELECT current_setting('hnsw.ef_search')::int, current_setting('enable_sort')"
    async with (
        await psycopg.AsyncConnection.connect(server.admin) as connection,
        connection.transaction(),
    ):
        for top_k, candidates in {
            1: 200, 100: 200, 101: 202, 499: 998, 500: 1000, 501: 1000, 10_000: 1000
        }.items():  # fmt: skip
            for plain in ("off", "on"):
                await _plan(connection, plain, top_k)
                told = await (await connection.execute(shown)).fetchone()
                assert told == (candidates, plain)


async def test_small_collections_have_no_index(
    indexing: PgVector, corner: Corner, server: Server
) -> None:
    await corner.index(indexing, key("a"), vectors(999))
    await indexing.settle()
    statement = "SELECT indexed FROM teola.collections WHERE tenant = %s"
    assert server.rows(statement, corner.tenant) == [(False,)]
