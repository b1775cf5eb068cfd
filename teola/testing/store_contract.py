"""What a store of documents has to keep (see check_engine)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from teola.engine import (
    Chunk,
    DocumentKey,
    DocumentStore,
    EmbedderIdentity,
    HasDimensions,
    Hit,
    QueryContext,
    Request,
    Scope,
)
from teola.errors import InputError
from teola.graph import Op
from teola.graph.ops import IngestionParams, SearchParams
from teola.runtime.hosts.local import LocalHost
from teola.testing.checking import ContractBroken

ONCE: Final = "check"
"""The query that asks what no other asks."""
TEXTS: Final = ("The keeper looks after the lamp.", "The cat sleeps all day.", "Boats are moored.")


async def check_store(host: LocalHost, broken: Callable[[str], ContractBroken]) -> None:
    """Raise what `broken` makes of the first promise that the store does not keep. What it stores
    is in a collection and of tenants of its own, and is deleted in the end, where the check
    passes."""
    store = cast("DocumentStore", host.engine)
    mine, other = f"check-{uuid.uuid4().hex}", f"check-{uuid.uuid4().hex}"
    width = (store.dimensions if isinstance(store, HasDimensions) else 0) or 8
    key = DocumentKey("0" * 64, "check", "lamp.txt")
    embedder = EmbedderIdentity("check@1", width, sentence=_axis(0, width))
    stranger = EmbedderIdentity("check@2", width, sentence=_axis(1, width))
    if (await store.admit(mine, "c", embedder)).collection is not None:
        raise broken("a collection without documents has a number")
    (claim,) = await store.claim(mine, "c", [key], "first", embedder=embedder)
    if not claim.owned:
        raise broken("a new document is claimed by the first who asks, who has to own it")
    await store.expect("first", {claim.document: len(TEXTS)})
    chunks = [Chunk(claim.document, k, text, "lamp.txt") for k, text in enumerate(TEXTS)]
    vectors = [_axis(k, width) for k in range(len(TEXTS))]
    scope = Scope(mine, "c")
    inputs = {"vectors": vectors, "chunks": chunks, "scope": scope}
    for half in (slice(0, 2), slice(2, None)):
        part = {"vectors": vectors[half], "chunks": chunks[half], "scope": scope}
        stored = await _one(host, Op.INGESTION, IngestionParams(), part, mine, broken)
        if len(stored["stored"]) != len(chunks[half]):
            raise broken(f"ingestion of {len(chunks[half])} chunks gave {stored['stored']!r}")
        if half.stop and await store.documents(mine, "c"):
            raise broken("a document is visible before all its chunks are stored")
    await _one(host, Op.INGESTION, IngestionParams(), inputs, mine, broken)  # a retry adds nothing
    for k, text in enumerate(TEXTS):
        hits = await _hits(host, _axis(k, width), scope, mine, broken)
        if [hit.text for hit in hits[:1]] != [text] or len(hits) != len(TEXTS):
            raise broken(f"a search for the vector of {text!r} found {[h.text for h in hits]}")
    if (await store.admit(mine, "c", embedder)).collection is None:
        raise broken("the embedder that indexed a collection is not admitted to it")
    with suppress(InputError):
        await store.admit(mine, "c", stranger)
        raise broken("another embedder than the one that indexed a collection is admitted to it")
    if await _hits(host, _axis(0, width), Scope(other, "c"), other, broken):
        raise broken("a tenant finds what another one has stored")
    await store.release("first")
    (known,) = await store.claim(mine, "c", [key], "second")
    if known.owned or known.document != claim.document:
        raise broken("a document that is stored is claimed again as a new one")
    await store.release("second")
    await _check_versions(host, scope, width, broken)
    if await store.delete(mine, "c", None) != 1:
        raise broken("`delete` of a collection with one document did not count one")
    if await _hits(host, _axis(0, width), scope, mine, broken):
        raise broken("what was deleted is found")


async def _check_versions(
    host: LocalHost, scope: Scope, width: int, broken: Callable[[str], ContractBroken]
) -> None:
    """One name is one document, and a query sees one version of its collection."""
    store, mine = cast("DocumentStore", host.engine), scope.tenant

    async def texts(query: str = "") -> set[str]:
        return {hit.text for hit in await _hits(host, _axis(0, width), scope, mine, broken, query)}

    async def change(owner: str, digit: str, asked: float | None = None) -> None:
        key = DocumentKey(digit * 64, "check", "lamp.txt")
        (claim,) = await store.claim(mine, scope.collection, [key], owner, asked)
        if not claim.owned or not claim.replaces:
            raise broken(f"another version of a name is claimed as {claim}")
        await store.expect(owner, {claim.document: 1})
        inputs = {
            "vectors": [_axis(0, width)],
            "chunks": [Chunk(claim.document, 0, digit, "lamp.txt")],
            "scope": scope,
        }
        await _one(host, Op.INGESTION, IngestionParams(), inputs, mine, broken)
        await store.release(owner)

    before = await texts("reader")
    await change("third", "3")
    if await texts() != {"3"}:
        raise broken(f"a name has two versions: {await texts()}")
    await change("fourth", "4", asked=0.0)
    if await texts() != {"3"}:
        raise broken("a version that was asked for before the current one took its place")
    if await texts("reader") != before or await texts("reader/part") != before:
        raise broken("a query sees two versions of a collection")
    store.unpin("reader")
    if await texts("reader") != {"3"}:
        raise broken("a query that was unpinned does not see the newest version")
    await store.release("reader")


def _axis(k: int, width: int) -> list[float]:
    return [float(i == k) for i in range(width)]


async def _hits(
    host: LocalHost,
    vector: list[float],
    scope: Scope,
    tenant: str,
    broken: Callable[[str], ContractBroken],
    query: str = "",
) -> list[Hit]:
    """What `query` finds; "": a query that begins, and ends after it."""
    inputs = {"vectors": [vector], "scope": scope}
    found = await _one(host, Op.SEARCHING, SearchParams(10), inputs, tenant, broken, query)
    if not query:
        cast("DocumentStore", host.engine).unpin(ONCE)
    hits = found["hits"]
    if len(hits) != 1 or not all(isinstance(hit, Hit) for hit in hits[0]):
        raise broken(f"a search for one vector gave {hits!r:.80}, not one list of Hits")
    return cast("list[Hit]", hits[0])


async def _one(
    host: LocalHost,
    op: Op,
    params: Any,
    inputs: dict[str, Any],
    tenant: str,
    broken: Callable[[str], ContractBroken],
    query: str = "",
) -> Any:
    context = QueryContext(query or ONCE, tenant)
    (result,) = await host.execute([Request(op, params, inputs, context, f"check/{op.value}")])
    if isinstance(result, Exception):
        raise broken(f"{op.value} failed: {type(result).__name__}: {result}") from result
    return result
