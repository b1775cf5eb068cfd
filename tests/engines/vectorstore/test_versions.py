"""In a collection a name is one document, and a query sees one version of the collection.

Long because these are the rules of one table, in all orders.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from teola.engine import UNNAMED, Chunk, DocumentKey
from teola.errors import DocumentError, InputError
from teola_engines.vectorstore import PgVector
from teola_engines.vectorstore.ownership import Ownership
from teola_engines.vectorstore.pins import HeldVersions, Pins
from teola_engines.vectorstore.publishing import publish
from teola_engines.vectorstore.searching import _conditions, _home
from tests.planted import catches, edited

from .conftest import DIMENSIONS, Corner, Server, key, vectors

READER = """
import asyncio, sys
import numpy as np
from teola.engine import QueryContext, Request, Scope
from teola.graph.ops import Op, SearchParams
from teola_engines.vectorstore import PgVector

async def main(folder, dimensions, tenant, collection):
    store = PgVector(data_dir=folder, dimensions=int(dimensions))
    await store.start()
    inputs = {"vectors": [np.ones(int(dimensions), np.float32)], "scope": Scope(tenant, collection)}
    context = QueryContext("reads", tenant)
    await store.execute([Request(Op.SEARCHING, SearchParams(9), inputs, context, "k")])
    print("reads", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


def version(name: str, content: str, **more: Any) -> DocumentKey:
    """What `name` is once it has this content."""
    return replace(key(content), name=name, **more)


@dataclass
class Writer:
    """A query that stores a version: what it has claimed."""

    corner: Corner
    store: PgVector
    key: DocumentKey
    owner: str
    document: str = ""
    taken: bool = False
    replaces: bool = False

    async def claim(self, asked: float | None = None) -> bool:
        """Whether it has to be indexed."""
        where = self.corner.tenant, self.corner.collection
        (claim,) = await self.store.claim(*where, [self.key], self.owner, asked)
        self.document, self.taken, self.replaces = claim.document, claim.taken, claim.replaces
        return claim.owned

    async def finish(self) -> None:
        """Store all of it. Its text is its content, which is what the key's sha256 is of."""
        await self.store.expect(self.owner, {self.document: 2})
        chunks = [Chunk(self.document, i, CONTENTS[self.key.sha256], "") for i in range(2)]
        (result,) = await self.store.execute([self.corner.ingestion(chunks, vectors(2))])
        assert not isinstance(result, Exception), result
        await self.store.release(self.owner)


CONTENTS = {key(content).sha256: content for content in ("A", "B", "C", "D")}


async def stored(corner: Corner, store: PgVector, name: str, content: str, **more: Any) -> Writer:
    writer = Writer(corner, store, version(name, content, **more), f"{name}-{content}")
    if await writer.claim():
        await writer.finish()
    return writer


async def seen(
    store: PgVector, corner: Corner, query: str | None = None, **scope: Any
) -> dict[str, set[str]]:
    """Contents of each name, as a query sees them (None: one that begins, and ends then)."""
    request = corner.search(vectors(1), 50, query, **scope)
    (result,) = await store.execute([request])
    assert not isinstance(result, Exception), result
    if query is None:
        store.unpin(request.context.query_id)
    found: dict[str, set[str]] = {}
    for hit in result["hits"][0]:
        found.setdefault(hit.document, set()).add(hit.text)
    return found


def rows(server: Server, corner: Corner) -> int:
    """Documents that are stored, seen or not."""
    statement = "SELECT count(*)::int FROM teola.documents WHERE tenant = %s"
    return int(server.rows(statement, corner.tenant)[0][0])


async def settled(*stores: PgVector) -> None:
    """Purges have run, in these stores, and what they told each other."""
    for _ in range(3):
        await asyncio.sleep(0.05)
        for store in stores:
            await store.settle()


@contextmanager
def locked(server: Server, statement: str, *values: Any) -> Iterator[None]:
    """What the statement locks is locked."""
    with psycopg.connect(server.admin) as connection:
        connection.execute(statement, values)
        yield
        connection.rollback()


async def waiting(server: Server) -> None:
    """Until somebody waits for a lock."""
    waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')"
    async with asyncio.timeout(10):
        while server.rows(waits) != [(True,)]:
            await asyncio.sleep(0.01)


# --- one name, one document ---------------------------------------------------------------------


async def test_a_name_is_replaced_and_may_come_back(
    store: PgVector, corner: Corner, server: Server
) -> None:
    first = await stored(corner, store, "a", "A", metadata={"year": 1})
    assert not first.replaces
    assert (await stored(corner, store, "a", "B")).replaces
    assert await seen(store, corner) == {"a": {"B"}}
    again = await stored(corner, store, "a", "A", metadata={"year": 1})
    assert again.document != first.document
    assert await seen(store, corner) == {"a": {"A"}}
    (listed,) = await store.documents(corner.tenant, corner.collection)
    assert (listed["id"], listed["metadata"]) == (again.document, {"year": 1})
    await settled(store)
    assert rows(server, corner) == 1, "what nobody sees any more is deleted"
    known = Writer(corner, store, first.key, "q")
    assert (await known.claim(), known.taken) == (False, False)
    assert known.document == again.document


async def test_content_that_is_there_gives_its_chunks(store: PgVector, corner: Corner) -> None:
    await stored(corner, store, "a", "A", metadata={"year": 1})
    for name, metadata in (("a", {"year": 2}), ("b", {})):  # changed metadata, another name
        writer = Writer(corner, store, version(name, "A", metadata=metadata), "q")
        assert (await writer.claim(), writer.taken, writer.replaces) == (False, True, name == "a")
    assert await seen(store, corner) == {"a": {"A"}, "b": {"A"}}
    assert await seen(store, corner, filters={"year": 1}) == {}
    assert await seen(store, corner, filters={"year": 2}) == {"a": {"A"}}
    for other in (
        version("c", "A", reading="html"),
        version("c", "A", pipeline="v2"),
        version("c", "B"),
    ):
        assert await Writer(corner, store, other, "q").claim()
    assert await Writer(Corner(), store, version("a", "A"), "q").claim(), "another tenant's"


@catches(
    "last-stored-wins",
    "who stores last has the name, whenever that was asked for",
    edited(publish, "PUBLISH, {", "PUBLISH.replace('asked DESC, ', ''), {"),
)
@pytest.mark.parametrize("late", ["claims first", "stores first"])
async def test_of_two_that_write_a_name_the_one_asked_later_has_it(
    late: str, store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    now = time.time()
    older = Writer(corner, store, version("a", "A"), "older")
    newer = Writer(corner, other, version("a", "B"), "newer")
    if late == "claims first":
        assert await newer.claim(now)
        assert await older.claim(now - 10)
    else:
        assert await older.claim(now - 10)
        assert await newer.claim(now)
    await newer.finish()
    await older.finish()
    assert await seen(store, corner) == {"a": {"B"}}
    assert rows(server, corner) == 1, "what came too late is gone"


@catches(
    "not-asked-again",
    "what is known is not asked for again",
    edited(Ownership._try, "await _ask_again(connection, request, ready)", "True"),
)
async def test_what_is_known_counts_as_asked_for_again(store: PgVector, corner: Corner) -> None:
    now = time.time()
    await stored(corner, store, "a", "A")
    between = Writer(corner, store, version("a", "B"), "between")
    assert await between.claim(now + 10)
    again = Writer(corner, store, version("a", "A"), "again")
    assert not await again.claim(now + 20)
    await between.finish()
    assert await seen(store, corner) == {"a": {"A"}}


@catches(
    "asks-when-it-goes-on",
    "a query that goes on elsewhere counts as asked then",
    edited(Ownership._try, "_time(connection, asked_s)", "_time(connection, None)"),
)
async def test_who_takes_over_asks_as_the_one_that_is_gone(
    store: PgVector, other: PgVector, corner: Corner
) -> None:
    """A query that was accepted before another one wrote its name, and begins again after it."""
    now = time.time()
    taken = Writer(corner, store, version("a", "A"), "accepted-first")
    await taken.claim(now - 60)
    await store.release("accepted-first")
    await stored(corner, other, "a", "B")
    again = replace(taken, store=other)
    assert await again.claim(now - 60)
    await again.finish()
    assert await seen(store, corner) == {"a": {"B"}}


async def test_a_file_of_the_same_name_from_elsewhere(store: PgVector, corner: Corner) -> None:
    await stored(corner, store, "a", "A", origin="/one/a")
    with pytest.raises(DocumentError, match=r"comes from '/one/a', and '/two/a' is another file"):
        await stored(corner, store, "a", "B", origin="/two/a")
    with pytest.raises(DocumentError, match="another file"):
        await stored(corner, store, "a", "A", origin="/two/a")
    assert await seen(store, corner) == {"a": {"A"}}
    await stored(corner, store, "a", "A", origin="/two/a", replace=True)
    (listed,) = await store.documents(corner.tenant, corner.collection)
    assert listed["origin"] == "/two/a"
    text = await stored(corner, store, "a", "C")
    assert text.replaces, "a text has no place that it comes from"


async def test_two_documents_of_one_name_in_one_call(store: PgVector, corner: Corner) -> None:
    with pytest.raises(InputError, match="two documents are named 'a'"):
        await corner.claim(store, version("a", "A"), version("a", "B"))
    with pytest.raises(InputError, match="'/one/a' and '/two/a'"):
        await corner.claim(
            store, version("a", "A", origin="/one/a"), version("a", "A", origin="/two/a")
        )
    first, second = await corner.claim(store, version("a", "A"), version("a", "A"))
    assert (first.document, first.owned, second.owned) == (second.document, True, False)


async def test_without_a_collection_names_are_nothing(store: PgVector, server: Server) -> None:
    corner = Corner(collection=UNNAMED)
    first = await stored(corner, store, "a", "A", metadata={"year": 1})
    await stored(corner, store, "a", "B")
    known = Writer(corner, store, version("b", "A", reading="html", metadata={}), "q")
    assert not await known.claim()
    assert (known.document, known.taken) == (first.document, False)
    assert await seen(store, corner) == {"a": {"A", "B"}}
    versions = "SELECT version FROM teola.collections WHERE tenant = %s"
    assert server.rows(versions, corner.tenant) == [(0,)]


# --- one version --------------------------------------------------------------------------------


@catches(
    "newest-seen",
    "a search sees what is there, not what its query saw before",
    edited(HeldVersions.settle, "if keep:", "if False:"),
)
@catches(
    "purged-while-read",
    "what died is deleted though an older version is read in another process",
    edited(Pins.purge, "DELETE_DIED, (collection, horizon)", "DELETE_DIED, (collection, 1 << 40)"),
)
async def test_a_query_sees_one_version_until_it_ends_or_waits(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    await stored(corner, store, "b", "B")
    before = {"a": {"A"}, "b": {"B"}}
    assert await seen(store, corner, "reads") == before
    await stored(corner, other, "a", "C")
    await other.delete(corner.tenant, corner.collection, None)
    await stored(corner, other, "d", "D")
    await settled(store, other)
    assert await seen(store, corner, "reads") == before
    assert await seen(store, corner, "reads", filters={"name": "a"}) == {"a": {"A"}}
    assert await seen(store, corner, "reads/loop/2") == before, "a part of the query"
    assert await seen(other, corner, "begins") == {"d": {"D"}}
    store.unpin("reads")
    assert await seen(store, corner, "reads") == {"d": {"D"}}
    await settled(store, other)
    assert rows(server, corner) == 1


async def test_queries_of_one_batch_see_their_own_versions(store: PgVector, corner: Corner) -> None:
    await stored(corner, store, "a", "A")
    await seen(store, corner, "reads")
    await stored(corner, store, "a", "B")
    asked = [corner.search(vectors(1), 9, query) for query in ("reads", "begins", "reads")]
    results = await store.execute(asked)
    assert [result["hits"][0][0].text for result in results] == ["A", "B", "A"]


async def test_a_query_that_has_ended_pins_nothing(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    request = corner.search(vectors(1))
    request.context.life.over = True
    await store.execute([request])
    await stored(corner, store, "a", "B")
    await settled(store)
    assert rows(server, corner) == 1
    assert not store._started.pins._pins


@catches(
    "pinned-after-the-end",
    "a search that comes back after the end of its query pins what nobody unpins",
    edited(_home, "not question.life.over", "True"),
)
async def test_a_query_that_ends_while_it_searches_pins_nothing(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    request = corner.search(vectors(1))
    with locked(server, "LOCK TABLE teola.collections"):
        searching = asyncio.create_task(store.execute([request]))
        await waiting(server)
        request.context.life.over = True
        await store.release(request.context.query_id)
    (result,) = await searching
    assert [hit.text for hit in result["hits"][0]] == ["A", "A"]
    await stored(corner, store, "a", "B")
    await settled(store)
    assert rows(server, corner) == 1


async def test_a_purge_that_was_broken_off_holds_nothing_back(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    await seen(other, corner)
    with locked(server, "SELECT FROM teola.readers WHERE tenant = %s FOR UPDATE", corner.tenant):
        purge = asyncio.create_task(other.delete(corner.tenant, corner.collection, ["none"]))
        await waiting(server)
        purge.cancel()
        await asyncio.wait({purge})
    await stored(corner, store, "a", "B")
    await settled(store, other)
    assert rows(server, corner) == 1, "nobody reads in the other process"


@catches(
    "own-readers-unseen",
    "a purge knows only of readers that have a row",
    edited(Pins._horizon, "min(horizon, needed)", "horizon"),
)
async def test_readers_that_lost_their_row_count_in_their_own_process(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    await seen(store, corner, "reads")
    server.rows("DELETE FROM teola.readers WHERE tenant = %s", corner.tenant)  # as a sweep does
    await stored(corner, store, "a", "B")
    await settled(store)
    assert await seen(store, corner, "reads") == {"a": {"A"}}


async def test_readers_are_written_once_and_not_for_each_query(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    readers = "SELECT oldest, xmin::text FROM teola.readers WHERE tenant = %s"
    await seen(store, corner)
    written = server.rows(readers, corner.tenant)
    assert [oldest for oldest, _ in written] == [1]
    for _ in range(3):
        await seen(store, corner)
    assert server.rows(readers, corner.tenant) == written


async def test_a_dead_reader_holds_nothing_back(
    store: PgVector, corner: Corner, server: Server
) -> None:
    await stored(corner, store, "a", "A")
    where = (str(server.data_dir), str(DIMENSIONS), corner.tenant, corner.collection)
    command = [sys.executable, "-c", READER, *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        try:
            assert await asyncio.to_thread(reader.stdout.readline) == "reads\n"
            await stored(corner, store, "a", "B")
            await settled(store)
            assert rows(server, corner) == 2, "it still sees the older version"
        finally:
            reader.send_signal(signal.SIGKILL)
    await stored(corner, store, "a", "C")
    await settled(store)
    assert rows(server, corner) == 1


async def test_a_reader_that_is_in_the_way_of_a_purge_is_waited_for(
    store: PgVector, corner: Corner, server: Server
) -> None:
    """And not tried to purge past again and again."""
    await stored(corner, store, "a", "A")
    await seen(store, corner, "reads")
    await stored(corner, store, "a", "B")
    await settled(store)
    assert not store._started.pins._tasks
    store.unpin("reads")
    await settled(store)
    assert rows(server, corner) == 1


async def test_who_loses_its_row_says_anew_what_it_reads(
    store: PgVector, other: PgVector, corner: Corner, server: Server
) -> None:
    """Its connection breaks, and somebody who starts just then sweeps its row away."""
    await stored(corner, store, "a", "A")
    await seen(store, corner, "reads")
    await stored(corner, store, "a", "B")
    await settled(store)
    server.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
    )
    async with asyncio.timeout(5):
        while store._started._presence.shown:
            await asyncio.sleep(0.01)
    server.rows("DELETE FROM teola.readers WHERE tenant = %s", corner.tenant)
    assert await seen(store, corner, "begins") == {"a": {"B"}}
    await stored(corner, other, "a", "C")
    await settled(store, other)
    assert await seen(store, corner, "reads") == {"a": {"A"}}


async def test_a_collection_that_was_not_there_is_not_there_until_the_query_ends_or_waits(
    store: PgVector, corner: Corner
) -> None:
    assert await seen(store, corner, "reads") == {}
    await stored(corner, store, "a", "A")
    assert await seen(store, corner, "reads") == {}
    assert await seen(store, corner) == {"a": {"A"}}
    store.unpin("reads")
    assert await seen(store, corner, "reads") == {"a": {"A"}}


async def test_a_start_purges_what_was_left(corner: Corner, server: Server) -> None:
    first = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS)
    await first.start()
    await stored(corner, first, "a", "A")
    await seen(first, corner, "reads")
    await stored(corner, first, "a", "B")
    await first.close()
    assert rows(server, corner) == 2
    second = PgVector(data_dir=server.data_dir, dimensions=DIMENSIONS)
    await second.start()
    await second.settle()
    assert rows(server, corner) == 1
    await second.close()


# --- against a model ----------------------------------------------------------------------------

NAMES = st.sampled_from("ab")
STORES = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("claim"), STORES, NAMES, st.sampled_from("ABC"), st.integers(1, 9)),
    st.tuples(st.just("finish"), st.integers(0, 9)),
    st.tuples(st.just("release"), st.integers(0, 9)),
    st.tuples(st.just("delete"), STORES, NAMES),
    st.tuples(st.just("search"), STORES, st.sampled_from("xy")),
    st.tuples(st.just("unpin"), STORES, st.sampled_from("xy")),
)


@dataclass
class Model:
    """What a store has to be: (content, asked) of each name, what is being indexed, and what each
    query sees."""

    current: dict[str, tuple[str, float]] = field(default_factory=dict)
    pending: list[tuple[Writer, str, str, float]] = field(default_factory=list)
    pinned: dict[tuple[int, str], dict[str, set[str]]] = field(default_factory=dict)

    @property
    def visible(self) -> dict[str, set[str]]:
        return {name: {content} for name, (content, _) in self.current.items()}

    def publish(self, name: str, content: str, asked: float) -> None:
        if name not in self.current or self.current[name][1] <= asked:
            self.current[name] = content, asked


@catches(
    "versions-unseen",
    "a search finds whatever is stored",
    edited(_conditions, "[IN_COLLECTION, visible]", "[IN_COLLECTION]"),
)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # to make a failing one shorter takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, min_size=8, max_size=16))
async def test_any_order_of_steps_gives_what_the_model_has(
    steps: list[tuple[Any, ...]], store: PgVector, other: PgVector, server: Server
) -> None:
    corner, stores, model = Corner(), (store, other), Model()
    for number, step in enumerate(steps):
        await _take(step, number, corner, stores, model)
        assert await seen(store, corner) == model.visible, step
    for writer, *_ in model.pending:
        await writer.store.release(writer.owner)
    for where, query in model.pinned:
        assert await seen(stores[where], corner, query) == model.pinned[where, query]
        stores[where].unpin(query)
    await store.delete(corner.tenant, corner.collection, ["none"])  # which purges
    await settled(*stores)
    assert rows(server, corner) == len(model.current)


async def _take(
    step: tuple[Any, ...], number: int, corner: Corner, stores: tuple[PgVector, ...], model: Model
) -> None:
    match step:
        case "claim", where, name, content, asked:
            writer = Writer(corner, stores[where], version(name, content), f"w{number}")
            if any(other.key == writer.key for other, *_ in model.pending):
                return  # it would wait
            there = [found for found, _ in model.current.values()]
            known = name in model.current and model.current[name][0] == content
            owned = await writer.claim(asked)
            assert not (owned and content in there), "content that is there is not indexed again"
            if known:
                assert not writer.taken
                model.current[name] = content, max(asked, model.current[name][1])
            elif owned:
                model.pending.append((writer, name, content, asked))
            else:
                assert writer.taken
                model.publish(name, content, asked)
        case "finish", which if model.pending:
            writer, *what = model.pending.pop(which % len(model.pending))
            await writer.finish()
            model.publish(*what)
        case "release", which if model.pending:
            writer, *_ = model.pending.pop(which % len(model.pending))
            await writer.store.release(writer.owner)
        case "delete", where, name:
            listed = await stores[where].documents(corner.tenant, corner.collection)
            ids = [document["id"] for document in listed if document["name"] == name]
            deleted = await stores[where].delete(corner.tenant, corner.collection, ids)
            assert deleted == (model.current.pop(name, None) is not None)
        case "search", where, query:
            expected = model.pinned.get((where, query), model.visible)
            assert await seen(stores[where], corner, query) == expected
            model.pinned[where, query] = expected
        case "unpin", where, query:
            stores[where].unpin(query)
            model.pinned.pop((where, query), None)
