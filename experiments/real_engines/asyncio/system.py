"""The best plain asyncio program for each application that splits no prefilling and no decoding.

Indexing runs beside the expansion; the embeddings of the rewritings, their searches, and the leaves
of the tree run side by side. What cannot overlap without cutting a call in two does not.
"""

from __future__ import annotations

import asyncio

from experiments.real_engines.calls import Engines
from experiments.real_engines.recording import Log
from experiments.real_engines.steps import Steps
from experiments.real_engines.workload import Query

STYLES = ("expert",)


class AsyncioSystem:
    """See the module."""

    name = "asyncio"

    def __init__(self, engines: Engines, style: str) -> None:
        self.style, self._engines = style, engines
        self.table = "asyncio_expert"

    async def answer(self, query: Query, log: Log) -> str:
        steps = Steps(self._engines, self.table, query, log)
        if query.tree:
            return await _tree(steps)
        (vectors, _) = await asyncio.gather(_expanded(steps), steps.index())
        found = await asyncio.gather(*map(steps.search, vectors))
        return await steps.refine_all(await steps.rerank(found))


async def _expanded(steps: Steps) -> list[object]:
    return list(await steps.embed(await steps.expand()))


async def _tree(steps: Steps) -> str:
    # The short embedding first: behind the document's it would wait for all of that.
    vectors = await steps.embed([steps.query.question])
    await steps.index()
    hits = await steps.search(vectors[0])
    return await steps.merge(await asyncio.gather(*map(steps.leaf, hits)))


def build(engines: Engines, style: str) -> AsyncioSystem:
    return AsyncioSystem(engines, style)
