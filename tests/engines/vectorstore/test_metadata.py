"""Metadata belongs to a document: it is short, stored once, and comes along with every hit."""

from __future__ import annotations

import pytest

from teola.engine import METADATA_BYTES
from teola.errors import InputError
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
