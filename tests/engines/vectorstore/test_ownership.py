"""One document is indexed by one owner, whoever else wants it and whatever happens to them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from teola.errors import DocumentError, EngineError, EngineUnavailable
from teola_engines.vectorstore import PgVector, ownership
from tests.planted import catches, edited

from .conftest import DIMENSIONS, Corner, Server, key, pieces, vectors

OWNER = """
import asyncio, sys
from teola.engine import DocumentKey
from teola_engines.vectorstore import PgVector

async def main(folder, dimensions, tenant, collection, sha256, name):
    store = PgVector(data_dir=folder, dimensions=int(dimensions))
    await store.start()
    (claim,) = await store.claim(tenant, collection, [DocumentKey(sha256, "v1", name)], "victim")
    await store.expect("victim", {claim.document: 3})
    print(claim.owned, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


def documents(server: Server, corner: Corner) -> list[tuple[object, ...]]:
    statement = "SELECT name, ready, stored FROM teola.documents WHERE tenant = %s ORDER BY name"
    return server.rows(statement, corner.tenant)


async def blocked(task: asyncio.Task[object]) -> bool:
    """Whether it still waits after a time in which it would have got through."""
    done, _ = await asyncio.wait({task}, timeout=0.3)
    return not done


async def test_an_absent_document_is_owned_and_a_stored_one_is_not(
    store: PgVector, corner: Corner
) -> None:
    document = await corner.index(store, key("a"), vectors(2))
    (again,) = await corner.claim(store, key("a"), owner="q2")
    assert (again.document, again.owned) == (document, False)
    (elsewhere,) = await store.claim(corner.tenant, "other", [key("a")], "q2")
    assert elsewhere.owned
    assert elsewhere.document != document


async def test_who_claims_only_what_is_stored_is_forgotten_at_once(
    store: PgVector, corner: Corner
) -> None:
    await corner.index(store, key("a"), vectors(2))
    for owner in ("q2", "q3"):
        await corner.claim(store, key("a"), owner=owner)
    assert not store._started.ownership._claiming
    assert not store._started.ownership._held


async def test_a_key_given_twice_is_owned_once(store: PgVector, corner: Corner) -> None:
    claims = await corner.claim(store, key("b"), key("a"), key("b"))
    assert [claim.owned for claim in claims] == [True, True, False]
    assert claims[0].document == claims[2].document
    again = await corner.claim(store, key("a"))
    assert again[0].owned, "an owner does not wait for itself"


@catches(
    "parts-lose-one",
    "of many documents that are claimed together the last of each part is left out",
    edited("teola_engines.vectorstore.ownership:_parts", "i + WRITTEN_AT_ONCE]", "i + 1]"),
)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
async def test_many_are_claimed_and_taken_over_in_parts(
    store: PgVector, corner: Corner, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(ownership, "WRITTEN_AT_ONCE", 2)
    monkeypatch.setattr(ownership, "FEW", 3)
    keys = [key(f"{n}", of=n) for n in range(count)]
    claims = await corner.claim(store, *keys, keys[0], owner="gone")
    assert [claim.owned for claim in claims] == [True] * count + [False]
    assert len({claim.document for claim in claims}) == count
    del store._started.ownership._held["gone"]  # it was not given up in order
    taken = await corner.claim(store, *reversed(keys), owner="next")
    assert [claim.document for claim in taken] == [c.document for c in reversed(claims[:count])]
    assert all(claim.owned for claim in taken)
    for n, claim in enumerate(reversed(taken)):
        await store.expect("next", {claim.document: 1})
        chunks = pieces(claim.document, 1, f"{n}")
        (result,) = await store.execute([corner.ingestion(chunks, vectors(1))])
        assert not isinstance(result, Exception), result
    found = await store.documents(corner.tenant, corner.collection)
    assert {one["name"]: one["metadata"] for one in found} == {k.name: k.metadata for k in keys}


async def test_others_wait_until_the_document_is_there(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    (claim,) = await corner.claim(store, key("a"))
    await store.expect("q1", {claim.document: 4})
    near = asyncio.create_task(corner.claim(store, key("a"), owner="q2"))
    far = asyncio.create_task(corner.claim(other, key("a"), owner="q3"))
    values, chunks = vectors(4), pieces(claim.document, 4)
    await store.execute([corner.ingestion(chunks[:2], values[:2])])
    assert await blocked(near)
    assert await blocked(far)
    assert await store.documents(corner.tenant, corner.collection) == []
    await store.execute([corner.ingestion(chunks[2:], values[2:])])
    for waiter in (near, far):
        (found,) = await asyncio.wait_for(waiter, 5)
        assert (found.document, found.owned) == (claim.document, False)
    await store.release("q1")
    assert len(await other.documents(corner.tenant, corner.collection)) == 1


async def test_one_waiter_takes_over_what_was_released(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    await corner.claim(store, key("a"))
    waiters = [
        asyncio.create_task(corner.claim(s, key("a"), owner=f"w{i}"))
        for i, s in enumerate((store, store, other, other))
    ]
    assert await blocked(waiters[0])
    await store.release("q1")
    done, rest = await asyncio.wait(waiters, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result()[0].owned for task in done] == [True]
    assert await blocked(next(iter(rest)))
    for task in rest:
        task.cancel()
    await asyncio.wait(rest)
    assert documents(server, corner) == [("a", False, 0)]


async def test_a_killed_owner_is_replaced(store: PgVector, corner: Corner, server: Server) -> None:
    wanted = key("a")
    names = (corner.tenant, corner.collection, wanted.sha256, wanted.name)
    command = [sys.executable, "-c", OWNER, str(server.data_dir), str(DIMENSIONS), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert await asyncio.to_thread(owner.stdout.readline) == "True\n"
            waiter = asyncio.create_task(corner.claim(store, wanted))
            assert await blocked(waiter)
        finally:
            owner.send_signal(signal.SIGKILL)
    (claim,) = await asyncio.wait_for(waiter, 5)
    assert claim.owned
    await store.expect("q1", {claim.document: 1})
    await store.execute([corner.ingestion(pieces(claim.document, 1), vectors(1))])
    assert documents(server, corner) == [("a", True, 1)]


async def test_a_start_sweeps_what_the_dead_left(corner: Corner, server: Server) -> None:
    wanted = key("a")
    names = (corner.tenant, corner.collection, wanted.sha256, wanted.name)
    command = [sys.executable, "-c", OWNER, str(server.data_dir), str(DIMENSIONS), *names]
    living = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS)
    await living.start()
    await corner.claim(living, key("b"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert await asyncio.to_thread(owner.stdout.readline) == "True\n"
        owner.send_signal(signal.SIGKILL)
    assert documents(server, corner) == [("a", False, 0), ("b", False, 0)]
    late = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS)
    await late.start()
    assert documents(server, corner) == [("b", False, 0)]
    await late.close()
    await living.close()
    assert documents(server, corner) == []


async def test_a_cancelled_claim_leaves_nothing(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    names = [key(f"d{i}") for i in range(8)]
    await corner.claim(store, names[0])
    before = len(asyncio.all_tasks())
    for patience in (0.0, 0.001, 0.01, 0.2):
        waiter = asyncio.create_task(corner.claim(other, *names, owner="q2"))
        await asyncio.wait({waiter}, timeout=patience)
        waiter.cancel()
        await asyncio.wait({waiter})
        assert waiter.cancelled()
        assert documents(server, corner) == [("d0", False, 0)]
    await asyncio.wait_for(corner.claim(other, *names[1:], owner="q3"), 5)
    locks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    assert server.rows(locks) == [(0,)]
    assert len(asyncio.all_tasks()) == before


async def test_opposite_orders_do_not_wait_in_a_circle(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    async def query(target: PgVector, owner: str, names: list[str]) -> int:
        claims = await corner.claim(target, *(key(name) for name in names), owner=owner)
        mine = [claim.document for claim in claims if claim.owned]
        await target.expect(owner, dict.fromkeys(mine, 1))
        for document in mine:
            await target.execute([corner.ingestion(pieces(document, 1), vectors(1))])
        await target.release(owner)
        return len(mine)

    names = [f"d{i}" for i in range(12)]
    queries = [
        query((store, other)[i % 2], f"q{i}", names[i:] + names[:i] if i % 3 else names[::-1])
        for i in range(10)
    ]
    indexed = await asyncio.wait_for(asyncio.gather(*queries), 20)
    assert sum(indexed) == len(names)
    (collection,) = await store.collections(corner.tenant)
    assert (collection["documents"], collection["chunks"]) == (12, 12)


async def test_freed_documents_are_taken_in_order(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    """Two waiters whose documents become free in opposite orders: neither holds what the other
    needs first."""
    claims = await corner.claim(store, key("x"), key("y"), owner="probe")
    by_id = dict(zip((claim.document for claim in claims), (key("x"), key("y")), strict=True))
    low, high = (by_id[document] for document in sorted(by_id))
    await store.release("probe")
    await corner.claim(store, low, owner="holds-low")
    await corner.claim(store, high, owner="holds-high")
    first = asyncio.create_task(corner.claim(store, low, high, owner="first"))
    second = asyncio.create_task(corner.claim(other, high, low, owner="second"))
    assert await blocked(first)
    await store.release("holds-high")
    assert await blocked(second)
    await store.release("holds-low")
    done, rest = await asyncio.wait({first, second}, timeout=5, return_when="FIRST_COMPLETED")
    assert [c.owned for c in done.pop().result()] == [True, True]
    await store.release("first")
    await other.release("second")
    for task in rest:
        await asyncio.wait_for(task, 5)


async def test_what_is_expected_must_be_owned_and_have_text(
    store: PgVector, corner: Corner
) -> None:
    (claim,) = await corner.claim(store, key("a"))
    with pytest.raises(DocumentError, match="without text"):
        await store.expect("q1", {claim.document: 0})
    with pytest.raises(EngineError, match="not claimed by query q2"):
        await store.expect("q2", {claim.document: 1})


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
async def test_whoever_has_lost_one_of_its_documents_is_told(
    store: PgVector, corner: Corner, server: Server, lost: tuple[int, ...]
) -> None:
    """And may ask again; what it still has can be expected by itself."""
    ids = [one.document for one in await corner.claim(store, *map(key, "abc"))]
    for k in lost:
        server.rows(f"DELETE FROM teola.documents WHERE id = '{ids[k]}'")
    if lost:
        with pytest.raises(EngineError, match="lost documents") as told:
            await store.expect("q1", dict.fromkeys(ids, 1))
        assert told.value.retryable
    await store.expect("q1", {id: 1 for k, id in enumerate(ids) if k not in lost})


async def test_what_was_stored_before_it_was_expected_counts(
    store: PgVector, corner: Corner
) -> None:
    (claim,) = await corner.claim(store, key("a"))
    await store.execute([corner.ingestion(pieces(claim.document, 2), vectors(2))])
    assert await store.documents(corner.tenant, corner.collection) == []
    await store.expect("q1", {claim.document: 2})
    assert len(await store.documents(corner.tenant, corner.collection)) == 1


async def test_a_lost_connection_is_made_again(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await corner.claim(store, key("a"))
    waiter = asyncio.create_task(corner.claim(store, key("a"), owner="q2"))
    assert await blocked(waiter)
    server.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
    )
    assert await blocked(waiter)
    await store.release("q1")
    assert (await asyncio.wait_for(waiter, 5))[0].owned


async def test_a_store_that_is_not_started_says_so(corner: Corner) -> None:
    with pytest.raises(EngineUnavailable, match=r"call start\(\) first"):
        await corner.claim(PgVector(), key("a"))
