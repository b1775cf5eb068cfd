"""RemoteEngine: the near end of an engine that runs elsewhere; to its host an engine like others.

How it behaves is here: calls, streams, sequence handles, what becomes of all of them when the far
end dies. How messages travel is in `process` (a child process) and `ray_actor` (a Ray actor).
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any

from teola.engine import (
    Call,
    Delta,
    Engine,
    EngineSpec,
    Request,
    Result,
    SequenceHandle,
    TellsMemory,
)
from teola.errors import EngineUnavailable
from teola.runtime.hosts.server import Recipe, RemoteState, now
from teola.runtime.likeness import Likeness


class RemoteLease:
    """What a sequence handle holds here: when nobody does any more, the far end may forget it.

    remote: None until the far end has answered.
    """

    __slots__ = ("__weakref__", "remote")

    def __init__(self) -> None:
        self.remote: RemoteState | None = None


class RemoteEngine(ABC):
    """An engine in another process. Use from one event loop.

    near: an unstarted engine of the same kind, for what needs no running one. on_lost: called once
    with the reason when the far end dies by itself.
    """

    interruptible = False
    """Whether cancelling `execute` stops the work: the far end tells nobody."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.near: Engine = recipe.make()
        self.on_lost: Callable[[EngineUnavailable], None] | None = None
        self.dead: EngineUnavailable | None = None
        self._forgotten: deque[int] = deque()
        self._keys = count()
        self._tells_memory = isinstance(self.near, TellsMemory)

    @property
    def spec(self) -> EngineSpec:
        """What the engine declares."""
        return self.near.spec

    def __getattr__(self, name: str) -> Any:
        """What needs no running engine, such as a tokenizer, is asked of the near one."""
        if name.startswith("_") or name == "near":
            raise AttributeError(name)
        return getattr(self.near, name)

    # --- what a carrier does --------------------------------------------------------------

    @abstractmethod
    async def start(self) -> None:
        """Start the far end and its engine. Raises EngineUnavailable."""

    @abstractmethod
    async def close(self) -> None:
        """Close the engine and end the far end."""

    @abstractmethod
    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the EngineServer. Raises what it raises, or EngineUnavailable."""

    @abstractmethod
    def stream(self, *arguments: Any) -> AsyncGenerator[Delta]:
        """The EngineServer's `generate`; closing it aborts the call there."""

    @abstractmethod
    def kill(self) -> None:
        """End the far end at once."""

    # --- the engine -----------------------------------------------------------------------

    async def execute(self, requests: Sequence[Request]) -> Sequence[Result | Exception]:
        """Run a batch over there."""
        found: Sequence[Result | Exception] = await self.ask("execute", list(requests), now())
        return found

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call any other method of the engine over there."""
        return await self.ask("call", method, arguments)

    async def likeness(self) -> Likeness:
        """What it has to share with others of its pool."""
        found: Likeness = await self.ask("likeness")
        return found

    async def _start(self) -> None:
        """For carriers: start the engine over there, and take over what travels."""
        for name, value in (await self.ask("start")).items():
            setattr(self.near, name, value)

    def lost(self, error: EngineUnavailable) -> None:
        """For carriers: the far end is gone."""
        if self.dead is None:
            self.dead = error
            if self.on_lost is not None:
                self.on_lost(error)

    # --- language models ------------------------------------------------------------------

    async def prefill(self, call: Call) -> SequenceHandle:
        """Compute a prefix over there."""
        await self._tell_forgotten()
        lease, key = RemoteLease(), next(self._keys)
        ended = weakref.finalize(lease, self._forgotten.append, key)  # also if no answer comes
        ended.atexit = False
        handle: SequenceHandle = await self.ask("prefill", _sent(call), now(), key)
        if not isinstance(handle.state, RemoteState):
            ended.detach()
            return handle
        lease.remote = handle.state
        return replace(handle, state=lease)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream an answer from over there."""
        await self._tell_forgotten()
        async with aclosing(self.stream(_sent(call), now())) as deltas:
            async for delta in deltas:
                yield delta

    async def capacity(self) -> int | None:
        """Tokens that its KV memory could take; None if it does not tell."""
        found: int | None = await self.call("capacity") if self._tells_memory else None
        return found

    async def _tell_forgotten(self) -> None:
        """Which handles nobody holds any more."""
        if self._forgotten:
            keys = [self._forgotten.popleft() for _ in range(len(self._forgotten))]
            await self.ask("release", keys)


def _sent(call: Call) -> Call:
    """As it can travel: a lease becomes the name of what it leases."""
    prefix = call.prefix
    if prefix is None or not isinstance(prefix.state, RemoteLease):
        return call
    return replace(call, prefix=replace(prefix, state=prefix.state.remote))
