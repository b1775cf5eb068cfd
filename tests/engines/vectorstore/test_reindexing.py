"""A collection is embedded anew beside itself, whatever others do to it meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from teola.engine import Chunk, EmbedderIdentity, Hit
from teola.errors import EngineError, InputError, UnknownName
from teola_engines.vectorstore import PgVector

from .conftest import DIMENSIONS, Corner, Server, key, pieces


@dataclass(frozen=True)
class Model:
    """An embedder: vectors that its name and a text decide."""

    name: str
    dimensions: int = DIMENSIONS

    def vector(self, text: str) -> np.ndarray:
        seed = int.from_bytes(f"{self.name} {text}".encode()[-24:])
        return np.random.default_rng(seed).normal(size=self.dimensions).astype(np.float32)

    @property
    def identity(self) -> EmbedderIdentity:
        return EmbedderIdentity(f"{self.name}@1", self.dimensions, sentence=self.vector("sentence"))


OLD, NEW, LONG = Model("old"), Model("new"), Model("long", 24)


async def index(
    store: PgVector, corner: Corner, name: str, by: Model = OLD, chunks: int = 3
) -> str:
    owner = f"indexing {name}"
    (claim,) = await store.claim(
        corner.tenant, corner.collection, [key(name, of=name)], owner, embedder=by.identity
    )
    await store.expect(owner, {claim.document: chunks})
    texts = pieces(claim.document, chunks, name)
    (result,) = await store.execute(
        [corner.ingestion(texts, [by.vector(chunk.text) for chunk in texts])]
    )
    assert not isinstance(result, Exception), result
    await store.release(owner)
    return claim.document


async def hits(store: PgVector, corner: Corner, by: Model, text: str) -> list[Hit]:
    number = (await store.admit(corner.tenant, corner.collection, by.identity)).collection
    (result,) = await store.execute([corner.search([by.vector(text)], top_k=50, number=number)])
    assert not isinstance(result, Exception), result
    found: list[Hit] = result["hits"][0]
    return found


async def best(store: PgVector, corner: Corner, by: Model, text: str) -> Hit:
    return (await hits(store, corner, by, text))[0]


class Work:
    """Somebody who embeds a collection anew."""

    def __init__(self, store: PgVector, corner: Corner, by: Model) -> None:
        self.store, self.corner, self.by = store, corner, by
        self.embedded: list[str] = []

    async def begin(self) -> bool:
        where = self.corner.tenant, self.corner.collection
        self.work, wanted = await self.store.reindexing(*where, self.by.identity)
        return wanted

    async def embed(self, batches: Sequence[Any]) -> None:
        for batch in batches:
            texts: Sequence[Chunk] = await self.work.texts(batch)
            self.embedded += [chunk.text for chunk in texts]
            vectors = [self.by.vector(chunk.text) for chunk in texts]
            await self.work.store(batch, texts, vectors)

    async def all(self) -> list[str]:
        """From begin to end; the texts that were embedded."""
        assert await self.begin()
        while True:
            await self.embed(await self.work.batches())
            if await self.work.finish():
                break
        await self.work.close()
        return self.embedded


async def test_all_chunks_get_the_vectors_of_another_embedder(
    store: PgVector, corner: Corner
) -> None:
    before = [await index(store, corner, name) for name in "abc"]
    listed = await store.documents(corner.tenant, "papers")
    embedded = await Work(store, corner, NEW).all()
    assert sorted(embedded) == sorted(f"{name} {i}" for name in "abc" for i in range(3))
    hit = await best(store, corner, NEW, "b 1")
    assert (hit.text, hit.document, hit.metadata) == ("b 1", "b", {"of": "b"})
    assert hit.score == pytest.approx(1)
    after = await store.documents(corner.tenant, "papers")
    assert not {d["id"] for d in after} & set(before)
    plain = [{k: v for k, v in d.items() if k != "id"} for d in after]
    assert sorted(plain, key=str) == sorted(
        ({k: v for k, v in d.items() if k != "id"} for d in listed), key=str
    )
    with pytest.raises(InputError, match=r"indexed with 'new@1', not with 'old@1'"):
        await store.admit(corner.tenant, "papers", OLD.identity)
    assert len(await store.collections(corner.tenant)) == 1
    assert not await Work(store, corner, NEW).begin()


async def test_the_old_set_serves_until_the_new_one_is_whole(
    store: PgVector, corner: Corner
) -> None:
    await index(store, corner, "a")
    work = Work(store, corner, NEW)
    await work.begin()
    await work.embed(await work.work.batches())
    assert (await best(store, corner, OLD, "a 1")).text == "a 1"
    assert len(await hits(store, corner, OLD, "a 1")) == 3
    assert [c["chunks"] for c in await store.collections(corner.tenant)] == [3]
    number = (await store.admit(corner.tenant, "papers", OLD.identity)).collection
    assert await work.work.finish()
    (late,) = await store.execute([corner.search([OLD.vector("a 1")], number=number)])
    assert "got another embedder" in str(late)


async def test_documents_that_change_meanwhile_are_done_again(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    first, _ = [await index(store, corner, name) for name in "ab"]
    work = Work(store, corner, NEW)
    await work.begin()
    await work.embed(await work.work.batches())
    await index(other, corner, "c")
    await other.delete(corner.tenant, "papers", [first])
    assert not await work.work.finish()
    await work.embed(await work.work.batches())
    assert sorted(work.embedded[6:]) == ["c 0", "c 1", "c 2"]
    assert await work.work.finish()
    assert [d["name"] for d in await store.documents(corner.tenant, "papers")] == ["b", "c"]
    assert {hit.document for hit in await hits(store, corner, NEW, "c 1")} == {"b", "c"}


async def test_what_is_asked_for_again_meanwhile_counts(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    """When that was, and where it comes from now."""
    now, where = time.time(), (corner.tenant, "papers")
    await index(store, corner, "a")
    work = Work(store, corner, NEW)
    await work.begin()
    await work.embed(await work.work.batches())
    again = replace(key("a", of="a"), origin="/two/a", replace=True)
    (claim,) = await other.claim(*where, [again], "again", now + 60, OLD.identity)
    assert not claim.owned
    assert await work.work.finish()
    (listed,) = await store.documents(*where)
    assert listed["origin"] == "/two/a"
    between = replace(key("b"), name="a")
    (claim,) = await other.claim(*where, [between], "between", now + 30, NEW.identity)
    await other.expect("between", {claim.document: 1})
    await other.execute([corner.ingestion(pieces(claim.document, 1, "b"), [NEW.vector("b 0")])])
    assert await store.documents(*where) == [listed]
    await work.work.close()


async def test_who_indexes_and_searches_beside_it_loses_nothing(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    """Each document that was stored is there in the end; each search found one set, whole."""
    for number in range(4):
        await index(store, corner, f"d{number}", chunks=40)
    over, stored = asyncio.Event(), [f"d{number}" for number in range(4)]

    async def indexing() -> None:
        while not over.is_set():
            name = f"e{len(stored)}"
            try:
                await index(other, corner, name)
            except (InputError, EngineError, AssertionError) as error:
                told = str(error)
                assert "new@1" in told or "embedded anew" in told, error  # noqa: PT017
                return
            stored.append(name)

    async def searching() -> None:
        while not over.is_set():
            try:
                found = await best(other, corner, OLD, "d2 17")
            except (InputError, AssertionError) as error:
                assert "new@1" in str(error) or "another embedder" in str(error), error  # noqa: PT017
                return
            assert (found.text, round(found.score, 3)) == ("d2 17", 1)

    beside = [asyncio.create_task(work()) for work in (indexing, searching)]
    work = Work(store, corner, NEW)
    await work.begin()
    for _ in range(10):
        batches = await work.work.batches()
        await asyncio.gather(*(work.embed([batch]) for batch in batches))
        if done := await work.work.finish():
            break
    over.set()
    await asyncio.gather(*beside)
    assert done
    listed = [d["name"] for d in await store.documents(corner.tenant, "papers")]
    assert sorted(listed) == sorted(stored)
    for name in (stored[0], stored[-1]):
        assert (await best(store, corner, NEW, f"{name} 1")).text == f"{name} 1"


async def test_what_is_being_indexed_at_the_exchange_is_given_up(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    await index(store, corner, "a")
    (claim,) = await other.claim(corner.tenant, "papers", [key("late")], "q", embedder=OLD.identity)
    await other.expect("q", {claim.document: 1})
    await Work(store, corner, NEW).all()
    late = corner.ingestion(pieces(claim.document, 1), [OLD.vector("late 0")])
    (result,) = await other.execute([late])
    assert "or the collection was embedded anew" in str(result)
    await other.release("q")
    assert [d["name"] for d in await store.documents(corner.tenant, "papers")] == ["a"]


async def test_the_exchange_gives_way_to_who_is_at_work_on_the_collection(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await index(store, corner, "a")
    work = Work(store, corner, NEW)
    await work.begin()
    await work.embed(await work.work.batches())
    with psycopg.connect(server.admin) as connection:
        held = "SELECT FROM teola.collections WHERE tenant = %s AND name IS NOT NULL FOR UPDATE"
        connection.execute(held, (corner.tenant,))
        assert not await work.work.finish()
    assert (await best(store, corner, OLD, "a 1")).text == "a 1"
    assert await work.work.finish()
    await work.work.close()


async def test_only_one_at_a_time(store: PgVector, other: PgVector, corner: Corner) -> None:
    await index(store, corner, "a")
    work = Work(store, corner, NEW)
    await work.begin()
    with pytest.raises(InputError, match="is being embedded anew already"):
        await Work(other, corner, NEW).begin()
    for beside in (Corner(), replace(corner, collection="letters")):
        await index(store, beside, "a")
        await Work(other, beside, NEW).all()
        assert (await best(store, beside, NEW, "a 1")).text == "a 1"
    await work.work.close()
    await Work(other, corner, NEW).all()
    with pytest.raises(UnknownName, match=r"unknown collection 'ships'.*papers"):
        await store.reindexing(corner.tenant, "ships", NEW.identity)


async def test_another_embedder_starts_clean(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await index(store, corner, "a")
    work = Work(store, corner, Model("third"))
    await work.begin()
    await work.embed(await work.work.batches())
    await work.work.close()
    assert len(await Work(store, corner, NEW).all()) == 3
    count = "SELECT count(*) FROM teola.chunks WHERE tenant = %s"
    await store.settle()
    assert server.rows(count, corner.tenant) == [(3,)]


KILLED = """
import asyncio, os, signal, sys
from tests.engines.vectorstore.conftest import Corner
from tests.engines.vectorstore.test_reindexing import NEW, Work
from teola_engines.vectorstore import PgVector

