"""Small engines for other processes: their answers are hashes of what they are asked, so that the
right answer is known, and they take their time, so that there is something to interrupt."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from typing import Any, Final

from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineResult,
    EngineSpec,
    Hit,
    Request,
    SequenceHandle,
    Usage,
)
from teola.graph import Op

CORPUS: Final = tuple(f"passage {i}" for i in range(40))
WIDTH: Final = 8
FOUND: Final = 4
OPS: Final = {
    EngineKind.EMBEDDING: Op.EMBEDDING,
    EngineKind.VECTORSTORE: Op.SEARCHING,
    EngineKind.RERANK: Op.RERANKING,
}


def numbers(text: str, count: int) -> list[float]:
    """`count` numbers between 0 and 1 that depend on the text and nothing else."""
    digest = sha256(text.encode()).digest()
    return [digest[i] / 255 for i in range(count)]


class Batches:
    """What the batch engines share. seconds: how long a batch takes."""

    kind: EngineKind

    def __init__(self, name: str, seconds: float = 0.01) -> None:
        self.spec = EngineSpec(name, self.kind, frozenset({OPS[self.kind]}), max_batch=4)
        self.seconds = seconds

    def start(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""

    def pid(self) -> int:
        """The process that it runs in."""
        return os.getpid()

    def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult]:
        time.sleep(self.seconds)
        return [self.one(request) for request in requests]

    def one(self, request: Request) -> EngineResult:
        raise NotImplementedError


class Embeddings(Batches):
    """A vector for each text."""

    kind = EngineKind.EMBEDDING

    def one(self, request: Request) -> EngineResult:
        return {"vectors": [numbers(text, WIDTH) for text in request.inputs["texts"]]}


class Passages(Batches):
    """Finds the passages that are nearest to a vector."""

    kind = EngineKind.VECTORSTORE

    def one(self, request: Request) -> EngineResult:
        return {"hits": [self.near(vector) for vector in request.inputs["vectors"]]}

    def near(self, vector: Sequence[float]) -> list[Hit]:
        found = [
            Hit(text, "corpus", text, sum(map(float.__mul__, vector, numbers(text, WIDTH))))
            for text in CORPUS
        ]
        return sorted(found, key=lambda hit: (-hit.score, hit.id))[:FOUND]


class Scores(Batches):
    """A score for each hit."""

    kind = EngineKind.RERANK

    def one(self, request: Request) -> EngineResult:
        question = request.inputs["question"]
        return {"scores": [numbers(question + hit.text, 1)[0] for hit in request.inputs["hits"]]}


class Writer:
    """A language model that keeps something for each prefix. pause_s: between two tokens."""

    def __init__(self, name: str, pause_s: float = 0.005) -> None:
        ops = {Op.PREFILLING, Op.PARTIAL_PREFILLING, Op.FULL_PREFILLING}
        self.spec = EngineSpec(
            name,
            EngineKind.LLM,
            frozenset({*ops, Op.DECODING, Op.PARTIAL_DECODING}),
            max_batch=512,
            max_sequences=8,
            prefix_reuse=True,
            block_tokens=4,
        )
        self.pause_s = pause_s

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    def pid(self) -> int:
        """The process that it runs in."""
        return os.getpid()

    async def prefill(self, call: Call) -> SequenceHandle:
        await asyncio.sleep(self.pause_s)
        return SequenceHandle(self.spec.name, 0, call.all_parts, (), object())

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        prompt = "".join(part.text for part in call.all_parts)
        for piece in self.pieces(prompt, call.decode):
            await asyncio.sleep(self.pause_s)
            yield Delta(piece)
        yield Delta("", "stop", Usage(len(prompt), 8))

    def pieces(self, prompt: str, decode: Any) -> list[str]:
        """The answer, token by token."""
        if decode.items is None:
            return [f"{value:.4f} " for value in numbers(prompt, 6)]
        lines = [f"{value:.4f}" for value in numbers(prompt, decode.items)]
        return [piece for line in lines for piece in (line, "\n")]

    def count_tokens(self, text: str) -> int:
        """About that many."""
        return len(text) // 4 + 1
