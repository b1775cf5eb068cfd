"""The engines as every orchestrator but ours reaches them: plain async calls, nothing decided.

One MiniLM in float32, one MaxSim reranker on the same weights, one table of one pgvector for each
system, one vLLM. The LLM is streamed with as little work for each token as ours does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection, sql
from psycopg_pool import AsyncConnectionPool

from experiments.real_engines.prompts import ANSWER_TOKENS
from experiments.real_engines.recording import Completion, Log
from teola.engine import Hit, QueryContext, Request, Splitting
from teola.graph import Op, RerankParams
from teola_engines.documents.splitting import split
from teola_engines.embedding import model as minilm
from teola_engines.rerank import MaxSim

DTYPE: Final = "float32"
BATCH: Final = 32
SILENCE_S: Final = 120.0

Vectors = NDArray[np.float32]


class Engines:
    """Shared clients; one object serves all systems at once.

    url, model: of the LLM server. dsn: of PostgreSQL with pgvector.
    """

    def __init__(self, url: str, model: str, dsn: str) -> None:
        self.url, self.model, self.dsn = url, model, dsn
        self.shared = minilm.acquire(dtype=DTYPE, threads=1)
        self._reranker = MaxSim(dtype=DTYPE, threads=1)
        self._reranker.start()
        self._http = httpx.AsyncClient(timeout=SILENCE_S)
        self._pool = AsyncConnectionPool(dsn, min_size=2, max_size=8, open=False, configure=_ready)

    async def open(self) -> None:
        """Connect to the database. Raises psycopg's errors."""
        async with await AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await self._pool.open(wait=True)

    async def close(self) -> None:
        """Close every client and free the models."""
        await self._http.aclose()
        await self._pool.close()
        self._reranker.close()
        minilm.release(self.shared)

    # --- documents ----------------------------------------------------------------------------

    async def split(self, text: str) -> list[str]:
        """Chunks of a document, the same for all."""
        return await asyncio.to_thread(split, text, Splitting(), self.shared.encode)

    async def embed(self, texts: Sequence[str], log: Log) -> Vectors:
        """Unit vectors, one row a text."""
        log.embedded += texts
        return await asyncio.to_thread(self.shared.embed, texts, "document", BATCH)

    async def create_table(self, table: str) -> None:
        """An empty table of chunks, in place of one that is there."""
        name = sql.Identifier(table)
        made = "CREATE TABLE {} (document text, index int, body text, embedding vector({}))"
        async with self._pool.connection() as connection:
            await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            size = sql.Literal(self.shared.dimensions)
            await connection.execute(sql.SQL(made).format(name, size))
            await connection.execute(sql.SQL("CREATE INDEX ON {} (document)").format(name))

    async def store(
        self, table: str, document: str, chunks: Sequence[str], vectors: Vectors, log: Log
    ) -> None:
        """Store the chunks of a document in one COPY."""
        log.stored += chunks
        into = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table))
        async with (
            self._pool.connection() as connection,
            connection.cursor().copy(into) as copy,
        ):
            copy.set_types(("text", "int4", "text", "vector"))
            for i, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True)):
                await copy.write_row((document, i, chunk, Vector(vector)))

    async def search(
        self, table: str, document: str, vector: Any, top_k: int, log: Log
    ) -> list[Hit]:
        """The nearest chunks of a document, the best first."""
        asked = sql.SQL(
            "SELECT index, body, 1 - (embedding <=> %(v)s) FROM {} WHERE document = %(d)s"
            " ORDER BY embedding <=> %(v)s, index LIMIT %(k)s"
        ).format(sql.Identifier(table))
        values = {"v": Vector(vector), "d": document, "k": top_k}
        async with self._pool.connection() as connection:
            cursor = await connection.execute(asked, values)
            rows = await cursor.fetchall()
        log.searched.append((top_k, tuple(body for _, body, _ in rows)))
        return [Hit(f"{document}:{i}", document, body, score) for i, body, score in rows]

    async def rerank(self, question: str, hits: Sequence[Hit], top_k: int, log: Log) -> list[Hit]:
        """The best hits for the question, the best first."""
        log.scored.append((question, frozenset(hit.text for hit in hits)))
        inputs = {"hits": list(hits), "question": question}
        request = Request(Op.RERANKING, RerankParams(), inputs, QueryContext("rerank"), "rerank")
        found = (await asyncio.to_thread(self._reranker.execute, [request]))[0]
        if isinstance(found, Exception):
            raise found
        order = np.argsort(-np.array(found["scores"]), kind="stable")
        return [hits[i] for i in order[:top_k]]

    # --- the language model -------------------------------------------------------------------

    async def complete(
        self,
        prompt: str,
        log: Log,
        salt: str,
        *,
        choice: str | None = None,
        max_tokens: int = ANSWER_TOKENS,
        final: bool = False,
    ) -> str:
        """The text that follows `prompt`, of exactly `max_tokens` tokens, or `choice`.

        salt: see `of_system`. final: its first token is the one that the user waits for. Raises
        httpx's errors.
        """
        call = Completion(prompt, max_tokens)
        log.completions.append(call)
        options = of_system(salt) | llm_options(choice)
        body = options | {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        pieces: list[str] = []
        async for event in self._events(body):
            if event["choices"]:
                if final:
                    log.first_token()
                pieces.append(event["choices"][0]["text"])
            if usage := event.get("usage"):
                call.tokens = (usage["prompt_tokens"], usage["completion_tokens"])
        call.text = "".join(pieces).strip()
        return call.text

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        async with self._http.stream("POST", f"{self.url}/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])


def llm_options(choice: str | None) -> dict[str, Any]:
    """What the requests of all systems carry besides a prompt: fixed lengths, or a fixed text."""
    if choice is None:
        return {"ignore_eos": True}
    return {"structured_outputs": {"choice": [choice]}}


def of_system(salt: str) -> dict[str, Any]:
    """What a peer's requests carry so that vLLM finds for it only what it computed for it. Ours
    carry our tenant's salt, as always."""
    return {"cache_salt": salt}


def union(found: Sequence[Sequence[Hit]]) -> list[Hit]:
    """The hits of several searches, each once, the best score kept."""
    best: dict[str, Hit] = {}
    for hit in (hit for hits in found for hit in hits):
        if hit.id not in best or hit.score > best[hit.id].score:
            best[hit.id] = hit
    return list(best.values())


@asynccontextmanager
async def opened(url: str, model: str, dsn: str) -> AsyncIterator[Engines]:
    """Engines for the time of a block."""
    engines = Engines(url, model, dsn)
    try:
        await engines.open()
        yield engines
    finally:
        await engines.close()


async def _ready(connection: AsyncConnection[Any]) -> None:
    await register_vector_async(connection)
    await connection.commit()
