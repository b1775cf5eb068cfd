"""Engines for other processes: small, and they tell where they run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from teola import App, Embedding, Runtime
from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineResult,
    EngineSpec,
    Hit,
    Keys,
    PrefixChange,
    Request,
    SequenceHandle,
)
from teola.errors import EngineError, EngineUnavailable
from teola.graph import Op
from teola.kv.policies import make_policy
from teola.kv.policies.lru import Lru
from teola.runtime.engines import EngineConfig
from teola.runtime.hosts.process import ProcessEngine
from teola.testing.hash_engines import HashModel, vector


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

    def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        if self.dies:
            os._exit(9)
        if self.flag:
            with suppress(FileExistsError):  # of two that look at once one finds it
                Path(self.flag).touch(exist_ok=False)
                os._exit(9)
        time.sleep(self.seconds)
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> EngineResult | Exception:
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


class Keeping(HashModel):
    """A language model whose tokenizer, a token a word, is there once it has been started, as are
    its blocks of two tokens. It keeps every prompt, and tells that."""

    def __init__(self, name: str = "llm") -> None:
        super().__init__(name)
        self._changes: list[asyncio.Queue[PrefixChange]] = []

    async def start(self) -> None:
        await super().start()
        self.spec = replace(self.spec, block_tokens=2)

    @property
    def block_tokens(self) -> int:
        return self.spec.block_tokens

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        text = "".join(part.text for part in call.all_parts)
        if not self.started:
            return Keys(len(text), (text,))
        words = text.split()
        ends = range(2, len(words) + 1, 2)
        return Keys(len(words), tuple(" ".join(words[:end]) for end in ends))

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        yield PrefixChange(cleared=True)
        inbox = asyncio.Queue[PrefixChange]()
        self._changes.append(inbox)
        try:
            while True:
                yield await inbox.get()
        finally:
            self._changes.remove(inbox)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        kept = PrefixChange(self.keys(call).blocks)
        for inbox in self._changes:
            inbox.put_nowait(kept)
        await asyncio.sleep(0.02)
        async for delta in super().generate(call):
            yield delta

    def listeners(self) -> int:
        return len(self._changes)

    def read(self, text: str) -> int:
        """How many prompts with this text it has answered."""
        return sum(text in prompt for prompt in self.prompts)


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

    def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult]:
        return [{"hits": [self._hits(v) for v in r.inputs["vectors"]]} for r in requests]

    def _hits(self, numbers: list[float]) -> list[Hit]:
        total = f"{sum(numbers[1:]):.3f}"
        return [Hit(total, "sums", total, 1.0)]


def engine(factory: Any, **options: Any) -> ProcessEngine:
    return ProcessEngine(EngineConfig(factory, options).recipe("one"))


def embedding_app(runtime: Runtime) -> App:
    return App(
        "embed",
        Embedding(),
        inputs={"texts": "texts"},
        outputs={"vectors": "vectors"},
        runtime=runtime,
    )


def two(factory: Any, **options: Any) -> EngineConfig:
    return EngineConfig(factory, options, instances=2, host="process")
