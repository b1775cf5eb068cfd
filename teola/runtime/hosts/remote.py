"""RemoteEngine: the near end of an engine that runs elsewhere; to its host an engine like others.

How it behaves is here: calls, streams, sequence handles, what becomes of all of them when the far
end dies. How messages travel is in `process` (a child process) and `ray_actor` (a Ray actor).
"""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any, cast

from teola.engine import (
    Call,
    Delta,
    Engine,
    EngineResult,
    EngineSpec,
    Keys,
    MakesKeys,
    PrefixChange,
    Request,
    SequenceHandle,
    TellsMemory,
)
from teola.errors import EngineUnavailable
from teola.runtime.hosts.server import Recipe, RemoteState, now
from teola.runtime.likeness import Likeness


class Killed(EngineUnavailable):
    """The far end was ended by a signal, or with its node, and not by what its engine said."""


class RemoteLease:
    """What a sequence handle holds here. remote: names what the far end keeps.

    When it is garbage, `forget` is called, as a net for who does not `end` it.
    """

    __slots__ = ("__weakref__", "_finalizer", "remote")

    def __init__(self, remote: RemoteState, forget: Callable[[int], None]) -> None:
        self.remote = remote
        self._finalizer = weakref.finalize(self, forget, remote.key)
        self._finalizer.atexit = False

    def end(self) -> None:
        """Nobody holds it any more; may be repeated."""
        self._finalizer()


class RemoteEngine(ABC):
    """An engine in another process. Use from one event loop.

    near: an unstarted engine of the same kind, for what needs no running one. on_lost: called once
    with the reason when the far end dies by itself.
    """

    interruptible = False
    """Whether cancelling `execute` stops the work: the far end tells nobody."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe.travelling()
        self.near: Engine = recipe.make()
        self.on_lost: Callable[[EngineUnavailable], None] | None = None
        self.dead: EngineUnavailable | None = None
        self._forgotten: deque[int] = deque()
        self._keys = count()
        self._tells_memory = isinstance(self.near, TellsMemory)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spec: EngineSpec | None = None

    @property
    def spec(self) -> EngineSpec:
        """What the engine declares: over there, once it has been started."""
        return self._spec or self.near.spec

    def __getattr__(self, name: str) -> Any:
        """What needs no running engine, such as a tokenizer, is asked of the near one."""
        if name.startswith("_") or name == "near":
            raise AttributeError(name)
        return getattr(self.near, name)

    # --- what a carrier does --------------------------------------------------------------

    @abstractmethod
    async def start(self) -> None:
        """Start the far end and its engine. Raises EngineUnavailable: Killed if the far end was
        killed meanwhile."""

    @abstractmethod
    async def close(self) -> None:
        """Close the engine and end the far end."""

    @abstractmethod
    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the EngineServer. Raises what it raises, or EngineUnavailable."""

    @abstractmethod
    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of the EngineServer and wait for no answer; nothing if the far end is
        gone."""

    @abstractmethod
    def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any]:
        """What one of the EngineServer's `STREAMS` yields; closing it ends that one there."""

    @abstractmethod
    def kill(self) -> None:
        """End the far end at once."""

    # --- the engine -----------------------------------------------------------------------

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        """Run a batch over there."""
        found: Sequence[EngineResult | Exception] = await self.ask("execute", list(requests), now())
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
        self._spec, found = await self.ask("start")
        for name, value in found.items():
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
        self._tell_forgotten()
        key = next(self._keys)
        try:
            handle: SequenceHandle = await self.ask("prefill", _sent(call), now(), key)
        except BaseException:  # the far end may have come to its end all the same
            self._forgotten.append(key)
            self._tell_forgotten()
            raise
        if not isinstance(handle.state, RemoteState):
            return handle
        return replace(handle, state=RemoteLease(handle.state, self._forgotten.append))

    def release(self, handle: SequenceHandle) -> None:
        """Nobody will continue it: the far end is told."""
        if isinstance(handle.state, RemoteLease):
            handle.state.end()
            self._tell_forgotten()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream an answer from over there."""
        self._tell_forgotten()
        async with aclosing(self.stream("generate", _sent(call), now())) as deltas:
            async for delta in deltas:
                yield delta

    async def capacity(self) -> int | None:
        """Tokens that its KV memory could take; None if it does not tell."""
        found: int | None = await self.call("capacity") if self._tells_memory else None
        return found

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """The keys that the started engine makes over there. While it is gone: those of the near
        one, by which no cache will find anything. For worker threads, as in `MakesKeys`."""
        assert self._loop is not None, "start first"
        asking = self.ask("keys", _sent(call), now(), complete)
        try:
            keys_there: Keys = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        except EngineUnavailable:
            return cast("MakesKeys", self.near).keys(call, complete=complete)
        return keys_there

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        """What the engine's prefix cache keeps over there. Raises EngineUnavailable when that is
        gone."""
        async with aclosing(self.stream("prefix_changes")) as changes:
            async for change in changes:
                yield change

    def _tell_forgotten(self) -> None:
        """Which handles nobody holds any more."""
        if self._forgotten:
            keys = [self._forgotten.popleft() for _ in range(len(self._forgotten))]
            self.tell("release", keys)


def _sent(call: Call) -> Call:
    """The call as it can travel: a lease becomes the name of what it leases."""
    prefix = call.prefix
    if prefix is None or not isinstance(prefix.state, RemoteLease):
        return call
    return replace(call, prefix=replace(prefix, state=prefix.state.remote))
