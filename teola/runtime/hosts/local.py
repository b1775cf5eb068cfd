"""LocalHost: an engine instance in this process.

Sync methods of an engine run in worker threads of its own (as many as it runs batches at once),
async ones on the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any, cast

from teola.engine import (
    BatchEngine,
    Call,
    Engine,
    EngineKind,
    EngineResult,
    HasDimensions,
    Interruptible,
    KeepsOutputs,
    KeepsSequences,
    LanguageModel,
    MakesKeys,
    NamesModel,
    Request,
    SequenceHandle,
    TellsMemory,
    TellsPrefixes,
    Tokenizes,
    near,
)
from teola.errors import EngineUnavailable, TeolaError
from teola.runtime.hosts.text_keys import TextKeys
from teola.runtime.hosts.turns import Turns
from teola.runtime.observe.noting import note, working_for
from teola.threads import LastingPool

log = logging.getLogger(__name__)


class LocalHost:
    """Starts, runs and closes one engine instance. by_text: the others of its pool have nothing in
    common with it but that they take the same texts."""

    def __init__(self, engine: Engine, instance: int, *, by_text: bool = False) -> None:
        self.engine, self.instance, self.by_text = engine, instance, by_text
        self._run: Any = engine.execute if isinstance(engine, BatchEngine) else None
        asynchronous = inspect.iscoroutinefunction(self._run)
        self.interruptible = (
            engine.interruptible if isinstance(engine, Interruptible) else asynchronous
        )
        """Whether cancelling `execute` stops the work (a worker thread cannot be stopped)."""
        self.keeps = keeps(engine)
        """Whether large outputs may stay where the engine is, and inputs come from there."""
        plain_engine = near(engine)
        self.tells_memory = isinstance(plain_engine, TellsMemory)
        """Whether it can be asked for its free KV memory."""
        self.keys = cast("MakesKeys", engine) if isinstance(plain_engine, MakesKeys) else None
        if by_text:
            self.keys = TextKeys()
        """Knows what a prompt is to its prefix cache; one that runs elsewhere is asked there."""
        self.tells_prefixes = isinstance(plain_engine, TellsPrefixes) and not by_text
        """Whether it tells what its prefix cache keeps."""
        self.looks_ahead = engine.spec.looks_ahead
        """Whether it wants to know when what calls leave there is read again."""
        llm = engine.spec.kind is EngineKind.LLM  # a store has a `release` too, of other things
        self._keeper = engine if llm and isinstance(engine, KeepsSequences) else None
        self.vectors = plain_engine if isinstance(plain_engine, HasDimensions) else None
        """Tells the dimensions of its vectors."""
        self.tokenizer = (
            plain_engine if isinstance(plain_engine, Tokenizes) and not by_text else None
        )
        """Its tokenizer, if it has one at hand."""
        self.named = plain_engine if isinstance(plain_engine, NamesModel) else None
        """Tells the name of its model."""
        self.execute: Callable[[Sequence[Request]], Awaitable[Sequence[EngineResult | Exception]]]
        self.execute = cast("Any", self._run) if asynchronous else self._execute_in_thread
        """Runs a batch, on the loop or in a thread, in a copy of the caller's context."""
        self.turns = Turns(engine.spec.concurrency)
        """Decides which tenant's document is read next, if it reads documents."""
        self.sentence: asyncio.Task[Any] | None = None
        """An embedder's vector of one sentence (embedder_identity.py), once needed."""
        self._threads: LastingPool | None = None

    async def start(self) -> None:
        """Start the engine. Raises EngineUnavailable; the engine is closed again then."""
        spec = self.engine.spec
        self.sentence = None
        self._threads = LastingPool(
            max(1, min(spec.concurrency, 32)), thread_name_prefix=f"{spec.name}-{self.instance}"
        )
        try:
            await self.call(self.engine.start)
        except TeolaError:
            await self.close()
            raise
        except Exception as error:  # re-raised as what it means: this engine cannot be used
            await self.close()
            raise EngineUnavailable(
                f"engine {spec.name!r} did not start: {type(error).__name__}: {error}"
            ) from error
        self.looks_ahead = self.engine.spec.looks_ahead  # some know it only now

    async def close(self) -> None:
        """Close the engine and its threads."""
        if self._threads is None:
            return
        threads, self._threads = self._threads, None
        try:
            if inspect.iscoroutinefunction(self.engine.close):
                await self.engine.close()
            else:
                await asyncio.get_running_loop().run_in_executor(threads, self.engine.close)
        finally:
            threads.shutdown(wait=False)

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the engine, wherever it belongs."""
        if inspect.iscoroutinefunction(method):
            return await method(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, method, *arguments)

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` by the engine's tokenizer; at about four characters each without one."""
        return len(self.tokenizer.encode(text)) if self.tokenizer else len(text) // 4 + 1

    async def prefill(self, call: Call) -> SequenceHandle:
        """Compute a prefix (a language model)."""
        working_for.set((call.context.query_id,))
        return await cast("LanguageModel", self.engine).prefill(call)

    def release(self, handle: SequenceHandle) -> None:
        """Nobody will continue the sequence: what the engine keeps for it may go."""
        if self._keeper is not None:
            self._keeper.release(handle)

    async def _execute_in_thread(
        self, requests: Sequence[Request]
    ) -> Sequence[EngineResult | Exception]:
        engine, within = cast("BatchEngine", self.engine), copy_context()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, lambda: within.run(engine.execute, requests))
        return cast("Sequence[EngineResult | Exception]", await work)


def keeps(engine: Engine) -> bool:
    """Whether large outputs may stay where the engine is, and inputs come from there."""
    return isinstance(engine, KeepsOutputs) and engine.keeps


async def close_all(hosts: Iterable[LocalHost]) -> None:
    """Close engines side by side; of one that cannot be closed the log tells."""
    some = list(hosts)
    done = await asyncio.gather(*(host.close() for host in some), return_exceptions=True)
    for host, error in zip(some, done, strict=True):
        if error is not None:
            told, name = "engine %(engine)s did not end well: %(error)s", host.engine.spec.name
            note(log, logging.WARNING, "engine_unclosed", told, engine=name, error=repr(error))
