"""A collection remembers its embedder, and lets in no other one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from teola.engine import EmbedderIdentity
from teola.errors import InputError
from teola_engines.vectorstore import PgVector

from .conftest import DIMENSIONS, Corner, Server, key, pieces, vectors


def embedder(identity: str, seed: int = 0, *, digests: bool = False) -> EmbedderIdentity:
    (sentence,) = vectors(1, seed)
    return EmbedderIdentity(identity, DIMENSIONS, "m", "mean", digests, sentence)


def turned(embedder: EmbedderIdentity, cosine: float) -> EmbedderIdentity:
    """One whose sentence's vector has this cosine with the other's."""
    own = embedder.sentence / np.linalg.norm(embedder.sentence)
    (other,) = vectors(1, seed=99)
    other -= (other @ own) * own
    other /= np.linalg.norm(other)
    return replace(embedder, sentence=cosine * own + (1 - cosine**2) ** 0.5 * other)


async def index(
    store: PgVector, corner: Corner, name: str, by: EmbedderIdentity | None, pipeline: str = "v1"
) -> str:
    document = replace(key(name), pipeline=pipeline)
    (claim,) = await store.claim(corner.tenant, corner.collection, [document], "q", embedder=by)
    await store.expect("q", {claim.document: 2})
    ingestion = corner.ingestion(pieces(claim.document, 2, name), vectors(2))
    (result,) = await store.execute([ingestion])
    assert not isinstance(result, Exception), result
    await store.release("q")
    return claim.document


async def refusal(store: PgVector, corner: Corner, by: EmbedderIdentity) -> str:
    """Why it may neither search nor index; nothing is stored of it."""
    before = await store.documents(corner.tenant, corner.collection)
    with pytest.raises(InputError) as searching:
        await store.admit(corner.tenant, corner.collection, by)
    with pytest.raises(InputError) as indexing:
        await store.claim(corner.tenant, corner.collection, [key("new")], "x", embedder=by)
    assert str(searching.value) == str(indexing.value)
    assert await store.documents(corner.tenant, corner.collection) == before
    return str(searching.value)


async def test_another_embedder_is_refused_with_what_to_do(store: PgVector, corner: Corner) -> None:
    mine = embedder("mine@1")
    await index(store, corner, "a", mine)
    assert (await store.admit(corner.tenant, "papers", mine)).collection is not None
    told = await refusal(store, corner, embedder("other@2", seed=1))
    assert "'papers' was indexed with 'mine@1', not with 'other@2'" in told
    assert "`teola collections reindex papers`" in told
    lied = await refusal(store, corner, turned(mine, 0.985))
    assert "was indexed with 'mine@1', which gives other vectors under that name now" in lied


@pytest.mark.parametrize("identity", ["mine@1", "renamed@2"])
async def test_vectors_tell_who_it_is_where_names_may_lie(
    store: PgVector, corner: Corner, identity: str
) -> None:
    mine = embedder("mine@1")
    await index(store, corner, "a", mine)
    again = replace(turned(mine, 0.995), identity=identity)
    await index(store, corner, "b", again)
    assert not (await store.admit(corner.tenant, "papers", again)).unsure


async def test_digests_of_weights_need_no_vector(store: PgVector, corner: Corner) -> None:
    mine = embedder("mine@1", digests=True)
    await index(store, corner, "a", mine)
    told = await store.admit(corner.tenant, "papers", replace(mine, sentence=None))
    assert told.collection is not None
    assert not told.unsure
    other = replace(mine, identity="mine@1:bfloat16", sentence=None)
    assert (await store.admit(corner.tenant, "papers", other)).unsure
    other = replace(mine, identity="mine@1:bfloat16")
    assert not (await store.admit(corner.tenant, "papers", other)).unsure


async def test_a_collection_without_documents_is_anybodys(store: PgVector, corner: Corner) -> None:
    mine, other = embedder("mine@1"), embedder("other@2", seed=1)
    await index(store, corner, "a", mine)
    before = (await store.admit(corner.tenant, "papers", mine)).collection
    await store.delete(corner.tenant, "papers", None)
    assert (await store.admit(corner.tenant, "papers", other)).collection is None
    await index(store, corner, "b", other)
    assert [d["name"] for d in await store.documents(corner.tenant, "papers")] == ["b"]
    assert "not with 'mine@1'" in await refusal(store, corner, mine)
    (late,) = await store.execute([corner.search(vectors(1), number=before)])
    assert "got another embedder, or was deleted, while this query ran" in str(late)


async def test_of_two_who_begin_a_collection_one_is_let_in(
    store: PgVector, other: PgVector
) -> None:
    for _ in range(10):
        corner = Corner()
        both = await asyncio.gather(
            store.claim(corner.tenant, "c", [key("a")], "a", embedder=embedder("a")),
            other.claim(corner.tenant, "c", [key("b")], "b", embedder=embedder("b", seed=1)),
            return_exceptions=True,
        )
        assert sorted(type(one).__name__ for one in both) == ["InputError", "list"]
        await store.release("a")
        await other.release("b")


async def older(store: PgVector, corner: Corner, *embedders: str) -> None:
    """A collection whose documents were indexed before collections knew their embedder."""
    for number, one in enumerate(embedders):
        await index(store, corner, f"d{number}", None, f"files-2 pypdf-6.0/254/30/{one}")


async def test_an_older_collection_takes_the_embedder_of_its_documents(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await older(store, corner, "org/mine@1", "org/mine@1")
    assert "indexed with 'org/mine@1', not with 'other@2'" in await refusal(
        store, corner, embedder("other@2", seed=1)
    )
    mine = embedder("org/mine@1")
    await index(store, corner, "more", mine)
    statement = "SELECT embedder, sentence IS NOT NULL FROM teola.collections WHERE tenant = %s"
    written = {"identity": "org/mine@1", "model": "m", "dimensions": 16, "pooling": "mean"}
    assert server.rows(statement, corner.tenant) == [(written, True)]
    assert "under that name now" in await refusal(store, corner, turned(mine, 0.9))


async def test_an_older_collection_of_two_embedders_is_searched_with_a_notice(
    store: PgVector, corner: Corner
) -> None:
    await older(store, corner, "a@1", "b@2", "a@1")
    for mine in (embedder("a@1"), embedder("b@2", seed=1)):
        told = await store.admit(corner.tenant, "papers", mine)
        assert "indexed with several embedders ('a@1' and 'b@2')" in told.notice
        assert "`teola collections reindex papers`" in told.notice
        await index(store, corner, mine.identity, mine)
    assert "not with 'c@3'" in await refusal(store, corner, embedder("c@3"))


async def test_what_is_not_to_be_remembered_is_told_all_the_same(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await older(store, corner, "a@1", "b@2")
    told = await store.admit(corner.tenant, "papers", embedder("a@1"), remember=False)
    assert told.notice
    statement = "SELECT embedder FROM teola.collections WHERE tenant = %s"
    assert server.rows(statement, corner.tenant) == [(None,)]


async def test_an_embedder_of_another_length_than_the_stores(
    store: PgVector, corner: Corner
) -> None:
    long = EmbedderIdentity("long@1", 24)
    with pytest.raises(InputError, match=r"give the engine of the store dimensions = 24"):
        await store.admit(corner.tenant, "papers", long)