async def main():
    store = PgVector(data_dir=sys.argv[1], dimensions=16)
    await store.start()
    work = Work(store, Corner(sys.argv[2]), NEW)
    await work.begin()
    (first, *_) = await work.work.batches()
    await work.embed([first])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_who_is_killed_in_the_middle_has_not_worked_in_vain(
    store: PgVector, corner: Corner, server: Server
) -> None:
    for name in "abc":
        await index(store, corner, name, chunks=30)
    command = [sys.executable, "-c", KILLED, str(server.data_dir), corner.tenant]
    root = Path(__file__).parents[3]
    killed = await asyncio.to_thread(subprocess.run, command, cwd=root, timeout=60)
    assert killed.returncode == -9
    assert (await best(store, corner, OLD, "b 7")).text == "b 7"
    embedded = await Work(store, corner, NEW).all()
    assert len(embedded) == 90 - 64
    assert len(await hits(store, corner, NEW, "b 7")) == 50
    for name in "abc":
        assert (await best(store, corner, NEW, f"{name} 29")).text == f"{name} 29"


@pytest.fixture
def dsn(server: Server) -> Iterator[str]:
    """Of an empty database."""
    server.rows("CREATE DATABASE lengths")
    yield make_conninfo(server.admin, dbname="lengths")
    server.rows("DROP DATABASE lengths WITH (FORCE)")


