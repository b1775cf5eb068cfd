"""Collections: named sets of documents, indexed once and searched by many queries.

Indexing is an application of one component, so it goes through the same scheduler as queries do.
Every document is a query of its own: a broken one harms no other, and those in flight share the
engines' batches. How many are in flight is bounded, in documents and in bytes, so that memory is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

from teola.app import App
from teola.engine import DocumentStore, Source
from teola.errors import DocumentError, InputError, QueryError, UnknownName
from teola.graph import Op, ToolStep
from teola.query.spec import QuerySpec
from teola.runtime.default_runtime import default_runtime
from teola.runtime.documents import collected, readable
from teola.runtime.live.query import Progress, Token
from teola.runtime.runtime import Runtime
from teola.workflow.components import Indexing

IN_FLIGHT: Final = 32
"""Documents that are indexed at once, at most."""
IN_FLIGHT_BYTES: Final = 16_000_000
"""Their bytes, at most; a larger document is indexed alone."""
DEADLINE_S: Final = 3600.0
"""Seconds for one document."""
STORE: Final = "vectorstore"


class IndexingStep(NamedTuple):
    """What happened to a document.

    state: `found` (items: documents in all, the first step), `embedded` (items: chunks of a batch),
    and for each document in the end `indexed` (items: its chunks), `known` or `failed` (reason).
    """

    state: str
    document: str = ""
    items: int = 0
    reason: str = ""


OnProgress = Callable[[IndexingStep], None]


def index(
    paths: Any,
    *,
    collection: str,
    runtime: Runtime | None = None,
    tenant: str = "default",
    overrides: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    deadline_s: float = DEADLINE_S,
) -> dict[str, Any]:
    """Index files, directories or `{"name", "text"}` into a collection, made if it is new.

    overrides: {"index.chunk_size": 128}. on_progress: called in another thread. Returns
    {"collection", "documents", "new", "known", "chunks", "failed": [{"document", "reason"}],
    "passed_over": {".zip": 2}, "hidden"}: documents looked at, indexed now, and there before;
    chunks stored now; files of the directories that are not read, by suffix; hidden texts left out
    of what was indexed now. A document that cannot be read is listed in `failed`, and the others
    go on. Raises InputError before anything starts.
    """
    if not collection.strip():
        raise InputError("a collection needs a name")
    documents = collected(paths, most=None)
    given = documents.sources
    if not given:
        raise InputError("there is nothing to index; give files or directories")
    for source in given:
        if source.path is not None and not source.path.exists():
            raise DocumentError(f"no such file: {str(source.path)!r}; check the path")
    home = runtime or default_runtime()
    app = App(
        "index",
        Indexing(store=STORE),
        inputs={"documents": "documents"},
        outputs={"stored": "stored"},
        runtime=home,
    )
    ask = QuerySpec({"documents": given[:1]}, overrides or {}, None, deadline_s, tenant)
    app.job(ask)
    work = _Index(app, collection, ask, on_progress or _ignore)
    future = home.start(work.run(given))
    try:
        return {**future.result(), "passed_over": dict(documents.passed_over)}
    except BaseException:
        future.cancel()
        raise


def list_collections(
    *, runtime: Runtime | None = None, tenant: str = "default"
) -> list[dict[str, Any]]:
    """`name`, `documents` and `chunks` of each collection of the tenant."""
    home = runtime or default_runtime()

    async def listed() -> list[dict[str, Any]]:
        return await (await _store(home)).collections(tenant)

    return home.start(listed()).result()


def list_documents(
    collection: str, *, runtime: Runtime | None = None, tenant: str = "default"
) -> list[dict[str, Any]]:
    """`id`, `name`, `chunks`, `created_at`, `metadata` of each document. Raises UnknownName."""
    home = runtime or default_runtime()

    async def listed() -> list[dict[str, Any]]:
        store = await _store(home)
        await _check_known(store, tenant, collection)
        return await store.documents(tenant, collection)

    return home.start(listed()).result()


def delete(
    collection: str,
    documents: Sequence[str] | None = None,
    *,
    runtime: Runtime | None = None,
    tenant: str = "default",
) -> int:
    """Delete documents by name or id (None: the whole collection); how many were deleted.

    Raises InputError, before anything is deleted, for a collection or document that is not there.
    """
    home = runtime or default_runtime()

    async def deleted() -> int:
        store = await _store(home)
        await _check_known(store, tenant, collection)
        chosen = None
        if documents is not None:
            chosen = _ids(await store.documents(tenant, collection), documents, collection)
        return await store.delete(tenant, collection, chosen)

    return home.start(deleted()).result()


async def _store(home: Runtime) -> DocumentStore:
    await home.ensure([STORE])
    return cast("DocumentStore", home.host(STORE).engine)


async def _check_known(store: DocumentStore, tenant: str, collection: str) -> None:
    names = [entry["name"] for entry in await store.collections(tenant)]
    if collection not in names:
        raise UnknownName("collection", collection, names)


def _ids(there: list[dict[str, Any]], wanted: Iterable[str], collection: str) -> list[str]:
    """Ids of the documents that have one of the names or ids `wanted`."""
    found: list[str] = []
    for name in wanted:
        matching = [str(d["id"]) for d in there if name in (d["name"], str(d["id"]))]
        if not matching:
            near = get_close_matches(name, [d["name"] for d in there], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"no document {name!r} in collection {collection!r}{hint} "
                f"(`teola collections {collection}` lists them)"
            )
        found += matching
    return found


class _Index:
    """One call of `index`, on the runtime's loop."""

    def __init__(
        self,
        app: App,
        collection: str,
        ask: QuerySpec,
        report: OnProgress,
    ) -> None:
        self.app, self.collection, self.ask, self.report = app, collection, ask, report
        self.new = self.known = self.chunks = self.hidden = 0
        self.failed: list[dict[str, str]] = []
        self._bytes = 0
        self._freed = asyncio.Condition()

    async def run(self, given: Sequence[Source]) -> dict[str, Any]:
        """Index all; the first error that is not one document's own ends everything."""
        await self.app.home.ensure(self.app.engine_names)
        self.report(IndexingStep("found", items=len(given)))
        left = iter(given)
        workers = [
            asyncio.create_task(self._worker(left)) for _ in range(min(IN_FLIGHT, len(given)))
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                if not worker.cancelling():  # a second time would interrupt its cleaning up
                    worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return {
            "collection": self.collection,
            "documents": len(given),
            "new": self.new,
            "known": self.known,
            "chunks": self.chunks,
            "failed": sorted(self.failed, key=lambda failure: failure["document"]),
            "hidden": self.hidden,
        }

    async def _worker(self, left: Iterator[Source]) -> None:
        for source in left:
            async with self._room(_size(source)):
                await self._one(source)

    @asynccontextmanager
    async def _room(self, size: int) -> AsyncIterator[None]:
        async with self._freed:
            await self._freed.wait_for(
                lambda: not self._bytes or self._bytes + size <= IN_FLIGHT_BYTES
            )
            self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            async with self._freed:
                self._freed.notify_all()

    async def _one(self, source: Source) -> None:
        def watch(event: Token | Progress | ToolStep) -> None:
            if isinstance(event, Progress) and _embedded(event):
                self.report(IndexingStep("embedded", source.name, event.items))

        given = {"documents": [source], "collection": self.collection}
        job = self.app.job(replace(self.ask, inputs=given))
        try:
            (await job.run(watch)).checked()
        except (DocumentError, QueryError) as error:
            name = readable(source.name)
            self.failed.append({"document": name, "reason": str(error)})
            self.report(IndexingStep("failed", name, reason=str(error)))
            return
        self.hidden += job.hidden
        if job.chunks:
            self.new, self.chunks = self.new + 1, self.chunks + job.chunks
        else:
            self.known += 1
        self.report(IndexingStep("indexed" if job.chunks else "known", source.name, job.chunks))


def _embedded(event: Progress) -> bool:
    return event.state == "finished" and event.op == Op.EMBEDDING.value


def _size(source: Source) -> int:
    """Bytes of a document, at least 1; 1 for one that cannot be read, which its query will say."""
    if source.path is None:
        return max(1, len(source.text or ""))
    try:
        return max(1, source.path.stat().st_size)
    except OSError:
        return 1


def _ignore(step: IndexingStep) -> None:
    """Nobody watches."""
