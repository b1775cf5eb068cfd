"""Metadata belongs to a document: it is short, stored once, and comes along with every hit."""

from __future__ import annotations

import pytest

from teola.engine import METADATA_BYTES, Chunk, Hit, QueryContext, Request
from teola.errors import InputError
from teola.graph import Op
from teola.graph.ops import SearchParams
from teola_engines.vectorstore import PgVector

from .conftest import DIMENSIONS, Corner, Server, key, vectors


async def test_a_document_s_metadata_is_stored_once(
    store: PgVector, corner: Corner, server: Server
) -> None:
    note = "".join(chr(0x4E00 + i * 7919 % 20_000) for i in range(5000))  # nothing to compress
    await corner.index(store, key("a", note=note), vectors(200))
    size = "SELECT sum(pg_column_size(c.*))::int FROM teola.chunks c WHERE tenant = %s"
    chunk = 64 + 4 * DIMENSIONS + 200  # its vector, and the ids that it has
    assert server.rows(size, corner.tenant)[0][0] < 200 * chunk


async def test_hits_of_a_document_share_its_metadata(store: PgVector, corner: Corner) -> None:
    for name in "ab":
        await corner.index(store, key(name, note=f"the note of {name}"), vectors(20))
    (result,) = await store.execute([corner.search(vectors(2, seed=1), top_k=40)])
    hits = [hit for found in result["hits"] for hit in found]
    assert len(hits) == 80
    assert all(hit.metadata == {"note": f"the note of {hit.document}"} for hit in hits)
    assert len({id(hit.metadata) for hit in hits}) == 2


async def with_places(store: PgVector, corner: Corner, name: str, **metadata: object) -> None:
    """A document of three chunks, of which two have a place."""
    (claim,) = await corner.claim(store, key(name, **metadata), owner="indexer")
    await store.expect("indexer", {claim.document: 3})
    places = ({"page": 1, "pages": "1-2"}, None, {"section": "nul \0 and \ud800 half"})
    chunks = [Chunk(claim.document, i, f"lamp {i}", name, p) for i, p in enumerate(places)]
    (result,) = await store.execute([corner.ingestion(chunks, vectors(3))])
    assert not isinstance(result, Exception), result
    await store.release("indexer")


async def test_a_hit_has_the_place_of_its_chunk(store: PgVector, corner: Corner) -> None:
    await with_places(store, corner, "a", lang="en")
    await with_places(store, corner, "b", page=7)
    inputs = {"vectors": vectors(1), "scope": corner.scope(), "question": "lamp"}
    context = QueryContext(corner.query, corner.tenant)
    hybrid = Request(Op.SEARCHING, SearchParams(9, "simple"), inputs, context, "k")
    for search in (corner.search(vectors(1), top_k=9), hybrid):
        (result,) = await store.execute([search])
        hits: list[Hit] = result["hits"][0]
        assert {(hit.document, hit.text): hit.metadata for hit in hits} == {
            ("a", "lamp 0"): {"lang": "en", "page": 1, "pages": "1-2"},
            ("a", "lamp 1"): {"lang": "en"},
            ("a", "lamp 2"): {"lang": "en", "section": "nul  and ? half"},
            ("b", "lamp 0"): {"page": 7},
            ("b", "lamp 1"): {"page": 7},
            ("b", "lamp 2"): {"page": 7, "section": "nul  and ? half"},
        }


@pytest.mark.parametrize("place", [{"page": 1.5}, {"page": object()}, {7: "x"}, {}, "p. 7"])
async def test_a_place_that_is_none_fails_alone(
    place: object, store: PgVector, corner: Corner
) -> None:
    claims = await corner.claim(store, key("a"), key("b"))
    await store.expect("q1", {claim.document: 1 for claim in claims})
    requests = [
        corner.ingestion([Chunk(claims[0].document, 0, "x", "a", place)], vectors(1)),  # type: ignore[arg-type]
        corner.ingestion([Chunk(claims[1].document, 0, "x", "b")], vectors(1)),
    ]
    bad, good = await store.execute(requests)
    assert isinstance(bad, InputError)
    assert "the place of a chunk" in str(bad)
    assert not isinstance(good, Exception)


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("x" * METADATA_BYTES, "16396 bytes of JSON, more than the 16384"),
        ("é" * (METADATA_BYTES // 2), "16396 bytes of JSON, more than the 16384"),
        (object(), "not plain JSON"),
        ("\0", "NUL"),
    ],
)
async def test_metadata_that_is_refused(
    note: object, told: str, store: PgVector, corner: Corner, server: Server
) -> None:
    with pytest.raises(InputError, match=told):
        await corner.claim(store, key("a"), key("b", note=note))
    rows = "SELECT count(*) FROM teola.documents WHERE tenant = %s"
    assert server.rows(rows, corner.tenant) == [(0,)]
    await corner.index(store, key("a", note="x" * (METADATA_BYTES - 12)), vectors(1))