@pytest.fixture
async def both(dsn: str) -> AsyncIterator[tuple[PgVector, PgVector]]:
    """Stores of vectors of two lengths in one database."""
    made = PgVector(dsn=dsn, dimensions=DIMENSIONS), PgVector(dsn=dsn, dimensions=LONG.dimensions)
    for store in made:
        await store.start()
    yield made
    for store in made:
        await store.close()


async def test_vectors_of_another_length_have_another_table(
    both: tuple[PgVector, PgVector], corner: Corner, dsn: str
) -> None:
    short, long = both
    await index(short, corner, "a")
    assert [c["name"] for c in await long.collections(corner.tenant)] == ["papers"]
    with psycopg.connect(dsn) as connection:
        there = connection.execute("SELECT to_regclass('teola.chunks_24')").fetchall()
    assert there == [(None,)], "it is made when something is stored or searched there"
    (refused,) = await long.execute([corner.search([LONG.vector("a 1")])])
    assert "has vectors of 16 dimensions, the store those of 24" in str(refused)
    with pytest.raises(InputError, match=r"indexed with 'old@1', not with 'long@1'"):
        await index(long, corner, "b", by=LONG)
    assert await Work(long, corner, LONG).all() == ["a 0", "a 1", "a 2"]
    await index(long, corner, "b", by=LONG)
    assert (await best(long, corner, LONG, "a 1")).text == "a 1"
    with pytest.raises(InputError, match=r"indexed with 'long@1', not with 'old@1'"):
        await index(short, corner, "c")
    await Work(short, corner, OLD).all()
    assert (await best(short, corner, OLD, "b 1")).text == "b 1"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET ROLE teola_query")
        for table in ("chunks", "chunks_24"):
            assert connection.execute(f"SELECT count(*) FROM teola.{table}").fetchall() == [(0,)]


async def test_a_large_collection_has_its_index_before_it_is_searched(
    server: Server, corner: Corner
) -> None:
    store = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS, exact_below=20)
    await store.start()
    await index(store, corner, "a", chunks=30)
    await store.settle()
    await Work(store, corner, NEW).all()
    indexed = "SELECT indexed FROM teola.collections WHERE tenant = %s AND name IS NOT NULL"
    assert server.rows(indexed, corner.tenant) == [(True,)]
    await store.close()
