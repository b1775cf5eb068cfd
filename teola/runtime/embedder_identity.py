"""Who an embedder is, as collections remember it: its identity, and its vector of one sentence.

The sentence is embedded at most once for each start of an engine, when somebody first needs it:
for the first document of a collection, and wherever identities alone do not tell.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from teola.engine import (
    DigestsWeights,
    Embedder,
    EmbedderIdentity,
    NamesModel,
    QueryContext,
    Request,
    near,
)
from teola.errors import EngineError, EngineUnavailable
from teola.graph.ops import EmbeddingParams, Op
from teola.runtime.hosts.local import LocalHost
from teola.runtime.tasks import in_vain

SENTENCE: Final = (
    "On the third evening the keeper of the lighthouse wrote the height of the tide into her book, "
    "trimmed the lamp, and counted 27 ships."
)
"""Never to be changed: stores hold vectors of it."""
TRIES: Final = 3


async def embedder_identity_of(host: LocalHost, *, sentence: bool) -> EmbedderIdentity:
    """The identity of a started embedder. sentence: whether its vector of the sentence is needed;
    it is given anyhow for an embedder whose identity is no digest. Raises what embedding raises."""
    engine = near(host.engine)
    embedder = cast("Embedder", engine)
    digests = isinstance(engine, DigestsWeights) and engine.digests
    named = engine.model if isinstance(engine, NamesModel) else None
    return EmbedderIdentity(
        embedder.identity,
        embedder.dimensions,
        named or embedder.identity.partition("@")[0],
        engine.pooling if isinstance(engine, DigestsWeights) else "",
        digests,
        await _sentence(host) if sentence or not digests else None,
    )


async def _sentence(host: LocalHost) -> Any:
    task = host.sentence
    if task is None or (task.done() and in_vain(task)):
        task = host.sentence = asyncio.create_task(_embedded(host), name="embedder-sentence")
    return await asyncio.shield(task)


async def _embedded(host: LocalHost) -> Any:
    inputs = {"texts": [SENTENCE]}
    context = QueryContext("sentence")
    request = Request(Op.EMBEDDING, EmbeddingParams("document"), inputs, context, "sentence")
    for _ in range(TRIES):
        (result,) = await host.execute([request])
        if not (isinstance(result, EngineError) and result.retryable):
            break
    if isinstance(result, EngineError):
        raise EngineUnavailable(str(result), retryable=result.retryable) from result
    if isinstance(result, Exception):
        raise result
    (vector,) = result["vectors"]
    return vector
