"""Small engines whose answers are functions of what they are given, and nothing else.

They are real engines behind the real protocol: vectors, scores and texts come from hashes, so two
ways of running one query can be compared value by value.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from teola.engine import (
    Call,
    Delta,
    Engine,
    EngineKind,
    EngineResult,
    EngineSpec,
    Hit,
    Request,
    SequenceHandle,
    Usage,
)
from teola.graph import DecodeParams, Op, SearchParams
from teola.runtime.python_engine import PythonEngine
from teola.runtime.values import text_of


def hash_number(*values: object) -> int:
    """A number that depends on `values` and nothing else."""
    text = json.dumps([text_of(value) for value in values])
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def vector(text: object) -> list[float]:
    return [(hash_number(text, i) % 2001 - 1000) / 1000 for i in range(4)]


def spec(name: str, kind: EngineKind, ops: set[Op], **limits: Any) -> EngineSpec:
    return EngineSpec(name, kind, frozenset(ops), **limits)


class CountsStarts:
    """Counts what every engine must be told exactly once."""

    spec: EngineSpec
    started = closed = 0

    async def start(self) -> None:
        self.started += 1

    async def close(self) -> None:
        self.closed += 1


class HashEmbedder(CountsStarts):
    """One vector of four numbers a text. batches: how many texts each batch held."""

    def __init__(self, name: str = "embedding", max_batch: int = 4) -> None:
        self.spec = spec(name, EngineKind.EMBEDDING, {Op.EMBEDDING}, max_batch=max_batch)
        self.batches: list[int] = []

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        assert requests, "an empty batch is no batch"
        self.batches.append(sum(len(request.inputs["texts"]) for request in requests))
        await asyncio.sleep(0)
        return [{"vectors": [vector(t) for t in r.inputs["texts"]]} for r in requests]


class MemoryStore(CountsStarts):
    """Chunks with their vectors, by collection; a search sees what was stored before it."""

    def __init__(self, name: str = "vectorstore", max_batch: int = 4) -> None:
        ops = {Op.INGESTION, Op.SEARCHING}
        self.spec = spec(name, EngineKind.VECTORSTORE, ops, max_batch=max_batch)
        self.chunks: dict[tuple[str, str], dict[str, tuple[list[float], Any]]] = {}

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        await asyncio.sleep(0)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> EngineResult:
        scope = request.inputs["scope"]
        stored = self.chunks.setdefault((scope.tenant, scope.collection), {})
        if request.op is Op.INGESTION:
            pairs = zip(request.inputs["vectors"], request.inputs["chunks"], strict=True)
            ids = []
            for values, chunk in pairs:
                ids.append(f"{chunk.document}/{chunk.index:04}")
                assert ids[-1] not in stored, f"{ids[-1]} is stored twice"
                stored[ids[-1]] = (values, chunk)
            return {"stored": ids}
        params = request.params
        assert isinstance(params, SearchParams)
        return {"hits": [self._near(stored, v, params.top_k) for v in request.inputs["vectors"]]}

    def _near(
        self, stored: dict[str, tuple[list[float], Any]], query: list[float], k: int
    ) -> list[Hit]:
        hits = [
            Hit(
                id,
                chunk.name,
                chunk.text,
                sum(a * b for a, b in zip(query, v, strict=True)),
                chunk.place or {},
            )
            for id, (v, chunk) in stored.items()
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:k]


class HashReranker(CountsStarts):
    """A score between 0 and 1 for each hit."""

    def __init__(self, name: str = "rerank", max_batch: int = 4) -> None:
        self.spec = spec(name, EngineKind.RERANK, {Op.RERANKING}, max_batch=max_batch)

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        await asyncio.sleep(0)
        return [
            {"scores": [hash_number(r.inputs["question"], h) % 997 / 997 for h in r.inputs["hits"]]}
            for r in requests
        ]


class HashModel(CountsStarts):
    """Answers with words hashed from its prompt, whatever `max_tokens` is; asked for n items it
    gives 0 to n + 2 of them.

    generating, prefilling: calls in progress now. prompts: every whole prompt that was answered.
    """

    def __init__(
        self,
        name: str = "llm",
        *,
        max_batch: int = 256,
        max_sequences: int = 8,
        block_tokens: int = 4,
    ) -> None:
        ops = {Op.PREFILLING, Op.PARTIAL_PREFILLING, Op.FULL_PREFILLING, Op.DECODING}
        self.spec = spec(
            name,
            EngineKind.LLM,
            {*ops, Op.PARTIAL_DECODING},
            max_batch=max_batch,
            max_sequences=max_sequences,
            prefix_reuse=True,
            block_tokens=block_tokens,
        )
        self.generating = 0
        self.prompts: list[str] = []
        self.prefixes = 0

    async def prefill(self, call: Call) -> SequenceHandle:
        assert call.parts
        self.prefixes += 1
        await asyncio.sleep(0)
        return SequenceHandle(self.spec.name, 0, call.all_parts)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self.generating += 1
        try:
            prompt = "".join(part.text for part in call.all_parts)
            self.prompts.append(prompt)
            text = self.text(prompt, call.decode)
            for i in range(0, len(text), 7):
                await asyncio.sleep(0)
                yield Delta(text[i : i + 7])
            yield Delta("", "stop", Usage(len(prompt), len(text)))
        finally:
            self.generating -= 1

    def text(self, prompt: str, decode: DecodeParams) -> str:
        """The answer to `prompt`."""
        if decode.items is None:
            return f"answer {hash_number(prompt) % 10**6}"
        fewest = 1 if decode.parser == "numbered" else 0
        count = max(fewest, hash_number(prompt, "count") % (decode.items + 3))
        items = [f"item {hash_number(prompt, i) % 10**4}" for i in range(count)]
        if decode.parser == "json_list":
            return json.dumps(items)
        if decode.parser == "numbered":
            return "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1))
        return "\n".join(items)

    def count_tokens(self, text: str) -> int:
        return len(text) // 4 + 1


def hash_engines(models: int = 1) -> dict[str, list[Engine]]:
    """Fresh engines for a `Bench`, under the names that components go by. They fill their batches
    quickly, so that everything worth cutting is cut."""
    python = PythonEngine()
    python.spec = replace(python.spec, max_batch=3)
    return {
        "embedding": [HashEmbedder()],
        "vectorstore": [MemoryStore()],
        "rerank": [HashReranker()],
        "llm": [HashModel() for _ in range(models)],
        "python": [python],
    }
