"""Engines for other processes: small, and they tell where they run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from teola.engine import EngineKind, EngineSpec, Hit, Request, Result, SequenceHandle
from teola.errors import EngineError, EngineUnavailable
from teola.graph import Op
from teola.kv.policies import make_policy
from teola.kv.policies.lru import Lru
from tests.deterministic import HashModel, vector


class Embedder:
    """Vectors of `width` numbers: the process id, then hashes. Takes `seconds` a batch.

    flag: a file; a batch that finds it missing makes it and kills its own process. weights: a
    file; it starts only if that is there.
    """

    def __init__(
        self,
        name: str = "embedding",
        *,
        seconds: float = 0.0,
        width: int = 4,
        flag: str = "",
        max_batch: int = 4,
        broken: bool = False,
        weights: str | None = None,
        dies: bool = False,
    ) -> None:
        self.dies, self.weights = dies, weights
        self.spec = EngineSpec(
            name, EngineKind.EMBEDDING, frozenset({Op.EMBEDDING}), max_batch=max_batch
        )
        self.seconds, self.width, self.flag, self.broken = seconds, width, flag, broken

    def start(self) -> None:
        if self.broken or (self.weights is not None and not Path(self.weights).exists()):
            raise EngineUnavailable("no weights here: put them there")

    def close(self) -> None:
        pass

    def execute(self, requests: Sequence[Request]) -> Sequence[Result | Exception]:
        if self.dies:
            os._exit(9)
        if self.flag:
            with suppress(FileExistsError):  # of two that look at once one finds it
                Path(self.flag).touch(exist_ok=False)
                os._exit(9)
        time.sleep(self.seconds)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Result | Exception:
        texts = request.inputs["texts"]
        if "refuse" in texts:
            return EngineError("it says refuse")
        if "crash" in texts:
            raise KeyError("crash")
        return {"vectors": [self._vector(text) for text in texts]}

    def _vector(self, text: Any) -> list[float]:
        numbers = vector(text) * (self.width // 4 + 1)
        return [float(os.getpid()), *numbers[: self.width - 1]]


class Stack(Lru):
    """An eviction policy that nobody has registered."""


class Evicting(Embedder):
    """It makes an eviction policy of its own."""

    def __init__(self, name: str = "embedding", *, eviction: str) -> None:
        super().__init__(name)
        self.policy = make_policy(eviction)

    def evicts_by(self) -> str:
        return type(self.policy).__name__


class Writer(HashModel):
    """A language model with state of its own for a prefix; it tells whether that was found.

    flag: a file; a stream that finds it missing makes it and kills its process after two tokens.
    """

    def __init__(self, name: str = "llm", *, flag: str = "", pause: float = 0.0) -> None:
        super().__init__(name)
        self.flag, self.pause = flag, pause
        self.kept: dict[int, str] = {}

    async def prefill(self, call: Any) -> SequenceHandle:
        handle = await super().prefill(call)
        return SequenceHandle(handle.engine, handle.instance, handle.parts, (), object())

    async def generate(self, call: Any) -> Any:
        found = call.prefix is not None and type(call.prefix.state) is object
        tokens = 0
        async for delta in super().generate(call):
            tokens += 1
            if self.flag and tokens == 2 and not Path(self.flag).exists():
                Path(self.flag).touch()
                os._exit(9)
            await asyncio.sleep(self.pause)
            yield delta
        self.prompts.append(f"prefix {'found' if found else 'missing'}")

    def last(self) -> str:
        return self.prompts[-1] if self.prompts else ""

    def busy(self) -> int:
        return self.generating


class Summer:
    """A store that finds, for each vector, one hit that says what its numbers add up to."""

    def __init__(self, name: str = "vectorstore", max_batch: int = 64) -> None:
        self.spec = EngineSpec(
            name, EngineKind.VECTORSTORE, frozenset({Op.SEARCHING}), max_batch=max_batch
        )

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def execute(self, requests: Sequence[Request]) -> Sequence[Result]:
        return [{"hits": [self._hits(v) for v in r.inputs["vectors"]]} for r in requests]

    def _hits(self, numbers: list[float]) -> list[Hit]:
        total = f"{sum(numbers[1:]):.3f}"
        return [Hit(total, "sums", total, 1.0)]
