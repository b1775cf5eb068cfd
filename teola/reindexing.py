"""Embedding a collection anew: its stored chunks get the vectors of this runtime's embedder.

Nothing is read from files. The batches are queries of an application of one component, so they go
through the same scheduler as others. Until all of it is done the collection is as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from teola.app import App
from teola.engine import UNNAMED, EmbedderIdentity, Reindexes, Reindexing, ReindexingPart
from teola.errors import EngineUnavailable, InputError
from teola.query.spec import QuerySpec
from teola.runtime.default_runtime import default_runtime
from teola.runtime.embedder_identity import embedder_identity_of
from teola.runtime.runtime import Runtime
from teola.workflow.components import Embedding

EMBEDDER: Final = "embedding"
STORE: Final = "vectorstore"
IN_FLIGHT: Final = 8
"""Batches that are embedded at once, at most."""
DEADLINE_S: Final = 3600.0
"""Seconds for one batch."""
ATTEMPTS: Final = 100
"""Times that everything was embedded, and something else was at work on the collection."""

OnReindexed = Callable[[int, int], None]


def reindex(
    collection: str,
    *,
    runtime: Runtime | None = None,
    tenant: str = "default",
    on_progress: OnReindexed | None = None,
) -> dict[str, Any]:
    """Embed a collection's chunks with the runtime's embedder, which then is the collection's.

    Searches find the old vectors until all chunks have new ones, and are then for the new embedder.
    Documents that others index or delete meanwhile are seen to; those that are still being indexed
    in the end fail. What a call that was interrupted has done is kept for the next one.
    on_progress: called with the chunks that are done and all of them, in another thread. Returns
    {"collection", "documents", "chunks", "embedded", "embedder"}: of the collection; chunks that
    were embedded by this call (0: it was this embedder's already); the embedder's identity. Raises
    UnknownName for a collection that is not there, InputError if it is being reindexed already.
    """
    if collection == UNNAMED:
        raise InputError(
            f"in {UNNAMED!r} lie the documents that came without a collection, each with its own "
            "embedder: they need not be embedded anew"
        )
    home = runtime or default_runtime()
    app = App(
        "reindex",
        Embedding(role="document"),
        inputs={"texts": "texts"},
        outputs={"vectors": "vectors"},
        runtime=home,
    )
    future = home.start(_reindexed(app, collection, tenant, on_progress or _ignore))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _reindexed(app: App, collection: str, tenant: str, report: OnReindexed) -> dict[str, Any]:
    home = app.home
    await home.ensure([EMBEDDER, STORE])
    store = home.host(STORE).engine
    if not isinstance(store, Reindexes):
        raise InputError(f"the engine {STORE!r} cannot embed a collection anew: index it again")
    embedder = await embedder_identity_of(home.host(EMBEDDER), sentence=True)
    work, needed = await store.reindexing(tenant, collection, embedder)
    try:
        embedded = await _Reindex(app, tenant, work, report).run() if needed else 0
    finally:
        await work.close()
    return _told(collection, work, embedded, embedder)


def _told(
    collection: str, work: Reindexing, embedded: int, embedder: EmbedderIdentity
) -> dict[str, Any]:
    return {
        "collection": collection,
        "documents": work.documents,
        "chunks": work.chunks,
        "embedded": embedded,
        "embedder": embedder.identity,
    }


class _Reindex:
    """One call of `reindex`, on the runtime's loop."""

    def __init__(self, app: App, tenant: str, work: Reindexing, report: OnReindexed) -> None:
        self.app, self.tenant, self.work, self.report = app, tenant, work, report
        self.embedded = self.left = 0

    async def run(self) -> int:
        """Embed until nothing changes any more; how many chunks were embedded."""
        for _ in range(ATTEMPTS):
            batches: Sequence[ReindexingPart] = await self.work.batches()
            self.left = sum(batch.size for batch in batches)
            left = iter(batches)
            workers = [
                asyncio.create_task(self._worker(left)) for _ in range(min(IN_FLIGHT, len(batches)))
            ]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
            if await self.work.finish():
                return self.embedded
        raise EngineUnavailable(
            "the collection changes faster than it is embedded anew: try again when less is indexed"
        )

    async def _worker(self, left: Iterator[ReindexingPart]) -> None:
        for batch in left:
            if texts := await self.work.texts(batch):
                inputs = {"texts": [chunk.text for chunk in texts]}
                job = self.app.job(QuerySpec(inputs, {}, None, DEADLINE_S, self.tenant))
                result = (await job.run()).checked()
                await self.work.store(batch, texts, result["vectors"])
            self.embedded += len(texts)
            self.left -= batch.size
            self.report(max(0, self.work.chunks - self.left), self.work.chunks)


def _ignore(done: int, of: int) -> None:
    """Progress that nobody watches."""
