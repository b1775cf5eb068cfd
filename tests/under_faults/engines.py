"""The engines of a simulated run: hashes for answers, and effects that are counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from teola.engine import Call, Delta, EngineResult, Hit, Keys, Request, SequenceHandle
from teola.graph import Op, SearchParams
from teola.policies.routing import RoutingPolicy
from teola.policies.work import Work
from teola.runtime.python_engine import PythonEngine
from teola.testing.hash_engines import (
    HashEmbedder,
    HashModel,
    HashReranker,
    MemoryStore,
    hash_number,
)

TOKEN_S = 0.02


class Database:
    """What outlives the instances of the store: rows by (tenant, collection) and chunk id."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, tuple[list[float], Any]]] = {}
        self.effects: Counter[tuple[str, str]] = Counter()
        """Executions of an effect without a key, by (tenant's question, component)."""


class Store(MemoryStore):
    """Its rows are in the database, where one that is there already is left as it is."""

    def __init__(self, name: str = "vectorstore", *, database: Database) -> None:
        super().__init__(name)
        self._database = database

    def _one(self, request: Request) -> EngineResult:
        scope = request.inputs["scope"]
        rows = self._database.rows.setdefault((scope.tenant, scope.collection), {})
        if request.op is Op.INGESTION:
            ids = []
            pairs = zip(request.inputs["vectors"], request.inputs["chunks"], strict=True)
            for values, chunk in pairs:
                ids.append(f"{chunk.document}/{chunk.index:04}")
                rows.setdefault(ids[-1], (values, chunk))
            return {"stored": ids}
        assert isinstance(request.params, SearchParams)
        top_k = request.params.top_k
        return {"hits": [self._near(rows, v, top_k) for v in request.inputs["vectors"]]}


class Model(HashModel):
    """Takes its time for each token, keeps something for each prefix, and sometimes talks long."""

    def __init__(self, name: str = "llm", max_sequences: int = 4) -> None:
        super().__init__(name, max_sequences=max_sequences)

    async def prefill(self, call: Call) -> SequenceHandle:
        handle = await super().prefill(call)
        return SequenceHandle(handle.engine, handle.instance, handle.parts, (), object())

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        async for delta in super().generate(call):
            await asyncio.sleep(TOKEN_S)
            yield delta

    def text(self, prompt: str, decode: Any) -> str:
        text = super().text(prompt, decode)
        if decode.items is None and hash_number(prompt, "long") % 4 == 0:
            return text + " and so on" * 60
        return text


class UnevenModel(Model):
    """Now its first tokens come at once, and now late."""

    def __init__(self, name: str = "llm", max_sequences: int = 4) -> None:
        super().__init__(name, max_sequences)
        self._asked = 0

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self._asked += 1
        await asyncio.sleep(3 * self._asked % 7 * TOKEN_S)
        async for delta in super().generate(call):
            yield delta


class KeyedModel(Model):
    """Knows what a prompt is to a prefix cache, in blocks of 16 characters."""

    block_tokens = 4

    def keys(self, call: Call) -> Keys:
        prompt = "".join(part.text for part in call.all_parts)
        size = 4 * self.block_tokens
        ends = range(size, len(prompt) + 1, size)
        return Keys(len(prompt) // 4 + 1, tuple(prompt[:end] for end in ends))


class CrowdedModel(KeyedModel):
    """Its cache has room for little more than a program, and prompts take it several steps."""

    def __init__(self, name: str = "llm", max_sequences: int = 4) -> None:
        super().__init__(name, max_sequences)
        self.spec = replace(self.spec, max_batch=64, kv_blocks=96)


class Scattered(RoutingPolicy):
    """Binds whatever can be bound, now here and now there."""

    def place(self, work: Work, now: float) -> int:
        return hash_number(work.run, work.primitive, int(4 * now)) % (len(self.view) + 1) - 1


class Embedder(HashEmbedder):
    def __init__(self, name: str = "embedding") -> None:
        super().__init__(name, max_batch=4)


class Reranker(HashReranker):
    def __init__(self, name: str = "rerank") -> None:
        super().__init__(name, max_batch=4)


class Python(PythonEngine):
    def __init__(self, name: str = "python") -> None:
        super().__init__(name, concurrency=4)


def texts_of(value: Any) -> list[str]:
    """All texts in a value, for finding out whose it is."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Hit) or hasattr(value, "text"):
        return [value.text]
    if isinstance(value, Sequence):
        return [text for one in value for text in texts_of(one)]
    return []
