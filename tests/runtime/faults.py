"""Engines that fail on cue, around engines that work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from teola.engine import BatchEngine, Call, Delta, EngineResult, Request, Usage
from teola.errors import EngineError
from teola.testing.hash_engines import CountsStarts, HashModel


class Flaky(CountsStarts):
    """`inner`, whose calls number `failing` (from 1) raise `error`, or whose requests that are
    `poisoned` fail alone; each batch waits for `gate` first, if there is one."""

    def __init__(
        self,
        inner: BatchEngine,
        *,
        failing: Collection[int] = (),
        error: Callable[[], Exception] = lambda: EngineError("out of memory", retryable=True),
        poisoned: Callable[[Request], bool] = lambda request: False,
        gate: asyncio.Event | None = None,
    ) -> None:
        self.inner, self.spec = inner, inner.spec
        self.failing, self.error, self.poisoned, self.gate = failing, error, poisoned, gate
        self.calls = 0
        self.running = 0
        self.requests: list[Request] = []

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        self.calls += 1
        number = self.calls
        self.requests += requests
        self.running += 1
        try:
            if self.gate:
                await self.gate.wait()
            await asyncio.sleep(0)
            if number in self.failing:
                raise self.error()
            answers: Any = self.inner.execute([r for r in requests if not self.poisoned(r)])
            good = iter(await answers if any(not self.poisoned(r) for r in requests) else ())
            return [self.error() if self.poisoned(r) else next(good) for r in requests]
        finally:
            self.running -= 1


class Scripted(HashModel):
    """Streams the given pieces. An exception among them is raised there, an Event awaited. A Delta
    goes as it is; one at the end takes the place of the `stop` that otherwise ends the stream.

    scripts: one for each call, in order; the last one is used again.
    """

    def __init__(
        self, *scripts: Sequence[str | Exception | asyncio.Event | Delta], **limits: Any
    ) -> None:
        super().__init__(**limits)
        self.scripts = scripts
        self.calls: list[Call] = []

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        script = self.scripts[min(len(self.calls), len(self.scripts) - 1)]
        self.calls.append(call)
        self.generating += 1
        try:
            for piece in script:
                await asyncio.sleep(0)
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, asyncio.Event):
                    await piece.wait()
                else:
                    yield piece if isinstance(piece, Delta) else Delta(piece)
            if not isinstance(script[-1], Delta):
                yield Delta("", "stop", Usage())
        finally:
            self.generating -= 1
